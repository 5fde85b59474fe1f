//! Reading before the time, and writing behind.

use crate::support::{Yard, run, run_without_leftovers, same};
use crate::{BYTES, NAME, c_program, on_disk, piped};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;

/// What is read before its time is what was there in time.
#[test]
fn a_program_that_reads_on_sees_what_it_and_others_have_written() {
    let yard = Yard::new();
    let program = c_program(&yard, "posix_ahead", &["-lrt"]);
    let expected = yard.path("expected");
    for disk in ["disk.img", "disk.img,block-size=4096"] {
        let image = yard.random("disk.img", BYTES, 17);
        fs::copy(&image, &expected).unwrap();
        let words =
            [program.as_os_str(), NAME.as_ref(), expected.as_ref(), BYTES.to_string().as_ref()].map(OsStr::to_owned);
        let disk = yard.path("").join(disk);
        run_without_leftovers(&mut on_disk(&disk, words)).succeeded();
        assert!(same(&image, &expected));
    }
}

/// A write has ended when its request is made: whatever becomes of the program then, it is carried out, and whoever
/// comes next sees it.
#[test]
fn what_a_program_has_written_is_there_when_it_is_gone() {
    let yard = Yard::new();
    let program = c_program(&yard, "posix_behind", &["-lrt"]);
    let expected = yard.path("expected");
    for (number, (disk, end)) in [
        ("disk.img", "die"),
        ("disk.img", "exit"),
        ("disk.img,block-size=4096", "compare"),
        ("disk.img", "fork"),
        ("disk.img", "die"),
    ]
    .into_iter()
    .enumerate()
    {
        let image = yard.random("disk.img", BYTES, 19 + number as u64);
        fs::copy(&image, &expected).unwrap();
        let words = [program.as_os_str(), NAME.as_ref(), expected.as_ref(), BYTES.to_string().as_ref(), end.as_ref()]
            .map(OsStr::to_owned);
        let outcome = run_without_leftovers(&mut on_disk(yard.path("").join(disk), words));
        assert_eq!(outcome.code, Some(if end == "die" { 137 } else { 0 }), "{end}: {outcome:?}");
        assert!(same(&image, &expected), "{end}");
    }
}

/// Whoever's turn it is finds what the others have written, whether those have the disk open, have closed it, or are
/// gone.
#[test]
fn processes_that_use_a_disk_in_turn_see_what_the_others_have_written() {
    let yard = Yard::new();
    let program = c_program(&yard, "posix_turns", &["-lrt"]);
    let disk = yard.path("disk.img");
    for (processes, number) in [("2", "1"), ("3", "2"), ("7", "3")] {
        fs::write(&disk, vec![0; BYTES as usize]).unwrap();
        let words =
            [program.as_os_str(), NAME.as_ref(), BYTES.to_string().as_ref(), processes.as_ref(), "200".as_ref()]
                .map(OsStr::to_owned);
        run_without_leftovers(&mut on_disk(&disk, words.into_iter().chain([number.into()]))).succeeded();
    }
}

/// Who does not want to wait until a slow disk has what was written sends a signal.
#[test]
fn a_signal_ends_waiting_for_what_was_written() {
    let yard = Yard::new();
    let program = c_program(&yard, "posix_killed", &[]);
    writes_behind_until_a_signal(&yard, 1, [program.as_os_str(), NAME.as_ref(), yard.path("pid").as_ref()]);
}

/// One that has the disk open but only looks at it, or has transferred and has closed it again, is none that another
/// one has to wait for.
#[test]
fn who_does_not_use_a_disk_does_not_keep_others_from_writing_behind() {
    let yard = Yard::new();
    let (program, bystander) = (c_program(&yard, "posix_killed", &[]), c_program(&yard, "posix_bystander", &["-lrt"]));
    for what in ["looks", "leaves", "replaces", "requests"] {
        let pid = yard.path("pid");
        let words = [bystander.as_os_str(), what.as_ref(), program.as_ref(), NAME.as_ref(), pid.as_ref()];
        writes_behind_until_a_signal(&yard, 3, words);
        fs::remove_file(pid).unwrap();
    }
}

