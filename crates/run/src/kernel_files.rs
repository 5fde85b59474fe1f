//! The kernel and what it is given, as files that are opened once.

use crate::configuration::Configuration;
use crate::{Audience, own_kernel};
use anyhow::Result;
use blockyard_block::{open_named, shown};
use blockyard_image::boot_files::BootFiles;
use blockyard_session::open::OpenOptions;
use blockyard_vmm::pc::kernel::Kernel;
use std::fs::File;

/// What a machine begins with, each time it begins.
pub(crate) struct KernelFiles {
    kernel: File,
    initrd: Option<File>,
    command_line: String,
    /// What they are called.
    names: String,
}

/// Where the machine has its console.
const CONSOLE: &str = "console=ttyS0";

impl KernelFiles {
    /// Opens them; where none is named, takes those that the first disk's boot loader would.
    ///
    /// # Errors
    /// When one cannot be opened, or there is no kernel.
    pub(crate) fn open(
        configuration: &Configuration,
        opening: &OpenOptions<'_>,
        audience: &dyn Audience,
    ) -> Result<Self> {
        let append = configuration.append.as_deref().unwrap_or_default();
        let Some(kernel) = &configuration.kernel else {
            let BootFiles { entry, kernel, initrd } = own_kernel::take(configuration, opening, audience)?;
            let watch = audience.watch();
            entry.notes.iter().for_each(|note| watch.note(note));
            let command_line = own_command_line(&entry.command_line, append);
            return Ok(Self { kernel, initrd, command_line, names: format!("{}, by {entry}", entry.kernel) });
        };
        let initrd = configuration.initrd.as_deref();
        Ok(Self {
            kernel: open_named(kernel, "the kernel")?,
            initrd: initrd.map(|initrd| open_named(initrd, "the initrd")).transpose()?,
            command_line: command_line(append),
            names: match initrd {
                Some(initrd) => format!("{} with the initrd {}", shown(kernel), shown(initrd)),
                None => shown(kernel).to_string(),
            },
        })
    }

    /// What they are called, for messages.
    pub(crate) fn names(&self) -> &str {
        &self.names
    }

    /// What is read when a machine starts.
    pub(crate) fn kernel(&self) -> Kernel<'_> {
        let initrd = self.initrd.as_ref();
        Kernel { image: &self.kernel, initrd, command_line: &self.command_line }
    }
}

/// The command line with a console, unless it says where the guest is to have one.
fn command_line(said: &str) -> String {
    match said.split_ascii_whitespace().any(|word| word.starts_with("console=")) {
        true => said.to_owned(),
        false => [CONSOLE, said].join(" ").trim_end().to_owned(),
    }
}

/// The command line that a boot loader has, and what is added to it. It has the console of another machine: the last
/// one that it names is the one that programs get.
fn own_command_line(own: &str, append: &str) -> String {
    let names = |words: &str, console: &str| words.split_ascii_whitespace().any(|word| word.starts_with(console));
    let console = if names(append, "console=") || names(own, CONSOLE) { "" } else { CONSOLE };
    [own, console, append].into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_has_a_console_unless_it_is_said_where() {
        assert_eq!(command_line(""), "console=ttyS0");
        assert_eq!(command_line("root=/dev/vda1 quiet"), "console=ttyS0 root=/dev/vda1 quiet");
        assert_eq!(command_line("quiet console=hvc0"), "quiet console=hvc0");
        assert_eq!(own_command_line("ro console=tty0", "single"), "ro console=tty0 console=ttyS0 single");
        assert_eq!(own_command_line("ro console=ttyS0,115200n8", ""), "ro console=ttyS0,115200n8");
        assert_eq!(own_command_line("", "console=hvc0"), "console=hvc0");
    }
}
