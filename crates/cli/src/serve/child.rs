//! The process at the door: the same program, run again.

use crate::table_option::TableOption;
use blockyard_serve::{Door, DoorOptions, Running};
use blockyard_session::mediator::PartitionExport;
use blockyard_vmm::placement::CpuList;
use clap::{Args, ValueEnum};
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
