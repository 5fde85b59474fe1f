//! `blockyard testvm build`.

use anyhow::{Context, Result};
use blockyard_testvm::{PROGRAMS, write_initramfs};
use clap::Args;
use std::path::PathBuf;

/// Make the test VM's initial file system: busybox, dd, fio, and the libraries that they need.
///
/// They are this machine's, of the Debian packages busybox-static, coreutils and fio, or another root directory's.
/// There are no modules in it: `testvm run` appends those of the kernel that it boots. Booted by hand, it has a shell.
#[derive(Args)]
pub struct BuildArgs {
    /// File to write.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Root directory with the programs: of another distribution, or of packages that were unpacked.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Programs to take besides busybox.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_values_t = PROGRAMS.map(|(name, _)| name.to_owned()))]
    program: Vec<String>,
}

impl BuildArgs {
    /// Runs the command.
    ///
    /// # Errors
    /// When a program is missing, or the file cannot be written.
    pub fn build(&self) -> Result<()> {
        let root = self.root.canonicalize().with_context(|| format!("cannot read the root {}", self.root.display()))?;
        let programs: Vec<_> = self.program.iter().map(String::as_str).collect();
        write_initramfs(&self.output, &root, &programs)
    }
}
