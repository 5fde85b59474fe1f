//! Directories of the host's for a guest, each served by a process of its own.

use crate::configuration::{Configuration, Share};
use anyhow::{Context, Result};
use blockyard_block::MemoryMap;
use blockyard_session::client::RemoteDevice;
use blockyard_share::{ServingOptions, ShareProcess, guest_device, own_program};
use std::time::Duration;

/// Queues for a share's requests, each with a thread: more than there are of vCPUs that ask at the same time are of no
/// use, and Linux asks by a single one before 6.11.
const QUEUES_MAX: u32 = 4;
/// How long a server looks for more requests before it waits: not at all. A guest's program waits for each answer
/// before it asks again, on a CPU that it may share with the server, and on a busy machine whoever looks loses its
/// turn: removing 3000 files then took twenty times as long.
const POLL: Duration = Duration::ZERO;

/// A directory that is served.
pub(crate) struct Served {
    /// Ends when this is dropped.
    _process: ShareProcess,
}

/// Whether all directories can be shared: while there is a terminal to say it on.
///
/// # Errors
/// When one cannot.
pub(crate) fn check(configuration: &Configuration) -> Result<()> {
    Ok(configuration.shares.iter().try_for_each(|share| shared(share).check())?)
}

fn shared(share: &Share) -> blockyard_share::Share {
    let Share { directory, tag, read_only } = share.clone();
    blockyard_share::Share { directory, tag, read_only }
}

/// Starts a server for each share of the machine, and gives `attach` its device in a guest with `memory`. `on_end`
/// hears why one is gone.
///
/// # Errors
/// When a directory cannot be shared, or the device not attached.
pub(crate) fn serve(
    configuration: &Configuration,
    memory: &MemoryMap,
    on_end: impl Fn(String) + Clone + Send + 'static,
    mut attach: impl FnMut(RemoteDevice) -> Result<()>,
) -> Result<Vec<Served>> {
    let serve = |share: &Share| {
        let options = ServingOptions { queues: configuration.cpus.min(QUEUES_MAX) as u16, poll: POLL };
        let share = shared(share);
        let (process, stream) = ShareProcess::start_connected(&own_program(), &share, options)?;
        let (on_end, tag) = (on_end.clone(), share.tag.clone());
        // The process has said why itself.
        let on_end = Box::new(move |_| on_end(format!("the process that serves the share {tag} has ended")));
        let device = guest_device(stream, &share.tag, memory.clone(), on_end)?;
        attach(device).with_context(|| format!("cannot attach the share {}", share.tag))?;
        Ok(Served { _process: process })
    };
    configuration.shares.iter().map(serve).collect()
}
