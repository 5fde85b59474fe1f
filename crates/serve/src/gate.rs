//! Serving whoever comes in at a gate: the whole disk at one socket, or partitions in the copying process.

use crate::serving::{Preparation, Serving};
use anyhow::Result;
use blockyard_block::specification::DiskSpecification;
use blockyard_block::{Disk, shown, size};
use blockyard_session::mediator::{Admission, Gate, Grantor, Offer};
use rustix::event::{PollFd, PollFlags};
use std::num::NonZeroU32;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

/// Serves all of the disk on `path`, to one client after another, or only to the first.
///
/// # Errors
/// When the socket cannot be had.
pub(crate) fn serve_disk(
    preparation: Preparation<'_>,
    disk: Arc<dyn Disk>,
    name: &DiskSpecification,
    path: &Path,
    once: bool,
    uids: Vec<u32>,
) -> Result<()> {
    let geometry = disk.geometry();
    let offer = Offer {
        number: 0,
        name: name.to_string(),
        socket: path.to_owned(),
        range_bytes: 0..geometry.capacity_bytes,
        read_only: geometry.read_only,
        weight: NonZeroU32::MIN,
        uids,
    };
    let gate = Gate::open(vec![offer])?;
    let rights = if geometry.read_only { "read-only" } else { "read and write" };
    let capacity = size::human(geometry.capacity_bytes);
    preparation.confine(&[path], 1)?;
    let serving = preparation.serve(disk)?;
    serving.notices.tell(&format!("{name}, {capacity}, {rights}, is served on {}", shown(path)));
    serve_gate(serving, gate, &Until { once, lifeline: None })
}

/// When serving is over, besides when it is told to stop.
#[derive(Default)]
pub(crate) struct Until {
    /// When a client has left and nobody is there.
    pub(crate) once: bool,
    /// When this connection is closed at its other end: the disk is gone then.
    pub(crate) lifeline: Option<UnixStream>,
}

/// Attaches whoever is let in until told to stop, or until `until` says.
///
/// # Errors
/// When waiting fails.
pub(crate) fn serve_gate(mut serving: Serving, mut gate: Gate, until: &Until) -> Result<()> {
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
        let (places_at_gate, patience) = gate.polled();
        // What comes over it is for others to read; that it is closed shows all the same.
        let lifeline = until.lifeline.iter().map(|lifeline| PollFd::new(lifeline, PollFlags::empty()));
        let is_over = places_at_gate.len();
        let ready = match serving.wait(places_at_gate.chain(lifeline), patience)? {
            Some(ready) if !ready.contains(&is_over) => ready,
            _ => {
                serving.clients.end();
                return Ok(());
            }
        };
        for place in ready {
            match gate.admit(place) {
                Admission::Client(stream) => {
                    last += 1;
                    match serving.clients.grant(&gate.offer(place).grant(last), stream) {
                        Ok(()) => drop(places.insert(last, place)),
                        Err(why) => {
                            gate.release(place);
                            let path = shown(&gate.offer(place).socket);
                            let what = format!("{path}: a client could not be served: {why}");
                            serving.notices.tell_on(&format!("gate at {path}"), &what);
                        }
                    }
                }
                Admission::TurnedAway(what) => {
                    let path = shown(&gate.offer(place).socket);
                    serving.notices.tell_on(&format!("gate at {path}"), &what);
                }
                Admission::Nobody => {}
            }
        }
    }
}
