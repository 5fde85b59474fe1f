//! Serving whoever comes in at a gate: the whole disk at one socket, or partitions in the copying process.

use super::args::ServeOptions;
use super::serving::{Preparation, Serving};
use crate::disk;
use anyhow::{Context, Result};
use blockyard_block::size;
use blockyard_block::specification::{DiskSpecification, Kind};
use blockyard_session::mediator::{Admission, Gate, Grantor, Offer};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long to leave a client waiting when there is no descriptor to accept it with.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Serves all of the disk on `path`, to one client after another, or only to the first.
///
/// # Errors
/// When the disk or the socket cannot be had.
pub fn serve_disk(options: &ServeOptions, path: &Path, once: bool) -> Result<()> {
    let preparation = Preparation::new(options.running.clone())?;
    let disk = disk::open(&options.disk, false, &options.allow_dirs)?;
    let geometry = disk.geometry();
    let offer = Offer {
        number: 0,
        name: options.disk.to_string(),
        socket: path.to_owned(),
        range_bytes: 0..geometry.capacity_bytes,
        read_only: geometry.read_only,
        weight: NonZeroU32::MIN,
        uids: options.allow_uids.clone(),
    };
    let gate = Gate::open(vec![offer])?;
    let rights = if geometry.read_only { "read-only" } else { "read and write" };
    let capacity = size::human(geometry.capacity_bytes);
    preparation.screen.tell(&format!("{}, {capacity}, {rights}, is served on {}", options.disk, path.display()));
    preparation.confine(&[path], connects(&options.disk))?;
    serve_gate(preparation.serve(disk)?, gate, &Until { once, lifeline: None })
}

/// When serving is over, besides when it is told to stop.
#[derive(Default)]
pub struct Until {
    /// When a client has left and nobody is there.
    pub once: bool,
    /// When this connection is closed at its other end: the disk is gone then.
    pub lifeline: Option<UnixStream>,
}

/// Attaches whoever is let in until told to stop, or until `until` says.
///
/// # Errors
/// When waiting fails.
pub fn serve_gate(mut serving: Serving, mut gate: Gate, until: &Until) -> Result<()> {
    let mut places = std::collections::BTreeMap::new();
    let mut last = 0;
    loop {
        for (number, _) in serving.clients.ended() {
            if let Some(place) = places.remove(&number) {
                gate.release(place);
            }
            if until.once && serving.clients.is_empty() {
                return Ok(());
            }
        }
        let Some(ready) = wait(&serving, &gate, until.lifeline.as_ref())? else {
            serving.clients.end();
            return Ok(());
        };
        for place in ready {
            match gate.admit(place) {
                Ok(Admission::Client(stream)) => {
                    last += 1;
                    match serving.clients.grant(&gate.offer(place).grant(last), stream) {
                        Ok(()) => drop(places.insert(last, place)),
                        Err(why) => {
                            gate.release(place);
                            serving.screen.tell(&format!("a client could not be served: {why}"));
                        }
                    }
                }
                Ok(Admission::TurnedAway(what)) => serving.screen.tell(&what),
                Ok(Admission::Nobody) => {}
                Err(_) => std::thread::sleep(ACCEPT_AGAIN),
            }
        }
    }
}

/// The places where somebody waits, after waiting for anything to do; `None` when it is time to stop.
fn wait(serving: &Serving, gate: &Gate, lifeline: Option<&UnixStream>) -> Result<Option<Vec<usize>>> {
    let mut events: Vec<BorrowedFd<'_>> = vec![serving.stop.as_fd()];
    events.extend(gate.events());
    let gates = events.len();
    serving.clients.events(&mut events);
    let mut polled: Vec<_> = events.iter().map(|&event| PollFd::from_borrowed_fd(event, PollFlags::IN)).collect();
    // What comes over it is for others to read; that it is closed shows all the same.
    polled.extend(lifeline.map(|lifeline| PollFd::new(lifeline, PollFlags::empty())));
    match poll(&mut polled, None) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno).context("waiting for clients"),
    }
    if lifeline.is_some() && polled.last().is_some_and(|polled| !polled.revents().is_empty()) {
        return Ok(None);
    }
    let is_ready = |polled: &PollFd<'_>| !polled.revents().is_empty();
    if is_ready(&polled[0]) {
        return Ok(None);
    }
    let ready = polled[1..gates].iter().enumerate().filter(|(_, polled)| is_ready(polled));
    Ok(Some(ready.map(|(place, _)| place).collect()))
}

/// Whether a disk makes connections after it was opened: a session outlives its server.
pub fn connects(disk: &DiskSpecification) -> bool {
    disk.kind() == Kind::Session
}
