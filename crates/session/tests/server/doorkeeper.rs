//! Clients whose descriptors hold up whoever looks at them: a process of its own, which nobody waits for, and of which
//! there are not too many.

use crate::client::*;
use blockyard_block::EventFd;
use blockyard_block::{Disk, MemoryDisk};
use blockyard_session::server::{Doorkeeper, Server, ServerOptions, Session};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::Uid;
use rustix::thread::{UnshareFlags, set_thread_uid};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

/// A FUSE file system that takes requests and answers none, but that it is there.
struct Unanswering {
    /// Its root directory.
    root: OwnedFd,
    taken: Arc<AtomicUsize>,
    end: Option<PipeWriter>,
    thread: Option<JoinHandle<Option<()>>>,
}

impl Unanswering {
    /// `None` without the rights to mount one.
    fn mount(directory: &Path) -> Option<Self> {
        let (directory, taken) = (directory.to_owned(), Arc::new(AtomicUsize::new(0)));
        let (ended, end) = io::pipe().unwrap();
        let (sender, root) = mpsc::channel();
        let count = Arc::clone(&taken);
        let serve = move || {
            // In a mount namespace of this thread's own, which goes with it.
            #[allow(deprecated, reason = "its unsafe successor is for flags that unshare descriptors")]
            rustix::thread::unshare(UnshareFlags::NEWNS | UnshareFlags::FS).ok()?;
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).ok()?;
            let mut device = File::options().read(true).write(true).open("/dev/fuse").ok()?;
            let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
            let options = CString::new(options).unwrap();
            mount("none", &directory, "fuse", MountFlags::empty(), Some(options.as_c_str())).ok()?;
            let root = rustix::fs::open(&directory, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
            sender.send(root).unwrap();
            let mut request = vec![0; 1 << 20];
            loop {
                let mut polled = [PollFd::new(&device, PollFlags::IN), PollFd::new(&ended, PollFlags::IN)];
                poll(&mut polled, None).unwrap();
                if !polled[1].revents().is_empty() {
                    return Some(());
                }
                // Whoever asked may have been killed before this took what it asked for.
                let Ok(length) = device.read(&mut request) else { continue };
                let number = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
                assert!(length >= 40);
                match number(4) {
                    FUSE_INIT => device.write_all(&initialized([number(8), number(12)])).unwrap(),
                    FUSE_STATFS => drop(count.fetch_add(1, Ordering::SeqCst)),
                    _ => {}
                }
            }
        };
        let thread = std::thread::spawn(serve);
        let root = root.recv().ok()?;
        Some(Self { root, taken, end: Some(end), thread: Some(thread) })
    }
}

/// Whoever waits for it gets errors.
impl Drop for Unanswering {
    fn drop(&mut self) {
        self.end = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Linux, include/uapi/linux/fuse.h.
const FUSE_STATFS: u32 = 17;
const FUSE_INIT: u32 = 26;

/// `fuse_out_header` and `fuse_init_out` of version 7.31.
fn initialized([unique_low, unique_high]: [u32; 2]) -> Vec<u8> {
    let mut answer = [0; 20];
    answer[..6].copy_from_slice(&[80, 0, unique_low, unique_high, 7, 31]);
    // Longest write; granularity of times.
    answer[9..11].copy_from_slice(&[4096, 1]);
    halves(&answer)
}

const SET_MEM_TABLE: u32 = 5;

/// Clients that a user may have, those included that are gone and of whom something is left.
const CLIENTS_MAX: usize = 256;

fn attach_to(server: &Server, pair: (UnixStream, UnixStream)) -> io::Result<(UnixStream, Session)> {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new(1 << 20, 512).unwrap());
    let (ours, theirs) = pair;
    let session = server.attach(theirs, export(disk, 1, 1)).map_err(io::Error::other)?;
    Ok((ours, session))
}

/// A process that looks at such a descriptor cannot even be killed once the request was taken: a user of whom too many
/// hang gets no further, and nobody else notices.
#[test]
fn what_hangs_of_a_user_is_bounded() {
    let doorkeeper = Doorkeeper::start().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let Some(file_system) = Unanswering::mount(directory.path()) else {
        return eprintln!("mounting a FUSE file system takes root, and /dev/fuse: not tried");
    };
    let server = Server::start(&ServerOptions { doorkeeper: Some(doorkeeper), ..ServerOptions::default() }).unwrap();
    let attach = || attach_to(&server, UnixStream::pair().unwrap());
    let clients: Vec<_> = (0..CLIENTS_MAX).map(|_| attach().unwrap()).collect();
    for (stream, _) in &clients {
        let message = [halves(&[SET_MEM_TABLE, 1, 40]), words(&[1, 0, 4096, 0, 0])].concat();
        send_on(stream, &message, &[file_system.root.as_fd()]);
    }
    wait_for(|| file_system.taken.load(Ordering::SeqCst) == CLIENTS_MAX);
    let (streams, sessions): (Vec<_>, Vec<_>) = clients.into_iter().unzip();
    drop(streams);
    sessions.iter().for_each(|session| drop(end(session)));
    let refused = attach().unwrap_err().to_string();
    assert!(refused.contains("what earlier clients left behind is not closed yet"), "{refused}");
    let pair_of_another = || {
        set_thread_uid(Uid::from_raw(65534)).unwrap();
        UnixStream::pair().unwrap()
    };
    let others = std::thread::spawn(pair_of_another).join().unwrap();
    attach_to(&server, others).unwrap();
    drop(file_system);
    wait_for(|| attach().is_ok());
}

/// Each session leaves less than a client may, but of all of them together there is too much.
#[test]
fn what_is_left_open_of_a_user_is_bounded() {
    const SET_VRING_CALL: u32 = 13;
    let server = Server::start(&ServerOptions::default()).unwrap();
    let attach = || attach_to(&server, UnixStream::pair().unwrap());
    let mut readers = Vec::new();
    let refused = loop {
        assert!(readers.len() < 10, "nobody is refused");
        let (stream, session) = match attach() {
            Ok(client) => client,
            Err(refused) => break refused.to_string(),
        };
        let (given, reader) = lingering_socket();
        let message = [halves(&[SET_VRING_CALL, 1, 8]), words(&[0])].concat();
        send_on(&stream, &message, &[given.as_fd()]);
        drop(given);
        let call = EventFd::new().unwrap();
        (0..62).for_each(|_| send_on(&stream, &message, &[call.as_fd()]));
        drop(stream);
        end(&session);
        readers.push(reader);
    };
    assert!(refused.contains("what earlier clients left behind is not closed yet"), "{refused}");
    drop(readers);
    wait_for(|| attach().is_ok());
}
