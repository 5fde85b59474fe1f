//! The process at the door. What connects it to the driver is its stdin.

use crate::gate::{Until, serve_gate};
use crate::operator::Operator;
use crate::options::{Door, Running};
use crate::serving::Preparation;
use anyhow::{Context, Result};
use blockyard_block::Disk;
use blockyard_block::partition_table::TableChoice;
use blockyard_session::client::{SessionDisk, SessionOptions};
use blockyard_session::mediator::{self, Gate, Mediator, MediatorConfig, PartitionExport, offers};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// The copier's buffer between clients and driver.
const IO_BUFFER_BYTES: u64 = 4 << 20;

/// The process between a driver and its clients.
#[derive(Debug)]
pub struct DoorOptions {
    /// What it is.
    pub door: Door,
    /// The partitions, and who may connect to each.
    pub exports: Vec<PartitionExport>,
    /// Which table counts where there are two.
    pub table: TableChoice,
    /// How the process runs.
    pub running: Running,
}

impl Door {
    /// Starts the process, with `stdin` as its connection.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn open(self, mut command: Command, stdin: OwnedFd) -> Result<Child> {
        command.stdin(Stdio::from(stdin)).spawn().with_context(|| format!("starting the {self}"))
    }
}

/// Is the process at the door: lets clients in for the driver that has started this process, with its connection as
/// stdin, until that is gone.
///
/// # Errors
/// When it cannot begin or go on; the driver was told.
pub fn stand_at_the_door(options: DoorOptions, operator: &dyn Operator) -> Result<()> {
    let DoorOptions { door, exports, table, running } = options;
    let mut preparation = Preparation::new(running, operator)?;
    preparation.close_inherited();
    let stdin = io::stdin().as_fd().try_clone_to_owned().context("taking over the driver's connection")?;
    let sockets: Vec<&Path> = exports.iter().map(PartitionExport::socket).collect();
    match door {
        Door::Mediator => {
            let config = MediatorConfig { exports: exports.clone(), table };
            let Some(mediator) = Mediator::start(stdin, &config, mediator::session)? else { return Ok(()) };
            preparation.confine(&sockets, 0)?;
            Ok(mediator.run()?)
        }
        Door::Copier => {
            let io_buffer_bytes = Some(IO_BUFFER_BYTES);
            let session = SessionOptions { io_buffer_bytes, is_passed_on: true, ..SessionOptions::default() };
            let stream = UnixStream::from(stdin);
            let lifeline = Some(stream.try_clone().context("watching the driver's connection")?);
            let disk = Arc::new(SessionDisk::from_stream(stream, "the driver", &session)?);
            preparation.is_alone = disk.is_alone();
            let read_only = disk.geometry().read_only;
            let offers = offers(&*disk, table, &exports, read_only)?;
            for warning in &offers.warnings {
                preparation.notices.tell(&warning.to_string());
            }
            let gate = Gate::open(offers.offers)?;
            preparation.confine(&sockets, 0)?;
            serve_gate(preparation.serve(disk)?, gate, &Until { once: false, lifeline })
        }
    }
}
