//! `blockyard image info`: what an image is.

use super::block_map_report::BlockMapReport;
use super::luks_report::LuksReport;
use super::qcow2_report::Qcow2Report;
use super::qemu_flags::{OutputFlags, ReadFlags};
use super::shut_in::shut_in;
use super::vmdk_report::VmdkReport;
use anyhow::{Result, bail};
use blockyard_block::partition_table::{PartitionTable, Scheme};
use blockyard_block::specification::{DiskSpecification, Format};
use blockyard_block::{BlockMapInfo, ChainImage, OvaDisk, Qcow2Info, VmdkInfo, printable, size};
use blockyard_command_line::disk;
use blockyard_command_line::image::named_image;
use blockyard_command_line::terminal::{self, print};
use blockyard_command_line::usage_error::UsageError;
use blockyard_command_line::verdict::Verdict;
use blockyard_image::whole::info::{ImageInfo, Look, LookedAtDisk, Partitions};
use blockyard_image::whole::safety::{Danger, dangers_of_file, dangers_of_image};
use blockyard_session::open::{OpenDisk, OpenOptions, open_disk};
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Show what an image is: format, sizes, backing files, partitions, and who uses it.
///
/// It says what a file is, too, that other commands refuse, and why they do.
#[derive(Args)]
pub struct InfoArgs {
    /// Image: [KIND:]PATH[,KEY=VALUE...]
    image: String,
    /// Format of the image.
    #[arg(short, value_name = "FORMAT", value_parser = named_image::formats())]
    format: Option<Format>,
    /// Show the images behind it too.
    #[arg(long)]
    backing_chain: bool,
    /// Say whether a stranger's image can be trusted, too: it refers to no other file, is what its name says and
    /// nothing else, and is not encrypted. Exit status 1 if not.
    #[arg(long)]
    safety: bool,
    #[command(flatten)]
    output: OutputFlags,
    /// Directory whose files an image may refer to; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    #[command(flatten)]
    flags: ReadFlags,
}

/// Runs the command.
///
/// # Errors
/// When there is nothing to look at.
pub fn run(args: &InfoArgs) -> Result<()> {
    let named = args.flags.applied(named_image::parse(&args.image, args.format)?.read_only());
    let look = Look::at(&named)?;
    if args.safety && look.file().is_none() {
        bail!(UsageError(format!("--safety is for files, and {} is in none", args.image)));
    }
    let mut dangers = if args.safety { dangers_of_file(&look)? } else { Vec::new() };
    let opened = open_disk(&named, &OpenOptions { file: look.file(), ..disk::to_read(&args.allow_dir).streaming() });
    let opened =
        opened.map(|OpenDisk { disk, length_bytes, unfinished, .. }| LookedAtDisk { disk, length_bytes, unfinished });
    let known = look.with_disk(opened, args.backing_chain, &args.allow_dir)?;
    shut_in(&[&named], Vec::new(), 1)?;
    let info = known.run()?;
    if args.safety {
        dangers.extend(dangers_of_image(&info));
    }
    let is_safe = dangers.is_empty();
    let safety = args.safety.then(|| Safety::of(dangers));
    let report = Report { safety, ..Report::new(&named, info) };
    print(&match (args.output.is_json(), args.backing_chain && args.output.is_qemu_imgs()) {
        (false, _) => report.render(),
        (true, false) => terminal::json_pretty(&report)?,
        (true, true) => terminal::json_pretty(&report.into_chain())?,
    })?;
    if is_safe { Ok(()) } else { Err(Verdict(1).into()) }
}

/// Whether a stranger's image can be trusted.
#[derive(Serialize)]
struct Safety {
    safe: bool,
    dangers: Vec<Because>,
}

#[derive(Serialize)]
struct Because {
    kind: &'static str,
    reason: String,
}

impl Safety {
    fn of(dangers: Vec<Danger>) -> Self {
        let dangers: Vec<_> = dangers.into_iter().map(|Danger { kind, reason }| Because { kind, reason }).collect();
        Self { safe: dangers.is_empty(), dangers }
    }

    fn render(&self, text: &mut String) {
        text.push_str(if self.safe { "\nsafe: yes" } else { "\nsafe: no" });
        for Because { reason, .. } in &self.dangers {
            let _ = write!(text, "\n    it {reason}");
        }
    }
}

