//! Disks of which the server has a connection for each process, without anybody between.

use crate::server::Server;
use crate::support::{Yard, blockyard, finish, run, run_without_leftovers, same, wait_until};
use crate::{BYTES, NAME, c_program, on_disk, piped};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const PYTHON: [&str; 2] = ["/usr/bin/python3", "-c"];

fn serve(image: &Path, socket: &Path, options: &[&str]) -> Server {
    let words = [image.as_os_str(), "--socket".as_ref(), socket.as_os_str()].into_iter();
    Server::start(&words.chain(options.iter().map(OsStr::new)).collect::<Vec<_>>(), socket)
}

fn session(socket: &Path) -> String {
    format!("session:{}", socket.display())
}

/// `blockyard attach --stats DISK /disk -- PROGRAM…`
fn counted<S: AsRef<OsStr>>(disk: &str, program: impl IntoIterator<Item = S>) -> Command {
    let mut command = blockyard();
    command.args(["attach", "--stats", disk, NAME, "--"]).args(program);
    command
}

/// The number before a word of what `--stats` says.
fn count(said: &str, what: &str) -> u64 {
    let before = said.split(what).next().unwrap();
    before.trim_end().rsplit(char::is_whitespace).next().unwrap().parse().unwrap()
}

/// They are further connections of one client, so nobody else comes in.
#[test]
fn the_server_has_one_client_whatever_processes_there_are() {
    let yard = Yard::new();
    let (image, socket) = (yard.random("disk.img", BYTES, 2), yard.path("socket"));
    let server = serve(&image, &socket, &["--queues", "1"]);
    let program = "import os, subprocess, sys
(answers, answer), (wait, over) = os.pipe(), os.pipe()
for child in range(4):
    if os.fork() == 0:
        os.close(over)
        os.write(answer, b'%d ' % len(os.pread(os.open('/disk', os.O_RDONLY), 4096, 4096)))
        os._exit(len(os.read(wait, 1)))
said = b''
while said.count(b' ') < 4: said += os.read(answers, 99)
print(said.decode())
sys.stdout.flush()
other = subprocess.run([sys.argv[1], 'image', 'info', sys.argv[2]], capture_output=True, text=True)
print(other.returncode)
os.close(over)
for child in range(4): assert os.wait()[1] == 0";
    let session = session(&socket);
    let words = [PYTHON[0], PYTHON[1], program, env!("CARGO_BIN_EXE_blockyard"), &session];
    let outcome = run(&mut counted(&session, words)).succeeded();
    assert_eq!(outcome.stdout, "4096 4096 4096 4096 \n1\n", "{outcome:#?}");
    assert_eq!(count(&outcome.stderr, "reads"), 4);
    server.stop();
}

/// Of a file that the server has locked, nobody else changes anything: what comes next is read before it is asked for,
/// and what is written is not waited for.
#[test]
fn a_program_reads_ahead_and_writes_behind() {
    let yard = Yard::new();
    let (image, socket) = (yard.random("disk.img", BYTES, 3), yard.path("socket"));
    let server = serve(&image, &socket, &[]);
    let outcome = run(&mut counted(&session(&socket), ["dd", "if=/disk", "bs=4k", "of=/dev/null"])).succeeded();
    assert!(count(&outcome.stderr, "reads (") < 100, "{outcome:#?}");
    server.stop();
    // Each would take a second.
    let slow = format!("{},latency=1s", image.display());
    let server = serve(Path::new(&slow), &socket, &[]);
    let program = "import os, time
disk = os.open('/disk', os.O_RDWR)
begun = time.monotonic()
for n in range(64): os.write(disk, bytes([n]) * 4096)
print(time.monotonic() - begun < 60)
os._exit(0)";
    let outcome = run(&mut on_disk(session(&socket), [PYTHON[0], PYTHON[1], program])).succeeded();
    assert_eq!(outcome.stdout, "True\n", "{outcome:#?}");
    let content = fs::read(&image).unwrap();
    assert!((0..64).all(|n| content[n * 4096..][..4096] == [n as u8; 4096]));
    server.stop();
}

