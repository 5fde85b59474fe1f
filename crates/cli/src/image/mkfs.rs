//! `blockyard image mkfs`.

use super::file_commands::{Access, FileCommand};
use super::file_system_kind::{FileSystemKind, NewFileSystem};
use super::open_image::OpenImage;
use crate::UsageError;
use anyhow::{Context, Result, bail};
use blockyard_block::printable;
use blockyard_protocol::appliance::Volume;
use clap::{Args, ValueEnum};

/// Make a file system on a partition of an image, or on a disk without any.
///
/// What holds something that is known already, a file system, swap space, LUKS, a part of a volume group or of an array, is left alone without -f.
///
/// The kinds are ext2, ext3, ext4, xfs, btrfs, vfat and swap. This machine's own tools make them, in the appliance: mke2fs, mkfs.xfs, mkfs.btrfs,
/// mkfs.vfat and mkswap, whose other options may follow --.
#[derive(Args)]
pub struct Mkfs {
    /// The kind, and before it the partition, such as sda1, vda1, 1 or vg/root; the kind alone for a disk without partitions.
    #[arg(value_name = "TYPE", num_args = 1..=2, required = true)]
    words: Vec<String>,
    /// Whatever is there: it is lost.
    #[arg(short, long)]
    force: bool,
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
    fn synopsis() -> Option<&'static str> {
        Some("[PART] <TYPE> [-- <OPTIONS>...]")
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn mounts(&self) -> bool {
        false
    }

    fn check(&self) -> Result<()> {
        let (kind, _) = self.parsed()?;
        // Btrfs takes further devices there.
        if let Some(word) = self.options.first().filter(|word| !word.starts_with('-') && kind != FileSystemKind::Btrfs)
        {
            let problem = "behind -- are the tool's options; the partition stands before the kind, such as `sda1 ext4`";
            return Err(UsageError(format!("{word} is no option: {problem}")).into());
        }
        kind.check_label(&self.label)
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let (kind, part) = self.parsed()?;
        let volume = image.volume_in_layers(part)?;
        if !self.force {
            refuse_contents(image.name(), &volume)?;
        }
        let new = NewFileSystem { label: &self.label, options: &self.options, ..NewFileSystem::default() };
        image.make_file_system(kind, &volume.device, new)
    }
}

/// Names are easily swapped, and what is lost is lost.
fn refuse_contents(image: &str, volume: &Volume) -> Result<()> {
    if volume.r#type.is_empty() {
        return Ok(());
    }
    let label = match volume.label.as_str() {
        "" => String::new(),
        label => format!(" with the label '{}'", printable(label)),
    };
    let (device, kind) = (printable(&volume.device), printable(&volume.r#type));
    bail!("{image}: {device} holds {kind}{label}, which would be lost: add -f if that is what you want")
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