/// What is known of an image. The names are qemu-img's as far as it has them.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Report {
    filename: String,
    format: String,
    /// Null where only somebody could tell who understands the format.
    virtual_size: Option<u64>,
    /// Bytes of storage; null for what is in no file.
    actual_size: Option<u64>,
    #[serde(flatten)]
    own: Own,
    /// Those in an OVA.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    disks: Vec<Disk>,
    /// The images behind it, the nearest first; only when they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    backing_chain: Vec<Behind>,
    users: Users,
    #[serde(skip_serializing_if = "Option::is_none")]
    safety: Option<Safety>,
    /// The file of a change with --atomic that was cut off, and through which the disk is seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    unfinished_change: Option<String>,
    /// `gpt`, `mbr`, or null.
    partition_table: Option<&'static str>,
    partitions: Vec<Partition>,
    /// Why there is nothing on partitions, if that is not because there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    partitions_unknown: Option<String>,
    /// Why other commands refuse the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    unusable: Option<String>,
}

/// An image of a chain, as qemu-img lists them: each beside the others.
#[derive(Serialize)]
#[serde(untagged)]
enum Link {
    Top(Box<Report>),
    Behind(Box<Behind>),
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Behind {
    filename: String,
    format: &'static str,
    virtual_size: u64,
    actual_size: u64,
    #[serde(flatten)]
    own: Own,
}

/// What an image says of itself: in the words of its format, of which it has one.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Own {
    dirty_flag: bool,
    #[serde(flatten)]
    qcow2: Option<Qcow2Report>,
    #[serde(flatten)]
    vmdk: Option<VmdkReport>,
    #[serde(flatten)]
    block_map: Option<BlockMapReport>,
    #[serde(flatten)]
    luks: Option<LuksReport>,
}

/// A disk in an OVA.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Disk {
    number: usize,
    id: String,
    /// Null for a new, empty one.
    member: Option<String>,
    /// As far as the description says it.
    virtual_size: Option<u64>,
    format: String,
}

#[derive(Default, Serialize)]
struct Users {
    writer: Option<String>,
    reader: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Partition {
    number: u32,
    start: u64,
    length: u64,
    r#type: String,
    name: String,
}

impl Own {
    /// Of the image in `file`, which is in the format of this word.
    fn of(
        file: Option<&Path>,
        format: &'static str,
        qcow2: Option<Qcow2Info>,
        vmdk: Option<VmdkInfo>,
        block_map: Option<BlockMapInfo>,
    ) -> Self {
        let is_dirty = [
            qcow2.as_ref().is_some_and(|info| info.is_dirty),
            vmdk.as_ref().is_some_and(|info| info.is_dirty),
            block_map.as_ref().is_some_and(|info| info.is_dirty),
        ];
        Self {
            dirty_flag: is_dirty.contains(&true),
            qcow2: qcow2.map(|info| Qcow2Report::of(file, info)),
            vmdk: vmdk.map(|info| VmdkReport::of(file, info)),
            block_map: block_map.map(|info| BlockMapReport::of(format, info)),
            luks: None,
        }
    }

    fn render(&self, text: &mut String) {
        if let Some(qcow2) = &self.qcow2 {
            qcow2.render(text);
        }
        if let Some(vmdk) = &self.vmdk {
            vmdk.render(text);
        }
        if let Some(block_map) = &self.block_map {
            block_map.render(text);
        }
        if let Some(luks) = &self.luks {
            luks.render(text);
        }
    }
}

impl Report {
    fn new(named: &DiskSpecification, info: ImageInfo) -> Self {
        let ImageInfo { file, format, virtual_bytes, storage_bytes, qcow2, vmdk, block_map, luks, users, .. } = info;
        let name = |path: PathBuf| path.display().to_string();
        let mut report = Self {
            filename: file.clone().map_or_else(|| named.to_string(), name),
            format: format.to_owned(),
            virtual_size: virtual_bytes,
            actual_size: storage_bytes,
            own: Own { luks: luks.map(LuksReport::of), ..Own::of(file.as_deref(), format, qcow2, vmdk, block_map) },
            disks: (1..).zip(info.ova_disks).map(Disk::from).collect(),
            backing_chain: info.behind.into_iter().map(Behind::from).collect(),
            users: Users { writer: users.writer, reader: users.reader },
            safety: None,
            unfinished_change: info.unfinished.map(name),
            partition_table: None,
            partitions: Vec::new(),
            partitions_unknown: None,
            unusable: None,
        };
        match info.partitions {
            Partitions::Table(table) => report.set_table(&table),
            Partitions::Unknown(why) => report.partitions_unknown = Some(why),
            Partitions::Unusable(why) => report.unusable = Some(why),
        }
        report
    }

