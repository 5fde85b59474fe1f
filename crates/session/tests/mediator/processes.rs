//! Mediator and driver as processes: this test binary again, at a test that only they run.

use crate::rig::{Serving, Yard, open, wait_until};
use blockyard_block::partition_table::TableChoice;
use blockyard_session::mediator::{MediatorConfig, MediatorNews, PartitionExport, run, session};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const IMAGE: &str = "BLOCKYARD_TEST_IMAGE";
const EXPORTS: &str = "BLOCKYARD_TEST_EXPORTS";
const SOCKET: &str = "BLOCKYARD_TEST_SOCKET";
/// Somebody who is not root.
const NOBODY: u32 = 65534;

/// This binary, at one of the tests below that are processes.
fn process(program: &Path, test: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["--ignored", "--exact", test, "--nocapture"]).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn this_program() -> std::path::PathBuf {
    std::env::current_exe().unwrap()
}

/// A process that is killed when the test is over.
struct Process(Child);

impl Process {
    fn mediator(yard: &Yard, exports: &[PartitionExport], control: OwnedFd) -> Self {
        let exports: Vec<_> = exports.iter().map(ToString::to_string).collect();
        let mut command = process(&this_program(), "processes::mediator_process");
        command.env(IMAGE, yard.image()).env(EXPORTS, exports.join("\n")).stdin(control);
        Self(command.spawn().unwrap())
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "the mediator that other tests start"]
fn mediator_process() {
    let Ok(exports) = std::env::var(EXPORTS) else { return };
    let exports = exports.lines().map(|export| export.parse().unwrap()).collect();
    let config = MediatorConfig { exports, table: TableChoice::Auto };
    let control = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    match std::env::var_os(IMAGE) {
        // Nobody serves the connection: this process reads the image itself.
        Some(image) => run(control, &config, |_stream| Ok(open(Path::new(&image)))).unwrap(),
        None => run(control, &config, session).unwrap(),
    }
}

#[test]
#[ignore = "the driver that another test kills"]
fn driver_process() {
    if std::env::var_os(EXPORTS).is_none() {
        return;
    }
    let (serving, control) = Serving::start();
    let mut mediator = process(&this_program(), "processes::mediator_process").stdin(control).spawn().unwrap();
    assert_eq!(serving.hear(), MediatorNews::Ready);
    mediator.wait().unwrap();
}

#[test]
#[ignore = "a client that is another user"]
fn client_process() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let mut byte = [0];
    let read = UnixStream::connect(socket).and_then(|mut stream| stream.read(&mut byte));
    assert_eq!(read.unwrap(), 1, "nobody greets");
}

/// A mediator that is ready, and its driver.
fn mediated(yard: &Yard, exports: &[PartitionExport]) -> (Serving, Process) {
    let (serving, control) = Serving::start();
    let mediator = Process::mediator(yard, exports, control);
    assert_eq!(serving.hear(), MediatorNews::Ready);
    (serving, mediator)
}

/// A mediator that cannot begin, and why.
fn failure(yard: &Yard, exports: &[PartitionExport]) -> String {
    let (serving, control) = Serving::start();
    let _mediator = Process::mediator(yard, exports, control);
    let MediatorNews::Failed(why) = serving.hear() else { panic!("it did not fail") };
    why
}

/// Another program's server, so that nothing but the protocol is shared.
#[test]
fn the_table_is_read_through_a_session() {
    let yard = Yard::new();
    let mut command = Command::new("qemu-storage-daemon");
    let image = format!("driver=file,node-name=disk,filename={}", yard.image().display());
    let socket = yard.path("whole.sock");
    let export = format!("type=vhost-user-blk,id=disk,node-name=disk,addr.type=unix,addr.path={}", socket.display());
    command.args(["--blockdev", &image, "--export", &export]).stdin(Stdio::null());
    let _server = Process(command.spawn().expect("qemu-storage-daemon comes with the package `qemu-system-common`"));
    wait_until("the server", || UnixStream::connect(&socket).is_ok());
    let mut stream = None;
    // It takes one client at a time, and may not have seen yet that the one above has left.
    wait_until("a connection", || {
        stream = UnixStream::connect(&socket).ok();
        stream.is_some()
    });
    let (serving, control) = Serving::start_with(&stream.unwrap());
    let mut command = process(&this_program(), "processes::mediator_process");
    command.env(EXPORTS, yard.export(6, ",rw").to_string()).stdin(control);
    let _mediator = Process(command.spawn().unwrap());
    assert_eq!(serving.hear(), MediatorNews::Ready);
    assert_eq!(yard.connect(6).greeting(), "partition 6 7340032..8388608 rw 1");
}

