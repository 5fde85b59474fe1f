//! A confined process serves what it has open and reaches nothing else. The process is this test's own binary, run
//! again.

use blockyard_block::{Disk, Engine, FileDisk, FileOptions, MemoryMap, Operation, Request, RingsAhead, Segment};
use blockyard_confinement::{Confinement, Landlock, Tree};
use io_uring::IoUring;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, ResolveFlags, chmodat, chownat, linkat, mkdirat, openat2, renameat_with,
    symlinkat, unlinkat,
};
use rustix::net::{SendFlags, SocketAddrUnix, sendto};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;

/// It stays where the limit on locked memory cannot be raised.
const CAP_IPC_LOCK: u64 = 1 << 14;

const DIRECTORY: &str = "BLOCKYARD_TEST_DIRECTORY";

#[test]
fn a_confined_process_serves_what_it_has_open_and_reaches_nothing_else() {
    run_confined("serves_what_is_open");
}

#[test]
fn a_confined_process_that_must_reconnect_may_connect_to_unix_sockets() {
    run_confined("connects_where_it_must");
}

#[test]
fn a_process_that_serves_a_directory_reaches_nothing_else_and_makes_no_devices() {
    run_confined("serves_a_directory");
}

#[test]
fn a_process_that_serves_a_directory_for_reading_cannot_change_it() {
    run_confined("serves_a_directory_for_reading");
}

