//! What every way of serving begins with, in the order that matters: open, give up the rest, start.

use crate::clients::Clients;
use crate::metrics;
use crate::notices::Notices;
use crate::operator::Operator;
use crate::options::Running;
use crate::view::Look;
use anyhow::{Context, Result};
use blockyard_block::specification::{DiskSpecification, Kind};
use blockyard_block::{Disk, EventFd, RingsAhead, directory_of, wait_ready};
use blockyard_confinement::{Confinement, Inherited, Landlock, raise_descriptor_limit};
use blockyard_session::mediator::Grantor;
use blockyard_session::open::{OpenOptions, open_disk};
use blockyard_session::server::{Doorkeeper, Server, ServerOptions};
use rustix::event::{PollFd, PollFlags};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Queues of a client's further connections that have rings, all together; others make do with threads.
const FURTHER_QUEUES: usize = 28;

/// A process that is about to serve: its operator can end it, what it will need is open.
pub(crate) struct Preparation<'a> {
    /// Where messages go.
    pub(crate) notices: &'static Notices,
    operator: &'a dyn Operator,
    /// Readable when it shall end.
    stop: Arc<EventFd>,
    running: Running,
    metrics: Option<TcpListener>,
    /// Whether the disk makes connections after it was opened: a session outlives its server.
    connects: bool,
    /// Whether nobody else changes the disk.
    pub(crate) is_alone: bool,
    /// Closed once the disk is open, whose name may say one of them.
    inherited: Option<Inherited>,
    /// Takes descriptors from clients.
    doorkeeper: Doorkeeper,
    /// Descriptors that this process may have.
    descriptors: usize,
}

impl<'a> Preparation<'a> {
    /// Lets the operator begin, and opens what the options ask for besides the disk.
    ///
    /// # Errors
    /// When an address is taken or the system refuses.
    pub(crate) fn new(running: Running, operator: &'a dyn Operator) -> Result<Self> {
        let inherited = Some(Inherited::take().context("taking over what was inherited")?);
        let descriptors = raise_descriptor_limit();
        // Before there are threads, and files that it would have to close.
        let doorkeeper = Doorkeeper::start().context("starting a process that receives what clients send")?;
        let metrics = running.metrics.map(metrics::listen).transpose()?;
        let stop = Arc::new(EventFd::new().context("making an event")?);
        operator.begin(Arc::clone(&stop))?;
        let notices = operator.notices();
        let (connects, is_alone) = (false, false);
        Ok(Self { notices, operator, stop, running, metrics, connects, is_alone, inherited, doorkeeper, descriptors })
    }

    /// As [`Preparation::new`], with the disk of this name.
    ///
    /// # Errors
    /// As there, and when the disk cannot be had.
    pub(crate) fn with_disk(
        name: &DiskSpecification,
        opening: &OpenOptions<'_>,
        running: Running,
        operator: &'a dyn Operator,
    ) -> Result<(Self, Arc<dyn Disk>)> {
        let connects = name.kind() == Kind::Session;
        let mut preparation = Self { connects, ..Self::new(running, operator)? };
        let opened = open_disk(name, &opening.gathering())?;
        preparation.is_alone = opened.is_alone();
        preparation.close_inherited();
        Ok((preparation, opened.disk))
    }

    /// Closes what whoever started this process left it.
    pub(crate) fn close_inherited(&mut self) {
        if let Some(inherited) = self.inherited.take() {
            inherited.close();
        }
    }

    /// Gives up what is not needed any more: all but `sockets`, which this process removes at the end, and making
    /// connections again where the disk does that. `clients` at most come at a time, and each has the same number of
    /// queues.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn confine(&self, sockets: &[&Path], clients: usize) -> Result<()> {
        let removes_in = sockets.iter().map(|socket| directory_of(socket).to_owned()).collect();
        let queues = clients * usize::from(self.running.queues);
        let rings = RingsAhead { queues, quotas: clients, quota_queues: FURTHER_QUEUES };
        let confinement = Confinement { removes_in, connects: self.connects, rings, ..Confinement::default() };
        if confinement.enter()? == Landlock::Absent {
            self.notices.tell("this kernel has no Landlock: only system calls are confined");
        }
        Ok(())
    }

    /// Starts the server, with nobody there yet.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn serve(self, disk: Arc<dyn Disk>) -> Result<Serving> {
        let Running { queues, threads, poll, .. } = self.running;
        let (threads, cpus) = (threads.into(), self.running.cpus.clone());
        let doorkeeper = Some(self.doorkeeper.clone());
        let descriptors = self.descriptors;
        let server = ServerOptions { threads, cpus, poll, doorkeeper, descriptors, ..ServerOptions::default() };
        let server = Server::start(&server).context("starting I/O threads")?;
        let clients = Clients::new(server, disk, self.is_alone, queues, self.notices);
        let notices = self.notices;
        let stop = self.show(Arc::new(clients.view()))?;
        Ok(Serving { clients, stop, notices })
    }

    /// From now on, shows what clients do to whoever asks; the event that says when this process shall end.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn show(self, look: Look) -> Result<Arc<EventFd>> {
        let Self { operator, stop, metrics, .. } = self;
        if let Some(listener) = metrics {
            metrics::serve(listener, Arc::clone(&look))?;
        }
        operator.watch(look)?;
        Ok(stop)
    }
}

/// A process that serves.
pub(crate) struct Serving {
    /// Who is there.
    pub(crate) clients: Clients,
    /// Readable when it shall end.
    pub(crate) stop: Arc<EventFd>,
    /// Where messages go.
    pub(crate) notices: &'static Notices,
}

impl Serving {
    /// Waits until one of `descriptors` is ready, a client has gone, a signal came or `patience` is over: the places of
    /// those that are ready; `None` when it is time to stop.
    ///
    /// # Errors
    /// When waiting fails.
    pub(crate) fn wait<'a>(
        &'a self,
        descriptors: impl IntoIterator<Item = PollFd<'a>>,
        patience: Option<Duration>,
    ) -> Result<Option<Vec<usize>>> {
        let mut polled: Vec<_> = descriptors.into_iter().collect();
        let stop = polled.len();
        let mut events = vec![self.stop.as_fd()];
        self.clients.events(&mut events);
        polled.extend(events.iter().map(|&event| PollFd::from_borrowed_fd(event, PollFlags::IN)));
        wait_ready(&mut polled, patience).context("waiting for clients")?;
        let is_ready = |place: &usize| !polled[*place].revents().is_empty();
        Ok((!is_ready(&stop)).then(|| (0..stop).filter(is_ready).collect()))
    }
}
