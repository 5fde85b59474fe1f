//! The kernel and what it is given, as files that are opened once.

use crate::configuration::Configuration;
use anyhow::{Context, Result, bail};
use blockyard_block::{OpenedFile, shown};
use blockyard_vmm::pc::linux::Linux;
use std::io::Read;
use std::path::Path;

/// What a machine begins with, each time it begins.
pub(crate) struct KernelFiles {
    kernel: Vec<u8>,
    initrd: Vec<u8>,
    command_line: String,
}

/// Where the machine has its console.
const CONSOLE: &str = "console=ttyS0";

impl KernelFiles {
    /// Opens and reads them.
    ///
    /// # Errors
    /// When one cannot be read, or no kernel is named.
    pub(crate) fn open(configuration: &Configuration) -> Result<Self> {
        let Some(kernel) = &configuration.kernel else {
            bail!("there is no kernel: name one with --kernel");
        };
        let memory_bytes = configuration.memory;
        Ok(Self {
            kernel: read(kernel, "the kernel", memory_bytes)?,
            initrd: match &configuration.initrd {
                Some(initrd) => read(initrd, "the initrd", memory_bytes)?,
                None => Vec::new(),
            },
            command_line: command_line(configuration.append.as_deref().unwrap_or_default()),
        })
    }

    pub(crate) fn linux(&self) -> Linux<'_> {
        Linux { kernel: &self.kernel, initrd: &self.initrd, command_line: &self.command_line }
    }
}

/// The command line with a console, unless it says where the guest is to have one.
fn command_line(said: &str) -> String {
    match said.split_ascii_whitespace().any(|word| word.starts_with("console=")) {
        true => said.to_owned(),
        false => [CONSOLE, said].join(" ").trim_end().to_owned(),
    }
}

/// Reads a file that has to fit the memory.
fn read(path: &Path, what: &str, memory_bytes: u64) -> Result<Vec<u8>> {
    let context = || format!("cannot read {what} {}", shown(path));
    let opened = OpenedFile::open(path, true).with_context(context)?;
    let mut content = Vec::new();
    opened.file().take(memory_bytes + 1).read_to_end(&mut content).with_context(context)?;
    if content.len() as u64 > memory_bytes {
        bail!("{what} {} is larger than the machine's memory", shown(path));
    }
    Ok(content)
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
