//! `blockyard image mkfs`.

use super::file_commands::{Access, FileCommand};
use super::file_system_kind::{FileSystemKind, NewFileSystem};
use super::open_image::OpenImage;
use crate::UsageError;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

/// Make a file system on a partition of an image, or on a disk without any: what was there is lost.
///
/// The kinds are ext2, ext3, ext4, xfs, btrfs, vfat and swap. This machine's own tools make them, in the appliance: mke2fs, mkfs.xfs, mkfs.btrfs,
/// mkfs.vfat and mkswap, whose other options may follow --.
#[derive(Args)]
pub struct Mkfs {
    /// The partition, such as sda1, vda1 or 1, and the kind; the kind alone for a disk without partitions.
    #[arg(value_name = "PART] [TYPE", num_args = 1..=2, required = true)]
    words: Vec<String>,
    /// Its label.
    #[arg(short = 'L', long, default_value = "")]
    label: String,
    /// Options of the tool.
    #[arg(last = true, value_name = "OPTIONS")]
    options: Vec<String>,
}

impl Mkfs {
    /// Kind and partition, whichever comes first.
    fn parsed(&self) -> Result<(FileSystemKind, Option<&str>)> {
        let kind = |word: &str| FileSystemKind::from_str(word, true).ok();
        let (kind, part) = match &self.words[..] {
            [word] => (kind(word), None),
            [first, second] => kind(second).map_or((kind(first), Some(&**second)), |kind| (Some(kind), Some(first))),
            _ => (None, None),
        };
        let words = self.words.join(" ");
        let kind = kind.ok_or_else(|| {
            let kinds: Vec<_> = FileSystemKind::value_variants().iter().map(|kind| kind.name()).collect();
            UsageError(format!("{words}: which kind of file system? {}", kinds.join(", ")))
        })?;
        Ok((kind, part))
    }
}

impl FileCommand for Mkfs {
    fn access(&self) -> Access {
        Access::Write
    }

    fn mounts(&self) -> bool {
        false
    }

    fn check(&self) -> Result<()> {
        self.parsed()?.0.check_label(&self.label)
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let (kind, part) = self.parsed()?;
        let volume = image.volume(part)?;
        let new = NewFileSystem { label: &self.label, options: &self.options, ..NewFileSystem::default() };
        image.make_file_system(kind, &volume.device, new)
    }
}

impl OpenImage {
    /// Makes a file system.
    ///
    /// # Errors
    /// What its tool says.
    pub fn make_file_system(&mut self, kind: FileSystemKind, device: &str, new: NewFileSystem<'_>) -> Result<()> {
        let cheap_zeros = self.all_disks(|disk| disk.write_zeroes);
        let (tool, call) = kind.make(device, &NewFileSystem { cheap_zeros, ..new });
        let done = self.run_tool_well(tool, call).map(drop);
        done.with_context(|| format!("{}: cannot make {} on {device}", self.name(), kind.name()))
    }
}
