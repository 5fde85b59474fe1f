//! `blockyard image fsck`.

use anyhow::{Result, bail};
use blockyard_block::printable;
use blockyard_command_line::image::file_command::FileCommand;
use blockyard_command_line::terminal::print;
use blockyard_image::Access;
use blockyard_image::guest::OpenImage;
use blockyard_image::volumes::CheckOutcome;
use blockyard_image::volumes::file_system_kind::{FileSystemKind, Thoroughness};
use clap::Args;

/// Check the file systems of an image, and repair them.
#[derive(Args)]
#[command(long_about = long_about())]
pub struct Fsck {
    /// The partition, such as sda1, vda1 or 1 [default: all].
    part: Option<String>,
    /// Change nothing.
    #[arg(short = 'n', long, conflicts_with = "yes")]
    dry_run: bool,
    /// Repair whatever can be repaired: files may be lost.
    #[arg(short, long)]
    yes: bool,
}

/// What `--help` says.
fn long_about() -> String {
    format!(
        "Check the file systems of an image, and repair them.\n\n\
         Without options it repairs what is repaired safely, as Linux does when it boots; of Btrfs it only looks. This \
         machine's own tools do it, in the appliance: {}, whose words are shown when something is wrong.\n\n\
         Exit status: 0 when all is well, or was repaired; 1 when something is damaged.",
        FileSystemKind::checkers(),
    )
}

impl FileCommand for Fsck {
    fn access(&self) -> Access {
        if self.dry_run { Access::Read } else { Access::Write }
    }

    fn mounts(&self) -> bool {
        false
    }

    fn unmounts(&self) -> bool {
        true
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let checked = match &self.part {
            Some(part) => {
                let volume = image.volume_in_stacks(Some(part))?;
                let kind = FileSystemKind::of(&volume.r#type).filter(|kind| kind.is_mountable());
                kind.map(|kind| (kind, volume)).into_iter().collect()
            }
            None => image.file_systems()?,
        };
        if checked.is_empty() {
            bail!("{}: there is no file system that can be checked", image.name());
        }
        let (mut damaged, mut incomplete) = (Vec::new(), Vec::new());
        for (kind, volume) in checked {
            let mut printed = Ok(());
            let outcome =
                image.check_file_system(kind, &volume, self.thoroughness(), &mut |said| printed = print(said))?;
            printed?;
            let (device, word) = (printable(&volume.device), word(outcome));
            print(&format!("{device} ({}): {word}", kind.name()))?;
            match outcome {
                CheckOutcome::Clean | CheckOutcome::Repaired => {}
                CheckOutcome::Damaged | CheckOutcome::NotUnmounted | CheckOutcome::GivenUp => damaged.push(device),
                CheckOutcome::Incomplete(_) => incomplete.push(device),
            }
        }
        if damaged.is_empty() && incomplete.is_empty() {
            return Ok(());
        }
        if damaged.is_empty() {
            bail!("{}: not checked: {}", image.name(), incomplete.join(", "));
        }
        let advice = if self.yes { "" } else { ": `blockyard image fsck -y` repairs what can be repaired" };
        bail!("{}: damaged: {}{advice}", image.name(), damaged.join(", "))
    }
}

fn word(outcome: CheckOutcome) -> String {
    let word = match outcome {
        CheckOutcome::Clean => "clean",
        CheckOutcome::Repaired => "repaired",
        CheckOutcome::Damaged => "damaged",
        CheckOutcome::NotUnmounted => {
            "not unmounted, so that this may be nothing: without -n its journal is carried out first"
        }
        CheckOutcome::GivenUp => "damaged: it could not be repaired, though another look finds nothing",
        CheckOutcome::Incomplete(missing) => return format!("not checked: {missing}"),
    };
    word.to_owned()
}

impl Fsck {
    fn thoroughness(&self) -> Thoroughness {
        match (self.dry_run, self.yes) {
            (true, _) => Thoroughness::Look,
            (false, false) => Thoroughness::Safe,
            (false, true) => Thoroughness::All,
        }
    }
}
