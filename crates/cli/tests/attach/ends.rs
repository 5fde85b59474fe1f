//! Signals, and how programs and `attach` end.

use crate::further::Owing;
use crate::server::Server;
use crate::support::{self, Yard, blockyard, finish, run, run_without_leftovers};
use crate::{BYTES, NAME, c_program, on_disk, piped};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn a_signal_in_the_middle_of_a_call_may_read_and_not_come_back() {
    let yard = Yard::new();
    let program = c_program(&yard, "posix_signals", &["-lrt"]);
    let disk = yard.random("disk.img", BYTES, 21);
    for what in ["nothing", "aio", "read", "jump", "lock", "whole lock"] {
        let words = [program.as_os_str(), NAME.as_ref(), what.as_ref()];
        run(&mut on_disk(&disk, words)).succeeded();
    }
}

/// By glibc of a file, and of a disk.
#[test]
fn threads_that_are_cancelled_leave_the_disk_to_others() {
    let yard = Yard::new();
    let program = c_program(&yard, "posix_cancelled", &["-lrt"]);
    let disk = yard.random("disk.img", BYTES, 27);
    let size = BYTES.to_string();
    run(Command::new(&program).arg(&disk).arg(&size)).succeeded();
    let words = [program.as_os_str(), NAME.as_ref(), size.as_ref()];
    run_without_leftovers(&mut on_disk(&disk, words)).succeeded();
}

/// And what the program has for its end is done.
#[test]
fn a_process_ends_with_the_last_of_its_own_threads() {
    let yard = Yard::new();
    let program = c_program(&yard, "posix_leader", &["-lrt"]);
    let disk = yard.random("disk.img", BYTES, 50);
    for how in ["exits", "cancelled", "forked"] {
        let words = [program.as_os_str(), NAME.as_ref(), how.as_ref()];
        let stdout = run(&mut on_disk(&disk, words)).succeeded().stdout;
        assert_eq!(stdout, "used told exit ", "{how}");
    }
}

/// As a sandbox ends a program, or a child of clone(2) itself.
#[test]
fn a_process_that_ends_past_libc_ends_so() {
    let yard = Yard::new();
    let program = c_program(&yard, "posix_ends", &[]);
    let disk = yard.random("disk.img", BYTES, 51);
    // As a shell says it of a signal.
    for (how, status) in [("clone", 7), ("clone of a user", 7), ("exit", 3), ("thread", 3), ("seccomp", 128 + 9)] {
        let words = [program.as_os_str(), NAME.as_ref(), how.as_ref()];
        let outcome = run_without_leftovers(&mut on_disk(&disk, words));
        assert_eq!(outcome.code, Some(status), "{how}: {outcome:?}");
    }
}

/// What was started with a signal ignored, as nohup does, runs its program so.
#[test]
fn signals_that_are_ignored_stay_so() {
    let yard = Yard::new();
    let disk = yard.random("disk.img", BYTES, 34);
    let ignored = |status: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap() & 3
    };
    // These tests may have been started so, too.
    let here = ignored(&fs::read_to_string("/proc/self/status").unwrap());
    for (trap, wanted) in [("trap '' HUP INT", 3), (":", here)] {
        let script = format!(
            "{trap}; exec {} attach {} /disk -- grep SigIgn /proc/self/status",
            env!("CARGO_BIN_EXE_blockyard"),
            disk.display()
        );
        let stdout = run(piped(Command::new("sh").args(["-c", &script]))).succeeded().stdout;
        assert_eq!(ignored(&stdout), wanted, "{stdout}");
    }
}

/// Nobody is left who could wake it. What its `attach` had in the file system, the next one takes away.
#[test]
fn who_sleeps_without_descriptors_hears_that_the_server_was_killed() {
    let program = "import ctypes, os, threading, time
disk = os.open('/disk', os.O_RDONLY)
os.pread(disk, 4096, 0)
ended = os.open('ended', os.O_WRONLY | os.O_CREAT)
def reads():
    try:
        for block in range(1, 9999): os.pread(disk, 4096, block * 4096)
    except OSError as error: os.write(ended, str(error.errno).encode())
thread = threading.Thread(target=reads)
thread.start()
sleeps = lambda: ') S ' in open(f'/proc/self/task/{thread.native_id}/stat').read()
while sum(sleeps() or time.sleep(0.01) or -9 for _ in range(9)) < 9: time.sleep(0.01)
assert ctypes.CDLL('libc.so.6').syscall(436, ended + 1, ctypes.c_uint(-1), 0) == 0
os.kill(os.getppid(), 9)
thread.join()
os.rename('ended', 'told')";
    let yard = Yard::new();
    let slow = format!("{},iops=1", yard.random("disk.img", BYTES, 41).display());
    let place = yard.path("place");
    fs::create_dir(&place).unwrap();
    let in_place = |command: &mut Command| command.current_dir(&place).env("TMPDIR", &place).status().unwrap();
    let left = || fs::read_dir(&place).unwrap().any(|entry| entry.unwrap().path().is_dir());
    in_place(&mut on_disk(&slow, ["/usr/bin/python3", "-c", program]));
    support::wait_until("the end of what sleeps", || place.join("told").exists());
    assert_eq!(fs::read_to_string(place.join("told")).unwrap(), "5");
    assert!(left());
    let age = |name: &Path| Command::new("touch").args(["-d", "2 minutes ago"]).arg(name).status().unwrap();
    fs::read_dir(&place).unwrap().for_each(|entry| assert!(age(&entry.unwrap().path()).success()));
    // One that is in use stays, however old it is.
    let again = "touch -d '2 minutes ago' blockyard-attach-*; test -e blockyard-attach-* &&
                 \"$0\" attach null:1M /other -- true && head -c 4096 /disk >out && ls -d blockyard-attach-*";
    let outcome = run(on_disk(&slow, ["sh", "-c", again, env!("CARGO_BIN_EXE_blockyard")])
        .current_dir(&place)
        .env("TMPDIR", &place))
    .succeeded();
    assert_eq!(outcome.stdout.lines().count(), 1, "{outcome:#?}");
    assert!(!left());
}

