//! `blockyard image check`: whether an image's tables are in order.

use super::qemu_flags::{CachedFlags, NameFlags, OutputFlags};
use super::shut_in::shut_in;
use anyhow::{Context, Result, bail};
use blockyard_block::specification::{DiskSpecification, Format, OpenedImage};
use blockyard_block::{
    AllowedDirectories, BlockMapDisk, BlockMapFormat, BlockMapInfo, CheckReport, Disk, FileOptions, ImageError,
    LuksDisk, OpenedFile, Ova, Qcow2Check, Repair, VmdkInfo, shown, size,
};
use blockyard_command_line::disk;
use blockyard_command_line::image::named_image::{self, ImageFile};
use blockyard_command_line::progress::LateLine;
use blockyard_command_line::signals::EndSignals;
use blockyard_command_line::terminal::{self, print};
use blockyard_command_line::usage_error::UsageError;
use blockyard_command_line::verdict::Verdict;
use blockyard_session::open::{OpenOptions, open_disk, open_file};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

/// Check an image: refcounts, clusters that nobody uses or two use, entries that lead out of the file.
///
/// What is found and said, and the exit status, are qemu-img's: 0 when the image is in order, 1 when it could not be
/// checked, 2 when it is damaged (and, as with every command, on wrong usage), 3 when clusters are leaked, 63 for what
/// cannot be checked: a raw image is nothing but the disk. One cluster with two uses is damage here even where its
/// refcount knows. Of a VMDK, it is checked that its files are there and long enough; of formats that are only read,
/// that every entry of the table leads to where a block can be, and no two to one. Where all that is in order, what is
/// compressed is decompressed, on all CPUs: what does not become whole is damage, which qemu-img does not see; a bar on
/// stderr says how far that is if it takes a while. With -r, what the log of a VHDX holds that was not closed is
/// written to where it belongs. Of an OVA, it is checked that the digests of its manifest are those of its members,
/// and its disks are.
#[derive(Args)]
pub struct CheckArgs {
    /// Image: a file name.
    image: String,
    /// Format of the image.
    #[arg(short, value_name = "FORMAT", value_parser = named_image::formats())]
    format: Option<Format>,
    /// Complete a change with --atomic that was cut off, and repair what is leaked, or all that can be. Where the disk
    /// uses a cluster twice, the second use gets a copy: one of the two may hold what was not written there.
    #[arg(short, long, value_name = "WHAT", value_enum)]
    repair: Option<What>,
    /// With -r all: make zeros of what begins behind the end of a qcow2 image's file, or of its data file, as a power
    /// cut may leave it. It cannot be read, and is lost then; which parts of the disk these are is said.
    #[arg(long, requires = "repair")]
    salvage: bool,
    /// Look at an image that somebody writes to: what is found may come of that.
    #[arg(short = 'U', long, conflicts_with = "repair")]
    force_share: bool,
    #[command(flatten)]
    output: OutputFlags,
    /// Say nothing: the exit status says it.
    #[arg(short, long)]
    quiet: bool,
    /// Directory whose files an image may refer to; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    #[command(flatten)]
    cache: CachedFlags,
    #[command(flatten)]
    names: NameFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// Free clusters that nobody uses.
    Leaks,
    /// Put refcounts and the marks that depend on them right, too.
    All,
}

/// qemu-img's exit statuses.
const CORRUPT: u8 = 2;
const LEAKS: u8 = 3;
const NOT_SUPPORTED: u8 = 63;

/// Lines about single clusters that are printed; more say nothing new.
const LINES_MAX: u64 = 1000;

/// Runs the command.
///
/// # Errors
/// [`Verdict`] when something is wrong with the image; otherwise when it could not be checked.
pub fn run(args: &CheckArgs) -> Result<()> {
    let ImageFile { named, format, .. } = named_image::parse_file(&args.image, args.format)?;
    if args.salvage && (args.repair != Some(What::All) || format != Format::Qcow2) {
        bail!(UsageError("--salvage goes with -r all, and is for qcow2 images: leave it out".to_owned()));
    }
    let named = match (args.force_share, args.repair) {
        (true, _) => named.unlocked(),
        (false, None) => named.read_only(),
        (false, Some(_)) => named,
    };
    let access = disk::to_write(&args.allow_dir);
    let OpenedImage { file, was_completed } = open_file(&named, &access)?;
    if was_completed {
        if !args.quiet {
            terminal::say("a change with --atomic that was cut off is complete now");
        }
        if format == Format::Raw {
            return Ok(());
        }
    }
    match format {
        Format::Raw | Format::Luks => raw(args, &named, &file, format),
        Format::Qcow2 => qcow2(args, &named, &file),
        Format::BlockMap(of) => block_map(args, &named, &file, of),
        Format::Ova => ova(args, &named, &file),
    }
}

