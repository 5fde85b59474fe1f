//! The kinds of file systems that can be made, checked and labelled, and with which tool.

use crate::error::{Error, Result};
use blockyard_appliance::tools::{self, Tool, ToolCall};

/// A kind by its name, as mount(8) has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystemKind {
    /// ext2.
    Ext2,
    /// ext3.
    Ext3,
    /// ext4.
    Ext4,
    /// xfs.
    Xfs,
    /// btrfs.
    Btrfs,
    /// FAT, with as many bits as suit its size.
    Vfat,
    /// Swap space.
    Swap,
}

/// What a new file system is like.
#[derive(Clone, Debug, Default)]
pub struct NewFileSystem<'a> {
    /// Its label; empty: none.
    pub label: &'a str,
    /// More options of its tool.
    pub options: &'a [String],
    /// The volume is zeros already.
    pub is_zeros: bool,
    /// The disk zeroes ranges without anybody writing zeros.
    pub cheap_zeros: bool,
}

/// How far a check may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thoroughness {
    /// It changes nothing.
    Look,
    /// It repairs what is safely repaired.
    Safe,
    /// It repairs whatever it can, and may lose files.
    All,
}

/// What a check's exit status says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// Nothing is wrong.
    Clean,
    /// Something was, and may be still.
    Damaged,
    /// Something is, and a repair was given up or left it.
    Unrepaired,
    /// There are changes in its journal, which mounting it carries out.
    JournalFirst,
    /// The tool has failed.
    Failed,
}

impl FileSystemKind {
    /// All of them.
    pub const ALL: [Self; 7] = [Self::Ext2, Self::Ext3, Self::Ext4, Self::Xfs, Self::Btrfs, Self::Vfat, Self::Swap];

