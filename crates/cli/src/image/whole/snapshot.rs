//! `blockyard image snapshot`: snapshots that an image has inside.

use super::qcow2_report::Snapshot;
use super::qemu_flags::NameFlags;
use anyhow::{Result, bail};
use blockyard_block::specification::Format;
use blockyard_block::{AllowedDirectories, Qcow2Disk, Qcow2Snapshot, printable, shown, size};
use blockyard_command_line::disk;
use blockyard_command_line::image::listing::time_text;
use blockyard_command_line::image::named_image::{self, ImageFile};
use blockyard_command_line::terminal::{self, print, say};
use blockyard_session::open::{open_file, open_to_change};
use clap::Args;
use std::fmt::Write as _;
use std::path::PathBuf;

/// List, make, apply or delete the snapshots that a qcow2 image has inside.
///
/// A snapshot keeps what the disk holds at that time, in the same file; it costs what is written afterwards. `convert
/// -l` and `,snapshot-name=` read one. The options are qemu-img's; without any, snapshots are listed. Nobody may use
/// the image meanwhile, unless they are listed with -U.
#[derive(Args)]
pub struct SnapshotArgs {
    /// Image: a qcow2 file.
    image: String,
    /// List them.
    #[arg(short, long, conflicts_with_all = ["apply", "create", "delete"])]
    list: bool,
    /// Make the disk what it was when this one was made (its id, or its name): what it holds now is lost.
    #[arg(short, long, value_name = "SNAPSHOT", conflicts_with_all = ["create", "delete"])]
    apply: Option<String>,
    /// Make one of this name.
    #[arg(short, long, value_name = "NAME", conflicts_with = "delete")]
    create: Option<String>,
    /// Delete the one of this name.
    #[arg(short, long, value_name = "NAME")]
    delete: Option<String>,
    /// Format of the image.
    #[arg(short, value_name = "FORMAT", value_parser = named_image::formats())]
    format: Option<Format>,
    /// List those of an image that somebody writes to.
    #[arg(short = 'U', long, conflicts_with_all = ["apply", "create", "delete"])]
    force_share: bool,
    /// Print one JSON array on stdout.
    #[arg(long, conflicts_with_all = ["apply", "create", "delete"])]
    json: bool,
    /// Directory whose files an image may refer to; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    /// Say nothing.
    #[arg(short, long, conflicts_with_all = ["list", "json"])]
    quiet: bool,
    #[command(flatten)]
    names: NameFlags,
}

/// Runs the command.
///
/// # Errors
/// When the image has no such snapshot, cannot have one, or cannot be read or written.
pub fn run(args: &SnapshotArgs) -> Result<()> {
    let image = named_image::parse_file(&args.image, args.format)?;
    if image.format != Format::Qcow2 {
        bail!("{}: snapshots are inside of qcow2 images, and this is {}", shown(&image.path), image.format_in_words());
    }
    let ImageFile { named, path, .. } = image;
    let changes = args.apply.is_some() || args.create.is_some() || args.delete.is_some();
    let named = match (changes, args.force_share) {
        (true, _) => named,
        (false, true) => named.unlocked().read_only(),
        (false, false) => named.read_only(),
    };
    let open = if changes { open_to_change } else { open_file };
    let file = open(&named, &disk::to_write(&args.allow_dir))?.file;
    let allowed = AllowedDirectories::new(&args.allow_dir)?;
    let said = if let Some(which) = &args.apply {
        Qcow2Disk::apply_snapshot(&file, which, &allowed)?;
        format!("the disk is as it was when {which} was made")
    } else if let Some(name) = &args.create {
        Qcow2Disk::make_snapshot(&file, name, &allowed)?;
        format!("snapshot {name} made")
    } else if let Some(which) = &args.delete {
        Qcow2Disk::remove_snapshot(&file, which, &allowed)?;
        format!("snapshot {which} deleted")
    } else {
        let listed = Qcow2Disk::snapshots(&file)?;
        if args.json {
            let listed: Vec<_> = listed.into_iter().map(Snapshot::from).collect();
            return print(&terminal::json_pretty(&listed)?);
        }
        if listed.is_empty() {
            // Nothing on stdout, as programs expect that count its lines.
            say(&format!("{} has no snapshots", shown(&path)));
            return Ok(());
        }
        return print(&table(&listed));
    };
    if args.quiet { Ok(()) } else { print(&format!("{}: {}", shown(&path), printable(&said))) }
}

/// As qemu-img has it, with two lines in front of the first, but for names, which may be longer, and dates, which are
/// in UTC.
fn table(listed: &[Qcow2Snapshot]) -> String {
    let names: Vec<_> = listed.iter().map(|snapshot| printable(&snapshot.name).to_string()).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max("TAG".len());
    let mut text =
        format!("Snapshot list:\n{:<4} {:<width$} {:>10} {:>19} {:>15}", "ID", "TAG", "VM SIZE", "DATE", "VM CLOCK");
    for (snapshot, name) in listed.iter().zip(&names) {
        let state = if snapshot.vm_state_bytes == 0 { "0 B".to_owned() } else { size::human(snapshot.vm_state_bytes) };
        let (id, date) = (printable(&snapshot.id).to_string(), time_text(snapshot.date.0.into(), true));
        // Writing to a string does not fail.
        let _ = write!(text, "\n{id:<4} {name:<width$} {state:>10} {date:>19} {:>15}", clock(snapshot.vm_clock_ns));
    }
    text
}

fn clock(nanoseconds: u64) -> String {
    let (seconds, milliseconds) = (nanoseconds / 1_000_000_000, nanoseconds / 1_000_000 % 1000);
    format!("{:02}:{:02}:{:02}.{milliseconds:03}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
