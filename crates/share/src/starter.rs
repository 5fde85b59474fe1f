//! The process that starts a share's server each time a machine begins.
//!
//! A machine that begins anew wants a new server, and its process can start none any more by then: it has shut itself
//! in. So one that has not starts them for it, one after another. It looks at nothing of the guest's: what it is sent
//! is a byte with the stream that the next server is to have, and the share is the one that it was started in.

use crate::process::{Launcher, OpenShare, Role, ServerArguments, ShareError, ShareProcess, os, own_program};
use crate::{ServingOptions, Share};
use blockyard_confinement::Inherited;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::stdio::stdin;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

/// Asks for a server.
const ASKS: u8 = b'?';
/// The server is ready.
const READY: u8 = b'+';
/// There is none: why it has said itself.
const FAILED: u8 = b'-';

/// A process that starts the servers of a share, one at a time. It ends when this is dropped, and its server with it.
#[derive(Debug)]
pub struct ShareStarter {
    /// `None` once it is over.
    stream: Option<UnixStream>,
    child: Child,
    share: Share,
}

impl ShareStarter {
    /// Starts `launcher` with these arguments before those that [`serve`](crate::serve) is then to be called with, to
    /// start servers of `share`, which are this program's own.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(launcher: &Launcher, share: &OpenShare, options: ServingOptions) -> Result<Self, ShareError> {
        let (ours, theirs) = UnixStream::pair().map_err(os("making its socket"))?;
        let mut command = share.command(launcher, Role::Starter, options);
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
        let child = command.spawn().map_err(os("starting its process"))?;
        Ok(Self { stream: Some(ours), child, share: share.share.clone() })
    }

    /// Has a new server started in place of the one before, and returns its client's stream for
    /// [`guest_device`](crate::guest_device). Opens no file and starts no process here.
    ///
    /// # Errors
    /// When there is none.
    pub fn serve(&mut self) -> Result<UnixStream, ShareError> {
        let not_ready = || ShareError::NotReady(self.share.directory.clone());
        let (ours, theirs) = UnixStream::pair().map_err(os("making its socket"))?;
        let mut stream = self.stream.as_ref().ok_or_else(not_ready)?;
        match send(stream, theirs) {
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(not_ready()),
            sent => sent.map_err(|errno| os("asking for it")(errno.into()))?,
        }
        let mut answer = [0];
        match stream.read_exact(&mut answer) {
            Ok(()) if answer == [READY] => Ok(ours),
            _ => Err(not_ready()),
        }
    }
}

impl ShareStarter {
    /// The process's number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for ShareStarter {
    fn drop(&mut self) {
        drop(self.stream.take());
        let _ = self.child.wait();
    }
}

/// The life of that process: starts servers until nobody can ask for one any more.
///
/// # Errors
/// Why it cannot begin or go on.
pub(crate) fn run(ServerArguments { share, options }: &ServerArguments) -> Result<(), ShareError> {
    Inherited::take().map_err(os("taking over what was inherited"))?.close();
    let mut asked = UnixStream::from(stdin().try_clone_to_owned().map_err(os("taking its socket"))?);
    let share = share.open_here()?;
    let mut server: Option<ShareProcess> = None;
    while let Some(socket) = receive(&asked).map_err(|errno| os("waiting")(errno.into()))? {
        drop(server.take());
        server = ShareProcess::start(&own_program(), &share, *options, socket).ok();
        let answer = if server.is_some() { READY } else { FAILED };
        if asked.write_all(&[answer]).is_err() {
            break;
        }
    }
    Ok(())
}

fn send(stream: &UnixStream, socket: UnixStream) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let sockets = [socket.as_fd()];
    if !ancillary.push(SendAncillaryMessage::ScmRights(&sockets)) {
        return Err(Errno::NOBUFS);
    }
    retry_on_intr(|| sendmsg(stream, &[IoSlice::new(&[ASKS])], &mut ancillary, SendFlags::NOSIGNAL)).map(drop)
}

/// The stream that a server is to have; `None` when nobody asks any more, or for something else.
fn receive(asked: &UnixStream) -> rustix::io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    retry_on_intr(|| recvmsg(asked, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC))?;
    let rights = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    });
    Ok(rights.filter(|_| byte == [ASKS]))
}
