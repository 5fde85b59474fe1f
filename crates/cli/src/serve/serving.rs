//! What every way of serving begins with, in the order that matters: open, give up the rest, start.

use super::args::Running;
use super::clients::Clients;
use super::metrics;
use super::screen::Screen;
use super::view::ServerView;
use anyhow::{Context, Result};
use blockyard_block::Disk;
use blockyard_devices::EventFd;
use blockyard_session::confinement::{Confinement, Landlock};
use blockyard_session::server::{Server, ServerOptions};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::thread;

/// Looks at a server's clients; set once there is a server.
type View = Arc<OnceLock<Box<dyn Fn() -> ServerView + Send + Sync>>>;

/// A process that is about to serve: signals are caught, what it will need is open.
pub struct Preparation {
    /// Readable when it shall end.
    pub stop: Arc<EventFd>,
    /// Where messages go.
    pub screen: Screen,
    running: Running,
    metrics: Option<TcpListener>,
    view: View,
}

impl Preparation {
    /// Catches signals and opens what the options ask for besides the disk.
    ///
    /// # Errors
    /// When an address is taken or the system refuses.
    pub fn new(running: Running) -> Result<Self> {
        let screen = Screen::new(running.stats);
        let metrics = running.metrics.map(metrics::listen).transpose()?;
        let (stop, view) = (Arc::new(EventFd::new().context("making an event")?), View::default());
        obey_signals(Arc::clone(&stop), Arc::clone(&view))?;
        Ok(Self { stop, screen, running, metrics, view })
    }

    /// Gives up what is not needed any more: all but `sockets`, which this process removes at the end, and, with `connects`,
    /// making connections again.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn confine(&self, sockets: &[&Path], connects: bool) -> Result<()> {
        let directory = |socket: &&Path| match socket.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let confinement =
            Confinement { removes_in: sockets.iter().map(directory).collect(), connects, ..Confinement::default() };
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
        let Self { stop, screen, running, metrics, view } = self;
        let cpus = running.cpus.as_ref().map(|list| list.cpus().to_vec()).unwrap_or_default();
        let server = ServerOptions { threads: running.threads.into(), cpus, poll: running.poll };
        let server = Server::start(&server).context("starting I/O threads")?;
        let teller = screen.clone();
        let clients = Clients::new(server, disk, running.queues, move |what| teller.tell(what));
        // It is set here and nowhere else.
        let _ = view.set(Box::new(clients.view()));
        let look: Arc<dyn Fn() -> ServerView + Send + Sync> = Arc::new(clients.view());
        if let Some(listener) = metrics {
            metrics::serve(listener, Arc::clone(&look))?;
        }
        screen.follow(running.stats, look).context("starting a thread for the live view")?;
        Ok(Serving { clients, stop, screen })
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

/// The first signal that asks for the end rings `stop`, the second one kills: whatever the first waits for may never end. SIGUSR1
/// prints how long requests took.
fn obey_signals(stop: Arc<EventFd>, view: View) -> Result<()> {
    let second = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register_conditional_default(signal, Arc::clone(&second))
            .and_then(|_| flag::register(signal, Arc::clone(&second)))
            .context("catching signals")?;
    }
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1]).context("catching signals")?;
    let obey = move || {
        for signal in &mut signals {
            match (signal, view.get()) {
                (SIGUSR1, Some(view)) => eprint!("{}", view().histograms()),
                (SIGUSR1, None) => {}
                _ => stop.ring(),
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(obey).map(drop).context("starting a thread for signals")
}