/// Whatever becomes of the program, and whoever comes next.
#[test]
fn what_is_written_behind_is_seen_by_all() {
    let yard = Yard::new();
    let (expected, socket) = (yard.path("expected"), yard.path("socket"));
    let behind = c_program(&yard, "posix_behind", &["-lrt"]);
    for (number, end) in ["die", "fork"].into_iter().enumerate() {
        let image = yard.random("disk.img", BYTES, 19 + number as u64);
        fs::copy(&image, &expected).unwrap();
        let server = serve(&image, &socket, &[]);
        let words = [behind.as_os_str(), NAME.as_ref(), expected.as_ref(), BYTES.to_string().as_ref(), end.as_ref()]
            .map(OsStr::to_owned);
        let outcome = run_without_leftovers(&mut on_disk(session(&socket), words));
        assert_eq!(outcome.code, Some(if end == "die" { 137 } else { 0 }), "{end}: {outcome:?}");
        assert!(same(&image, &expected), "{end}");
        server.stop();
    }
    let turns = c_program(&yard, "posix_turns", &["-lrt"]);
    let image = yard.path("disk.img");
    fs::write(&image, vec![0; BYTES as usize]).unwrap();
    let server = serve(&image, &socket, &[]);
    let words =
        [turns.as_os_str(), NAME.as_ref(), BYTES.to_string().as_ref(), "3".as_ref(), "40".as_ref(), "2".as_ref()]
            .map(OsStr::to_owned);
    run_without_leftovers(&mut on_disk(session(&socket), words)).succeeded();
    server.stop();
}

/// A program that has written some blocks, and writes others while its server does nothing; that is killed.
pub(crate) struct Owing {
    yard: Yard,
    image: PathBuf,
    socket: PathBuf,
    attach: Child,
}

/// What it writes then: so many blocks, from the disk's beginning.
const WRITTEN: usize = 64;

impl Owing {
    /// `then` is what the program does afterwards, with `disk`, `step(NAME)`, which waits for the test to say so, and
    /// `told(NAME)`, which the test waits for.
    fn new(then: &str) -> Self {
        let (owing, server) = Self::stopped(then);
        server.kill();
        assert!((8..WRITTEN).all(|n| owing.block(n) != [b'a'; 4096]), "a stopped server wrote");
        owing
    }

    /// The same while the server does nothing.
    pub(crate) fn stopped(then: &str) -> (Self, Server) {
        let yard = Yard::new();
        let (image, socket) = (yard.random("disk.img", BYTES, 8), yard.path("socket"));
        let server = serve(&image, &socket, &[]);
        let program = format!(
            "import os, sys, time
def told(name): open(sys.argv[1] + name, 'w').close()
def step(name):
    while not os.path.exists(sys.argv[1] + name): time.sleep(0.01)
disk = os.open('/disk', os.O_RDWR)
# They follow each other, so what follows them is not waited for.
for n in range(8): os.pwrite(disk, bytes(4096), BYTES - (8 - n) * 4096)
for n in range(8): os.write(disk, b'0' * 4096)
os.read(os.open('/disk', os.O_RDONLY), 1)
told('begun')
step('stopped')
for n in range(8, {WRITTEN}): os.write(disk, b'a' * 4096)
told('written')
{then}"
        )
        .replace("BYTES", &BYTES.to_string());
        let prefix = yard.path("step-");
        let words = [PYTHON[0].as_ref(), PYTHON[1].as_ref(), program.as_ref(), prefix.as_os_str()];
        let log = File::create(yard.path("log")).unwrap();
        let attach = on_disk(session(&socket), words).stderr(log).spawn().unwrap();
        let owing = Self { yard, image, socket, attach };
        owing.wait("begun");
        server.suspend();
        owing.step("stopped");
        owing.wait("written");
        (owing, server)
    }

    fn block(&self, number: usize) -> [u8; 4096] {
        let mut block = [0; 4096];
        File::open(&self.image).unwrap().read_exact_at(&mut block, number as u64 * 4096).unwrap();
        block
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.attach), signal).unwrap();
    }

    pub(crate) fn step(&self, name: &str) {
        File::create(self.yard.path(&format!("step-{name}"))).unwrap();
    }

    pub(crate) fn wait(&self, name: &str) {
        wait_until(name, || self.has_told(name));
    }

    pub(crate) fn has_told(&self, name: &str) -> bool {
        self.yard.path(&format!("step-{name}")).exists()
    }

    /// Whether the blocks that were written while the server did nothing are now these.
    fn has(&self, byte: u8) -> bool {
        (8..WRITTEN).all(|n| self.block(n) == [byte; 4096])
    }

    /// Waits until the program has ended: its exit status, and what was said.
    pub(crate) fn end(&mut self) -> (Option<i32>, String) {
        wait_until("its end", || self.attach.try_wait().unwrap().is_some());
        let status = self.attach.wait().unwrap();
        (status.code(), fs::read_to_string(self.yard.path("log")).unwrap())
    }
}

