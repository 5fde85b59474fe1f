//! `blockyard image info`: what an image is.

use super::named_image::{self, Format};
use super::shut_in::shut_in;
use crate::{print, size, terminal};
use anyhow::{Context, Result};
use blockyard_block::partition_table::{PartitionTable, Scheme, read};
use blockyard_block::specification::{DiskSpecification, Kind};
use blockyard_block::{AllowedDirectories, ChainImage, Disk, FileUsers, Qcow2Info, image_chain, printable, shown};
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Show what an image is: format, sizes, backing files, partitions, and who uses it.
#[derive(Args)]
pub struct InfoArgs {
    /// Image: [KIND:]PATH[,KEY=VALUE...]
    image: String,
    /// Format of the image.
    #[arg(short, value_name = "FORMAT", value_enum)]
    format: Option<Format>,
    /// Show the images behind it too.
    #[arg(long)]
    backing_chain: bool,
    /// Print one JSON object on stdout.
    #[arg(long)]
    json: bool,
    /// Directory whose files an image may refer to; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// When it is no image.
pub fn run(args: &InfoArgs) -> Result<()> {
    let named = named_image::source(&args.image, args.format)?;
    let report = Report::of(&named, args)?;
    print(&if args.json { terminal::json_pretty(&report)? } else { report.render() })
}

/// What is known of an image. The names are qemu-img's as far as it has them.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Report {
    filename: String,
    format: String,
    virtual_size: u64,
    /// Bytes of storage; null for what is in no file.
    actual_size: Option<u64>,
    #[serde(flatten)]
    qcow2: Option<Qcow2>,
    /// The images behind it, the nearest first; only when they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    backing_chain: Vec<Behind>,
    users: Users,
    /// The file of a change with --atomic that was cut off, and through which the disk is seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    unfinished_change: Option<String>,
    /// `gpt`, `mbr`, or null.
    partition_table: Option<&'static str>,
    partitions: Vec<Partition>,
    /// Why there is nothing on partitions, if that is not because there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    partitions_unknown: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Qcow2 {
    cluster_size: u64,
    compat: &'static str,
    refcount_bits: u32,
    snapshots: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    backing_filename: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backing_filename_format: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_file: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Behind {
    filename: String,
    format: &'static str,
    virtual_size: u64,
    actual_size: u64,
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

impl Report {
    fn of(named: &DiskSpecification, args: &InfoArgs) -> Result<Self> {
        let file = named.path().filter(|_| named.kind() == Kind::File);
        let is_qcow2 = file.is_some() && named.format() == Some("qcow2");
        let failed =
            || format!("cannot look at {}", file.map_or_else(|| args.image.clone(), |path| shown(path).to_string()));
        let qcow2 = file.filter(|_| is_qcow2).map(Qcow2Info::read).transpose()?;
        let chain = match file.filter(|_| is_qcow2 && args.backing_chain) {
            Some(path) => image_chain(path, &AllowedDirectories::new(&args.allow_dir)?)?,
            None => Vec::new(),
        };
        let users = file.map(FileUsers::of).transpose().with_context(failed)?.unwrap_or_default();
        let metadata = file.map(|path| path.metadata()).transpose().with_context(failed)?;
        let opened = named_image::open_stream(named, true, &args.allow_dir).map(|stream| stream.opened);
        let virtual_size = match (&qcow2, &opened) {
            (Some(info), _) => info.size_bytes,
            (None, Ok(opened)) => opened.length_bytes,
            // Somebody who writes to a raw image keeps others from opening it, not from looking at how long it is.
            (None, Err(_)) if users.writer.is_some() && named.format() == Some("raw") => {
                metadata.as_ref().map_or(0, |metadata| metadata.len())
            }
            (None, Err(_)) => return Err(opened.err().unwrap_or_else(|| anyhow::anyhow!("no disk"))),
        };
        let unfinished = opened.as_ref().ok().and_then(|opened| opened.unfinished.as_ref());
        let unfinished_change = unfinished.map(|path| path.display().to_string());
        shut_in(&[named], Vec::new(), 1)?;
        let table = opened.and_then(|opened| Ok(read(&*opened.disk as &dyn Disk)?));
        let mut report = Self {
            filename: file.map_or_else(|| named.to_string(), |path| path.display().to_string()),
            format: named.format().unwrap_or(named.kind().word()).to_owned(),
            virtual_size,
            actual_size: metadata.as_ref().map(|metadata| metadata.blocks() * 512),
            qcow2: qcow2.map(Qcow2::from),
            backing_chain: chain.iter().skip(1).map(Behind::from).collect(),
            users: Users { writer: users.writer, reader: users.reader },
            unfinished_change,
            partition_table: None,
            partitions: Vec::new(),
            partitions_unknown: None,
        };
        match table {
            Ok(table) => report.set_table(&table),
            Err(error) => report.partitions_unknown = Some(format!("{error:#}")),
        }
        Ok(report)
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
        let size = |bytes: u64| format!("{} ({bytes} bytes)", size::human(bytes));
        let mut text = format!(
            "image: {}\nfile format: {}\nvirtual size: {}\n",
            printable(&self.filename),
            self.format,
            size(self.virtual_size)
        );
        if let Some(bytes) = self.actual_size {
            let _ = writeln!(text, "disk size: {}", size::human(bytes));
        }
        if let Some(qcow2) = &self.qcow2 {
            qcow2.render(&mut text);
        }
        for Behind { filename, format, virtual_size, actual_size } in &self.backing_chain {
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

impl Qcow2 {
    fn render(&self, text: &mut String) {
        let _ = writeln!(text, "cluster_size: {}", self.cluster_size);
        if let Some(name) = &self.backing_filename {
            let _ = writeln!(text, "backing file: {}", printable(name));
        }
        if let Some(format) = &self.backing_filename_format {
            let _ = writeln!(text, "backing file format: {}", printable(format));
        }
        if let Some(name) = &self.data_file {
            let _ = writeln!(text, "data file: {}", printable(name));
        }
        let Self { compat, refcount_bits, snapshots, .. } = self;
        let _ = writeln!(text, "compat: {compat}\nrefcount bits: {refcount_bits}");
        if *snapshots > 0 {
            let _ = writeln!(text, "snapshots: {snapshots}");
        }
    }
}

impl From<Qcow2Info> for Qcow2 {
    fn from(info: Qcow2Info) -> Self {
        Self {
            cluster_size: info.cluster_bytes,
            compat: if info.version == 2 { "0.10" } else { "1.1" },
            refcount_bits: info.refcount_bits,
            snapshots: info.snapshots,
            backing_filename: info.backing_name,
            backing_filename_format: info.backing_format,
            data_file: info.data_file,
        }
    }
}

impl From<&ChainImage> for Behind {
    fn from(image: &ChainImage) -> Self {
        Self {
            filename: image.path.display().to_string(),
            format: if image.qcow2.is_some() { "qcow2" } else { "raw" },
            virtual_size: image.size_bytes,
            actual_size: image.allocated_bytes,
        }
    }
}
