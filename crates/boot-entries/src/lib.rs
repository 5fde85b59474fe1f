//! What an image's boot loader would boot: kernel, initrds and command line, by the configuration that lies in the
//! image.
//!
//! [`find`] looks for systemd-boot's entries and unified kernel images, for what GRUB would take of its grub.cfg, for
//! extlinux's configuration, and where none of them is for the newest kernel in /boot. Whoever calls it has the image's
//! file systems ([`FileSystems`]): the appliance's agent, or a test. It returns where kernel and initrds lie, and reads
//! neither.
//!
//! All that is read here was written by somebody else: files have a longest length, scripts a number of steps, and
//! nothing panics. What is wrong is told with the file and the line ([`Problem`]).
//!
//! Deliberately absent: what a firmware's own variables say (the entry that was chosen last, the order of loaders);
//! menus; loaders that start anything but Linux.
#![forbid(unsafe_code)]

mod boot_loader_specification;
mod extlinux;
mod files;
mod grub;
mod newest_kernel;
mod root_argument;
mod systemd_boot;
#[cfg(test)]
mod tree;
mod unified_kernel_image;
mod version;

pub use files::{FileSystems, Place, Volume};

use files::Image;
use std::fmt;

/// Longest command line that is taken: longer ones than Linux takes on any machine.
pub const COMMAND_LINE_BYTES_MAX: usize = 16 << 10;
/// Most initrds of an entry.
pub const INITRDS_MAX: usize = 16;
/// Longest note that is told.
const NOTE_LETTERS_MAX: usize = 1000;
/// Longest title that is told.
const TITLE_LETTERS_MAX: usize = 200;

/// Whose configuration an entry is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loader {
    /// systemd-boot: loader.conf, entries, and unified kernel images.
    SystemdBoot,
    /// Entries as systemd-boot has them, or unified kernel images, without a loader that is known.
    BootLoaderSpecification,
    /// GRUB 2: grub.cfg.
    Grub,
    /// extlinux or syslinux.
    Extlinux,
    /// None: the newest kernel was taken.
    NewestKernel,
}

/// What would be booted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whose entry it is.
    pub loader: Loader,
    /// The file that has the entry, as people call it.
    pub file: String,
    /// Where in it the entry begins; 0: the file is the entry.
    pub line: u32,
    /// What the entry is called in a menu.
    pub title: String,
    /// The kernel.
    pub kernel: Piece,
    /// What the kernel is given as its initrd: one behind the other, each from a multiple of 4 bytes on.
    pub initrds: Vec<Piece>,
    /// What the kernel is told.
    pub command_line: String,
    /// What is worth knowing of it: sentences.
    pub notes: Vec<String>,
}

/// A file of the image, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The file.
    pub place: Place,
    /// What people call it.
    pub name: String,
    /// Where in the file it begins.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// Why there is nothing to boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file in which something is wrong; empty: none.
    pub file: String,
    /// Where in it; 0: no line in particular.
    pub line: u32,
    /// What is wrong.
    pub sentence: String,
}

impl Problem {
    fn new(file: impl Into<String>, line: u32, sentence: impl Into<String>) -> Self {
        Self { file: file.into(), line, sentence: sentence.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.file.as_str(), self.line) {
            ("", _) => write!(formatter, "{}", self.sentence),
            (file, 0) => write!(formatter, "{file}: {}", self.sentence),
            (file, line) => write!(formatter, "{file}, line {line}: {}", self.sentence),
        }
    }
}

impl std::error::Error for Problem {}

/// Finds what the image's boot loader would boot.
///
/// # Errors
/// When there is nothing, or a loader's configuration is broken.
pub fn find(file_systems: &dyn FileSystems) -> Result<Entry, Problem> {
    let image = Image::new(file_systems);
    let looks = [
        systemd_boot::find,
        grub::find,
        boot_loader_specification::find_without_loader,
        extlinux::find,
        newest_kernel::find,
    ];
    for look in looks {
        if let Some(entry) = look(&image)? {
            return finished(&image, entry);
        }
    }
    let places = "neither entries of systemd-boot, GRUB or extlinux nor a /boot/vmlinuz-*";
    Err(Problem::new("", 0, format!("no kernel was found in the image: it has {places}")))
}

/// The entry within bounds, with what is worth knowing.
fn finished(image: &Image<'_>, mut entry: Entry) -> Result<Entry, Problem> {
    let refuse = |sentence: String| Err(Problem::new(entry.file.clone(), entry.line, sentence));
    if entry.command_line.len() > COMMAND_LINE_BYTES_MAX {
        return refuse(format!("the kernel's command line has more than {COMMAND_LINE_BYTES_MAX} bytes"));
    }
    if entry.initrds.len() > INITRDS_MAX {
        return refuse(format!("the entry has more than {INITRDS_MAX} initrds"));
    }
    let words: Vec<_> = entry.command_line.split(|letter: char| letter.is_control() || letter == ' ').collect();
    entry.command_line = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    entry.title = entry.title.chars().take(TITLE_LETTERS_MAX).collect();
    entry.notes.extend(root_argument::note(&entry.command_line, image.root()));
    entry.notes.iter_mut().for_each(|note| *note = note.chars().take(NOTE_LETTERS_MAX).collect());
    Ok(entry)
}

#[cfg(test)]
mod tests;