fn raw(args: &CheckArgs, named: &DiskSpecification, file: &OpenedFile, format: Format) -> Result<()> {
    let length_bytes = match format {
        // Without its key.
        Format::Luks => {
            let place = LuksDisk::place_in(file)?;
            place.end - place.start
        }
        _ => length_bytes(args, named, file)?,
    };
    if args.output.is_json() {
        // There is nothing that an object could say.
        terminal::say(&format!("{}: {NO_CHECKS}", shown(file.path())));
    } else if !args.quiet {
        print(&format!("{}: {}, {length_bytes} bytes\n{NO_CHECKS}", shown(file.path()), format.word()))?;
    }
    Err(Verdict(NOT_SUPPORTED).into())
}

const NO_CHECKS: &str =
    "This image format does not support checks: all of it is the disk's, and nothing in it can contradict itself.";

fn length_bytes(args: &CheckArgs, named: &DiskSpecification, file: &OpenedFile) -> Result<u64> {
    let access = OpenOptions { file: Some(file), ..disk::to_read(&args.allow_dir).streaming() };
    Ok(open_disk(named, &access)?.length_bytes)
}

fn block_map(args: &CheckArgs, named: &DiskSpecification, file: &OpenedFile, format: BlockMapFormat) -> Result<()> {
    // In a flat VMDK, there is nothing to repair.
    let is_flat = format == BlockMapFormat::Vmdk && VmdkInfo::of(file).is_ok_and(|info| info.is_flat());
    let has_log = format == BlockMapFormat::Vhdx;
    let is_dirty = BlockMapInfo::of(file, format).is_ok_and(|info| info.is_dirty);
    if args.repair.is_some() && !is_flat && !has_log {
        if format == BlockMapFormat::Vmdk {
            bail!("{}: nothing in VMDKs is repaired: convert what can be read of it", shown(file.path()));
        }
        bail!("{}: {} images are only read, so nothing in them is repaired", shown(file.path()), format.name());
    }
    let was_replayed = args.repair.is_some() && BlockMapDisk::replay_log(file, format)?;
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    let (handle, allowed) = (file.file().try_clone()?, AllowedDirectories::new(&args.allow_dir)?);
    let disk = BlockMapDisk::open_in(handle, file.path(), format, &options, &allowed)?;
    shut_in(&[named], Vec::new(), 1)?;
    let mut lines = Lines::of(args);
    if format == BlockMapFormat::Vmdk && !args.quiet && !args.output.is_json() {
        let length = size::human(disk.geometry().capacity_bytes);
        print(&format!("{}: {length} in files that are there and long enough", shown(file.path())))?;
    }
    if has_log && is_dirty && !was_replayed {
        lines.say("it was not closed: its log has to be replayed, which -r does");
    }
    let mut report = disk.check(&mut |line| lines.say(line))?;
    report.corruptions += lines.trying(|say, goes_on| disk.try_compressed(&report, say, goes_on))?;
    // As qemu-img counts these.
    report.corruptions_fixed += u64::from(was_replayed);
    if is_dirty && format == BlockMapFormat::Parallels {
        lines.say("ERROR image was not closed correctly");
        report.corruptions += 1;
    }
    lines.end();
    Said { filename: file.path(), format: Format::BlockMap(format).word(), report }.tell(args)
}