fn run_confined(child: &str) {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("sockets")).unwrap();
    fs::write(directory.path().join("disk"), [7; 4096]).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", child, "--ignored", "--nocapture", "--test-threads=1"]);
    let output = command.env(DIRECTORY, directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

fn refused<T>(result: io::Result<T>, what: &str) {
    let errno = result.err().unwrap_or_else(|| panic!("{what} was not refused")).raw_os_error();
    assert!(matches!(errno, Some(libc::EPERM | libc::EACCES)), "{what}: {errno:?}");
}

#[test]
#[ignore = "run by the tests, in a process of its own"]
fn serves_what_is_open() {
    let directory = std::env::var_os(DIRECTORY).unwrap();
    let directory = Path::new(&directory);
    let socket = directory.join("sockets/socket");
    let disk = File::options().read(true).write(true).open(directory.join("disk")).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    let mut client = UnixStream::connect(&socket).unwrap();
    let rings = RingsAhead { queues: 1, ..RingsAhead::default() };
    let confinement = Confinement { removes_in: vec![directory.join("sockets")], rings, ..Confinement::default() };
    let options = FileOptions { engine: Engine::Uring, ..FileOptions::default() };
    let file_disk = FileDisk::from_file(disk.try_clone().unwrap(), &options).unwrap();
    let has_rings = IoUring::new(1).is_ok();
    let (ask, asked) = mpsc::channel::<PathBuf>();
    let earlier = std::thread::spawn(move || {
        let removed = asked.recv().map(fs::remove_file).unwrap();
        (removed, fs::read_to_string("/proc/thread-self/status"))
    });
    let log = UnixDatagram::bind(directory.join("sockets/log")).unwrap();
    let status = File::open("/proc/thread-self/status").unwrap();

    let landlock = confinement.enter().unwrap();

    refused(File::open(directory.join("disk")), "opening a file");
    refused(File::create(directory.join("sockets/new")), "creating a file");
    refused(Command::new("/bin/true").status(), "starting a program");
    refused(TcpListener::bind("127.0.0.1:0"), "making a TCP socket");
    refused(UnixStream::connect(&socket), "making a unix socket");
    refused(fs::rename(directory.join("disk"), directory.join("sockets/disk")), "renaming a file");
    if landlock != Landlock::Absent {
        refused(fs::remove_file(directory.join("disk")), "removing a file elsewhere");
    }
    // What a thread that was there before may do it may do for all.
    ask.send(directory.join("disk")).unwrap();
    let (removed, status_of_earlier) = earlier.join().unwrap();
    refused(status_of_earlier, "reading a file in another thread");
    if landlock != Landlock::Absent {
        refused(removed, "removing a file in another thread");
    }
    refused(IoUring::new(2).map(drop), "making an io_uring");
    // Sends by name without a socket that was made by name.
    refused(UnixDatagram::pair().map(drop), "making a pair of datagram sockets");
    let (one, _other) = UnixStream::pair().unwrap();
    refused(send_to(&one, &directory.join("sockets/log")), "sending by name");
    drop(log);
    // Signals to others, by a call or by a descriptor; signal 0 would do nothing.
    let parent = std::os::unix::process::parent_id() as libc::c_long;
    // SAFETY: system calls without memory.
    let ask =
        |call, arguments: [libc::c_long; 3]| unsafe { libc::syscall(call, arguments[0], arguments[1], arguments[2]) };
    let outcome = |returned: libc::c_long| if returned == -1 { Err(io::Error::last_os_error()) } else { Ok(()) };
    let own = libc::c_long::from(std::process::id());
    let (end, set_owner_with_kind, set_signal) = (one.as_raw_fd().into(), 15, 10);
    refused(outcome(ask(libc::SYS_tgkill, [parent, parent, 0])), "a signal to another process");
    refused(outcome(ask(libc::SYS_kill, [parent, 0, 0])), "a signal to another process");
    refused(outcome(ask(libc::SYS_fcntl, [end, libc::F_SETOWN.into(), parent])), "having a descriptor signal");
    refused(outcome(ask(libc::SYS_fcntl, [end, set_owner_with_kind, 0])), "having a descriptor signal");
    refused(outcome(ask(libc::SYS_fcntl, [end, set_signal, 9])), "having a descriptor send any signal");
    // SAFETY: as above.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    outcome(ask(libc::SYS_tgkill, [own, thread, 0])).unwrap();
    outcome(ask(libc::SYS_fcntl, [end, libc::F_GETFL.into(), 0])).unwrap();
    // Which files there are it may go on asking, as SECURITY.md says.
    assert_eq!(fs::metadata(directory.join("disk")).unwrap().len(), 4096);
    let capabilities = io::read_to_string(status).unwrap();
    for set in ["CapInh:", "CapPrm:", "CapEff:"] {
        let kept = capabilities.lines().find_map(|line| line.strip_prefix(set)).unwrap();
        let kept = u64::from_str_radix(kept.trim(), 16).unwrap();
        assert_eq!(kept & !CAP_IPC_LOCK, 0, "{capabilities}");
    }
    // The ring that was made before serves one queue, again and again; whoever copies out of the file has another, and
    // there are no more.
    if has_rings {
        let memory = MemoryMap::allocate(&[(0, 4096)]).unwrap();
        let _copying = file_disk.open_queue(&memory, 1).unwrap();
        for _ in 0..3 {
            let mut queue = file_disk.open_queue(&memory, 4).unwrap();
            let segments = [Segment { region: 0, length_bytes: 4096, offset_bytes: 0 }];
            let read = Request { operation: Operation::Read, offset_bytes: 0, segments: &segments, token: 0 };
            queue.push(&read).unwrap();
            let mut completions = Vec::new();
            queue.drain(&mut completions).unwrap();
            assert_eq!((completions[0].result, memory.read::<1>(0)), (Ok(()), Some([7])));
            refused(file_disk.open_queue(&memory, 4).map(drop), "a ring that was not made before");
        }
    }

    let (mut server, _) = listener.accept().unwrap();
    client.write_all(b"request").unwrap();
    let mut request = [0; 7];
    server.read_exact(&mut request).unwrap();
    let reader = std::thread::spawn(move || {
        let mut block = [0; 512];
        disk.read_exact_at(&mut block, 512).unwrap();
        disk.write_all_at(&block, 1024).unwrap();
        disk.sync_data().unwrap();
        block[0]
    });
    assert_eq!(reader.join().unwrap(), 7);
    fs::remove_file(&socket).unwrap();
}

#[test]
#[ignore = "run by the tests, in a process of its own"]
fn connects_where_it_must() {
    let directory = std::env::var_os(DIRECTORY).unwrap();
    let socket = Path::new(&directory).join("sockets/socket");
    let _listener = UnixListener::bind(&socket).unwrap();

    Confinement { connects: true, ..Confinement::default() }.enter().unwrap();

    UnixStream::connect(&socket).unwrap();
    refused(TcpListener::bind("127.0.0.1:0"), "making a TCP socket");
}

/// Sends to a socket by its name.
fn send_to(socket: &UnixStream, path: &Path) -> io::Result<()> {
    let address = SocketAddrUnix::new(path)?;
    Ok(sendto(socket, b"x", SendFlags::empty(), &address).map(drop)?)
}

fn tree(directory: &Path, read_only: bool) -> Confinement {
    let directory = std::sync::Arc::new(File::open(directory).unwrap().into());
    Confinement { tree: Some(Tree { directory, read_only }), ..Confinement::default() }
}

// The calls that such a process makes, where std would make others.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::empty())?)
}

fn link(from: &Path, to: &Path) -> io::Result<()> {
    Ok(linkat(CWD, from, CWD, to, AtFlags::empty())?)
}

fn remove(path: &Path) -> io::Result<()> {
    Ok(unlinkat(CWD, path, AtFlags::empty())?)
}