    /// The images of the chain one beside the other, this one first.
    fn into_chain(mut self) -> Vec<Link> {
        let behind = std::mem::take(&mut self.backing_chain);
        std::iter::once(Link::Top(Box::new(self)))
            .chain(behind.into_iter().map(|image| Link::Behind(Box::new(image))))
            .collect()
    }

    fn set_table(&mut self, table: &PartitionTable) {
        self.partition_table = table.scheme.map(|scheme| match scheme {
            Scheme::Gpt => "gpt",
            Scheme::Mbr => "mbr",
        });
        let partition = |partition: &blockyard_block::partition_table::Partition| Partition {
            number: partition.number,
            start: partition.range_bytes.start,
            length: partition.range_bytes.end - partition.range_bytes.start,
            r#type: partition.kind.name().map_or_else(|| partition.kind.to_string(), str::to_owned),
            name: partition.name.clone(),
        };
        self.partitions = table.partitions.iter().map(partition).collect();
    }

    fn render(&self) -> String {
        let mut text = self.render_image();
        if let Some(safety) = &self.safety {
            safety.render(&mut text);
        }
        text
    }

    fn render_image(&self) -> String {
        let mut text = format!("image: {}\nfile format: {}\n", printable(&self.filename), self.format);
        if let Some(bytes) = self.virtual_size {
            let _ = writeln!(text, "virtual size: {} ({bytes} bytes)", size::human(bytes));
        }
        if let Some(bytes) = self.actual_size {
            let _ = writeln!(text, "disk size: {}", size::human(bytes));
        }
        self.own.render(&mut text);
        for Disk { number, id, member, virtual_size, .. } in &self.disks {
            let size = virtual_size.map_or_else(String::new, |bytes| format!(", {}", size::human(bytes)));
            let member = member.as_deref().map_or_else(|| "new and empty".to_owned(), printable);
            let _ = writeln!(text, "disk {number}: {member}{size} ({})", printable(id));
        }
        if let Some(why) = &self.unusable {
            let _ = writeln!(text, "not usable here: {}", printable(why));
            return text.trim_end().to_owned();
        }
        for Behind { filename, format, virtual_size, actual_size, .. } in &self.backing_chain {
            let (virtual_size, actual_size) = (size::human(*virtual_size), size::human(*actual_size));
            let _ =
                writeln!(text, "behind it: {} ({format}, {virtual_size}, {actual_size} on disk)", printable(filename));
        }
        for (user, what) in [(&self.users.writer, "writing"), (&self.users.reader, "reading")] {
            if let Some(user) = user {
                let _ = writeln!(text, "in use for {what}: by {}", printable(user));
            }
        }
        if let Some(path) = &self.unfinished_change {
            let how = "completed by `blockyard image check -r leaks` or any command that writes to the image";
            let _ = writeln!(text, "unfinished change: {}, {how}", printable(path));
        }
        match (&self.partitions_unknown, self.partition_table) {
            (Some(why), _) => {
                let _ = write!(text, "partitions: not known: {}", printable(why));
            }
            (None, None) => text.push_str("partitions: no table"),
            (None, Some(scheme)) => {
                let _ = write!(text, "partitions: {scheme}");
                for Partition { number, start, length, r#type, name } in &self.partitions {
                    let (length, start) = (size::human(*length), size::human(*start));
                    let _ = write!(text, "\n    {number}: {length} from {start} on, {type} {}", printable(name));
                    text.truncate(text.trim_end().len());
                }
            }
        }
        text
    }
}

impl From<(usize, OvaDisk)> for Disk {
    fn from((number, disk): (usize, OvaDisk)) -> Self {
        let OvaDisk { id, name, capacity_bytes, format, .. } = disk;
        Self { number, id, member: name, virtual_size: capacity_bytes, format }
    }
}

impl From<ChainImage> for Behind {
    fn from(image: ChainImage) -> Self {
        let ChainImage { path, format, size_bytes, allocated_bytes, qcow2, vmdk, block_map } = image;
        Self {
            filename: path.display().to_string(),
            format,
            virtual_size: size_bytes,
            actual_size: allocated_bytes,
            own: Own::of(Some(&path), format, qcow2, vmdk, block_map),
        }
    }
}
