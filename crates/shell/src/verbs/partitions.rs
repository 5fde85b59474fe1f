//! Commands on partition tables.

use super::partition_plan::{self, Plan, usual_kind};
use crate::arguments::{text, truth};
use crate::devices::disk_index;
use crate::verb::Action::Call;
use crate::verb::Verb;
use crate::verb::on_disks::{changes, tells};
use crate::workbench::Workbench;
use anyhow::{Context, Result, bail};
use blockyard_block::partition_table::{self, EntryChange, Guid, Partition, PartitionKind, Scheme, TableChange};
use blockyard_block::{printable, shown};
use blockyard_command_line::terminal::print;
use blockyard_command_line::usage_error::UsageError;
use std::ffi::{OsStr, OsString};

/// On the tables of disks, and what is in them.
pub(crate) const VERBS: &[Verb] = &[
    changes(
        &["part-init"],
        "DEVICE gpt|mbr",
        "Begin a partition table: what was there is lost",
        Call(|workbench, words| part_init(workbench, words, Plan::Empty)),
    ),
    changes(
        &["part-add"],
        "DEVICE primary START END",
        "Add a partition: first and last sector of 512 bytes, negative ones from the end",
        Call(part_add),
    ),
    changes(
        &["part-disk"],
        "DEVICE gpt|mbr",
        "Make one partition of a disk: what was there is lost",
        Call(|workbench, words| part_init(workbench, words, Plan::Whole)),
    ),
    tells(&["part-list"], "DEVICE", "List a disk's partitions", Call(part_list)),
    tells(&["part-get-parttype"], "DEVICE", "Say which kind of partition table a disk has", Call(part_type)),
    changes(
        &["part-del"],
        "DEVICE NUMBER",
        "Delete a partition: what lies in it stays",
        Call(|workbench, words| part_set(workbench, words, |_, _, _, _| Ok(EntryChange::Delete))),
    ),
    changes(
        &["part-resize"],
        "DEVICE NUMBER END",
        "Give a partition another last sector of 512 bytes, -34 for the last of a GPT; its file system keeps its size",
        Call(|workbench, words| part_set(workbench, words, new_end)),
    ),
    changes(
        &["part-expand-gpt"],
        "DEVICE",
        "Move a GPT's backup to the end of a disk that has become larger",
        Call(|workbench, words| part_change(workbench, words, TableChange::Expand)),
    ),
    changes(
        &["part-set-name"],
        "DEVICE NUMBER NAME",
        "Name a partition of a GPT",
        Call(|workbench, words| {
            part_set(workbench, words, |_, _, _, words| Ok(EntryChange::Name(text(&words[0])?.to_owned())))
        }),
    ),
    changes(
        &["part-set-gpt-type"],
        "DEVICE NUMBER GUID",
        "Say what a partition of a GPT is for",
        Call(|workbench, words| part_set(workbench, words, new_kind)),
    ),
    changes(
        &["part-set-mbr-id"],
        "DEVICE NUMBER ID",
        "Say what a partition of an MBR is for, such as 0x82",
        Call(|workbench, words| part_set(workbench, words, new_kind)),
    ),
    changes(
        &["part-set-bootable"],
        "DEVICE NUMBER true|false",
        "Say whether a BIOS boots from a partition",
        Call(|workbench, words| {
            part_set(workbench, words, |_, _, _, words| Ok(EntryChange::Bootable(truth(&words[0])?)))
        }),
    ),
    changes(
        &["part-set-gpt-attributes"],
        "DEVICE NUMBER ATTRIBUTES",
        "Set the attributes of a partition of a GPT, a number",
        Call(|workbench, words| part_set(workbench, words, new_attributes)),
    ),
    changes(
        &["part-set-gpt-guid"],
        "DEVICE NUMBER GUID",
        "Set the GUID of a partition of a GPT",
        Call(|workbench, words| part_set(workbench, words, |_, _, _, words| Ok(EntryChange::Guid(guid(&words[0])?)))),
    ),
    changes(
        &["part-set-disk-guid"],
        "DEVICE GUID",
        "Set a GPT's own GUID",
        Call(|workbench, words| part_change(workbench, words, TableChange::DiskGuid(guid(&words[1])?))),
    ),
    changes(
        &["part-set-disk-guid-random"],
        "DEVICE",
        "Give a GPT a new GUID",
        Call(|workbench, words| part_change(workbench, words, TableChange::DiskGuid(Guid::random()?))),
    ),
    tells(
        &["part-get-name"],
        "DEVICE NUMBER",
        "Say a partition's name",
        Call(|workbench, words| part_get(workbench, words, |partition| partition.name.clone())),
    ),
    tells(
        &["part-get-gpt-type"],
        "DEVICE NUMBER",
        "Say what a partition of a GPT is for",
        Call(|workbench, words| part_get(workbench, words, |partition| partition.kind.to_string())),
    ),
    tells(
        &["part-get-mbr-id"],
        "DEVICE NUMBER",
        "Say what a partition of an MBR is for",
        Call(|workbench, words| part_get(workbench, words, mbr_id)),
    ),
    tells(
        &["part-get-bootable"],
        "DEVICE NUMBER",
        "Say whether a machine boots from a partition: a BIOS, or, of an EFI system partition, UEFI",
        Call(|workbench, words| part_get(workbench, words, is_bootable)),
    ),
    tells(
        &["part-get-gpt-attributes"],
        "DEVICE NUMBER",
        "Say the attributes of a partition of a GPT, a number",
        Call(|workbench, words| part_get(workbench, words, |partition| partition.attributes.to_string())),
    ),
    tells(
        &["part-get-gpt-guid"],
        "DEVICE NUMBER",
        "Say the GUID of a partition of a GPT",
        Call(|workbench, words| {
            part_get(workbench, words, |partition| partition.guid.map(|guid| guid.to_string()).unwrap_or_default())
        }),
    ),
    tells(
        &["part-get-mbr-part-type"],
        "DEVICE NUMBER",
        "Say whether a partition is primary, extended or logical",
        Call(|workbench, words| part_get(workbench, words, mbr_place)),
    ),
    tells(&["part-get-disk-guid"], "DEVICE", "Say a GPT's own GUID", Call(disk_guid)),
    tells(
        &["part-to-dev"],
        "PARTITION",
        "Say which disk a partition is on",
        Call(|workbench, words| of_partition(workbench, words, true)),
    ),
    tells(
        &["part-to-partnum"],
        "PARTITION",
        "Say a partition's number",
        Call(|workbench, words| of_partition(workbench, words, false)),
    ),
];