/// What waits for a server that does nothing ends when the program is asked to, and the handler runs; and so does
/// `attach`, which waits for what the program has written.
#[test]
fn a_program_that_is_asked_to_end_does_not_wait_for_a_server_that_hangs() {
    let program = "import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: None)
signal.siginterrupt(signal.SIGTERM, sys.argv[1] == 'interrupts')
disk = os.open('/disk', os.O_RDONLY)
os.pread(disk, 4096, 0)
print('ready', flush=True)
sys.stdin.readline()
try: print(len(os.pread(disk, 4096, 4096)), flush=True)
except OSError as error: print(error.errno, flush=True)
sys.stdin.readline()
os._exit(9)";
    let asked = |by_hand: bool, flags: &str| {
        let yard = Yard::new();
        let (disk, socket) = (yard.random("disk.img", BYTES, 37), yard.path("vm.sock"));
        let server = Server::start(&["--socket".as_ref(), socket.as_ref(), disk.as_ref()], &socket);
        let (session, library) = (format!("session:{}", socket.display()), yard.path("library.so"));
        let words = ["/usr/bin/python3", "-c", program, flags];
        let mut command = on_disk(&session, words);
        if by_hand {
            fs::write(&library, blockyard().args(["attach", "--print-library"]).output().unwrap().stdout).unwrap();
            command = Command::new(words[0]);
            command.args(&words[1..]).env("LD_PRELOAD", &library);
            command.env("BLOCKYARD_ATTACH", format!("{session}={NAME}"));
        }
        let log = fs::File::create(yard.path("log")).unwrap();
        let mut child = command.stdin(Stdio::piped()).stdout(log).stderr(Stdio::inherit()).spawn().unwrap();
        let said = || fs::read_to_string(yard.path("log")).unwrap();
        let wait = |child: &mut std::process::Child, words: &str, signals: bool| {
            while !said().ends_with(words) {
                assert!(child.try_wait().unwrap().is_none() && !said().contains("4096"), "{}", said());
                if signals {
                    let pid = rustix::process::Pid::from_child(child);
                    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
                }
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        };
        wait(&mut child, "ready\n", false);
        server.suspend();
        let mut stdin = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, b"go\n").unwrap();
        wait(&mut child, "5\n", true);
        std::io::Write::write_all(&mut stdin, b"end\n").unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(9));
    };
    let owes = || {
        let (mut owing, _server) = Owing::stopped("time.sleep(9999)");
        owing.signal(rustix::process::Signal::TERM);
        let (code, said) = owing.end();
        assert_eq!(code, Some(143), "{said}");
        assert!(said.contains("/disk: what was written last failed: the server on "), "{said}");
        assert!(said.contains(" owes answers and has given none for 10s"), "{said}");
    };
    // Whoever has heard of it by an error is not told again.
    let is_told = || {
        let then = "import signal
signal.signal(signal.SIGTERM, lambda *_: None)
told('waits')
try: os.fsync(disk)
except OSError as error: print(error.errno, file=sys.stderr)
told('failed')
step('over')
os._exit(3)";
        let (mut owing, _server) = Owing::stopped(then);
        owing.wait("waits");
        while !owing.has_told("failed") {
            owing.signal(rustix::process::Signal::TERM);
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        owing.step("over");
        assert_eq!(owing.end(), (Some(3), "5\n".to_owned()));
    };
    std::thread::scope(|scope| {
        for (by_hand, flags) in [(true, "restarts"), (false, "interrupts")] {
            scope.spawn(move || asked(by_hand, flags));
        }
        scope.spawn(owes);
        scope.spawn(is_told);
    });
}

