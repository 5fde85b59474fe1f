//! `blockyard partitions`: which partitions a disk has.

use crate::table_option::TableOption;
use anyhow::{Result, anyhow};
use blockyard_bench::table::Table;
use blockyard_block::partition_table::{Partition, PartitionKind, PartitionTable, Restriction, Scheme, read_as};
use blockyard_block::specification::DiskSpecification;
use blockyard_block::{Disk, size};
use blockyard_command_line::disk;
use blockyard_command_line::terminal::{self, print};
use blockyard_command_line::usage_error::UsageLines;
use blockyard_session::open::open_disk;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;

/// List the partitions of a disk.
///
/// Reads MBR tables with logical partitions, and GPTs. What is odd about a table is told on stderr. Numbers are those
/// that Linux gives, and those that `blockyard serve --partition` takes. A disk that another program writes is read all
/// the same.
#[derive(Args)]
pub struct PartitionsArgs {
    /// Disk: [kind:]path[,key=value...]
    disk: String,
    /// Print one JSON object on stdout.
    #[arg(long)]
    json: bool,
    /// The table that counts, on a disk with two.
    #[arg(long, value_enum)]
    table: Option<TableOption>,
    /// Directory whose files an image may refer to; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// When the disk cannot be read, or there is no telling which partitions it has.
pub fn run(args: &PartitionsArgs) -> Result<()> {
    let Opened { disk, note } = open(&args.disk, &args.allow_dir)?;
    let choice = TableOption::choice(args.table);
    let table = read_as(&*disk, choice).map_err(|error| anyhow!("{}: {}", args.disk, error.advising("--table ")))?;
    let warnings: Vec<_> = note.into_iter().chain(table.warnings.iter().map(ToString::to_string)).collect();
    if args.json {
        return print(&terminal::json_pretty(&Report::new(&*disk, &table, warnings))?);
    }
    for warning in warnings {
        terminal::say(&format!("{}: {warning}", args.disk));
    }
    print(&render(&table))
}

struct Opened {
    disk: Arc<dyn Disk>,
    /// What is to be known about what is read.
    note: Option<String>,
}

/// Opens the disk for reading, with whoever else has it if need be: a table changes rarely, and a look at it harms
/// nobody.
fn open(disk: &str, allow_dirs: &[PathBuf]) -> Result<Opened> {
    let specification: DiskSpecification = disk.parse().map_err(UsageLines::from)?;
    let access = disk::to_read(allow_dirs);
    let error = match open_disk(&specification, &access) {
        Ok(opened) => return Ok(Opened { disk: opened.disk, note: None }),
        Err(error) => error,
    };
    let Some(holder) = error.holder() else { return Err(error.into()) };
    let note = Some(format!("{holder} has it open and may be changing it"));
    Ok(Opened { disk: open_disk(&specification.unlocked(), &access)?.disk, note })
}

#[derive(Serialize)]
struct Report {
    /// `mbr`, `gpt` or null.
    scheme: Option<&'static str>,
    capacity_bytes: u64,
    logical_block_bytes: u32,
    partitions: Vec<Row>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Row {
    number: u32,
    start_bytes: u64,
    length_bytes: u64,
    /// Two hexadecimal digits, or a GUID.
    r#type: String,
    type_name: Option<&'static str>,
    name: String,
    guid: Option<String>,
    flags: Vec<String>,
    /// Whether `blockyard serve` grants it for reading.
    readable: bool,
    /// Whether `blockyard serve` grants it for writing.
    writable: bool,
}

impl Report {
    fn new(disk: &dyn Disk, table: &PartitionTable, warnings: Vec<String>) -> Self {
        let geometry = disk.geometry();
        Self {
            scheme: table.scheme.map(scheme_name),
            capacity_bytes: geometry.capacity_bytes,
            logical_block_bytes: geometry.logical_block_bytes,
            partitions: table.partitions.iter().map(|partition| Row::new(table, partition)).collect(),
            warnings,
        }
    }
}

impl Row {
    fn new(table: &PartitionTable, partition: &Partition) -> Self {
        let range = &partition.range_bytes;
        Self {
            number: partition.number,
            start_bytes: range.start,
            length_bytes: range.end - range.start,
            r#type: partition.kind.to_string(),
            type_name: partition.kind.name(),
            name: partition.name.clone(),
            guid: partition.guid.map(|guid| guid.to_string()),
            flags: flags(partition),
            readable: table.range(partition.number, true).is_ok(),
            writable: table.range(partition.number, false).is_ok(),
        }
    }
}

fn scheme_name(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Mbr => "mbr",
        Scheme::Gpt => "gpt",
    }
}

/// Attributes of a GPT's entry (UEFI 2.10, table 5-8; the last three are Microsoft's) or an MBR's, and restrictions.
fn flags(partition: &Partition) -> Vec<String> {
    const ATTRIBUTES: [(u32, &str); 6] = [
        (0, "required"),
        (1, "no-block-io"),
        (2, "legacy-boot"),
        (60, "read-only"),
        (62, "hidden"),
        (63, "no-automount"),
    ];
    let mut flags = Vec::new();
    match partition.kind {
        PartitionKind::Mbr(_) if partition.attributes == 0x80 => flags.push("active".to_owned()),
        PartitionKind::Mbr(_) => {}
        PartitionKind::Gpt(_) => {
            let set = ATTRIBUTES.iter().filter(|(bit, _)| (partition.attributes >> bit) & 1 == 1);
            flags.extend(set.map(|(_, name)| (*name).to_owned()));
        }
    }
    match partition.restriction {
        None => {}
        Some(Restriction::Container) => flags.push("extended".to_owned()),
        Some(Restriction::Overlaps { other }) => flags.push(format!("overlaps-{other}")),
        Some(Restriction::CoversTable) => flags.push("covers-table".to_owned()),
        Some(Restriction::CutOff) => flags.push("cut-off".to_owned()),
    }
    flags
}

/// The table for people.
fn render(table: &PartitionTable) -> String {
    let Some(scheme) = table.scheme else { return "no partition table".to_owned() };
    if table.partitions.is_empty() {
        return format!("an empty partition table ({})", scheme_name(scheme));
    }
    let mut rows = Table::new(&["number", "start", "end", "size", "type", "name", "flags"]);
    for partition in &table.partitions {
        let range = &partition.range_bytes;
        rows.row(vec![
            partition.number.to_string(),
            range.start.to_string(),
            range.end.to_string(),
            size::human(range.end - range.start),
            partition.kind.name().map_or_else(|| partition.kind.to_string(), str::to_owned),
            partition.name.clone(),
            flags(partition).join(" "),
        ]);
    }
    rows.render_within(terminal::output_columns())
}