fn scheme(word: &OsStr) -> Result<Scheme> {
    match word.to_str() {
        Some("gpt" | "efi") => Ok(Scheme::Gpt),
        Some("mbr" | "msdos" | "dos") => Ok(Scheme::Mbr),
        _ => bail!(UsageError(format!("{}: a partition table is gpt or mbr", shown(word)))),
    }
}

/// What guestfish counts.
const SECTOR_BYTES: u64 = 512;

/// `part-init`, and `part-disk` with one partition.
fn part_init(workbench: &mut Workbench, words: &[OsString], plan: fn(Scheme) -> Plan) -> Result<()> {
    let (index, scheme) = (disk_index(workbench, &words[0])?, scheme(&words[1])?);
    partition_plan::write(workbench, index, &plan(scheme))
}

/// The byte at which a sector begins; negative ones are counted from the disk's end.
fn sector_start(workbench: &Workbench, index: usize, word: &OsStr) -> Result<u64> {
    let bytes = workbench.drives()[index].image.disk.geometry().capacity_bytes;
    let sectors = i64::try_from(bytes / SECTOR_BYTES).unwrap_or(i64::MAX);
    let number = text(word)?.parse::<i64>();
    let sector = number.map_err(|_| UsageError(format!("{} is no number of a sector", shown(word))))?;
    let absolute = if sector < 0 { sectors.saturating_add(sector) } else { sector };
    match absolute {
        0.. if absolute < sectors => Ok(absolute as u64 * SECTOR_BYTES),
        _ => bail!("there is no sector {sector}: the disk has {sectors}"),
    }
}

/// `part-add`.
fn part_add(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let index = disk_index(workbench, &words[0])?;
    match text(&words[1])? {
        "primary" | "p" => {}
        other => bail!("{other} partitions cannot be made here: primary ones can"),
    }
    let start = sector_start(workbench, index, &words[2])?;
    let end = sector_start(workbench, index, &words[3])? + SECTOR_BYTES;
    let scheme =
        table_of(workbench, &words[0])?.scheme.context("the disk has no partition table: `part-init` makes one")?;
    partition_plan::write(workbench, index, &Plan::Change(TableChange::Add(start..end, usual_kind(scheme)?)))
}

fn table_of(workbench: &mut Workbench, name: &OsStr) -> Result<partition_table::PartitionTable> {
    let index = disk_index(workbench, name)?;
    // What the appliance has written may not have come here yet.
    workbench.sync()?;
    partition_table::read(&*workbench.drives()[index].image.disk).with_context(|| shown(name).to_string())
}

/// `part-list`, with guestfish's fields.
fn part_list(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    for (index, partition) in table_of(workbench, &words[0])?.partitions.iter().enumerate() {
        let range = &partition.range_bytes;
        print(&format!(
            "[{index}] = {{\n  part_num: {}\n  part_start: {}\n  part_end: {}\n  part_size: {}\n}}",
            partition.number,
            range.start,
            range.end - 1,
            range.end - range.start
        ))?;
    }
    Ok(())
}

/// `part-get-parttype`.
fn part_type(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    match table_of(workbench, &words[0])?.scheme {
        Some(Scheme::Gpt) => print("gpt"),
        Some(Scheme::Mbr) => print("msdos"),
        None => bail!("{}: it has no partition table", shown(&words[0])),
    }
}