#[test]
#[ignore = "run by the tests, in a process of its own"]
fn serves_a_directory() {
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).unwrap());
    let shared = directory.join("sockets");
    let status = File::open("/proc/thread-self/status").unwrap();

    let landlock = tree(&shared, false).enter().unwrap();

    fs::write(shared.join("file"), "text").unwrap();
    rename(&shared.join("file"), &shared.join("renamed")).unwrap();
    symlinkat("../disk", CWD, shared.join("link")).unwrap();
    assert_eq!(fs::read_to_string(shared.join("renamed")).unwrap(), "text");
    let owner = Some(rustix::fs::Uid::from_raw(1));
    let given = chownat(CWD, shared.join("renamed"), owner, None, AtFlags::empty());
    refused(given.map_err(io::Error::from), "giving a file away");
    refused(UnixListener::bind(shared.join("socket")).map(drop), "making a socket");
    let path = std::ffi::CString::new(shared.join("node").into_os_string().into_encoded_bytes()).unwrap();
    for mode in [libc::S_IFIFO, libc::S_IFSOCK, libc::S_IFCHR, libc::S_IFBLK, libc::S_IFREG] {
        // SAFETY: the path ends with a zero.
        let made = unsafe { libc::mknod(path.as_ptr(), mode | 0o600, 0x105) };
        refused(if made == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }, "making a node");
    }
    refused(Command::new("/bin/true").status(), "starting a program");
    refused(TcpListener::bind("127.0.0.1:0"), "making a TCP socket");
    refused(IoUring::new(1).map(drop), "making an io_uring");
    if landlock != Landlock::Absent {
        refused(File::open(directory.join("disk")), "opening a file elsewhere");
        refused(File::open(shared.join("link")), "opening a file elsewhere through a link");
        refused(fs::read_dir(&directory).map(drop), "listing a directory elsewhere");
        refused(File::create(directory.join("new")), "creating a file elsewhere");
        refused(rename(&shared.join("renamed"), &directory.join("moved")), "moving a file out");
        refused(link(&shared.join("renamed"), &directory.join("linked")), "linking a file out");
        refused(remove(&directory.join("disk")), "removing a file elsewhere");
    }
    chmodat(CWD, shared.join("renamed"), Mode::RWXU, AtFlags::empty()).unwrap();
    let capabilities = io::read_to_string(status).unwrap();
    let effective = capabilities.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    assert_eq!(effective.trim().trim_start_matches('0'), "", "{capabilities}");
}

#[test]
#[ignore = "run by the tests, in a process of its own"]
fn serves_a_directory_for_reading() {
    use std::os::unix::fs::OpenOptionsExt;
    let shared = PathBuf::from(std::env::var_os(DIRECTORY).unwrap()).join("sockets");
    let file = shared.join("file");
    fs::write(&file, "text").unwrap();
    // With all rights to it, as if they had been kept.
    let kept = File::options().read(true).write(true).open(&file).unwrap();

    tree(&shared, true).enter().unwrap();

    assert_eq!(fs::read_to_string(&file).unwrap(), "text");
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 1);
    for (write, truncate) in [(true, false), (false, true), (true, true)] {
        let flags = if truncate { libc::O_TRUNC } else { 0 };
        let opened = File::options().read(true).write(write).custom_flags(flags).open(&file);
        refused(opened, "opening a file for writing");
    }
    refused(File::create_new(shared.join("new")).map(drop), "creating a file");
    refused(remove(&file), "removing a file");
    refused(mkdirat(CWD, shared.join("directory"), Mode::RWXU).map_err(io::Error::from), "making a directory");
    refused(symlinkat("a", CWD, shared.join("link")).map_err(io::Error::from), "making a link");
    refused(link(&file, &shared.join("link")), "linking a file");
    refused(rename(&file, &shared.join("other")), "renaming a file");
    let changed = chmodat(CWD, &file, Mode::RWXU, AtFlags::empty());
    refused(changed.map_err(io::Error::from), "a file's mode");
    refused(kept.set_len(1), "cutting a file short");
    refused(kept.set_modified(std::time::SystemTime::UNIX_EPOCH), "a file's times");
    let name = c"user.a".as_ptr();
    // SAFETY: the name ends with a zero, and the value has a byte.
    let set = unsafe { libc::fsetxattr(kept.as_raw_fd(), name, name.cast(), 1, 0) };
    refused(if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }, "a file's attributes");
    // A filter cannot see what it would be asked for.
    let opened = openat2(CWD, &file, OFlags::RDONLY, Mode::empty(), ResolveFlags::empty());
    refused(opened.map_err(io::Error::from), "openat2");
}