/// The digests of its manifest, and the tables of its disks.
fn ova(args: &CheckArgs, named: &DiskSpecification, file: &OpenedFile) -> Result<()> {
    if args.repair.is_some() {
        bail!("{}: OVAs are only read, so nothing in them is repaired", shown(file.path()));
    }
    let archive = Ova::open(file)?;
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    let numbers = (1..=u32::MAX).filter_map(NonZeroU32::new).zip(archive.disks());
    let with_files = numbers.filter(|(_, disk)| disk.name.is_some()).map(|(number, _)| number);
    let disks = with_files.map(|number| archive.open_disk(Some(number), &options)).collect::<Result<Vec<_>, _>>()?;
    shut_in(&[named], Vec::new(), 1)?;
    let mut lines = Lines::of(args);
    let mut report = CheckReport::default();
    match archive.digests()? {
        None => lines.say("there is no manifest (.mf), so no digest is compared"),
        Some(digests) => {
            let unnamed = archive.names().filter(|name| !digests.iter().any(|digest| digest.name() == *name));
            let unnamed = unnamed.map(|name| format!("{name:?} has no digest in the manifest"));
            let mut wrong: Vec<_> = unnamed.collect();
            for digest in &digests {
                wrong.extend(archive.compare(digest)?);
            }
            report.corruptions += wrong.len() as u64;
            wrong.iter().for_each(|problem| lines.say(&format!("ERROR {problem}")));
        }
    }
    for disk in disks {
        let mut of_disk = disk.check(&mut |line| lines.say(line))?;
        of_disk.corruptions += lines.trying(|say, goes_on| disk.try_compressed(&of_disk, say, goes_on))?;
        report.corruptions += of_disk.corruptions;
        report.total_clusters += of_disk.total_clusters;
        report.allocated_clusters += of_disk.allocated_clusters;
        report.compressed_clusters += of_disk.compressed_clusters;
    }
    lines.end();
    Said { filename: file.path(), format: "ova", report }.tell(args)
}

/// Lines that a check says.
struct Lines<'a> {
    args: &'a CheckArgs,
    count: u64,
}

impl<'a> Lines<'a> {
    fn of(args: &'a CheckArgs) -> Self {
        Self { args, count: 0 }
    }

    fn say(&mut self, line: &str) {
        self.count += 1;
        if !self.args.quiet && self.count <= LINES_MAX {
            terminal::tell(line);
        }
    }

    /// Lets `try_compressed` have what it says to and asks whether to go on: what takes longer than a moment is shown,
    /// and a signal ends it. Not so before, as looking at tables takes no time, and ends by the signal itself.
    fn trying(
        &mut self,
        try_compressed: impl FnOnce(&mut dyn FnMut(&str), &mut dyn FnMut(u64, u64) -> bool) -> Result<u64, ImageError>,
    ) -> Result<u64> {
        let (signals, line) = (EndSignals::catch()?, LateLine::new());
        let goes_on = &mut |done_bytes, length_bytes| {
            if !self.args.quiet {
                line.set_bytes(done_bytes, length_bytes, done_bytes);
            }
            signals.name().is_none()
        };
        let mut said = Vec::new();
        let tried = try_compressed(&mut |line| said.push(line.to_owned()), goes_on);
        line.clear();
        if tried.is_err()
            && let Some(signal) = signals.name()
        {
            bail!("stopped by {signal}");
        }
        said.iter().for_each(|line| self.say(line));
        Ok(tried?)
    }

    fn end(self) {
        if !self.args.quiet && self.count > LINES_MAX {
            terminal::tell(&format!("... and {} more lines", self.count - LINES_MAX));
        }
    }
}

fn qcow2(args: &CheckArgs, named: &DiskSpecification, file: &OpenedFile) -> Result<()> {
    let repair = match args.repair {
        None => Repair::None,
        Some(What::Leaks) => Repair::Leaks,
        Some(What::All) => Repair::All,
    };
    let mut check = Qcow2Check::open(file, repair != Repair::None)?;
    let mut lines = Lines::of(args);
    let (allowed, options) = (AllowedDirectories::new(&args.allow_dir)?, FileOptions::default());
    let options = FileOptions { lock: !args.force_share, ..options };
    match check.open_data_file(&allowed, args.salvage, &options) {
        Err(error) if args.allow_dir.is_empty() && !args.salvage => {
            let error = anyhow::Error::from(error);
            lines.say(&format!("note: where its data file ends is not looked at: {error:#}"));
        }
        opened => opened?,
    }
    if args.salvage {
        check.salvage();
    }
    shut_in(&[named], Vec::new(), 1)?;
    let mut report = check.run(repair, &mut |line| lines.say(line))?;
    if report.corruptions == 0 {
        report.corruptions = lines.trying(|say, goes_on| check.try_compressed(say, goes_on))?;
    }
    lines.end();
    if report.missing > 0 && !args.quiet {
        terminal::tell(&what_helps(args, report.missing));
    }
    Said { filename: file.path(), format: "qcow2", report }.tell(args)
}

