//! Clients that do what they must not. Their session ends with a reason, and nobody else notices.

use crate::client::*;
use blockyard_block::{AdmittedMemory, Disk, MemoryDisk, MemoryMap};
use blockyard_session::server::{EndReason, Server, ServerOptions, Session};
use bolero::TypeGenerator;
use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, ftruncate, memfd_create};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::UnshareFlags;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn disk() -> Arc<dyn Disk> {
    Arc::new(MemoryDisk::new(1 << 20, 512).unwrap())
}

/// What the session ends with after `act`.
fn ended_by(act: impl FnOnce(&Client)) -> String {
    let server = server(Duration::from_micros(50));
    let (bystander, going_on) = Client::start(&server, export(disk(), 1, 1));
    let (client, session) = Client::connect(&server, export(disk(), 2, 1));
    act(&client);
    let reason = match end(&session) {
        EndReason::Client(reason) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(bystander.driver(0).run(IN, 0, 0x80_0000, 512), 0);
    assert!(going_on.end_reason().is_none());
    reason
}

#[test]
fn messages_that_cannot_be() {
    let bytes = |bytes: Vec<u8>| ended_by(|client| client.send_bytes(&bytes, &[]));
    assert!(bytes(halves(&[1, 0, 0])).contains("not a request of version 1"));
    assert!(bytes(halves(&[1, 5, 0])).contains("not a request of version 1"));
    assert!(bytes(halves(&[1, 1, u32::MAX])).contains("announces 4294967295 bytes"));
    assert!(bytes(halves(&[2, 1, 4, 0])).contains("message 2 has 4 bytes, fewer than the 8"));
    assert!(bytes(halves(&[5, 1, 8, 9, 0])).contains("9 regions"));
    let hung_up = |bytes: Vec<u8>| {
        ended_by(|client| {
            client.send_bytes(&bytes, &[]);
            client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        })
    };
    for cut in [1, 11, 12, 15] {
        assert!(hung_up(halves(&[2, 1, 8, 0, 0])[..cut].to_vec()).contains("in the middle of a message"), "{cut}");
    }
}

#[test]
fn descriptors_that_cannot_be() {
    let null = File::open("/dev/null").unwrap();
    let (_, pipe) = rustix::pipe::pipe().unwrap();
    let with = |request: u32, payload: &[u8], descriptors: &[BorrowedFd<'_>]| {
        ended_by(|client| {
            client.send(request, payload, descriptors);
            (0..4).for_each(|_| client.send(18, &halves(&[0, 1]), &[]));
        })
    };
    assert!(with(12, &words(&[0]), &[]).contains("came with 0 descriptors instead of 1"));
    assert!(with(12, &words(&[0x100]), &[]).contains("polling for ever"));
    assert!(with(13, &words(&[0]), &[null.as_fd(); 2]).contains("came with 2 descriptors"));
    assert!(with(1, &[], &[null.as_fd(); 9]).contains("more than 8 descriptors"));
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let (unix, _) = UnixStream::pair().unwrap();
    let directory = File::open("/").unwrap();
    for descriptor in [null.as_fd(), pipe.as_fd(), directory.as_fd(), epoll.as_fd(), tcp.as_fd()] {
        assert!(with(13, &words(&[0]), &[descriptor]).contains("a call must be an eventfd or a unix socket, not "));
        assert!(with(12, &words(&[0]), &[descriptor]).contains("a kick must be an eventfd, not "));
        assert!(with(21, &[], &[descriptor]).contains("not a unix stream socket"));
    }
    assert!(with(12, &words(&[0]), &[unix.as_fd()]).contains("a kick must be an eventfd, not another socket"));
    let region = words(&[1, GUEST, 4096, USER, 0, 0, 0, 0, 0]);
    assert!(with(5, &region, &[null.as_fd()]).contains("is not in a file"));
    assert!(with(5, &region, &[File::open("/proc/self/exe").unwrap().as_fd()]).contains("cannot be mapped"));
}

/// Closing what this client sends takes an hour, whatever it sends it as. Its session ends all the same, when the
/// client hangs up at the latest.
#[test]
fn descriptors_whose_close_waits() {
    let server = server(Duration::from_micros(50));
    let region = [GUEST, 4096, USER, 0];
    let record = [words(&[1 << 20, 0]), halves(&[1 | 64 << 16])].concat();
    let messages = [
        (5, words(&[&[1][..], &region].concat())),
        (37, words(&[&[0][..], &region].concat())),
        (32, record),
        (32, words(&[0, 0, u64::MAX])),
        (12, words(&[0])),
        (13, words(&[0])),
        (13, words(&[9])),
        (14, words(&[0])),
        (21, vec![]),
        (ADD_CONNECTION, vec![]),
        (ADD_CONNECTION + 1, vec![]),
        (38, words(&[&[0][..], &region].concat())),
        (6, words(&[0, 0])),
        (1, vec![]),
        (99, vec![]),
    ];
    for (request, payload) in messages {
        for asks in [0, NEED_REPLY] {
            let (client, session) = Client::connect(&server, export(disk(), 1, 1));
            client.negotiate();
            let (given, _reader) = lingering_socket();
            let message = [halves(&[request, 1 | asks, payload.len() as u32]), payload.clone()].concat();
            client.send_bytes(&message[..1], &[given.as_fd()]);
            // Not the last one, for which this test would have to wait.
            drop(given);
            client.send_bytes(&message[1..], &[]);
            drop(client);
            assert!(readable(session.ended(), TIMEOUT), "message {request} keeps the session");
        }
    }
}

/// Has `judge` look at a session whose client gives so many descriptors behind one that cannot be closed.
fn with_unclosed(count: usize, judge: impl FnOnce(&Session)) {
    let server = server(Duration::from_micros(50));
    let (client, session) = Client::connect(&server, export(disk(), 1, 1));
    let (given, _reader) = lingering_socket();
    client.send(13, &words(&[0]), &[given.as_fd()]);
    drop(given);
    // The server reads no more at some time, and hangs up.
    (0..count).for_each(|_| client.send(13, &words(&[0]), &[client.call[0].as_fd()]));
    judge(&session);
}

/// Behind one that cannot be closed, others wait to be: not as many as a client likes.
#[test]
fn a_client_whose_descriptors_cannot_be_closed_is_left() {
    with_unclosed(1000, |session| {
        assert_eq!(end(session), EndReason::Client("64 descriptors of the client's cannot be closed".into()));
    });
}

/// It ends at once when it is to.
#[test]
fn a_client_whose_descriptors_cannot_be_closed_is_revoked() {
    with_unclosed(65, |session| {
        session.revoke();
        assert_eq!(end(session), EndReason::Revoked);
    });
}

#[test]
fn values_that_cannot_be() {
    let started = |change: &dyn Fn(&Client)| {
        ended_by(|client| {
            client.negotiate();
            client.share_memory();
            change(client);
            client.start_queue(1, 0);
        })
    };
    assert!(started(&|client| client.send(2, &words(&[1 << 40]), &[])).contains("features 0x10000000000"));
    assert!(started(&|client| client.send(16, &words(&[1 << 14]), &[])).contains("protocol features 0x4000"));
    assert!(started(&|client| client.send(8, &halves(&[2, 64]), &[])).contains("queue 2 of 2"));
    assert!(started(&|client| client.send(10, &halves(&[0, 0x1_0000]), &[])).contains("beyond 65535"));
    assert!(started(&|client| client.send(18, &halves(&[0, 7]), &[])).contains("yes or no"));
    let memfd = memfd_create("short", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&memfd, 4096).unwrap();
    let table = |regions: [u64; 8], count: usize| {
        started(&|client| {
            let payload = [&[count as u64][..], &regions].concat();
            client.send(5, &words(&payload), &[memfd.as_fd(), memfd.as_fd()][..count]);
        })
    };
    let one = |address, length, user, offset| table([address, length, user, offset, 0, 0, 0, 0], 1);
    assert!(one(0, 8192, 0, 0).contains("past the end of its file"));
    assert!(one(0, 8192, 0, u64::MAX - 4095).contains("wraps around"));
    assert!(one(u64::MAX, 4096, 0, 0).contains("wraps around"));
    assert!(one(0, 2048, 0, 1024).contains("cannot be mapped"));
    assert!(table([0, 4096, 0, 0, 4095, 4096, 0, 0], 2).contains("intersect"));
    // Its rings are elsewhere.
    assert!(one(0, 4096, 0, 0).contains("is in no region of memory"));
}

#[test]
fn queues_that_cannot_be() {
    let started = |size: u32, addresses: [u64; 3]| {
        ended_by(|client| {
            client.negotiate();
            client.share_memory();
            let [table, available, used] = addresses;
            client.send(8, &halves(&[0, size]), &[]);
            client.send(9, &words(&[0, table, used, available, 0]), &[]);
            client.send(12, &words(&[0]), &[client.kick[0].as_fd()]);
            client.send(18, &halves(&[0, 1]), &[]);
        })
    };
    let good = [USER, USER + 0x4000, USER + 0x8000];
    for size in [3, 65536, u32::MAX] {
        assert!(started(size, good).contains("not a power of two from 1 to 32768"));
    }
    assert!(started(64, [USER + 8, good[1], good[2]]).contains("descriptor table at 0x40000008 is not aligned"));
    assert!(started(64, [good[0], USER + MEMORY_BYTES - 4, good[2]]).contains("is not in the guest's memory"));
    assert!(started(64, [good[0], good[1], 0]).contains("used ring at 0x0 is in no region"));
}

#[test]
fn rings_that_lie() {
    let lie = |offset: u64, value: u16| {
        ended_by(|client| {
            client.negotiate();
            client.share_memory();
            client.memory.words::<AtomicU16>(GUEST + offset, 1).unwrap()[0].store(value, Ordering::SeqCst);
            client.memory.words::<AtomicU16>(GUEST + 0x4002, 1).unwrap()[0].fetch_max(1, Ordering::SeqCst);
            client.start_queue(0, 0);
        })
    };
    assert!(lie(0x4002, 65).contains("the available index moved by 65, but the queue holds 64"));
    assert!(lie(0x4004, 64).contains("descriptor index 64 is outside the table of 64"));
}

/// The client cuts its memory short while requests run on it.
#[test]
fn memory_that_goes_away() {
    for _ in 0..5 {
        let memfd = File::from(memfd_create("client", MemfdFlags::CLOEXEC).unwrap());
        ftruncate(&memfd, MEMORY_BYTES).unwrap();
        let shared = blockyard_block::SharedRegion {
            address: GUEST,
            length_bytes: MEMORY_BYTES,
            file: memfd.try_clone().unwrap(),
            file_offset_bytes: 0,
        };
        let memory = MemoryMap::from_files(vec![shared]).unwrap();
        let server = server(Duration::from_micros(200));
        let (bystander, _going_on) = Client::start(&server, export(disk(), 1, 1));
        let (client, session) = Client::connect_with(&server, export(disk(), 1, 1), memory);
        client.negotiate();
        client.share_memory();
        client.start_queue(0, 0);
        client.synchronize();
        let mut driver = client.driver(0);
        assert_eq!(driver.run(IN, 0, 0x80_0000, 4096), 0);
        (0..20).for_each(|slot| driver.add(slot, IN, 0, 0x80_0000, 65536));
        driver.publish();
        ftruncate(&memfd, 0).unwrap();
        client.kick[0].ring();
        assert_eq!(end(&session), EndReason::Client("the client's memory was cut short while it was in use".into()));
        assert_eq!(bystander.driver(0).run(IN, 0, 0x80_0000, 512), 0);
    }
}

/// The client makes its call eventfd one that a write waits for, and keeps it full, again and again: others on the same
/// I/O thread go on, and so does the client, which need not be waited for to be served.
#[test]
fn a_call_that_a_write_would_wait_for() {
    let server = server(Duration::ZERO);
    let (bystander, going_on) = Client::start(&server, export(disk(), 1, 1));
    let (client, session) = Client::start(&server, export(disk(), 1, 1));
    let full = AtomicBool::new(false);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let call = client.call[0].as_fd();
            let flags = fcntl_getfl(call).unwrap();
            while !over.load(Ordering::Relaxed) {
                fcntl_setfl(call, flags | OFlags::NONBLOCK).unwrap();
                // All that goes in, whatever is in it already.
                for bit in (0..64).rev() {
                    let _ = rustix::io::write(call, &(1u64 << bit).to_ne_bytes());
                }
                fcntl_setfl(call, flags - OFlags::NONBLOCK).unwrap();
                full.store(true, Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
        wait_for(|| full.load(Ordering::Relaxed));
        let (mut hostile, mut other) = (client.driver(0), bystander.driver(0));
        for _ in 0..500 {
            assert_eq!(hostile.run(IN, 0, 0x80_0000, 512), 0);
            assert_eq!(other.run(IN, 0, 0x80_0000, 512), 0);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(session.end_reason().is_none());
    assert!(going_on.end_reason().is_none());
}

/// Somebody who sends and never reads.
#[test]
fn replies_that_nobody_reads() {
    let reason = ended_by(|client| {
        let question = halves(&[1, 1, 0]).repeat(64);
        (0..2000).for_each(|_| client.send_bytes(&question, &[]));
    });
    assert_eq!(reason, "the client does not read its replies");
}

const FURTHER: u64 = 1 << 62;
const ADD_CONNECTION: u32 = 1000;

#[test]
fn further_connections_that_cannot_be() {
    let with = |descriptors: &[BorrowedFd<'_>], request: u32| {
        ended_by(|client| {
            client.send(2, &words(&[FURTHER]), &[]);
            client.send(request, &[], descriptors);
        })
    };
    let null = File::open("/dev/null").unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let (datagram, _) = std::os::unix::net::UnixDatagram::pair().unwrap();
    assert!(with(&[], ADD_CONNECTION).contains("came with 0 descriptors instead of 1"));
    assert!(with(&[null.as_fd(); 2], ADD_CONNECTION).contains("came with 2 descriptors instead of 1"));
    for descriptor in [null.as_fd(), tcp.as_fd(), datagram.as_fd()] {
        assert!(with(&[descriptor], ADD_CONNECTION).contains("is no stream socket"));
    }
    for counts_and_settling in 1..=3 {
        assert!(
            with(&[null.as_fd()], ADD_CONNECTION + counts_and_settling)
                .contains("came with 1 descriptors instead of 0")
        );
    }
}

/// What a client gives as a further connection may be both ends of a stream, or its own end of the first, which the
/// server then keeps open itself: it harms nobody but itself.
#[test]
fn further_connections_to_oneself() {
    let server = server(Duration::from_micros(50));
    let (bystander, going_on) = Client::start(&server, export(disk(), 1, 1));
    for gives_its_own in [false, true] {
        let (client, session) = Client::connect(&server, export(disk(), 1, 1));
        client.send(2, &words(&[FURTHER]), &[]);
        let (one, other) = UnixStream::pair().unwrap();
        client.send(ADD_CONNECTION, &[], &[one.as_fd()]);
        client.send(ADD_CONNECTION, &[], &[other.as_fd()]);
        if gives_its_own {
            client.send(ADD_CONNECTION, &[], &[client.stream.as_fd()]);
            session.revoke();
        }
        drop((one, other, client));
        end(&session);
    }
    assert_eq!(bystander.driver(0).run(IN, 0, 0x80_0000, 512), 0);
    assert!(going_on.end_reason().is_none());
}

/// A step of a hostile client.
#[derive(Debug, TypeGenerator)]
enum Step {
    /// Bytes as they are.
    Bytes(Vec<u8>, u8),
    /// A message with a good header: request, flags, payload, descriptors.
    Message(u8, bool, Vec<u8>, u8),
    /// A message about a queue, of numbers that nearly make sense.
    Vring(u8, u8, u8),
    Negotiate,
    Memory(u8),
    Start(u8),
    /// A request, spoiled: chain, length, where.
    Request(u8, u16, u16),
    Shrink,
}

/// What a client may have to send.
struct Things {
    files: Vec<OwnedFd>,
}

impl Things {
    fn some(&self, choice: u8) -> Vec<BorrowedFd<'_>> {
        let count = usize::from(choice & 3) + usize::from(choice > 250) * 7;
        (0..count).map(|index| self.files[(usize::from(choice >> 2) + index) % self.files.len()].as_fd()).collect()
    }
}

fn act(client: &Client, things: &Things, step: &Step) {
    match step {
        Step::Bytes(bytes, descriptors) => client.send_bytes(bytes, &things.some(*descriptors)),
        Step::Message(request, reply, payload, descriptors) => {
            let flags = if *reply { NEED_REPLY } else { 0 };
            // The last two are of further connections.
            let request = match u32::from(*request % 46) {
                request @ 0..=43 => request,
                further => ADD_CONNECTION + further - 44,
            };
            client.send_with(request, flags, payload, &things.some(*descriptors));
        }
        Step::Vring(request, index, value) => {
            let payload = halves(&[u32::from(*index % 3), u32::from(*value), 0, 0, 0, 0, 0, 0, 0, 0]);
            client.send(
                8 + u32::from(*request % 11),
                &payload,
                &things.some(*value)[..1.min(things.some(*value).len())],
            );
        }
        Step::Negotiate => {
            client.send(16, &words(&[0x1b22b & !u64::from(1u32 << 14)]), &[]);
            client.send(2, &words(&[client.features | FURTHER]), &[]);
        }
        Step::Memory(choice) => {
            let regions = [GUEST, MEMORY_BYTES >> (choice & 3), USER, u64::from(choice >> 2 & 3) * 4096];
            let (_, _, file, _) = client.memory.shared_regions().unwrap().next().unwrap();
            client.send(5, &[&words(&[1])[..], &words(&regions), &[0; 32]].concat(), &[file.as_fd()]);
        }
        Step::Start(index) => client.start_queue((index % 2).into(), 0),
        Step::Request(head, length, place) => {
            let ring = |offset: u64| &client.memory.words::<AtomicU16>(GUEST + offset, 1).unwrap()[0];
            let at = u64::from(*head % 64) * 16;
            let descriptor = [0x40_0000 + u64::from(*place) * 512 + GUEST, u64::from(*length) | u64::from(*head) << 32];
            client.fill(at, &words(&descriptor));
            let index = ring(0x4002).load(Ordering::SeqCst);
            ring(0x4004 + 2 * u64::from(index % 64)).store((*head % 65).into(), Ordering::SeqCst);
            ring(0x4002).store(index.wrapping_add(1), Ordering::SeqCst);
            client.kick[0].ring();
        }
        // Sealed memory: it is refused, as it should be. The other file can be cut.
        Step::Shrink => drop(ftruncate(&things.files[0], 0)),
    }
}

/// Whatever a client sends and does: its session ends when it hangs up at the latest, and another's goes on.
#[test]
fn fuzz_any_client_harms_only_itself() {
    let server: AssertUnwindSafe<Server> = AssertUnwindSafe(server(Duration::from_micros(20)));
    let (bystander, going_on) = Client::start(&server, export(disk(), 1, 1));
    let reasons = Mutex::new(std::collections::BTreeMap::<String, u32>::new());
    blockyard_fuzz::check!(1000).with_type::<Vec<Step>>().for_each(|steps| {
        let memfd = memfd_create("thing", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&memfd, 1 << 20).unwrap();
        let (client, session) = Client::connect(&server, export(disk(), 2, 1));
        let event = client.kick[1].as_fd().try_clone_to_owned().unwrap();
        let (socket, _end) = UnixStream::pair().unwrap();
        let things = Things { files: vec![memfd, event, File::open("/dev/null").unwrap().into(), socket.into()] };
        client.stream.set_nonblocking(true).unwrap();
        steps.iter().for_each(|step| act(&client, &things, step));
        client.stream.shutdown(std::net::Shutdown::Both).unwrap();
        let reason = end(&session).to_string();
        *reasons.lock().unwrap().entry(reason.chars().take(24).collect()).or_default() += 1;
        assert_eq!(bystander.driver(0).run(IN, 0, 0x80_0000, 512), 0);
        restart(&bystander);
    });
    assert!(going_on.end_reason().is_none());
    // It is no use if all ends the same way.
    let reasons = reasons.into_inner().unwrap();
    assert!(reasons.len() > 3, "{reasons:?}");
}

/// The bystander's queue from its beginning, for a driver that begins there.
fn restart(client: &Client) {
    client.send(11, &halves(&[0, 0]), &[]);
    client.receive(11).unwrap();
    for offset in [0x4002, 0x8002] {
        client.memory.words::<AtomicU16>(GUEST + offset, 1).unwrap()[0].store(0, Ordering::SeqCst);
    }
    client.start_queue(0, 0);
    client.synchronize();
}

fn shares(file: &File, length_bytes: u64) -> impl FnOnce(&Client) {
    move |client| client.send(5, &words(&[1, GUEST, length_bytes, USER, 0, 0, 0, 0, 0]), &[file.as_fd()])
}

/// A file on overlayfs over tmpfs; `None` without the rights to mount one.
fn on_overlayfs(directory: &Path) -> Option<File> {
    let directory = directory.to_owned();
    // In a mount namespace of a thread's own, which goes with the thread; the file keeps its file system.
    let mount_and_open = move || {
        #[allow(deprecated, reason = "its unsafe successor is for flags that unshare descriptors")]
        rustix::thread::unshare(UnshareFlags::NEWNS | UnshareFlags::FS).ok()?;
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).ok()?;
        mount("none", &directory, "tmpfs", MountFlags::empty(), None).ok()?;
        ["lower", "upper", "work", "merged"].iter().for_each(|name| fs::create_dir(directory.join(name)).unwrap());
        let below = |name: &str| directory.join(name).display().to_string();
        let options = format!("lowerdir={},upperdir={},workdir={}", below("lower"), below("upper"), below("work"));
        let options = std::ffi::CString::new(options).unwrap();
        mount("none", directory.join("merged"), "overlay", MountFlags::empty(), Some(options.as_c_str())).ok()?;
        let file = File::options().read(true).write(true).create_new(true).open(directory.join("merged/memory"));
        let file = file.unwrap();
        file.set_len(MEMORY_BYTES).unwrap();
        Some(file)
    };
    std::thread::spawn(mount_and_open).join().unwrap()
}

/// Who serves a file system decides how long a page of it takes: memory lies only where that is nobody.
#[test]
fn memory_that_somebody_could_keep_from_us() {
    let sysfs = File::open("/sys/kernel/uevent_seqnum").unwrap();
    let reason = ended_by(shares(&sysfs, 4096));
    assert!(reason.contains("could keep us waiting") && reason.contains("TMPDIR=/dev/shm"), "{reason}");
    let record = |client: &Client| {
        let area = [words(&[4096, 0]), halves(&[1 | 64 << 16])].concat();
        client.send(32, &area, &[sysfs.as_fd()]);
    };
    assert!(ended_by(record).contains("could keep us waiting"));
    let directory = tempfile::tempdir().unwrap();
    let Some(overlay) = on_overlayfs(directory.path()) else {
        return eprintln!("mounting an overlay takes root: not tried");
    };
    assert!(ended_by(shares(&overlay, 4096)).contains("could keep us waiting"));
}

/// A process that the server's owner started says which file on overlayfs is its memory, once.
#[test]
fn only_the_first_file_on_overlayfs_is_admitted() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [Some(own), Some(other)] = directories.each_ref().map(|directory| on_overlayfs(directory.path())) else {
        return eprintln!("mounting an overlay takes root: not tried");
    };
    let options = ServerOptions { admitted_memory: AdmittedMemory::first_file(), ..ServerOptions::default() };
    let server = Server::start(&options).unwrap();
    let connect = || Client::connect(&server, export(disk(), 1, 1));
    let sessions = [connect(), connect()];
    for (client, session) in &sessions {
        shares(&own, MEMORY_BYTES)(client);
        client.synchronize();
        assert!(session.end_reason().is_none());
    }
    shares(&other, MEMORY_BYTES)(&sessions[1].0);
    let reason = end(&sessions[1].1).to_string();
    assert!(reason.contains("could keep us waiting"), "{reason}");
}

/// A file that holds nothing may be as long as an address space.
#[test]
fn memory_beyond_all_measure() {
    let machine = fs::read_to_string("/proc/meminfo").unwrap();
    let machine_kib = machine.lines().filter(|line| line.starts_with("MemTotal:") || line.starts_with("SwapTotal:"));
    let machine_kib: u64 =
        machine_kib.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum();
    let client_bytes_max = (machine_kib * 1024 * 2).clamp(16 << 30, 16 << 40);
    let sparse = File::from(memfd_create("sparse", MemfdFlags::CLOEXEC).unwrap());
    ftruncate(&sparse, 64 << 40).unwrap();
    let reason = ended_by(shares(&sparse, client_bytes_max + 4096));
    assert!(reason.contains("the memory of a client"), "{reason}");
    let server = server(Duration::ZERO);
    let mut sessions = Vec::new();
    for _ in 0..4 {
        let (client, session) = Client::connect(&server, export(disk(), 1, 1));
        shares(&sparse, client_bytes_max)(&client);
        client.synchronize();
        sessions.push((client, session));
    }
    let (last, ended) = Client::connect(&server, export(disk(), 1, 1));
    shares(&sparse, 4096)(&last);
    let reason = end(&ended).to_string();
    assert!(reason.contains("the memory of all clients"), "{reason}");
    // Whoever leaves gives its room back.
    let (leaving, session) = sessions.pop().unwrap();
    drop(leaving);
    end(&session);
    let (next, _session) = Client::connect(&server, export(disk(), 1, 1));
    shares(&sparse, client_bytes_max)(&next);
    next.synchronize();
}

/// Of the area that a client has kept for requests in flight, no more is mapped than they take.
#[test]
fn a_record_of_requests_beyond_all_measure() {
    let sparse = File::from(memfd_create("sparse", MemfdFlags::CLOEXEC).unwrap());
    ftruncate(&sparse, 120 << 40).unwrap();
    let server = server(Duration::ZERO);
    let record = |client: &Client, area: [u64; 2], queues: u32, size: u32| {
        client.send(32, &[words(&area), halves(&[queues | size << 16])].concat(), &[sparse.as_fd()]);
    };
    // Two of these would not fit an address space.
    let sessions = [(); 2].map(|()| Client::connect(&server, export(disk(), 1, 1)));
    for (client, session) in &sessions {
        record(client, [120 << 40, 0], 1, 64);
        client.synchronize();
        assert!(session.end_reason().is_none());
    }
    record(&sessions[0].0, [120 << 40, 0], 2, 64);
    assert!(end(&sessions[0].1).to_string().contains("in-flight tracking of 2 queues"));
}