/// The next server gets it, whatever the program does meanwhile: nothing, here.
#[test]
fn what_a_killed_server_owes_is_the_next_ones_at_once() {
    let mut owing = Owing::new("step('over')");
    let server = serve(&owing.image, &owing.socket, &[]);
    wait_until("it is written", || owing.has(b'a'));
    owing.step("over");
    assert_eq!(owing.end(), (Some(0), String::new()));
    server.stop();
    // And whether it is there at all.
    let mut owing = Owing::new("os._exit(0)");
    let server = serve(&owing.image, &owing.socket, &[]);
    assert_eq!(owing.end(), (Some(0), String::new()));
    assert!(owing.has(b'a'));
    server.stop();
}

/// Another process that comes while there is no server finds what was written before, and is not undone afterwards.
#[test]
fn what_a_killed_server_owes_comes_before_what_others_do() {
    let mut owing = Owing::new(
        "if os.fork() == 0:
    told('other')
    disk = os.open('/disk', os.O_RDWR)
    seen = os.pread(disk, 56 * 4096, 8 * 4096)
    for n in range(8, 64): os.pwrite(disk, b'b' * 4096, n * 4096)
    os.fsync(disk)
    os._exit(seen != b'a' * (56 * 4096))
status = os.wait()[1]
told('synced')
step('over')
os.fsync(disk)
os.close(disk)
sys.exit(status != 0)",
    );
    owing.wait("other");
    let server = serve(&owing.image, &owing.socket, &[]);
    owing.wait("synced");
    assert!(owing.has(b'b'));
    owing.step("over");
    assert_eq!(owing.end(), (Some(0), String::new()));
    assert!(owing.has(b'b'));
    server.stop();
}

/// What the next server cannot write is told: to the program, or to whoever has started it.
#[test]
fn what_the_next_server_cannot_write_is_told() {
    for (then, code, told) in [
        ("step('over'); os.fsync(disk)", 1, "OSError: [Errno 5]"),
        ("step('over'); os.close(disk)", 1, "OSError: [Errno 5]"),
        ("os._exit(0)", 1, "/disk: what was written last failed: Input/output error"),
    ] {
        let mut owing = Owing::new(then);
        let bad = format!("{},faults=write-error:1", owing.image.display());
        let server = serve(Path::new(&bad), &owing.socket, &[]);
        owing.step("over");
        let (ended, said) = owing.end();
        assert_eq!(ended, Some(code), "{then}: {said}");
        assert!(said.contains(told), "{then}: {said}");
        server.stop();
    }
}

/// What was read before its time from one server is not what the next one has: others may have come between the two.
#[test]
fn nothing_is_read_ahead_from_one_server_for_the_next() {
    let yard = Yard::new();
    let (image, socket, ready) = (yard.random("disk.img", BYTES, 5), yard.path("socket"), yard.path("ready"));
    let server = serve(&image, &socket, &[]);
    let program = "import os, sys, time
disk = os.open('/disk', os.O_RDWR)
for n in range(64): os.read(disk, 4096)
open(sys.argv[1], 'w')
while not os.path.exists(sys.argv[1] + '.changed'): time.sleep(0.01)
os.fsync(disk)
sys.exit(os.read(disk, 65536) != bytes(65536))";
    let words = [PYTHON[0].as_ref(), PYTHON[1].as_ref(), program.as_ref(), ready.as_os_str()];
    let child = on_disk(session(&socket), words).spawn().unwrap();
    wait_until("the program has read", || ready.exists());
    server.kill();
    fs::write(&image, vec![0; BYTES as usize]).unwrap();
    let server = serve(&image, &socket, &[]);
    fs::write(yard.path("ready.changed"), "").unwrap();
    finish(child).succeeded();
    server.stop();
}

