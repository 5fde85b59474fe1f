//! The process at the door: the same program, run again.

use super::args::ServeArgs;
use crate::table_option::TableOption;
use anyhow::{Context, Result};
use blockyard_serve::{Door, DoorOptions, Running};
use blockyard_session::mediator::PartitionExport;
use blockyard_vmm::placement::CpuList;
use clap::{Args, ValueEnum};
use std::process::Command;
use std::time::Duration;

/// The process between the driver and its clients. `serve` starts it; its stdin is the driver.
#[derive(Args, Debug)]
pub struct ChildArgs {
    /// What it is.
    #[arg(value_enum)]
    door: DoorArg,
    #[arg(long)]
    pub partition: Vec<PartitionExport>,
    #[arg(long, value_enum)]
    table: Option<TableOption>,
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
enum DoorArg {
    /// Passes clients on to the driver.
    Mediator,
    /// Serves clients itself, from a session with the driver.
    Copier,
}

/// The command that is the process at the door for these options.
///
/// # Errors
/// When this program does not find itself.
pub fn command(door: Door, args: &ServeArgs, uids: &[u32]) -> Result<Command> {
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

impl ChildArgs {
    /// What the process is to do.
    pub fn options(&self) -> DoorOptions {
        DoorOptions {
            door: match self.door {
                DoorArg::Mediator => Door::Mediator,
                DoorArg::Copier => Door::Copier,
            },
            exports: self.partition.clone(),
            table: TableOption::choice(self.table),
            running: Running {
                queues: self.queues,
                threads: self.threads,
                cpus: self.cpus.as_ref().map(|list| list.cpus().to_vec()).unwrap_or_default(),
                poll: Duration::from_micros(self.poll_us),
                metrics: None,
            },
        }
    }
}
