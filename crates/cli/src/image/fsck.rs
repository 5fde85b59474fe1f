//! `blockyard image fsck`.

use super::file_commands::{Access, FileCommand};
use super::file_system_kind::{FileSystemKind, Thoroughness, Verdict};
use super::open_image::OpenImage;
use super::tool_run::{complaint, text};
use super::volumes::Missing;
use crate::print;
use anyhow::{Result, anyhow, bail};
use blockyard_appliance::tools::ToolEnd;
use blockyard_block::printable;
use blockyard_protocol::appliance::{Mount, MountPoint, Operation, Volume};
use clap::Args;

/// Check the file systems of an image, and repair them.
///
/// Without options it repairs what is repaired safely, as Linux does when it boots; of Btrfs it only looks. This machine's own tools do it, in the
/// appliance: e2fsck, xfs_repair, btrfs check and fsck.vfat, whose words are shown when something is wrong.
///
/// Exit status: 0 when all is well, or was repaired; 1 when something is damaged.
#[derive(Args)]
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

/// What became of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Clean,
    Repaired,
    Damaged,
    /// A look has found something, but also a journal that it could not carry out.
    NotUnmounted,
    /// The repair was given up, though a look finds nothing.
    GivenUp,
    /// Some of its disks are not there: nothing was looked at.
    Incomplete(Missing),
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
                let volume = image.volume_in_layers(Some(part))?;
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
            let outcome = self.check_one(image, kind, &volume)?;
            let (device, word) = (printable(&volume.device), word(outcome));
            print(&format!("{device} ({}): {word}", kind.name()))?;
            match outcome {
                Outcome::Clean | Outcome::Repaired => {}
                Outcome::Damaged | Outcome::NotUnmounted | Outcome::GivenUp => damaged.push(device),
                Outcome::Incomplete(_) => incomplete.push(device),
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

fn word(outcome: Outcome) -> String {
    let word = match outcome {
        Outcome::Clean => "clean",
        Outcome::Repaired => "repaired",
        Outcome::Damaged => "damaged",
        Outcome::NotUnmounted => {
            "not unmounted, so that this may be nothing: without -n its journal is carried out first"
        }
        Outcome::GivenUp => "damaged: it could not be repaired, though another look finds nothing",
        Outcome::Incomplete(missing) => return format!("not checked: {missing}"),
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

    /// Checks one. Whether it was repaired is not for the tool to say that repaired it: another look tells.
    fn check_one(&self, image: &mut OpenImage, kind: FileSystemKind, volume: &Volume) -> Result<Outcome> {
        // Its tool goes on without them, and repairs what it then takes for damage.
        if let Some(missing) = image.missing_disks(volume)? {
            return Ok(Outcome::Incomplete(missing));
        }
        let (mut verdict, mut end) = look(image, kind, volume, self.thoroughness())?;
        if verdict == Verdict::JournalFirst {
            replay_journal(image, volume)?;
            (verdict, end) = look(image, kind, volume, self.thoroughness())?;
        }
        if verdict == Verdict::Clean {
            return Ok(Outcome::Clean);
        }
        let said = text(&[&end.output[..], &end.errors].concat());
        print(said.trim_end())?;
        if self.dry_run {
            return Ok(if leaves_a_journal(&said) { Outcome::NotUnmounted } else { Outcome::Damaged });
        }
        match (look(image, kind, volume, Thoroughness::Look)?.0, verdict) {
            (Verdict::Clean, Verdict::Unrepaired) => Ok(Outcome::GivenUp),
            (Verdict::Clean, _) => Ok(Outcome::Repaired),
            _ => Ok(Outcome::Damaged),
        }
    }
}

/// Runs the tool once.
fn look(image: &mut OpenImage, kind: FileSystemKind, volume: &Volume, how: Thoroughness) -> Result<(Verdict, ToolEnd)> {
    let (tool, call) = kind.check(&volume.device, how).ok_or_else(|| anyhow!("there is nothing to check"))?;
    let end = image.run_tool(tool, call)?;
    match kind.verdict(end.status, how) {
        Verdict::Failed => bail!("{}: cannot check {}: {}", image.name(), volume.device, complaint(tool, &end)),
        verdict => Ok((verdict, end)),
    }
}

/// Whether a tool that may change nothing says that it has found a journal (e2fsck, xfs_repair).
fn leaves_a_journal(said: &str) -> bool {
    said.contains("skipping journal recovery") || said.contains("valuable metadata changes in a log")
}

/// Mounts it once: that is how a journal is carried out.
fn replay_journal(image: &mut OpenImage, volume: &Volume) -> Result<()> {
    let point = MountPoint { device: volume.device.clone(), directory: b"/".to_vec(), ..MountPoint::default() };
    let mount = Mount { read_only: false, synchronous: false, disks: image.disks(), points: vec![point] };
    image.call(Operation::Mount(mount))?;
    image.call(Operation::Unmount).map(drop)
}
