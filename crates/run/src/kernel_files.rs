//! The kernel and what it is given, as files that are opened once.

use crate::configuration::Configuration;
use anyhow::{Context, Result, bail};
use blockyard_block::{OpenedFile, shown};
use blockyard_vmm::pc::kernel::Kernel;
use std::path::Path;

/// What a machine begins with, each time it begins.
pub(crate) struct KernelFiles {
    kernel: OpenedFile,
    initrd: Option<OpenedFile>,
    command_line: String,
}

/// Where the machine has its console.
const CONSOLE: &str = "console=ttyS0";

impl KernelFiles {
    /// Opens them.
    ///
    /// # Errors
    /// When one cannot be opened, or no kernel is named.
    pub(crate) fn open(configuration: &Configuration) -> Result<Self> {
        let Some(kernel) = &configuration.kernel else {
            bail!("there is no kernel: name one with --kernel");
        };
        Ok(Self {
            kernel: open(kernel, "the kernel")?,
            initrd: configuration.initrd.as_deref().map(|initrd| open(initrd, "the initrd")).transpose()?,
            command_line: command_line(configuration.append.as_deref().unwrap_or_default()),
        })
    }

    /// What is read when a machine starts.
    pub(crate) fn kernel(&self) -> Kernel<'_> {
        let initrd = self.initrd.as_ref().map(OpenedFile::file);
        Kernel { image: self.kernel.file(), initrd, command_line: &self.command_line }
    }
}

/// The command line with a console, unless it says where the guest is to have one.
fn command_line(said: &str) -> String {
    match said.split_ascii_whitespace().any(|word| word.starts_with("console=")) {
        true => said.to_owned(),
        false => [CONSOLE, said].join(" ").trim_end().to_owned(),
    }
}

fn open(path: &Path, what: &str) -> Result<OpenedFile> {
    OpenedFile::open(path, true).with_context(|| format!("cannot read {what} {}", shown(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_has_a_console_unless_it_is_said_where() {
        assert_eq!(command_line(""), "console=ttyS0");
        assert_eq!(command_line("root=/dev/vda1 quiet"), "console=ttyS0 root=/dev/vda1 quiet");
        assert_eq!(command_line("quiet console=hvc0"), "quiet console=hvc0");
    }
}