#[test]
fn clients_get_the_partitions_they_connect_to() {
    let yard = Yard::new();
    let exports = [yard.export(1, ",rw,weight=3"), yard.export(2, ""), yard.export(5, ",rw"), yard.export(6, ",ro")];
    let (serving, _mediator) = mediated(&yard, &exports);
    let mut clients = [1, 2, 5, 6].map(|number| yard.connect(number));
    let greetings = clients.each_mut().map(|client| client.greeting());
    let sector = |number: u64| number * 512;
    assert_eq!(
        greetings,
        [
            format!("partition 1 {:?} rw 3", sector(2048)..sector(6144)),
            format!("partition 2 {:?} ro 1", sector(6144)..sector(8192)),
            format!("partition 5 {:?} rw 1", sector(10240)..sector(12288)),
            format!("partition 6 {:?} ro 1", sector(14336)..sector(16384)),
        ]
    );
    assert!(clients.iter_mut().all(|client| client.is_served()));
    assert_eq!(serving.grants.try_iter().count(), 4);
}

#[test]
fn a_second_client_is_turned_away_until_the_first_has_left() {
    let yard = Yard::new();
    let (serving, _mediator) = mediated(&yard, &[yard.export(1, ",rw")]);
    let mut first = yard.connect(1);
    assert!(first.greeting().starts_with("partition 1 "));
    for _ in 0..3 {
        assert_eq!(yard.connect(1).greeting(), "");
    }
    serving.hears_notice(&["1.sock", "it has a client already"]);
    assert!(first.is_served());
    drop(first);
    wait_until("the next client's turn", || yard.connect(1).greeting().starts_with("partition 1 "));
}

