//! `blockyard serve`: its options, and what they may be.

use crate::table_option::TableOption;
use anyhow::{Context, Result};
use blockyard_command_line::usage_error::{UsageError, UsageLines};
use blockyard_serve::{Door, Front, Running, ServeOptions};
use blockyard_session::mediator::PartitionExport;
use blockyard_vmm::placement::CpuList;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Serve a disk, or confined partitions of it, to virtual machines over vhost-user-blk, or as a file.
///
/// DISK is a disk specification, [KIND:]PATH[,KEY=VALUE...], such as disk.img, disk.qcow2,ro or null:8G. It goes to one
/// of: a socket (QEMU, User-Mode Linux, Cloud Hypervisor, crosvm and `session:SOCKET` connect to it), a socket for each
/// of some partitions, or a file that dd, fio, mkfs and debugfs work on.
///
/// Serves until SIGINT or SIGTERM, or, with --once, until its client has left. SIGUSR1 prints latency histograms on
/// stderr.
///
/// Exit status: 0 when it was told to end, 1 on failure or when somebody took its file away, 2 on wrong usage.
#[derive(Args, Debug)]
#[command(override_usage = "blockyard serve [OPTIONS] --socket <PATH> <DISK>\n       \
                            blockyard serve [OPTIONS] --partition <N=PATH[,rw]>... <DISK>\n       \
                            blockyard serve [OPTIONS] --fuse <FILE> <DISK>")]
pub struct ServeArgs {
    /// Disk to serve.
    #[arg(value_name = "DISK")]
    disk: String,
    /// Serve the whole disk on this socket, one client at a time.
    #[arg(long, value_name = "PATH", group = "front")]
    socket: Option<PathBuf>,
    /// Serve partition N on a socket: N=PATH[,rw][,weight=W][,uid=U]. Read-only unless rw; may be repeated.
    #[arg(long, value_name = "N=PATH[,rw]", group = "front")]
    partition: Vec<PartitionExport>,
    /// Serve the disk as this file: an empty one is made when there is none.
    #[arg(long, value_name = "FILE", group = "front")]
    fuse: Option<PathBuf>,
    /// With --partition: copy every block in a process between the clients and the driver, for comparison.
    #[arg(long)]
    copying: bool,
    /// With --partition: which table counts on a disk that has two [default: refuse such a disk].
    #[arg(long, value_enum, value_name = "TABLE")]
    table: Option<TableOption>,
    /// End when the first client of --socket has left.
    #[arg(long)]
    once: bool,
    /// Virtqueues offered to a client, from 1 to 64.
    #[arg(long, value_name = "N", default_value = "4", conflicts_with = "fuse", value_parser = clap::value_parser!(u16).range(1..=64))]
    queues: u16,
    /// I/O threads, from 1 to 64.
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "fuse", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// CPUs for the I/O threads, like 0,2 or 0-1; thread n runs on the nth.
    #[arg(long, value_name = "LIST", conflicts_with = "fuse")]
    cpus: Option<CpuList>,
    /// Longest time to look for new requests before sleeping; 0 sleeps at once.
    #[arg(long, value_name = "MICROSECONDS", default_value = "200", conflicts_with = "fuse", value_parser = clap::value_parser!(u64).range(0..=10_000))]
    poll_us: u64,
    /// Users who may connect besides the one who runs this, by number; may be repeated.
    #[arg(long, value_name = "UID", conflicts_with = "fuse")]
    allow_uid: Vec<u32>,
    /// Directory that an image's backing and data files may lie in; may be repeated.
    #[arg(long, value_name = "DIR")]
    pub allow_dir: Vec<PathBuf>,
    /// Show what each client does, once a second.
    #[arg(long)]
    pub stats: bool,
    /// Answer http://ADDRESS/metrics for Prometheus; a loopback address such as 127.0.0.1:9100.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
}

impl ServeArgs {
    /// Checks what clap cannot.
    ///
    /// # Errors
    /// [`UsageError`], with a sentence on what does not fit and what would.
    pub fn options(&self) -> Result<ServeOptions> {
        if let Some(address) = self.metrics.filter(|address| !address.ip().is_loopback()) {
            return usage(format!(
                "--metrics {address} could be reached from other machines: take a loopback address such as 127.0.0.1:{}",
                address.port()
            ));
        }
        Ok(ServeOptions {
            disk: self.disk.parse().map_err(UsageLines::from)?,
            front: self.front()?,
            running: Running {
                queues: self.queues,
                threads: self.threads,
                cpus: self.cpus.as_ref().map(|list| list.cpus().to_vec()).unwrap_or_default(),
                poll: Duration::from_micros(self.poll_us),
                metrics: self.metrics,
            },
        })
    }

    /// None, which is the one who runs this, or that one and others.
    fn allow_uids(&self) -> Vec<u32> {
        let own = (!self.allow_uid.is_empty()).then(|| rustix::process::geteuid().as_raw());
        own.into_iter().chain(self.allow_uid.iter().copied()).collect()
    }

    fn front(&self) -> Result<Front> {
        if self.partition.is_empty() && (self.copying || self.table.is_some()) {
            return usage("--copying and --table are for partitions: --partition N=PATH");
        }
        if self.socket.is_none() && self.once {
            return usage("--once is for one socket: --socket PATH");
        }
        match (&self.socket, self.partition.as_slice(), &self.fuse) {
            (Some(path), [], None) => {
                Ok(Front::Socket { path: path.clone(), once: self.once, uids: self.allow_uids() })
            }
            (None, [_, ..], None) => {
                let door = if self.copying { Door::Copier } else { Door::Mediator };
                let command = door_command(door, self, &self.allow_uids())?;
                Ok(Front::Partitions { count: self.partition.len(), door, command })
            }
            (None, [], Some(path)) => Ok(Front::Fuse(path.clone())),
            _ => usage("say where the disk shall be served: --socket PATH, --partition N=PATH or --fuse FILE"),
        }
    }
}

/// The command that is the process at the door for these options.
///
/// # Errors
/// When this program does not find itself.
fn door_command(door: Door, args: &ServeArgs, uids: &[u32]) -> Result<Command> {
    let program = std::env::current_exe().context("finding this program's own file")?;
    let mut command = Command::new(program);
    command.args(["serve-partitions", &door.to_string()]);
    let table = match args.table {
        None => None,
        Some(TableOption::Mbr) => Some("mbr"),
        Some(TableOption::Gpt) => Some("gpt"),
    };
    command.args(table.iter().flat_map(|table| ["--table", table]));
    for export in &args.partition {
        command.args(["--partition", &with_uids(export, uids)]);
    }
    command.args(["--queues", &args.queues.to_string(), "--threads", &args.threads.to_string()]);
    command.args(["--poll-us", &args.poll_us.to_string()]);
    if let Some(cpus) = &args.cpus {
        command.args(["--cpus", &cpus.to_string()]);
    }
    Ok(command)
}

/// The export as it is said, with more users who may connect.
fn with_uids(export: &PartitionExport, uids: &[u32]) -> String {
    uids.iter().fold(export.to_string(), |text, uid| format!("{text},uid={uid}"))
}

fn usage<T>(sentence: impl Into<String>) -> Result<T> {
    Err(UsageError(sentence.into()).into())
}