/// Whoever has a connection, and whoever had none, has no disk any more, and hears so: by errors, as nobody reads its
/// stderr.
#[test]
fn what_a_program_leaves_in_the_background_has_no_disk_when_it_ends() {
    let yard = Yard::new();
    let (disk, log) = (yard.random("disk.img", BYTES, 38), yard.path("log"));
    let program = "import os, signal, sys, time
attach, disk, (ready, begun) = os.getppid(), os.open('/disk', os.O_RDWR), os.pipe()
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
for uses in True, False:
    if os.fork(): continue
    if uses: os.pread(disk, 4096, 0)
    os.write(begun, b'b')
    while os.path.exists(f'/proc/{attach}'): time.sleep(0.01)
    errors = []
    for call in (lambda: os.pread(disk, 4096, 8192), lambda: os.pwrite(disk, bytes(4096), 8192), lambda: os.fsync(disk),
                 lambda: os.open('/disk', os.O_RDONLY)):
        try: call()
        except OSError as error: errors.append(error.errno)
    os.write(1, f'{uses} {errors}\\n'.encode())
    os._exit(0)
assert len(os.read(ready, 1) + os.read(ready, 1)) == 2";
    let said = || fs::read_to_string(&log).unwrap_or_default();
    let status = on_disk(&disk, ["/usr/bin/python3", "-c", program]).stdout(fs::File::create(&log).unwrap()).status();
    assert!(status.unwrap().success());
    support::wait_until("both have ended", || said().lines().count() == 2);
    let mut lines: Vec<_> = said().lines().map(str::to_owned).collect();
    lines.sort();
    // What was connected knows the disk.
    assert_eq!(lines, ["False [5, 5, 5, 6]", "True [5, 5, 5]"]);
}

/// Whoever still has the disk then is not waited for.
#[test]
fn an_image_is_closed_when_the_program_ends() {
    let yard = Yard::new();
    let path = yard.path("a.qcow2");
    let qemu_img = |words: &[&str]| run(piped(Command::new("qemu-img").args(words).arg(&path))).succeeded();
    run(piped(Command::new("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(&path).arg("64M"))).succeeded();
    run(piped(Command::new("qemu-img").args(["bitmap", "--add"]).arg(&path).arg("one"))).succeeded();
    let program = "import os
attach, disk, (ready, begun) = os.getppid(), os.open('/disk', os.O_RDWR), os.pipe()
if os.fork() == 0:
    os.pwrite(disk, b'y' * 4096, 32 << 20)
    os.write(begun, b'b')
    while os.path.exists(f'/proc/{attach}'): os.sched_yield()
    os._exit(0)
assert os.read(ready, 1) == b'b'
os.pwrite(disk, b'x' * 99999, 0)";
    for _ in 0..2 {
        run(&mut on_disk(&path, ["/usr/bin/python3", "-c", program])).succeeded();
        // Nor is a cluster leaked.
        qemu_img(&["check", "-q"]);
        let info = qemu_img(&["info", "--output=json"]).json();
        let flags = &info["format-specific"]["data"]["bitmaps"][0]["flags"];
        assert_eq!(flags.as_array().unwrap(), &["auto"], "{info}");
    }
}

#[test]
fn the_exit_status_is_the_programs() {
    let yard = Yard::new();
    let disk = yard.random("disk.img", BYTES, 11);
    run(&mut on_disk(&disk, ["sh", "-c", "exit 7"])).failed(7, &[]);
    run(&mut on_disk(&disk, ["sh", "-c", "kill -KILL $$"])).failed(137, &[]);
    run(&mut on_disk(&disk, ["no-such-program"])).failed(127, &["there is no program no-such-program"]);
    // As sh and env have it.
    let (text, broken, lost) = (yard.path("text"), yard.path("broken"), yard.path("lost"));
    fs::write(&text, "#!/bin/sh\n").unwrap();
    fs::write(&broken, [&fs::read("/bin/true").unwrap()[..100], &[0; 4096]].concat()).unwrap();
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("nowhere", &lost).unwrap();
    for (program, status, words) in [
        (text.as_path(), 126, "is no file that may be executed"),
        (yard.path("").as_path(), 126, "is no file that may be executed"),
        (Path::new("text"), 126, "is no file that may be executed"),
        (&broken, 126, "broken"),
        (&lost, 127, "there is no program"),
        (&text.join("beneath"), 127, "there is no program"),
        (Path::new("lost"), 127, "there is no program"),
    ] {
        let mut command = on_disk(&disk, [program]);
        run(command.env("PATH", yard.path(""))).failed(status, &[words]);
    }
    let statistics =
        run(blockyard().arg("attach").arg(&disk).args([NAME, "--stats", "--", "cmp", NAME]).arg(&disk)).succeeded();
    assert!(statistics.stderr.contains("reads (8.00 MiB), 0 writes (0 bytes)"), "{}", statistics.stderr);
    let count = |what: &str| {
        let before = statistics.stderr.split(what).next().unwrap();
        before.trim_end().rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    assert!(count("system calls") >= count("doorbells"), "{}", statistics.stderr);
    // What somebody sends to it alone goes to the program.
    let mut command = on_disk(&disk, ["sh", "-c", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.1; done"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    finish(child).failed(9, &[]);
}
