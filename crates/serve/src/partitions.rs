//! Serving partitions: this process is the driver and has the disk; another one stands at the door.

use crate::clients::OWN_SESSION;
use crate::options::Door;
use crate::serving::{Preparation, Serving};
use anyhow::{Context, Result, bail};
use blockyard_block::{Disk, Geometry};
use blockyard_session::mediator::{Driver, Grant, Grantor, MediatorNews, control_pair};
use blockyard_session::server::ClientStream;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::Arc;

/// Serves so many partitions to clients that a mediator passes on.
///
/// # Errors
/// When the partitions or their sockets cannot be had.
pub(crate) fn mediate(preparation: Preparation<'_>, disk: Arc<dyn Disk>, count: usize, command: Command) -> Result<()> {
    let (ours, theirs) = control_pair().context("making a control socket")?;
    let mediator = Door::Mediator.open(command, theirs)?;
    // The mediator is a client, too.
    preparation.confine(&[], count + 1)?;
    let mut serving = preparation.serve(Arc::clone(&disk))?;
    let session = own_session(&mut serving, &disk)?;
    let mut driver = Driver::new(ours, disk);
    driver.start(&session).context("telling the mediator of its session")?;
    drop(session);
    let mut grantor = BeforeItIsReady { serving, ready: false, failure: None };
    let stop = Arc::clone(&grantor.serving.stop);
    driver.run(&mut grantor, stop.as_fd())?;
    drop(driver);
    grantor.serving.clients.end();
    end(mediator);
    match grantor.failure {
        Some(why) => bail!(why),
        None => Ok(()),
    }
}

/// Serves partitions through a process that copies every block.
///
/// # Errors
/// When the partitions or their sockets cannot be had.
pub(crate) fn copy(preparation: Preparation<'_>, disk: Arc<dyn Disk>, command: Command) -> Result<()> {
    let (ours, theirs) = UnixStream::pair().context("making a session's socket")?;
    let mut copier = Door::Copier.open(command, theirs.into())?;
    preparation.confine(&[], 1)?;
    let mut serving = preparation.serve(Arc::clone(&disk))?;
    serving.clients.grant(&whole("the copier", &disk.geometry()), ours.into()).map_err(anyhow::Error::msg)?;
    // It is over when the copier has ended, which then has said why.
    while serving.wait([], None)?.is_some() {
        if serving.clients.ended().iter().any(|&(number, _)| number == OWN_SESSION) {
            let status = copier.wait().context("waiting for the copier")?;
            if status.success() {
                return Ok(());
            }
            bail!("the copier has ended ({status}): nobody is served any more");
        }
    }
    serving.clients.end();
    end(copier);
    Ok(())
}

/// A session of the whole disk for the mediator, to read the table through.
fn own_session(serving: &mut Serving, disk: &Arc<dyn Disk>) -> Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair().context("making a session's socket")?;
    let grant = Grant { read_only: true, ..whole("the mediator", &disk.geometry()) };
    serving.clients.grant(&grant, ours.into()).map_err(anyhow::Error::msg)?;
    Ok(theirs)
}

/// All of the disk, for the process at the door.
fn whole(name: &str, geometry: &Geometry) -> Grant {
    Grant {
        session: OWN_SESSION,
        range_bytes: 0..geometry.capacity_bytes,
        read_only: geometry.read_only,
        weight: NonZeroU32::MIN,
        name: name.to_owned(),
    }
}

/// Ends when it sees that this process is done with it; it has removed its sockets then.
fn end(mut child: Child) {
    let _ = child.wait();
}

/// The clients of a driver; a mediator that cannot even begin ends all.
struct BeforeItIsReady {
    serving: Serving,
    ready: bool,
    failure: Option<String>,
}

impl Grantor for BeforeItIsReady {
    fn grant(&mut self, grant: &Grant, stream: ClientStream) -> Result<(), String> {
        self.serving.clients.grant(grant, stream)
    }

    fn revoke(&mut self, session: u64) {
        self.serving.clients.revoke(session);
    }

    fn events<'a>(&'a self, events: &mut Vec<BorrowedFd<'a>>) {
        self.serving.clients.events(events);
    }

    fn ended(&mut self) -> Vec<(u64, String)> {
        self.serving.clients.ended()
    }

    fn mediator_says(&mut self, news: MediatorNews) {
        match (&news, self.ready) {
            (MediatorNews::Ready, _) => self.ready = true,
            (MediatorNews::Failed(why) | MediatorNews::Gone(why), false) => {
                self.failure = Some(why.clone());
                return self.serving.stop.ring();
            }
            _ => {}
        }
        self.serving.clients.mediator_says(news);
    }
}