/// What becomes of so many entries that lead behind the end of a file.
fn what_helps(args: &CheckArgs, missing: u64) -> String {
    let what = match missing {
        1 => "1 entry leads behind the end of the file, where nothing can be read".to_owned(),
        _ => format!("{missing} entries lead behind the end of the file, where nothing can be read"),
    };
    let copy = "`blockyard image convert --salvage`";
    match args.salvage {
        true => format!("{what}, and the image cannot say zeros instead: {copy} makes a copy that does"),
        false => format!(
            "{what}, and -r all leaves them: `blockyard image check -r all --salvage` makes zeros of them in the image, \
             {copy} in a copy"
        ),
    }
}

/// What is said at the end.
struct Said<'a> {
    filename: &'a Path,
    format: &'static str,
    report: CheckReport,
}

/// qemu-img's names, and `missing` and `zeroed-bytes`. What is zero is left out.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Json {
    filename: String,
    format: &'static str,
    check_errors: u64,
    #[serde(skip_serializing_if = "is_zero")]
    image_end_offset: u64,
    #[serde(skip_serializing_if = "is_zero")]
    corruptions: u64,
    #[serde(skip_serializing_if = "is_zero")]
    missing: u64,
    #[serde(skip_serializing_if = "is_zero")]
    leaks: u64,
    #[serde(skip_serializing_if = "is_zero")]
    corruptions_fixed: u64,
    #[serde(skip_serializing_if = "is_zero")]
    leaks_fixed: u64,
    #[serde(skip_serializing_if = "is_zero")]
    zeroed_bytes: u64,
    #[serde(skip_serializing_if = "is_zero")]
    total_clusters: u64,
    #[serde(skip_serializing_if = "is_zero")]
    allocated_clusters: u64,
    #[serde(skip_serializing_if = "is_zero")]
    fragmented_clusters: u64,
    #[serde(skip_serializing_if = "is_zero")]
    compressed_clusters: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Said<'_> {
    fn tell(&self, args: &CheckArgs) -> Result<()> {
        if args.output.is_json() {
            print(&terminal::json_pretty(&self.json()).context("cannot say it in JSON")?)?;
        } else if !args.quiet {
            print(self.text().trim_end())?;
        }
        match (self.report.corruptions, self.report.leaks) {
            (0, 0) => Ok(()),
            (0, _) => Err(Verdict(LEAKS).into()),
            _ => Err(Verdict(CORRUPT).into()),
        }
    }

    fn json(&self) -> Json {
        let CheckReport {
            corruptions,
            missing,
            leaks,
            corruptions_fixed,
            leaks_fixed,
            zeroed_bytes,
            total_clusters,
            allocated_clusters,
            fragmented_clusters,
            compressed_clusters,
            image_end_bytes,
        } = self.report;
        Json {
            filename: self.filename.display().to_string(),
            format: self.format,
            check_errors: 0,
            image_end_offset: image_end_bytes,
            corruptions,
            missing,
            leaks,
            corruptions_fixed,
            leaks_fixed,
            zeroed_bytes,
            total_clusters,
            allocated_clusters,
            fragmented_clusters,
            compressed_clusters,
        }
    }

    /// In qemu-img's words.
    fn text(&self) -> String {
        let report = &self.report;
        let mut text = String::new();
        if report.corruptions_fixed + report.leaks_fixed > 0 {
            let _ = write!(
                text,
                "The following inconsistencies were found and repaired:\n\n    {} leaked clusters\n    {} corruptions\n\n\
                 Double checking the fixed image now...\n",
                report.leaks_fixed, report.corruptions_fixed
            );
        }
        if report.corruptions == 0 && report.leaks == 0 {
            text.push_str("No errors were found on the image.\n");
        }
        if report.corruptions > 0 {
            let _ = write!(
                text,
                "\n{} errors were found on the image.\nData may be corrupted, or further writes to the image may corrupt it.\n",
                report.corruptions
            );
        }
        if report.leaks > 0 {
            let _ = write!(
                text,
                "\n{} leaked clusters were found on the image.\nThis means waste of disk space, but no harm to data.\n",
                report.leaks
            );
        }
        let (all, allocated) = (report.total_clusters, report.allocated_clusters);
        if all > 0 && allocated > 0 {
            let percent = |part: u64, of: u64| part as f64 * 100.0 / of as f64;
            let _ = writeln!(
                text,
                "{allocated}/{all} = {:.2}% allocated, {:.2}% fragmented, {:.2}% compressed clusters",
                percent(allocated, all),
                percent(report.fragmented_clusters, allocated),
                percent(report.compressed_clusters, allocated)
            );
        }
        if report.image_end_bytes > 0 {
            let _ = writeln!(text, "Image end offset: {}", report.image_end_bytes);
        }
        text
    }
}