    /// The kind that the appliance calls `name`.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The kind that somebody calls `word`, in letters of either case.
    pub fn of_word(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "fat" | "msdos" => Some(Self::Vfat),
            "linux-swap" => Some(Self::Swap),
            word => Self::of(word),
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext2 => "ext2",
            Self::Ext3 => "ext3",
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Vfat => "vfat",
            Self::Swap => "swap",
        }
    }

    /// The names of all, as a sentence has them, with `last`, an "and" or an "or", before the last.
    pub fn list(last: &str) -> String {
        in_words(&Self::ALL.map(Self::name), last)
    }

    /// The tools that make them, as a sentence has them.
    pub fn makers() -> String {
        let mut programs = Self::ALL.map(|kind| kind.make("", &NewFileSystem::default()).0.program).to_vec();
        programs.dedup();
        in_words(&programs, "and")
    }

    /// The tools that check them, as a sentence has them: with the subcommand, where a tool does more.
    pub fn checkers() -> String {
        let command = |(tool, arguments): (&Tool, &[&str])| match arguments {
            [subcommand, ..] if !subcommand.starts_with('-') => format!("{} {subcommand}", tool.program),
            _ => tool.program.to_owned(),
        };
        let checkers = Self::ALL.iter().filter_map(|kind| kind.checker(Thoroughness::Look));
        let mut commands: Vec<_> = checkers.map(command).collect();
        commands.dedup();
        in_words(&commands.iter().map(String::as_str).collect::<Vec<_>>(), "and")
    }

    /// Whether it has files.
    pub fn is_mountable(self) -> bool {
        self != Self::Swap
    }

    /// Refuses a label that is too long for it: some tools cut them.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn check_label(self, label: &str) -> Result<()> {
        let most = match self {
            Self::Ext2 | Self::Ext3 | Self::Ext4 => 16,
            Self::Xfs => 12,
            Self::Btrfs => 255,
            Self::Vfat => 11,
            // The last byte is a zero.
            Self::Swap => 15,
        };
        if label.len() > most {
            let name = self.name();
            return Err(Error::usage(format!("the label '{label}' is too long: {name} has room for {most} bytes")));
        }
        Ok(())
    }

    /// The tool that makes it on `device`.
    pub fn make(self, device: &str, new: &NewFileSystem<'_>) -> (&'static Tool, ToolCall) {
        let call = ToolCall::new().changes_devices();
        let (tool, call, label) = match self {
            Self::Ext2 | Self::Ext3 | Self::Ext4 => {
                let call = call.arguments(["-q", "-F", "-t", self.name()]);
                // Nothing is discarded: a preallocated image stays so. Where it costs a few requests, tables of inodes
                // are zeroed here and not by whoever mounts it first. A journal is zeroed block by block, if not by
                // extents.
                let tables = if new.is_zeros || new.cheap_zeros { "lazy_itable_init=0" } else { "lazy_itable_init=1" };
                let journal = if new.is_zeros { ",lazy_journal_init=1" } else { "" };
                let call = call.argument("-E").argument(format!("nodiscard,{tables}{journal}"));
                (&tools::MKE2FS, call, "-L")
            }
            Self::Xfs => (&tools::MKFS_XFS, call.arguments(["-q", "-f", "-K"]), "-L"),
            Self::Btrfs => (&tools::MKFS_BTRFS, call.arguments(["-q", "-f", "-K"]), "-L"),
            // Without a partition table around it, which the kernel would find on a disk without partitions.
            Self::Vfat => (&tools::MKFS_VFAT, call.argument("--mbr=no"), "-n"),
            Self::Swap => (&tools::MKSWAP, call.argument("-f"), "-L"),
        };
        let call = if new.label.is_empty() { call } else { call.arguments([label, new.label]) };
        (tool, call.arguments(new.options.iter().map(String::as_str)).device(device))
    }

    /// The tool that checks it; `None` when there is nothing to check.
    pub fn check(self, device: &str, how: Thoroughness) -> Option<(&'static Tool, ToolCall)> {
        let (tool, arguments) = self.checker(how)?;
        Some((tool, ToolCall::new().changes_devices().arguments(arguments.iter().copied()).device(device)))
    }

    /// That tool, and what comes before the device in its arguments.
    fn checker(self, how: Thoroughness) -> Option<(&'static Tool, &'static [&'static str])> {
        let look = how == Thoroughness::Look;
        Some(match (self, how) {
            (Self::Ext2 | Self::Ext3 | Self::Ext4, Thoroughness::Look) => (&tools::E2FSCK, &["-f", "-n"]),
            (Self::Ext2 | Self::Ext3 | Self::Ext4, Thoroughness::Safe) => (&tools::E2FSCK, &["-f", "-p"]),
            (Self::Ext2 | Self::Ext3 | Self::Ext4, Thoroughness::All) => (&tools::E2FSCK, &["-f", "-y"]),
            (Self::Xfs, _) => (&tools::XFS_REPAIR, if look { &["-n"] } else { &["-e"] }),
            // Its repair is for those who know what they do.
            (Self::Btrfs, Thoroughness::Look | Thoroughness::Safe) => (&tools::BTRFS, &["check", "--readonly"]),
            (Self::Btrfs, Thoroughness::All) => (&tools::BTRFS, &["check", "--repair", "--force"]),
            (Self::Vfat, Thoroughness::Look) => (&tools::FSCK_VFAT, &["-n"]),
            (Self::Vfat, Thoroughness::Safe) => (&tools::FSCK_VFAT, &["-a"]),
            (Self::Vfat, Thoroughness::All) => (&tools::FSCK_VFAT, &["-y"]),
            (Self::Swap, _) => return None,
        })
    }

    /// What the exit status of its check means: e2fsck(8), xfs_repair(8), btrfs-check(8), fsck.fat(8).
    pub fn verdict(self, status: Option<u32>, how: Thoroughness) -> CheckResult {
        let repairs = match self {
            Self::Btrfs => how == Thoroughness::All,
            _ => how != Thoroughness::Look,
        };
        match (self, status) {
            (_, Some(0)) => CheckResult::Clean,
            // Bits: 1 and 2 errors that were corrected, 4 those that were not; the others are its own.
            (Self::Ext2 | Self::Ext3 | Self::Ext4, Some(4..=7)) if repairs => CheckResult::Unrepaired,
            (Self::Ext2 | Self::Ext3 | Self::Ext4, Some(1..=7)) => CheckResult::Damaged,
            (Self::Xfs, Some(2)) => CheckResult::JournalFirst,
            // A repair with -e ends with 4 when it is done, and with 1 when it was given up.
            (Self::Xfs | Self::Btrfs, Some(1)) if repairs => CheckResult::Unrepaired,
            (Self::Xfs, Some(1 | 4)) | (Self::Btrfs | Self::Vfat, Some(1)) => CheckResult::Damaged,
            _ => CheckResult::Failed,
        }
    }

    /// The tool that labels it.
    pub fn label(self, device: &str, label: &str) -> (&'static Tool, ToolCall) {
        let call = ToolCall::new().changes_devices();
        match self {
            Self::Ext2 | Self::Ext3 | Self::Ext4 => (&tools::TUNE2FS, call.arguments(["-L", label]).device(device)),
            Self::Xfs => {
                let text = if label.is_empty() { "--" } else { label };
                // As the script xfs_admin does it.
                let call = call.arguments(["-x", "-p", "xfs_admin", "-c"]).argument(format!("label {text}"));
                (&tools::XFS_DB, call.device(device))
            }
            Self::Btrfs => (&tools::BTRFS, call.arguments(["filesystem", "label"]).device(device).argument(label)),
            Self::Vfat if label.is_empty() => (&tools::FATLABEL, call.argument("-r").device(device)),
            Self::Vfat => (&tools::FATLABEL, call.device(device).argument(label)),
            Self::Swap => (&tools::SWAPLABEL, call.arguments(["-L", label]).device(device)),
        }
    }
}

/// `words` with commas, and `last` before the last of them.
fn in_words(words: &[&str], last: &str) -> String {
    match words.split_last() {
        Some((end, others)) if !others.is_empty() => format!("{} {last} {end}", others.join(", ")),
        _ => words.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockyard_protocol::appliance::CHECKED_KINDS;

    #[test]
    fn the_agent_knows_what_can_be_checked() {
        let checked = FileSystemKind::ALL.iter().filter(|kind| kind.checker(Thoroughness::Look).is_some());
        assert_eq!(checked.map(|kind| kind.name()).collect::<Vec<_>>(), CHECKED_KINDS);
    }
}
