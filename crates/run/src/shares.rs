//! Directories of the host's for a guest, each served by a process of its own.

use crate::configuration::{Configuration, Share};
use anyhow::{Context, Result};
use blockyard_appliance::ServedElsewhere;
use blockyard_block::MemoryMap;
use blockyard_session::client::RemoteDevice;
use blockyard_share::{OpenShare, ServingOptions, ShareProcess, ShareStarter, guest_device, own_program};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use virtio_bindings::virtio_ids::VIRTIO_ID_FS;

/// Queues for a share's requests, each with a thread: more than there are of vCPUs that ask at the same time are of no
/// use, and Linux asks by a single one before 6.11.
const QUEUES_MAX: u32 = 4;
/// How long a server looks for more requests before it waits: not at all. A guest's program waits for each answer
/// before it asks again, on a CPU that it may share with the server, and on a busy machine whoever looks loses its
/// turn: removing 3000 files then took twenty times as long.
const POLL: Duration = Duration::ZERO;

/// Opens the machine's directories, once for all times that it begins: while there is a terminal to say it on why one
/// cannot be shared, and before a guest can have changed what a name means.
///
/// # Errors
/// When one cannot be shared.
pub(crate) fn open<'a>(shares: impl IntoIterator<Item = &'a Share>) -> Result<Vec<OpenShare>> {
    let open = |share: &Share| {
        let Share { directory, tag, read_only, limit } = share.clone();
        Ok(blockyard_share::Share { directory, tag, read_only, limit }.open()?)
    };
    shares.into_iter().map(open).collect()
}

/// What starts the servers of the machine's shares, each time it begins.
///
/// # Errors
/// When one cannot be had.
pub(crate) fn starters(shares: &[OpenShare], cpus: u32) -> Result<Vec<ShareStarter>> {
    let options = ServingOptions { queues: cpus.min(QUEUES_MAX) as u16, poll: POLL };
    shares.iter().map(|share| Ok(ShareStarter::start(&own_program(), share, options)?)).collect()
}

/// Has each share of the machine served, and gives `attach` its device in a guest with `memory`. `on_end` hears why one
/// is served no more. Opens no file.
///
/// # Errors
/// When a directory cannot be shared, or the device not attached.
pub(crate) fn serve(
    configuration: &Configuration,
    starters: &mut [ShareStarter],
    memory: &MemoryMap,
    on_end: impl Fn(String) + Clone + Send + 'static,
    mut attach: impl FnMut(RemoteDevice) -> Result<()>,
) -> Result<()> {
    configuration.shares.iter().zip(starters).try_for_each(|(share, starter)| {
        let (on_end, tag) = (on_end.clone(), share.tag.clone());
        // The process has said why itself.
        let on_end = Box::new(move |_| on_end(format!("the process that serves the share {tag} has ended")));
        let device = guest_device(starter.serve()?, &share.tag, memory.clone(), on_end)?;
        attach(device).with_context(|| format!("cannot attach the share {}", share.tag))
    })
}

/// The servers of a guest that is User-Mode Linux, which has one processor.
#[derive(Clone, Default)]
pub(crate) struct Servers(Arc<Mutex<Vec<(String, ShareProcess)>>>);

impl Servers {
    /// The guest's devices, one for each share: their servers start when the guest connects to them.
    pub(crate) fn devices(&self, shares: &[OpenShare]) -> Vec<ServedElsewhere> {
        let device = |share: &OpenShare| {
            let (servers, share) = (self.clone(), share.clone());
            let serve = move |stream: std::os::unix::net::UnixStream| {
                let options = ServingOptions { queues: 1, poll: POLL };
                let started = ShareProcess::start(&own_program(), &share, options, stream.into());
                servers.lock().push((share.tag().to_string(), started.map_err(io::Error::other)?));
                Ok(())
            };
            ServedElsewhere { device_type: VIRTIO_ID_FS, serve: Arc::new(serve) }
        };
        shares.iter().map(device).collect()
    }

    /// The tag of a share that is served no more: a guest that asks for it would wait for ever.
    pub(crate) fn ended(&self) -> Option<String> {
        self.lock().iter_mut().find_map(|(tag, process)| process.has_ended().then(|| tag.clone()))
    }

    /// Has them end: they are gone after [`Servers::end`].
    pub(crate) fn kill(&self) {
        self.lock().iter_mut().for_each(|(_, process)| process.kill());
    }

    /// Ends them.
    pub(crate) fn end(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(String, ShareProcess)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
