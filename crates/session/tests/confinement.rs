//! A confined process serves what it has open and reaches nothing else. The process is this test's own binary, run again.

use blockyard_session::confinement::{Confinement, Landlock};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

const DIRECTORY: &str = "BLOCKYARD_TEST_DIRECTORY";

#[test]
fn a_confined_process_serves_what_it_has_open_and_reaches_nothing_else() {
    run_confined("serves_what_is_open");
}

#[test]
fn a_confined_process_that_must_reconnect_may_connect_to_unix_sockets() {
    run_confined("connects_where_it_must");
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
    let confinement = Confinement { removes_in: vec![directory.join("sockets")], ..Confinement::default() };

    let landlock = confinement.enter().unwrap();

    refused(File::open(directory.join("disk")), "opening a file");
    refused(File::create(directory.join("sockets/new")), "creating a file");
    refused(Command::new("/bin/true").status(), "starting a program");
    refused(TcpListener::bind("127.0.0.1:0"), "making a TCP socket");
    refused(UnixStream::connect(&socket), "making a unix socket");
    refused(fs::rename(directory.join("disk"), directory.join("sockets/disk")), "renaming a file");
    if landlock != Landlock::Absent {
        refused(fs::remove_file(directory.join("disk")), "removing a file elsewhere");
        refused(open_by_ring(&directory.join("disk")), "opening a file by io_uring");
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

/// Opens a file without a system call that a filter could see.
fn open_by_ring(path: &Path) -> io::Result<()> {
    use io_uring::{IoUring, opcode, types};
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    let mut ring = IoUring::new(2)?;
    let open = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), path.as_ptr()).flags(libc::O_RDONLY).build();
    // SAFETY: the path outlives the wait for the completion.
    unsafe { ring.submission().push(&open) }.map_err(io::Error::other)?;
    ring.submit_and_wait(1)?;
    let result = ring.completion().next().expect("one was waited for").result();
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}
