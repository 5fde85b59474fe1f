//! The process at the door: the same program, run again. What connects it to the driver is its stdin.

use super::args::{Running, ServeOptions, TableArg};
use super::gate::{Until, serve_gate};
use super::serving::Preparation;
use anyhow::{Context, Result};
use blockyard_block::Disk;
use blockyard_block::partition_table::TableChoice;
use blockyard_command_line::usage_error::UsageError;
use blockyard_session::client::{SessionDisk, SessionOptions};
use blockyard_session::mediator::{self, Gate, Mediator, MediatorConfig, PartitionExport, offers};
use blockyard_vmm::placement::CpuList;
use clap::{Args, ValueEnum};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// The copier's buffer between clients and driver.
const IO_BUFFER_BYTES: u64 = 4 << 20;

/// The process between the driver and its clients. `serve` starts it; its stdin is the driver.
#[derive(Args, Debug)]
pub struct ChildArgs {
    /// What it is.
    #[arg(value_enum)]
    door: Door,
    #[arg(long)]
    partition: Vec<PartitionExport>,
    #[arg(long, value_enum)]
    table: Option<TableArg>,
    #[arg(long, default_value = "1")]
    queues: u16,
    #[arg(long, default_value = "1")]
    threads: u16,
    #[arg(long)]
    cpus: Option<CpuList>,
    #[arg(long, default_value = "0")]
    poll_us: u64,
}

/// Who stands at the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Door {
    /// Passes clients on to the driver.
    Mediator,
    /// Serves clients itself, from a session with the driver.
    Copier,
}

impl Door {
    /// Starts the process, with `stdin` as its connection.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn open(
        self,
        options: &ServeOptions,
        exports: &[PartitionExport],
        table: TableChoice,
        stdin: OwnedFd,
    ) -> Result<Child> {
        let program = std::env::current_exe().context("finding this program's own file")?;
        let mut command = Command::new(program);
        let name = self.to_possible_value().expect("no value is hidden").get_name().to_owned();
        command.args(["serve-partitions", &name]).stdin(Stdio::from(stdin));
        let table = match table {
            TableChoice::Auto => None,
            TableChoice::Mbr => Some("mbr"),
            TableChoice::Gpt => Some("gpt"),
        };
        command.args(table.iter().flat_map(|table| ["--table", table]));
        for export in exports {
            command.args(["--partition", &with_uids(export, &options.allow_uids)]);
        }
        let Running { queues, threads, poll, cpus, .. } = &options.running;
        command.args(["--queues", &queues.to_string(), "--threads", &threads.to_string()]);
        command.args(["--poll-us", &poll.as_micros().to_string()]);
        if let Some(cpus) = cpus {
            command.args(["--cpus", &cpus.to_string()]);
        }
        command.spawn().with_context(|| format!("starting the {name}"))
    }
}

/// The export as it is said, with more users who may connect.
fn with_uids(export: &PartitionExport, uids: &[u32]) -> String {
    uids.iter().fold(export.to_string(), |text, uid| format!("{text},uid={uid}"))
}

/// Runs the process at the door.
///
/// # Errors
/// When it cannot begin or go on; the driver was told.
pub fn run(args: &ChildArgs) -> Result<()> {
    if args.partition.is_empty() {
        return Err(UsageError("this command is for `blockyard serve` to run".into()).into());
    }
    let mut preparation = Preparation::new(args.running())?;
    preparation.close_inherited();
    let stdin = io::stdin().as_fd().try_clone_to_owned().context("taking over the driver's connection")?;
    let table = TableArg::choice(args.table);
    let sockets: Vec<&Path> = args.partition.iter().map(PartitionExport::socket).collect();
    match args.door {
        Door::Mediator => {
            let config = MediatorConfig { exports: args.partition.clone(), table };
            let Some(mediator) = Mediator::start(stdin, &config, mediator::session)? else { return Ok(()) };
            preparation.confine(&sockets, 0)?;
            Ok(mediator.run()?)
        }
        Door::Copier => {
            let session = SessionOptions { io_buffer_bytes: Some(IO_BUFFER_BYTES), ..SessionOptions::default() };
            let stream = UnixStream::from(stdin);
            let lifeline = Some(stream.try_clone().context("watching the driver's connection")?);
            let disk = Arc::new(SessionDisk::from_stream(stream, "the driver", &session)?);
            let read_only = disk.geometry().read_only;
            let offers = offers(&*disk, table, &args.partition, read_only)?;
            for warning in &offers.warnings {
                preparation.screen.tell(&warning.to_string());
            }
            let gate = Gate::open(offers.offers)?;
            preparation.confine(&sockets, 0)?;
            serve_gate(preparation.serve(disk)?, gate, &Until { once: false, lifeline })
        }
    }
}

impl ChildArgs {
    fn running(&self) -> Running {
        Running {
            queues: self.queues,
            threads: self.threads,
            cpus: self.cpus.clone(),
            poll: Duration::from_micros(self.poll_us),
            stats: false,
            metrics: None,
        }
    }
}
