//! Making, checking, trimming file systems, with this machine's own programs.

use super::Missing;
use super::file_system_kind::{CheckResult, FileSystemKind, NewFileSystem, Thoroughness};
use super::tools::{complaint, text};
use crate::error::{Context, Error, Result, refuse};
use crate::guest::OpenImage;
use blockyard_appliance::tools::ToolEnd;
use blockyard_block::printable;
use blockyard_protocol::appliance::{Mount, MountPoint, Operation, Trimmed, Volume};

/// What became of a file system that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    /// Nothing is wrong.
    Clean,
    /// Something was.
    Repaired,
    /// Something is.
    Damaged,
    /// A look has found something, but also a journal that it could not carry out.
    NotUnmounted,
    /// The repair was given up, though a look finds nothing.
    GivenUp,
    /// Some of its disks are not there: nothing was looked at.
    Incomplete(Missing),
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

    /// Refuses a volume that holds something already: names are easily swapped, and what is lost is lost.
    ///
    /// # Errors
    /// What it holds.
    pub fn refuse_contents(&self, volume: &Volume) -> Result<()> {
        if volume.r#type.is_empty() {
            return Ok(());
        }
        let label = match volume.label.as_str() {
            "" => String::new(),
            label => format!(" with the label '{}'", printable(label)),
        };
        let (image, device, kind) = (self.name(), printable(&volume.device), printable(&volume.r#type));
        refuse!("{image}: {device} holds {kind}{label}, which would be lost: add -f if that is what you want")
    }

    /// Gives a file system a label; an empty one removes it.
    ///
    /// # Errors
    /// When it has no such label, lacks a disk, or its tool fails.
    pub fn label_file_system(&mut self, volume: &Volume, label: &str) -> Result<()> {
        let device = printable(&volume.device);
        let Some(kind) = FileSystemKind::of(&volume.r#type) else {
            refuse!("{}: {device} has no file system that can be labelled", self.name());
        };
        kind.check_label(label)?;
        if let Some(missing) = self.missing_disks(volume)? {
            refuse!("{}: cannot label {device}: {missing}", self.name());
        }
        let (tool, call) = kind.label(&volume.device, label);
        let done = self.run_tool_well(tool, call);
        done.with_context(|| format!("{}: cannot label {device}", self.name())).map(drop)
    }

    /// Checks a file system, and repairs it as far as `how` allows; `hears` what its tool says when something is wrong.
    /// Whether it was repaired is not for the tool to say that repaired it: another look tells.
    ///
    /// # Errors
    /// When its tool fails.
    pub fn check_file_system(
        &mut self,
        kind: FileSystemKind,
        volume: &Volume,
        how: Thoroughness,
        hears: &mut dyn FnMut(&str),
    ) -> Result<CheckOutcome> {
        // Its tool goes on without them, and repairs what it then takes for damage.
        if let Some(missing) = self.missing_disks(volume)? {
            return Ok(CheckOutcome::Incomplete(missing));
        }
        let (mut verdict, mut end) = self.look_at_file_system(kind, volume, how)?;
        if verdict == CheckResult::JournalFirst {
            self.replay_journal(volume)?;
            (verdict, end) = self.look_at_file_system(kind, volume, how)?;
        }
        if verdict == CheckResult::Clean {
            return Ok(CheckOutcome::Clean);
        }
        let said = text(&[&end.output[..], &end.errors].concat());
        hears(said.trim_end());
        if how == Thoroughness::Look {
            return Ok(if leaves_a_journal(&said) { CheckOutcome::NotUnmounted } else { CheckOutcome::Damaged });
        }
        match (self.look_at_file_system(kind, volume, Thoroughness::Look)?.0, verdict) {
            (CheckResult::Clean, CheckResult::Unrepaired) => Ok(CheckOutcome::GivenUp),
            (CheckResult::Clean, _) => Ok(CheckOutcome::Repaired),
            _ => Ok(CheckOutcome::Damaged),
        }
    }

    /// Runs the tool once.
    fn look_at_file_system(
        &mut self,
        kind: FileSystemKind,
        volume: &Volume,
        how: Thoroughness,
    ) -> Result<(CheckResult, ToolEnd)> {
        let (tool, call) =
            kind.check(&volume.device, how).ok_or_else(|| Error::refused("there is nothing to check"))?;
        let end = self.run_tool(tool, call)?;
        match kind.verdict(end.status, how) {
            CheckResult::Failed => {
                refuse!("{}: cannot check {}: {}", self.name(), volume.device, complaint(tool, &end))
            }
            verdict => Ok((verdict, end)),
        }
    }

    /// Mounts it once: that is how a journal is carried out.
    fn replay_journal(&mut self, volume: &Volume) -> Result<()> {
        let point = MountPoint { device: volume.device.clone(), directory: b"/".to_vec(), ..MountPoint::default() };
        let mount = Mount { read_only: false, synchronous: false, disks: self.disks(), points: vec![point] };
        self.call(Operation::Mount(mount))?;
        self.call(Operation::Unmount).map(drop)
    }

    /// Discards the free blocks of what is mounted, or, if nothing is, of one file system after another.
    ///
    /// # Errors
    /// When the disks give nothing back, or there is no file system.
    pub fn trim(&mut self) -> Result<Vec<Trimmed>> {
        if !self.all_disks(|disk| disk.discard) {
            refuse!("{}: its disk gives nothing back", self.name());
        }
        self.trim_all()
    }

    /// Makes zeros of the free blocks, as [`OpenImage::trim`] discards them.
    ///
    /// # Errors
    /// When the disks cannot be zeroed without writing, or there is no file system.
    pub fn zero_free(&mut self) -> Result<Vec<Trimmed>> {
        if !self.all_disks(|disk| disk.discard) {
            refuse!("{}: its disk cannot be zeroed but by writing", self.name());
        }
        self.zeros_as_holes(true);
        let trimmed = self.trim_all();
        self.zeros_as_holes(false);
        trimmed
    }

    fn trim_all(&mut self) -> Result<Vec<Trimmed>> {
        if self.volumes()?.iter().any(|volume| !volume.directory.is_empty()) {
            return self.trim_mounted();
        }
        let mut trimmed = Vec::new();
        for (_, volume) in self.file_systems()? {
            let point = MountPoint { device: volume.device, directory: b"/".to_vec(), ..MountPoint::default() };
            self.set_points(vec![point]);
            self.mount()?;
            trimmed.append(&mut self.trim_mounted()?);
            self.unmount()?;
        }
        if trimmed.is_empty() {
            refuse!("{}: there is no file system that has free blocks", self.name());
        }
        Ok(trimmed)
    }

    fn trim_mounted(&mut self) -> Result<Vec<Trimmed>> {
        let name = self.name().to_owned();
        Ok(self.call(Operation::Trim).context(name)?.trimmed)
    }
}

/// Whether a tool that may change nothing says that it has found a journal (e2fsck, xfs_repair).
fn leaves_a_journal(said: &str) -> bool {
    said.contains("skipping journal recovery") || said.contains("valuable metadata changes in a log")
}
