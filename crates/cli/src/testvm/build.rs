//! `blockyard testvm build`.

use anyhow::{Context, Result};
use blockyard_block::{ReplacementFile, private_directory, shown};
use blockyard_command_line::terminal;
use blockyard_command_line::usage_error::UsageError;
use blockyard_testvm::{Guest, PROGRAMS, packages, unpacked, write_initramfs, write_iso};
use clap::Args;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Make the test VM's initial file system: busybox, dd, fio, and the libraries that they need.
///
/// They are this machine's, of the Debian packages busybox-static, coreutils and fio, or another root directory's.
/// Where one is missing here, all are fetched: by apt-get and dpkg-deb, as any user may, and nothing is installed.
/// There are no modules in it: `testvm run` appends those of the kernel that it boots. Booted by hand, it has a shell.
///
/// A CD (--iso) has GRUB 2, a kernel and its modules besides, and its menu and its shell are on the first serial port.
#[derive(Args)]
pub struct BuildArgs {
    /// File to write.
    #[arg(short, long, value_name = "FILE", required_unless_present = "iso")]
    output: Option<PathBuf>,
    /// CD to write, which starts by BIOS and by UEFI.
    #[arg(long, value_name = "FILE", requires = "kernel")]
    iso: Option<PathBuf>,
    /// The CD's kernel.
    #[arg(long, value_name = "FILE", requires = "iso")]
    kernel: Option<PathBuf>,
    /// Directory below which its modules are [default: /lib/modules/VERSION beside its /boot].
    #[arg(long, value_name = "DIR", requires = "iso")]
    modules: Option<PathBuf>,
    /// Words for its command line.
    #[arg(long, value_name = "WORDS", requires = "iso", allow_hyphen_values = true)]
    append: Option<String>,
    /// Root directory with the programs, such as another distribution's.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Fetch Debian's packages of them, whatever is installed.
    #[arg(long, conflicts_with = "root")]
    packages: bool,
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
        if let Some(sign) = self.append.as_ref().and_then(|words| words.chars().find(|sign| !is_plain(*sign))) {
            return Err(
                UsageError(format!("--append: {sign:?} means something to GRUB: plain words are possible")).into()
            );
        }
        let programs: Vec<_> = self.program.iter().map(String::as_str).collect();
        let new = |path: &Option<PathBuf>| path.as_deref().map(ReplacementFile::create).transpose();
        let (new_initramfs, new_iso) = (new(&self.output)?, new(&self.iso)?);
        let initramfs = match &new_initramfs {
            Some(new) => new.file().try_clone(),
            None => private_directory(|_| true).and_then(|directory| tempfile::tempfile_in(directory.path())),
        }
        .context("making a file")?;
        match &self.root {
            Some(root) => write_initramfs(&initramfs, root, &programs)?,
            None => write_own(&initramfs, &programs, self.packages)?,
        }
        if let (Some(iso), Some(kernel)) = (&new_iso, &self.kernel) {
            let guest = Guest::at(kernel);
            let guest = Guest { modules: self.modules.clone().or(guest.modules), ..guest };
            for (firmware, package) in
                write_iso(iso.file(), &initramfs, &guest, self.append.as_deref().unwrap_or_default())?
            {
                let path = shown(iso.path());
                terminal::say(&format!("{path} does not start by {firmware}: {package} is not installed"));
            }
        }
        [new_initramfs, new_iso].into_iter().flatten().try_for_each(|new| new.commit(false))?;
        Ok(())
    }
}

/// Whether GRUB's shell takes a letter for nothing but itself.
fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || " =,.:_/+-@%".contains(letter)
}

/// Writes the initial file system of this machine's programs, or of packages where some are missing or these are
/// wanted.
///
/// # Errors
/// When packages cannot be had, or the file not be written.
pub fn write_own(to: &File, programs: &[&str], wants_packages: bool) -> Result<()> {
    let (packages, lacking) = packages(programs);
    if lacking.is_empty() && !wants_packages {
        return write_initramfs(to, Path::new("/"), programs);
    }
    let why = match &lacking[..] {
        [] => String::new(),
        lacking => {
            format!(", as not all are installed: `apt-get install {}`, as root, does that once", lacking.join(" "))
        }
    };
    terminal::say(&format!("fetching the packages {}{why}", packages.join(", ")));
    write_initramfs(to, unpacked(&packages)?.path(), programs)
}
