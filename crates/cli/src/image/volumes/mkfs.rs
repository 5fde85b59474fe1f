//! `blockyard image mkfs`.

use anyhow::Result;
use blockyard_command_line::image::file_command::FileCommand;
use blockyard_command_line::usage_error::UsageError;
use blockyard_image::Access;
use blockyard_image::guest::OpenImage;
use blockyard_image::volumes::file_system_kind::{FileSystemKind, NewFileSystem};
use clap::Args;

/// Make a file system on a partition of an image, or on a disk without any.
#[derive(Args)]
#[command(long_about = long_about())]
pub struct Mkfs {
    /// The kind, and before it the partition, such as sda1, vda1, 1 or vg/root; the kind alone for a disk without
    /// partitions.
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

/// What `--help` says.
fn long_about() -> String {
    format!(
        "Make a file system on a partition of an image, or on a disk without any.\n\n\
         What holds something that is known already, a file system, swap space, LUKS, a part of a volume group or of \
         an array, is left alone without -f.\n\n\
         The kinds are {}. This machine's own tools make them, in the appliance: {}, whose other options may follow --.",
        FileSystemKind::list("and"),
        FileSystemKind::makers(),
    )
}

impl Mkfs {
    /// Kind and partition, whichever comes first.
    fn parsed(&self) -> Result<(FileSystemKind, Option<&str>)> {
        let kind = FileSystemKind::of_word;
        let (kind, part) = match &self.words[..] {
            [word] => (kind(word), None),
            [first, second] => kind(second).map_or((kind(first), Some(&**second)), |kind| (Some(kind), Some(first))),
            _ => (None, None),
        };
        let words = self.words.join(" ");
        let kind = kind.ok_or_else(|| {
            let kinds: Vec<_> = FileSystemKind::ALL.iter().map(|kind| kind.name()).collect();
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
        Ok(kind.check_label(&self.label)?)
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let (kind, part) = self.parsed()?;
        let volume = image.volume_in_stacks(part)?;
        if !self.force {
            image.refuse_contents(&volume)?;
        }
        let new = NewFileSystem { label: &self.label, options: &self.options, ..NewFileSystem::default() };
        Ok(image.make_file_system(kind, &volume.device, new)?)
    }
}