#[test]
fn sockets_are_for_their_user_only() {
    let yard = Yard::new();
    let (_serving, _mediator) = mediated(&yard, &[yard.export(1, ""), yard.export(2, "")]);
    for number in [1, 2] {
        assert_eq!(fs::symlink_metadata(yard.socket(number)).unwrap().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_killed_mediator_leaves_running_sessions_alone_and_is_replaced() {
    let yard = Yard::new();
    let exports = [yard.export(1, ",rw"), yard.export(5, "")];
    let (serving, mut mediator) = mediated(&yard, &exports);
    let mut client = yard.connect(1);
    assert!(client.greeting().starts_with("partition 1 "));
    mediator.kill();
    assert!(matches!(serving.hear(), MediatorNews::Gone(_)));
    assert!(client.is_served());
    assert!(UnixStream::connect(yard.socket(5)).is_err(), "a dead mediator lets nobody in");
    // What it left behind is in nobody's way.
    assert!(yard.has_socket(1));
    let (_next, _mediator) = mediated(&yard, &exports);
    assert!(yard.connect(5).greeting().starts_with("partition 5 "));
    assert!(client.is_served());
}

#[test]
fn a_killed_driver_takes_the_mediator_and_its_sockets_along() {
    let yard = Yard::new();
    let exports = [yard.export(1, ",rw"), yard.export(5, "")].map(|export| export.to_string());
    let mut command = process(&this_program(), "processes::driver_process");
    command.env(IMAGE, yard.image()).env(EXPORTS, exports.join("\n")).stdin(Stdio::null());
    let mut driver = Process(command.spawn().unwrap());
    wait_until("the sockets", || UnixStream::connect(yard.socket(5)).is_ok());
    let mut client = yard.connect(1);
    assert!(client.greeting().starts_with("partition 1 "));
    driver.kill();
    wait_until("the end of the sockets", || !yard.has_socket(1) && !yard.has_socket(5));
    assert_eq!(client.greeting(), "");
}

#[test]
fn what_cannot_be_had_is_one_sentence_and_leaves_no_socket() {
    let yard = Yard::new();
    let one = yard.export(1, ",rw");
    let failures = [
        (vec![one.clone(), yard.export(9, "")], "there is no partition 9: the disk has 1, 2, 3, 5, 6"),
        (vec![one.clone(), yard.export(3, "")], "partition 3 is an extended partition"),
        (vec![one.clone(), format!("1={}", yard.path("other.sock").display()).parse().unwrap()], "exported twice"),
        (vec![one.clone(), format!("2={}", yard.socket(1).display()).parse().unwrap()], "the socket of two partitions"),
        (vec![one.clone(), "2=/nonexistent/2.sock".parse().unwrap()], "no socket can be at /nonexistent/2.sock"),
    ];
    for (exports, words) in failures {
        let why = failure(&yard, &exports);
        assert!(why.contains(words), "{why}");
        wait_until("the end of the sockets", || !yard.has_socket(1));
    }
}

#[test]
fn what_is_no_stale_socket_is_left_alone() {
    let yard = Yard::new();
    fs::write(yard.socket(1), "precious").unwrap();
    let why = failure(&yard, &[yard.export(1, "")]);
    assert!(why.contains("1.sock") && why.contains("not a socket"), "{why}");
    assert_eq!(fs::read(yard.socket(1)).unwrap(), b"precious");
    let _somebody = UnixListener::bind(yard.socket(2)).unwrap();
    let why = failure(&yard, &[yard.export(2, "")]);
    assert!(why.contains("in use by another process"), "{why}");
    assert!(yard.has_socket(2));
}

#[test]
fn overlapping_partitions_are_granted_for_reading_only() {
    let yard = Yard::new();
    let image = File::options().write(true).open(yard.image()).unwrap();
    // Partition 2 starts 1024 blocks earlier, in partition 1.
    std::os::unix::fs::FileExt::write_all_at(&image, &5120u32.to_le_bytes(), 446 + 16 + 8).unwrap();
    for number in [1, 2] {
        let why = failure(&yard, &[yard.export(number, ",rw")]);
        assert!(why.contains("overlaps partition"), "{why}");
    }
    let (serving, control) = Serving::start();
    let _mediator = Process::mediator(&yard, &[yard.export(1, ""), yard.export(2, "")], control);
    serving.hears_notice(&["partitions 1 and 2 overlap"]);
    assert_eq!(serving.hear(), MediatorNews::Ready);
    let greetings = [1, 2].map(|number| yard.connect(number).greeting());
    assert!(greetings.iter().all(|greeting| greeting.contains(" ro ")), "{greetings:?}");
}

/// A copy of this binary that any user may run, and whether it is served at `socket` as `uid`.
fn is_served_as(yard: &Yard, uid: u32, socket: &Path) -> bool {
    let program = yard.path("client");
    if !program.exists() {
        // Were it written here, another thread's fork could hold it open for writing while it is executed.
        assert!(Command::new("cp").arg(this_program()).arg(&program).status().unwrap().success());
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = process(&program, "processes::client_process");
    command.env(SOCKET, socket).current_dir("/").uid(uid).gid(uid).stdin(Stdio::null());
    command.status().unwrap().success()
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        let _ = writeln!(std::io::stderr(), "not root: nobody else to connect as");
    }
    root
}

#[test]
fn another_user_is_turned_away_even_where_the_file_would_let_them() {
    if !is_root() {
        return;
    }
    let yard = Yard::new();
    let (serving, _mediator) = mediated(&yard, &[yard.export(1, ",rw")]);
    assert!(!is_served_as(&yard, NOBODY, &yard.socket(1)));
    fs::set_permissions(yard.socket(1), fs::Permissions::from_mode(0o666)).unwrap();
    assert!(!is_served_as(&yard, NOBODY, &yard.socket(1)));
    serving.hears_notice(&["user 65534 may not connect"]);
    assert!(serving.grants.try_recv().is_err());
    assert!(is_served_as(&yard, 0, &yard.socket(1)));
}

#[test]
fn a_user_who_is_named_has_the_socket() {
    if !is_root() {
        return;
    }
    let yard = Yard::new();
    let (serving, _mediator) = mediated(&yard, &[yard.export(1, ",rw,uid=65534")]);
    assert!(is_served_as(&yard, NOBODY, &yard.socket(1)));
    wait_until("the end of the session", || is_served_as(&yard, NOBODY, &yard.socket(1)));
    assert!(!is_served_as(&yard, 0, &yard.socket(1)));
    serving.hears_notice(&["user 0 may not connect"]);
}