/// What `part-set-…` and their like do to a partition: out of their arguments behind its number.
type PartChange = fn(&Workbench, usize, Scheme, &[OsString]) -> Result<EntryChange>;

/// `part-set-name` and its like.
fn part_set(workbench: &mut Workbench, words: &[OsString], change: PartChange) -> Result<()> {
    let (index, number) = (disk_index(workbench, &words[0])?, number(&words[1])?);
    let scheme = table_of(workbench, &words[0])?.scheme.unwrap_or(Scheme::Gpt);
    let change = change(workbench, index, scheme, &words[2..])?;
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    partition_plan::write(workbench, index, &Plan::Change(TableChange::Entry(number, change)))
}

/// `part-resize`: the last sector.
fn new_end(workbench: &Workbench, index: usize, _: Scheme, words: &[OsString]) -> Result<EntryChange> {
    Ok(EntryChange::End(sector_start(workbench, index, &words[0])? + SECTOR_BYTES))
}

/// `part-set-gpt-type` and `part-set-mbr-id`.
fn new_kind(_: &Workbench, _: usize, scheme: Scheme, words: &[OsString]) -> Result<EntryChange> {
    let word = text(&words[0])?;
    let kind = PartitionKind::of_word(word, scheme).with_context(|| format!("{word} is no type of such a table"))?;
    Ok(EntryChange::Kind(kind))
}

/// `part-set-gpt-attributes`.
fn new_attributes(_: &Workbench, _: usize, _: Scheme, words: &[OsString]) -> Result<EntryChange> {
    let word = text(&words[0])?;
    let number = match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => word.parse(),
    };
    Ok(EntryChange::Attributes(number.map_err(|_| UsageError(format!("{word} is no number of attributes")))?))
}

/// A GUID.
fn guid(word: &OsStr) -> Result<Guid> {
    let parsed = text(word)?.parse::<Guid>();
    parsed.map_err(|error| UsageError(format!("{}: {error}", shown(word))).into())
}

/// `part-set-disk-guid` and its like, and `part-expand-gpt`.
fn part_change(workbench: &mut Workbench, words: &[OsString], change: TableChange) -> Result<()> {
    let index = disk_index(workbench, &words[0])?;
    partition_plan::write(workbench, index, &Plan::Change(change))
}

/// `part-get-disk-guid`.
fn disk_guid(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    match table_of(workbench, &words[0])?.disk_guid {
        Some(guid) => print(&guid.to_string()),
        None => bail!("{}: it has no GPT", shown(&words[0])),
    }
}

/// `part-get-mbr-part-type`.
fn mbr_place(partition: &Partition) -> String {
    match (partition.is_logical(), partition.kind.is_extended()) {
        (true, _) => "logical",
        (_, true) => "extended",
        _ => "primary",
    }
    .to_owned()
}

fn number(word: &OsStr) -> Result<usize> {
    let number = text(word)?.parse();
    number.map_err(|_| UsageError(format!("{} is no number of a partition", shown(word))).into())
}

/// `part-get-name` and its like.
fn part_get(workbench: &mut Workbench, words: &[OsString], what: fn(&Partition) -> String) -> Result<()> {
    let (number, table) = (number(&words[1])?, table_of(workbench, &words[0])?);
    let found = table.partitions.iter().find(|partition| partition.number as usize == number);
    match found {
        Some(partition) => print(&printable(&what(partition))),
        None => bail!("{}: there is no partition {number}", shown(&words[0])),
    }
}

/// Whether a machine boots from a partition: MBR's active flag; in a GPT an EFI system partition, or bit 2 (UEFI 2.10,
/// 5.3.3).
fn is_bootable(partition: &Partition) -> String {
    let is = match partition.kind {
        PartitionKind::Mbr(_) => partition.attributes & 0x80 != 0,
        kind => partition.attributes & 4 != 0 || PartitionKind::of_word("esp", Scheme::Gpt) == Some(kind),
    };
    is.to_string()
}

/// An MBR's type as a number, as guestfish has it.
fn mbr_id(partition: &Partition) -> String {
    match partition.kind {
        PartitionKind::Mbr(id) => format!("{id:#x}"),
        PartitionKind::Gpt(guid) => guid.to_string(),
    }
}

/// `part-to-dev` and `part-to-partnum`.
fn of_partition(_: &mut Workbench, words: &[OsString], wants_disk: bool) -> Result<()> {
    let name = text(&words[0])?;
    let disk = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let number = &name[disk.len()..];
    // nvme0n1p1 and md0p1 have a letter between.
    let disk = disk.strip_suffix('p').filter(|disk| disk.ends_with(|last: char| last.is_ascii_digit())).unwrap_or(disk);
    match (number.is_empty(), wants_disk) {
        (true, _) => bail!("{name} is no partition"),
        (false, true) => print(disk),
        (false, false) => print(number),
    }
}
