//! What every way of serving begins with, in the order that matters: open, give up the rest, start.

use super::args::{Running, ServeOptions};
use super::clients::Clients;
use super::metrics;
use super::screen::Screen;
use super::view::Look;
use anyhow::{Context, Result};
use blockyard_block::EventFd;
use blockyard_block::specification::Kind;
use blockyard_block::{Disk, wait_ready};
use blockyard_command_line::disk::{self, Access};
use blockyard_command_line::signals::EndSignals;
use blockyard_confinement::{Confinement, Inherited, Landlock, raise_descriptor_limit};
use blockyard_session::mediator::Grantor;
use blockyard_session::server::{Doorkeeper, Server, ServerOptions};
use rustix::event::{PollFd, PollFlags};
use signal_hook::consts::SIGUSR1;
use signal_hook::iterator::Signals;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// Looks at a server's clients once there is a server.
type View = Arc<OnceLock<Look>>;

/// A process that is about to serve: signals are caught, what it will need is open.
pub struct Preparation {
    /// Readable when it shall end.
    pub stop: Arc<EventFd>,
    /// Where messages go.
    pub screen: Screen,
    running: Running,
    metrics: Option<TcpListener>,
    view: View,
    /// Whether the disk makes connections after it was opened: a session outlives its server.
    connects: bool,
    /// Closed once the disk is open, whose name may say one of them.
    inherited: Option<Inherited>,
    /// Takes descriptors from clients.
    doorkeeper: Doorkeeper,
    /// Descriptors that this process may have.
    descriptors: usize,
}

impl Preparation {
    /// Catches signals and opens what the options ask for besides the disk.
    ///
    /// # Errors
    /// When an address is taken or the system refuses.
    pub fn new(running: Running) -> Result<Self> {
        let inherited = Some(Inherited::take().context("taking over what was inherited")?);
        let descriptors = raise_descriptor_limit();
        // Before there are threads, and files that it would have to close.
        let doorkeeper = Doorkeeper::start().context("starting a process that receives what clients send")?;
        let screen = Screen::new(running.stats).context("starting a thread for messages")?;
        let metrics = running.metrics.map(metrics::listen).transpose()?;
        let (stop, view) = (Arc::new(EventFd::new().context("making an event")?), View::default());
        obey_signals(Arc::clone(&stop), Arc::clone(&view), screen.clone())?;
        Ok(Self { stop, screen, running, metrics, view, connects: false, inherited, doorkeeper, descriptors })
    }

    /// As [`Preparation::new`], with the disk that the options name.
    ///
    /// # Errors
    /// As there, and when the disk cannot be had.
    pub fn with_disk(options: &ServeOptions) -> Result<(Self, Arc<dyn Disk>)> {
        let connects = options.disk.kind() == Kind::Session;
        let mut preparation = Self { connects, ..Self::new(options.running.clone())? };
        let access = Access { allow_dirs: &options.allow_dirs, ..Access::default() };
        let disk = disk::open(&options.disk, &access)?.disk;
        preparation.close_inherited();
        Ok((preparation, disk))
    }

    /// Closes what whoever started this process left it.
    pub fn close_inherited(&mut self) {
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
    pub fn confine(&self, sockets: &[&Path], clients: usize) -> Result<()> {
        let directory = |socket: &&Path| match socket.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let removes_in = sockets.iter().map(directory).collect();
        let queues = clients * usize::from(self.running.queues);
        let confinement = Confinement { removes_in, connects: self.connects, queues, ..Confinement::default() };
        if confinement.enter()? == Landlock::Absent {
            self.screen.tell("this kernel has no Landlock: only system calls are confined");
        }
        Ok(())
    }

    /// Starts the server, with nobody there yet.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn serve(self, disk: Arc<dyn Disk>) -> Result<Serving> {
        let running = &self.running;
        let cpus = running.cpus.as_ref().map(|list| list.cpus().to_vec()).unwrap_or_default();
        let (threads, poll) = (running.threads.into(), running.poll);
        let doorkeeper = Some(self.doorkeeper.clone());
        let descriptors = self.descriptors;
        let server = ServerOptions { threads, cpus, poll, doorkeeper, descriptors, ..ServerOptions::default() };
        let server = Server::start(&server).context("starting I/O threads")?;
        let clients = Clients::new(server, disk, running.queues, self.screen.clone());
        let (stop, screen) = self.show(Arc::new(clients.view()))?;
        Ok(Serving { clients, stop, screen })
    }

    /// From now on, shows what clients do to whoever asks.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn show(self, look: Look) -> Result<(Arc<EventFd>, Screen)> {
        let Self { stop, screen, running, metrics, view, .. } = self;
        // It is set here and nowhere else.
        let _ = view.set(Arc::clone(&look));
        if let Some(listener) = metrics {
            metrics::serve(listener, Arc::clone(&look))?;
        }
        screen.follow(running.stats, look).context("starting a thread for the live view")?;
        Ok((stop, screen))
    }
}

/// A process that serves.
pub struct Serving {
    /// Who is there.
    pub clients: Clients,
    /// Readable when it shall end.
    pub stop: Arc<EventFd>,
    /// Where messages go.
    pub screen: Screen,
}

impl Serving {
    /// Waits until one of `descriptors` is ready, a client has gone, a signal came or `patience` is over: the places of
    /// those that are ready; `None` when it is time to stop.
    ///
    /// # Errors
    /// When waiting fails.
    pub fn wait<'a>(
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

/// The first signal that asks for the end rings `stop`, the second one kills: whatever the first waits for may never
/// end. SIGUSR1 prints how long requests took.
fn obey_signals(stop: Arc<EventFd>, view: View, screen: Screen) -> Result<()> {
    EndSignals::catch()?;
    let mut signals = Signals::new(EndSignals::ALL.iter().chain(&[SIGUSR1])).context("catching signals")?;
    let obey = move || {
        for signal in &mut signals {
            match (signal, view.get()) {
                (SIGUSR1, Some(view)) => screen.print(view().histograms().trim_end()),
                (SIGUSR1, None) => {}
                _ => stop.ring(),
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(obey).map(drop).context("starting a thread for signals")
}