/// One that says that it is done has nothing under way. After one that does not, the server is asked.
#[test]
fn the_server_is_asked_what_is_under_way_where_one_is_gone_without_a_word() {
    let yard = Yard::new();
    let (image, socket, calls) = (yard.random("disk.img", BYTES, 6), yard.path("socket"), yard.path("calls"));
    let server = serve(&image, &socket, &[]);
    let script = "read() { dd if=/disk of=/dev/null bs=4k count=1; }; read && read && read || exit 1
        /usr/bin/python3 -c \"import os; os.pread(os.open('/disk', os.O_RDONLY), 4096, 0); os._exit(0)\" && read && read";
    let mut command = Command::new("strace");
    command.args(["-f", "-e", "trace=sendmsg", "-o"]).arg(&calls).arg(env!("CARGO_BIN_EXE_blockyard"));
    run(command.args(["attach", &session(&socket), NAME, "--", "sh", "-c", script])).succeeded();
    let calls = fs::read_to_string(calls).unwrap();
    // The messages' numbers, as strace writes their bytes: 1000 and 1002.
    let count = |number| calls.lines().filter(|line| line.contains(number)).count();
    assert_eq!((count(r#""\350\3\0\0"#), count(r#""\352\3\0\0"#)), (6, 1));
    server.stop();
}

/// What it looks like is decided by its server, whoever is between.
#[test]
fn the_disk_is_the_same_whoever_is_between() {
    let yard = Yard::new();
    let socket = yard.path("socket");
    let program = "import array, fcntl, os
disk = os.open('/disk', os.O_RDWR)
for request in 0x80081272, 0x1268, 0x127b, 0x1278, 0x1279, 0x125e:
    value = array.array('Q', [0])
    fcntl.ioctl(disk, request, value)
    print(value[0])
print(os.lseek(disk, 0, os.SEEK_END), os.stat('/disk').st_blksize, os.fstat(disk).st_mode)
os.posix_fallocate(disk, 0, 4096)
for mode in 3, 16: print(__import__('ctypes').CDLL(None).fallocate(disk, mode, 0, 4096))";
    for disk in ["null:8M", "null:8M,block-size=4096"] {
        let mut said = Vec::new();
        for between in [",io-buffer=1M", ""] {
            let server = serve(Path::new(disk), &socket, &[]);
            let session = format!("{}{between}", session(&socket));
            said.push(run(&mut on_disk(&session, [PYTHON[0], PYTHON[1], program])).succeeded().stdout);
            server.stop();
        }
        assert_eq!(said[0], said[1], "{disk}");
    }
}

/// Nothing that was acknowledged is lost, and nothing fails meanwhile.
#[test]
fn a_server_that_is_killed_under_load_is_waited_for() {
    let yard = Yard::new();
    let (image, socket, progress) = (yard.random("disk.img", BYTES, 3), yard.path("socket"), yard.path("progress"));
    let mut server = serve(&image, &socket, &[]);
    let program = "import os, sys
for number in 0, 1:
    if os.fork(): continue
    disk, log, written, turn = os.open('/disk', os.O_RDWR), open(sys.argv[1], 'a', 1), {}, 0
    while not os.path.exists(sys.argv[1] + '.over'):
        for _ in range(16):
            turn += 1
            block = 2 * (turn * 37 % 1000) + number
            written[block] = f'{number} {turn} '.encode().ljust(4096, b'x')
            assert os.pwrite(disk, written[block], block * 4096) == 4096
        log.write(f'{number}\\n')
    os._exit(any(os.pread(disk, 4096, block * 4096) != data for block, data in written.items()))
sys.exit(os.wait()[1] | os.wait()[1])";
    let words = [PYTHON[0].as_ref(), PYTHON[1].as_ref(), program.as_ref(), progress.as_os_str()];
    let child = counted(&session(&socket), words).spawn().unwrap();
    let rounds = |number: &str| {
        let said = fs::read_to_string(&progress).unwrap_or_default();
        said.lines().filter(|line| *line == number).count()
    };
    for _ in 0..5 {
        let before = [rounds("0"), rounds("1")];
        wait_until("both write", || rounds("0") > before[0] + 3 && rounds("1") > before[1] + 3);
        server.kill();
        server = serve(&image, &socket, &[]);
    }
    fs::write(yard.path("progress.over"), "").unwrap();
    finish(child).succeeded();
    server.stop();
    let content = fs::read(&image).unwrap();
    let is_its = |block: usize| content[block * 4096..][..2] == [b'0' + (block % 2) as u8, b' '];
    assert!((0..2000).filter(|&block| is_its(block)).count() >= 16);
}

#[test]
fn what_processes_have_had_is_counted_whatever_becomes_of_them() {
    let yard = Yard::new();
    let (image, socket) = (yard.random("disk.img", BYTES, 5), yard.path("socket"));
    let server = serve(&image, &socket, &[]);
    let program = "import os
for _ in range(3):
    if os.fork() == 0:
        disk = os.open('/disk', os.O_RDWR)
        for n in range(10): os.pread(disk, 8192, n * 7 % 10 * 8192)
        for n in range(5): os.pwrite(disk, bytes(4096), n * 2 % 5 * 4096)
        os.fsync(disk)
        os.kill(os.getpid(), 9)
    os.wait()";
    let outcome = run(&mut counted(&session(&socket), [PYTHON[0], PYTHON[1], program])).succeeded();
    let expected = "30 reads (240.00 KiB), 15 writes (60.00 KiB), 3 flushes, 0 discards, ";
    assert!(outcome.stderr.contains(expected) && outcome.stderr.contains(", 0 errors"), "{outcome:#?}");
    let count = |what| count(&outcome.stderr, what);
    assert!(count("doorbells") > 0 && count("system calls") >= count("doorbells"), "{outcome:#?}");
    server.stop();
}

/// A server has said what it has done before it lets another process in.
#[test]
fn what_servers_have_done_that_are_gone_is_counted() {
    let yard = Yard::new();
    let (image, socket, ready) = (yard.random("disk.img", BYTES, 8), yard.path("socket"), yard.path("ready"));
    let server = serve(&image, &socket, &[]);
    let program = "import os, sys, time
disk = os.open('/disk', os.O_RDONLY)
def read(count):
    for n in range(count): os.pread(disk, 4096, n * 7 % 10 * 8192)
read(10)
if os.fork() == 0:
    read(1)
    os._exit(0)
assert os.wait()[1] == 0
open(sys.argv[1], 'w')
while not os.path.exists(sys.argv[1] + '.other'): time.sleep(0.01)
read(5)";
    let words = [PYTHON[0].as_ref(), PYTHON[1].as_ref(), program.as_ref(), ready.as_os_str()];
    let child = piped(&mut counted(&session(&socket), words)).spawn().unwrap();
    wait_until("the program has read", || ready.exists());
    server.kill();
    let server = serve(&image, &socket, &[]);
    fs::write(yard.path("ready.other"), "").unwrap();
    let outcome = finish(child).succeeded();
    // The child's may be one that it did not say any more.
    assert!((15..=16).contains(&count(&outcome.stderr, "reads (")), "{outcome:#?}");
    server.stop();
}

/// It is the server's, wherever a program goes, and however deep it lies.
#[test]
fn a_socket_may_be_named_from_the_working_directory() {
    let yard = Yard::new();
    let (image, deep) = (yard.random("disk.img", BYTES, 6), yard.path(&"deep".repeat(30)));
    fs::create_dir(&deep).unwrap();
    let mut command = blockyard();
    command.arg("serve").arg(&image).args(["--socket", "vm.sock"]).current_dir(&deep);
    let _server = Server::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()), Path::new("vm.sock"));
    let mut command =
        counted("session:vm.sock", ["sh", "-c", "cd / && exec cmp /disk \"$0\"", image.to_str().unwrap()]);
    let outcome = run(command.current_dir(&deep)).succeeded();
    assert!(outcome.stderr.contains("reads (8.00 MiB)"), "{outcome:#?}");
}

/// As any disk of its: what it had, and what comes later.
#[test]
fn what_a_program_leaves_in_the_background_has_no_disk_when_it_ends() {
    let yard = Yard::new();
    let (image, socket, log) = (yard.random("disk.img", BYTES, 9), yard.path("socket"), yard.path("log"));
    let server = serve(&image, &socket, &[]);
    let program = "import os, sys, time
disk, (ready, begun) = os.open('/disk', os.O_RDWR), os.pipe()
attach = os.getppid()
for uses in True, False:
    if os.fork(): continue
    if uses: os.pread(disk, 4096, 0)
    os.write(begun, b'b')
    while os.path.exists(f'/proc/{attach}'): time.sleep(0.01)
    # One that is connected hears of it, a moment later.
    try:
        while os.pread(disk, 4096, 4096): time.sleep(0.01)
    except OSError: pass
    errors = []
    for call in lambda: os.pread(disk, 4096, 8192), lambda: os.pwrite(disk, bytes(4096), 8192), lambda: os.fsync(disk):
        try: call()
        except OSError as error: errors.append(error.errno)
    os.write(1, f'{uses} {errors}\\n'.encode())
    os._exit(0)
assert len(os.read(ready, 1) + os.read(ready, 1)) == 2
if sys.argv[1] == 'kill': os.kill(attach, 9)";
    for end in ["exit", "kill"] {
        let words = [PYTHON[0], PYTHON[1], program, end];
        let status = counted(&session(&socket), words).stdout(File::create(&log).unwrap()).status().unwrap();
        assert_eq!(status.success(), end == "exit", "{end}");
        let said = || fs::read_to_string(&log).unwrap();
        wait_until("both have ended", || said().lines().count() == 2);
        let mut lines: Vec<_> = said().lines().map(str::to_owned).collect();
        lines.sort();
        assert_eq!(lines, ["False [5, 5, 5]", "True [5, 5, 5]"], "{end}");
    }
    server.stop();
}