/// What others have written, which one waits for that is about to read, is nothing to one that comes meanwhile.
#[test]
fn who_only_looks_does_not_wait_behind_one_that_waits() {
    let yard = Yard::new();
    let disk = format!("{},iops=1", yard.random("disk.img", BYTES, 42).display());
    let program = "import os, signal, sys, time
disk = os.open('/disk', os.O_RDWR)
for n in range(120): os.write(disk, bytes(4096))
begins, says = os.pipe()
reader = os.fork()
if not reader:
    disk = os.open('/disk', os.O_RDONLY)
    os.write(says, b'.')
    os.pread(disk, 4096, 0)
    os.write(1, b'has read ')
    os._exit(0)
os.read(begins, 1)
sleeps = lambda: ') S ' in open(f'/proc/{reader}/stat').read()
while sum(sleeps() or time.sleep(0.01) or -9 for _ in range(9)) < 9: time.sleep(0.01)
if not os.fork():
    print(os.lseek(os.open('/disk', os.O_RDONLY), 0, os.SEEK_END), flush=True)
    os._exit(0)
os.wait()
os.kill(reader, signal.SIGKILL)
os.kill(os.getppid(), signal.SIGTERM)
time.sleep(60)";
    let mut attach = piped(&mut on_disk(&disk, ["/usr/bin/python3", "-c", program])).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(attach.stdout.take().unwrap()).read_line(&mut said).unwrap();
    // Until it listens, a signal is the program's.
    let pid = rustix::process::Pid::from_child(&attach);
    while attach.try_wait().unwrap().is_none() {
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(said, format!("{BYTES}\n"));
}

/// Runs a program, or one that it starts, that ends when it has written, with its number in the file `pid`: long before
/// the disk has that.
fn writes_behind_until_a_signal<S: AsRef<OsStr>>(yard: &Yard, iops: u32, words: impl IntoIterator<Item = S>) {
    // The third write is the first that is not waited for.
    let disk = format!("{},iops={iops}", yard.random("disk.img", BYTES, 26).display());
    let log = fs::File::create(yard.path("log")).unwrap();
    let mut attach = on_disk(&disk, words).stderr(log).spawn().unwrap();
    // The program is gone: it has said so, and nobody has its number any more.
    let mut is_gone = || {
        let pid = fs::read_to_string(yard.path("pid")).unwrap_or_default();
        assert!(attach.try_wait().unwrap().is_none(), "{:?}", fs::read_to_string(yard.path("log")));
        pid.ends_with('\n') && !Path::new("/proc").join(pid.trim()).exists()
    };
    while !is_gone() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let pid = rustix::process::Pid::from_child(&attach);
    // Before it listens, a signal is the program's.
    let status = loop {
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(10));
        if let Some(status) = attach.try_wait().unwrap() {
            break status;
        }
    };
    assert_eq!(status.code(), Some(143));
    let said = fs::read_to_string(yard.path("log")).unwrap();
    assert!(said.contains("what was written last is not on the disk"), "{said}");
}

/// What cannot be written is told, by a later write, a sync or when the file is closed: once.
#[test]
fn what_could_not_be_written_behind_is_told() {
    // More than the library has that the program is started with, which is written, too.
    const LIMIT: u64 = 12 << 20;
    let yard = Yard::new();
    let disk = yard.random("disk.img", LIMIT + BYTES, 25);
    let binary = env!("CARGO_BIN_EXE_blockyard");
    for (count, options, told) in
        [(4, "", "closing output file"), (4, "conv=fsync", "fsync failed"), (1000, "", "Input/output error")]
    {
        // The fourth is the first that the disk does not take.
        let seek = LIMIT / 4096 - 3;
        // In blocks of 512 bytes.
        let script = format!(
            "trap '' XFSZ; ulimit -f {}; exec {binary} attach {} /disk -- dd if=/dev/zero of=/disk bs=4k count={count} seek={seek} {options}",
            LIMIT / 512,
            disk.display()
        );
        let outcome = run(piped(Command::new("sh").args(["-c", &script])));
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert!(outcome.stderr.contains(told) && outcome.stderr.contains("Input/output error"), "{outcome:?}");
        assert!(!outcome.stderr.contains("written last"), "{outcome:?}");
    }
    // Who ends without closing it, or leaves that to others, is told nothing: whoever has started it is.
    for (end, code) in [
        ("os._exit(0)", 1),
        ("os._exit(3)", 3),
        ("os.kill(os.getpid(), 9)", 137),
        ("os.closerange(disk, disk + 1)", 1),
        ("os.dup2(1, disk)", 1),
    ] {
        let program = format!(
            "import os; disk = os.open('/disk', os.O_RDWR); os.lseek(disk, {LIMIT} - 3 * 4096, 0)
for _ in range(4): os.write(disk, bytes(4096))
{end}"
        );
        let script = format!(
            "trap '' XFSZ; ulimit -f {}; exec {binary} attach {} /disk -- /usr/bin/python3 -c \"$0\"",
            LIMIT / 512,
            disk.display()
        );
        let outcome = run(piped(Command::new("sh").args(["-c", &script, &program])));
        assert_eq!(outcome.code, Some(code), "{end}: {outcome:?}");
        assert!(outcome.stderr.contains("/disk: what was written last failed: File too large"), "{end}: {outcome:?}");
    }
}

/// A program that says what none says to whoever serves it harms nobody else.
#[test]
fn who_says_too_much_is_heard_no_more() {
    let yard = Yard::new();
    let disk = yard.random("disk.img", BYTES, 30);
    let program = "import os, socket, subprocess
path = os.environ['BLOCKYARD_ATTACH'].split('=/disk')[0].removeprefix('session:') + '.users'
users = [socket.socket(socket.AF_UNIX) for _ in range(3)]
for user in users: user.connect(path)
for words in b'+' * 2000, bytes(2000), b'-+' * 1000:
    for user in users:
        try: user.sendall(words)
        except OSError: pass
subprocess.run(['dd', 'if=/disk', 'of=/dev/null', 'bs=64k'], timeout=60, check=True, capture_output=True)
for words in b'++', b'-', b'x', b'-+', b'+-+':
    with socket.socket(socket.AF_UNIX) as user:
        user.connect(path)
        user.sendall(words)
        user.settimeout(60)
        try:
            while user.recv(1): pass
        except ConnectionResetError: pass
with socket.socket(socket.AF_UNIX) as user:
    user.connect(path)
    for words in b'+', b'-+':
        user.sendall(words)
        assert user.recv(1) == b'!'";
    run_without_leftovers(&mut on_disk(&disk, ["/usr/bin/python3", "-c", program])).succeeded();
}
