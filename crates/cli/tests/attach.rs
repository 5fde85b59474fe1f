//! `blockyard attach`: programs that were never changed, on disks.

#[path = "attach/further.rs"]
mod further;
#[path = "attach/names.rs"]
mod names;
#[path = "server/mod.rs"]
mod server;
#[path = "attach/sessions.rs"]
mod sessions;
#[path = "attach/streams.rs"]
mod streams;
mod support;

use server::Server;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{Yard, blockyard, finish, random_bytes, run, run_without_leftovers, same};

const NAME: &str = "/disk";
const BYTES: u64 = 8 << 20;

/// `blockyard attach DISK /disk -- PROGRAM…`
fn on_disk<S: AsRef<OsStr>>(disk: impl AsRef<OsStr>, program: impl IntoIterator<Item = S>) -> Command {
    let mut command = blockyard();
    command.arg("attach").arg(disk).args([NAME, "--"]).args(program);
    command
}

fn c_program(yard: &Yard, name: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/support/{name}.c"));
    let program = yard.path(name);
    let built =
        Command::new("cc").args(["-O1", "-w", "-pthread", "-o"]).arg(&program).arg(source).args(options).status();
    assert!(built.expect("cc comes with the package gcc").success());
    program
}

fn piped(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped())
}

#[test]
fn calls_answer_as_they_do_for_a_block_device() {
    let yard = Yard::new();
    let program = c_program(&yard, "posix_calls", &[]);
    let disk = yard.random("disk.img", BYTES, 1);
    let expected = yard.path("expected");
    fs::copy(&disk, &expected).unwrap();
    let words =
        [program.as_os_str(), NAME.as_ref(), expected.as_ref(), BYTES.to_string().as_ref()].map(OsStr::to_owned);
    assert_eq!(run_without_leftovers(&mut on_disk(&disk, words)).succeeded().stdout, "elsewhere");
    assert!(same(&disk, &expected));
}

/// The same of a disk of ours and, by glibc, of a file of the machine's.
#[test]
fn requests_that_nobody_waits_for_end_as_glibcs_do() {
    let yard = Yard::new();
    let program = c_program(&yard, "posix_aio", &["-lrt"]);
    let (disk, before) = (yard.random("disk.img", BYTES, 13), yard.path("before"));
    let contents = fs::read(&disk).unwrap();
    fs::write(&before, &contents).unwrap();
    let words = |name: &Path| {
        [program.as_os_str(), name.as_ref(), BYTES.to_string().as_ref(), before.as_ref()].map(OsStr::to_owned)
    };
    run(Command::new(&program).args(&words(&disk)[1..])).succeeded();
    let by_glibc = fs::read(&disk).unwrap();
    fs::write(&disk, contents).unwrap();
    let words = words(Path::new(NAME)).into_iter().chain(["forks".into()]);
    run_without_leftovers(&mut on_disk(&disk, words)).succeeded();
    assert!(by_glibc == fs::read(&disk).unwrap());
    let words = [program.as_os_str(), NAME.as_ref(), BYTES.to_string().as_ref(), before.as_ref(), "20".as_ref()]
        .map(OsStr::to_owned);
    let slow = format!("{},iops=10", disk.display());
    let mut command = blockyard();
    run(command.args(["attach", "--aio-max", "20", &slow, NAME, "--"]).args(words)).succeeded();
}

/// What POSIX demands and leaves open, case by case: of a file by glibc, and of a disk. Where they differ, POSIX allows
/// both.
#[test]
fn what_posix_demands_of_aio_is_kept_as_by_glibc() {
    let differences = [
        // A disk does not grow: as on a device, there is no room behind its end.
        (
            "append_is_done_in_order: kept: no error, no error, no error",
            "append_is_done_in_order: kept: ENOSPC, ENOSPC, ENOSPC",
        ),
        ("write_over_the_end: kept: 4096 bytes, no error", "write_over_the_end: kept: 512 bytes, ENOSPC"),
        (
            "offset_is_at_the_maximum: kept: EINVAL, EINVAL, EINVAL, EINVAL, no error, EFBIG",
            "offset_is_at_the_maximum: kept: EINVAL, EINVAL, EINVAL, EINVAL, no error, ENOSPC",
        ),
        // The kernel looks for the memory first, which cannot be there; POSIX has EINVAL for it.
        (
            "length_is_wrong: kept: EFAULT, EFAULT, EFAULT, EFAULT",
            "length_is_wrong: kept: EINVAL, EINVAL, EINVAL, EINVAL",
        ),
        // glibc's answer to a list that is not waited for has the error of a wrong priority; here, the request alone
        // has it, as it has any other.
        (
            "list_has_one_that_fails: kept: no error, EIO, no error, EIO, no error, EIO, EINVAL, EIO",
            "list_has_one_that_fails: kept: no error, EIO, no error, EIO, no error, EIO, no error, EIO",
        ),
        // To glibc, fewer than none are none.
        ("list_is_wrong: kept: no error", "list_is_wrong: kept: EINVAL"),
    ];
    let yard = Yard::new();
    let program = c_program(&yard, "posix_aio_conformance", &["-lrt"]);
    let (disk, file) = (yard.random("disk.img", BYTES, 23), yard.path("file"));
    fs::copy(&disk, &file).unwrap();
    let size = BYTES.to_string();
    let by_glibc = run(piped(Command::new(&program).arg(&file).arg(&size)));
    let words = [program.as_os_str(), NAME.as_ref(), size.as_ref()];
    let on_a_disk = run_without_leftovers(&mut on_disk(&disk, words));
    assert_eq!(by_glibc.stdout.lines().count(), on_a_disk.stdout.lines().count(), "{by_glibc:#?} {on_a_disk:#?}");
    let differing: Vec<_> =
        by_glibc.stdout.lines().zip(on_a_disk.stdout.lines()).filter(|(file, disk)| file != disk).collect();
    assert_eq!(differing, differences);
    by_glibc.succeeded();
    on_a_disk.succeeded();
    assert!(same(&disk, &file));
    // What is under way for some time, and what there is never room for.
    let slow = format!("{},iops=100", disk.display());
    for (disk, size, case) in [
        (slow.as_str(), &*size, "descriptor_is_closed_meanwhile"),
        (&slow, &size, "cancel_all"),
        (&slow, &size, "suspend_until_any_is_done"),
        (&slow, &size, "sync_between_writes"),
        (&slow, &size, "cancel_by_a_number_that_is_anothers"),
        (&slow, &size, "suspend_on_one_whose_number_is_anothers"),
        ("mem:160M", "167772160", "longer_than_there_is_room_for"),
    ] {
        let words = [program.as_os_str(), NAME.as_ref(), size.as_ref(), case.as_ref()];
        let outcome = run(&mut on_disk(disk, words)).succeeded();
        assert_eq!(outcome.stdout, format!("{case}: kept\n"));
    }
}

#[test]
fn python_works_on_a_disk_as_on_a_file() {
    let yard = Yard::new();
    let (disk, twin) = (yard.random("disk.img", BYTES, 24), yard.path("twin"));
    fs::copy(&disk, &twin).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/posix_python.py");
    let copy = yard.path("copy");
    let words = ["/usr/bin/python3".as_ref(), script.as_os_str(), NAME.as_ref(), twin.as_ref(), copy.as_ref()];
    run_without_leftovers(&mut on_disk(&disk, words)).succeeded();
    assert!(same(&disk, &twin));
}

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

#[test]
fn a_program_that_is_linked_to_the_library_attaches_by_itself() {
    let yard = Yard::new();
    let prefix = yard.path("prefix");
    run(blockyard().args(["attach", "--install-library"]).arg(&prefix)).succeeded();
    let package = fs::read_to_string(prefix.join("lib/pkgconfig/blockyard-posix.pc")).unwrap();
    assert!(package.contains(&format!("prefix={}\n", prefix.display())), "{package}");
    let (include, library) = (format!("-I{}/include", prefix.display()), format!("-L{}/lib", prefix.display()));
    let program = c_program(&yard, "posix_linked", &[&include, &library, "-lblockyard_posix"]);
    let (disk, before) = (yard.random("disk.img", BYTES, 22), yard.path("before"));
    fs::copy(&disk, &before).unwrap();
    let mut command = Command::new(program);
    run(command.args([&disk, &before]).env("LD_LIBRARY_PATH", prefix.join("lib"))).succeeded();
    assert!(fs::read(&disk).unwrap()[777..].starts_with(b"linked"));
    // What is there is replaced.
    run(blockyard().args(["attach", "--install-library"]).arg(&prefix)).succeeded();
    assert_eq!(fs::read_dir(prefix.join("lib")).unwrap().count(), 2);
}

#[test]
fn a_program_that_is_linked_to_the_library_has_queues() {
    let yard = Yard::new();
    let prefix = yard.path("prefix");
    run(blockyard().args(["attach", "--install-library"]).arg(&prefix)).succeeded();
    let (include, library) = (format!("-I{}/include", prefix.display()), format!("-L{}/lib", prefix.display()));
    let program = c_program(&yard, "posix_queue", &[&include, &library, "-lblockyard_posix"]);
    let (image, before, socket) = (yard.random("disk.img", BYTES, 23), yard.path("before"), yard.path("sock"));
    fs::copy(&image, &before).unwrap();
    let words =
        |disk: &OsStr| [program.as_os_str(), disk, BYTES.to_string().as_ref(), before.as_os_str()].map(OsStr::to_owned);
    let on = |command: &mut Command| {
        run(command.env("LD_LIBRARY_PATH", prefix.join("lib"))).succeeded();
        let (mut expected, end) = (fs::read(&before).unwrap(), 7 * 4096);
        expected[5 * 4096..end].fill(b'q');
        expected[5 * 4096..5 * 4096 + 512].fill(0);
        assert!(fs::read(&image).unwrap()[..end] == expected[..end]);
        fs::copy(&before, &image).unwrap();
    };
    on(Command::new(&program).args(&words(image.as_os_str())[1..]));
    on(&mut on_disk(&image, words(NAME.as_ref())));
    let server = Server::start(&[image.as_os_str(), "--socket".as_ref(), socket.as_os_str()], &socket);
    let session = format!("session:{}", socket.display());
    on(Command::new(&program).args(&words(session.as_ref())[1..]));
    server.stop();
}

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
    const LIMIT: u64 = 6 << 20;
    let yard = Yard::new();
    let disk = yard.random("disk.img", BYTES, 25);
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

/// A name of a descriptor is the disk, and not what stands for it in the kernel.
#[test]
fn names_of_descriptors_lead_to_the_disk() {
    let yard = Yard::new();
    let disk = yard.random("disk.img", BYTES, 47);
    let before = yard.path("before");
    fs::copy(&disk, &before).unwrap();
    let script = "cmp /dev/stdin $0 </disk && cmp /dev/fd/3 $0 3</disk && cmp /proc/self/fd/0 $0 </disk &&
cmp /proc/thread-self/fd/0 $0 </disk || exit 1
cmp /dev/fd/03 /disk 3</disk && exit 1
test -b /dev/stdin </disk || exit 2
exec 4<>/disk
printf written | dd of=/dev/fd/4 conv=notrunc status=none || exit 3
test \"$(head -c 7 /proc/self/fd/4)\" = written || exit 4
test \"$(head -c 7 /dev/stdin <$0)\" = \"$(head -c 7 $0)\"";
    let words = ["bash".as_ref(), "-c".as_ref(), script.as_ref(), before.as_os_str()];
    run(&mut on_disk(&disk, words)).succeeded();
    let mut expected = fs::read(&before).unwrap();
    expected[..7].copy_from_slice(b"written");
    assert!(fs::read(&disk).unwrap() == expected);
}

#[test]
fn dd_copies_in_blocks_of_any_size() {
    let yard = Yard::new();
    let (disk, copy) = (yard.random("disk.img", BYTES, 2), yard.path("copy.img"));
    for options in ["bs=4k", "bs=1M", "bs=12345", "bs=1M iflag=direct"] {
        let of = format!("of={}", copy.display());
        let words = ["dd", "if=/disk", &of].into_iter().chain(options.split(' '));
        run(&mut on_disk(&disk, words)).succeeded();
        assert!(same(&disk, &copy), "{options}");
    }
    let source = yard.random("source.img", BYTES, 3);
    for options in ["bs=4k", "bs=1M oflag=direct", "bs=12345 conv=fsync", "bs=64k oflag=dsync"] {
        fs::write(&disk, random_bytes(BYTES as usize, 4)).unwrap();
        let from = format!("if={}", source.display());
        let words = ["dd", &*from, "of=/disk"].into_iter().chain(options.split(' '));
        run(&mut on_disk(&disk, words)).succeeded();
        assert!(same(&disk, &source), "{options}");
    }
}

/// A program that may have few descriptors has the disk with those that are left, and its limit is none for `attach`.
#[test]
fn programs_may_have_few_descriptors() {
    let yard = Yard::new();
    let (disk, copy) = (yard.random("disk.img", BYTES, 28), yard.path("copy.img"));
    for limit in [26, 32, 40, 64] {
        let script = format!("ulimit -n {limit}; dd if=/disk bs=4k of={} 2>&1", copy.display());
        run(&mut on_disk(&disk, ["sh", "-c", &script])).succeeded();
        assert!(same(&disk, &copy), "{limit}");
    }
    // More threads than there are queues for.
    let threads = "import os, concurrent.futures as c; d = os.open('/disk', os.O_RDWR); b = os.pread(d, 1 << 20, 0)
ok = lambda n: os.pread(d, 4096, n * 4096) == b[n * 4096:][:4096] and os.pwrite(d, b[:512], 0) == 512
with c.ThreadPoolExecutor(16) as pool: print(all(pool.map(ok, list(range(1, 256)) * 8)))";
    let words = ["sh", "-c", "ulimit -n 40; exec python3 -c \"$0\"", threads];
    assert_eq!(run(&mut on_disk(&disk, words)).succeeded().stdout, "True\n");
    let many = "ulimit -n; for process in $(seq 40); do dd if=/disk of=/dev/null bs=64k 2>/dev/null || echo failed & done; wait";
    let script = format!(
        "ulimit -S -n 64; exec {} attach {} /disk -- sh -c \"$0\"",
        env!("CARGO_BIN_EXE_blockyard"),
        disk.display()
    );
    assert_eq!(run(piped(Command::new("sh").args(["-c", &script, many]))).succeeded().stdout, "64\n");
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

/// Many threads begin to use a disk at once: what the library has then is out of the program's way, in high numbers.
#[test]
fn threads_that_begin_at_once_leave_low_descriptors_to_the_program() {
    let yard = Yard::new();
    let disk = yard.random("disk.img", BYTES, 31);
    let program = "import os, threading
disk = os.open('/disk', os.O_RDONLY)
before, all_there = set(os.listdir('/proc/self/fd')), threading.Barrier(8)
def begin(n):
    all_there.wait()
    for _ in range(50): os.pread(disk, 4096, n * 4096)
threads = [threading.Thread(target=begin, args=[n]) for n in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print([n for n in os.listdir('/proc/self/fd') if int(n) < 768 and n not in before])";
    for _ in 0..5 {
        let words = ["sh", "-c", "ulimit -n 1024; exec python3 -c \"$0\"", program];
        // One is that by which it looks.
        let stdout = run(&mut on_disk(&disk, words)).succeeded().stdout;
        assert!(stdout.matches('\'').count() <= 2, "{stdout}");
    }
}

/// A signal that comes while a call waits takes nothing away from what the call says of memory that is not there.
#[test]
fn memory_that_is_not_there_is_an_error_whatever_signals_come() {
    let yard = Yard::new();
    let disk = yard.random("disk.img", BYTES, 32);
    let program = "import ctypes, os, signal
disk, libc = os.open('/disk', os.O_RDONLY), ctypes.CDLL(None, use_errno=True)
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.1)
print(libc.pread(disk, ctypes.c_void_p(4096), 4096, 0), ctypes.get_errno())";
    let slow = format!("{},latency=400ms", disk.display());
    let stdout = run(&mut on_disk(slow, ["/usr/bin/python3", "-c", program])).succeeded().stdout;
    assert_eq!(stdout, "-1 14\n");
}

/// Who inherits a descriptor of a disk can take nothing away from the others that have it.
#[test]
fn a_descriptor_s_page_cannot_be_cut_off() {
    let yard = Yard::new();
    let disk = yard.random("disk.img", BYTES, 33);
    let program = "import os
disk = os.open('/disk', os.O_RDONLY)
for flags in os.O_RDWR, os.O_RDWR | os.O_TRUNC:
    try: os.ftruncate(os.open(f'/proc/self/task/{os.getpid()}/fd/{disk}', flags), 0)
    except OSError as error: print(error.errno)
print(len(os.pread(disk, 4096, 0)))";
    let stdout = run(&mut on_disk(&disk, ["/usr/bin/python3", "-c", program])).succeeded().stdout;
    assert_eq!(stdout, "1\n1\n4096\n");
}

/// Nor can it say where the others read that they fail.
#[test]
fn a_place_that_no_file_has_is_its_end() {
    let yard = Yard::new();
    let disk = yard.random("disk.img", BYTES, 36);
    let program = "import mmap, os, struct
disk, other = os.open('/disk', os.O_RDWR), os.open('/disk', os.O_RDWR)
page = mmap.mmap(os.open(f'/proc/self/task/{os.getpid()}/fd/{disk}', os.O_RDWR), 4096)
os.lseek(disk, 0x123456, 0)
at = page.find(struct.pack('<Q', 0x123456))
for place in 2**64 - 1, 2**63, 2**64 - 512:
    for _ in range(8): os.write(other, bytes(4096))
    page[at:at + 8] = struct.pack('<Q', place)
    print(len(os.read(disk, 4096)), os.lseek(disk, 0, 1) == 2**63 - 1)
    page[at:at + 8] = struct.pack('<Q', place)
    try: os.write(disk, b'x')
    except OSError as error: print(error.errno)";
    let stdout = run(&mut on_disk(&disk, ["/usr/bin/python3", "-c", program])).succeeded().stdout;
    assert_eq!(stdout, "0 True\n28\n".repeat(3));
    // Nor does it take a file for one of the disk's locks that has such a name: it stays the program's.
    let program = "import mmap, os, struct
disk, file = os.open('/disk', os.O_RDWR), os.open('other.flock', os.O_RDWR | os.O_CREAT)
page = mmap.mmap(os.open(f'/proc/self/task/{os.getpid()}/fd/{disk}', os.O_RDWR), 4096)
os.lseek(disk, 0x123456, 0)
at = page.find(struct.pack('<Q', 0x123456)) + 8
page[at:at + 4] = struct.pack('<I', file + 1)
for number in disk, file: os.set_inheritable(number, True)
os.execv('/usr/bin/python3', ['python3', '-c', f'import os; os.read({disk}, 1); os.close({file}); print(\"closed\")'])";
    let mut command = on_disk(&disk, ["/usr/bin/python3", "-c", program]);
    assert_eq!(run(command.current_dir(yard.path(""))).succeeded().stdout, "closed\n");
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

/// What other threads get while one begins to use a disk is theirs, to use, to close and to hand to children.
#[test]
fn descriptors_of_other_threads_are_left_alone() {
    let yard = Yard::new();
    let program = c_program(&yard, "posix_neighbours", &[]);
    let disk = yard.random("disk.img", BYTES, 29);
    let words = [program.as_os_str(), NAME.as_ref(), "20".as_ref()];
    run_without_leftovers(&mut on_disk(&disk, words)).succeeded();
}

/// By hand, with a server that does not answer: so long, the library is in the middle of a connection.
#[test]
fn what_a_thread_is_in_the_middle_of_is_nothing_to_a_child_and_to_other_threads() {
    let yard = Yard::new();
    let (program, library, socket) =
        (c_program(&yard, "posix_forks", &["-lrt"]), yard.path("library.so"), yard.path("sock"));
    fs::write(&library, blockyard().args(["attach", "--print-library"]).output().unwrap().stdout).unwrap();
    for what in ["connects", "numbers"] {
        let mut command = Command::new(&program);
        command.args([NAME, what]).arg(&socket).env("LD_PRELOAD", &library);
        let attached = format!("session:{}={NAME}", socket.display());
        run(piped(command.env("BLOCKYARD_ATTACH", attached))).succeeded();
    }
    let disk = yard.random("disk.img", BYTES, 35);
    let slow = format!("{},latency=1s", disk.display());
    let twin = yard.path("twin");
    fs::copy(&disk, &twin).unwrap();
    let disk = disk.to_str().unwrap();
    for (disk, what) in [(slow.as_str(), "reads"), (disk, "locks"), (disk, "spawns"), (disk, "threads")] {
        let words = [program.as_os_str(), NAME.as_ref(), what.as_ref(), twin.as_ref()];
        run_without_leftovers(&mut on_disk(disk, words)).succeeded();
    }
}

/// A daemon closes what it did not open, past libc: the disk is lost to it, and nothing waits for it, nor is anything
/// done to a file that has one of the numbers now.
#[test]
fn a_program_that_closes_the_librarys_descriptors_past_libc_has_lost_the_disk() {
    let program = "import ctypes, os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(3))
past_libc = ctypes.CDLL('libc.so.6').syscall
disk = os.open('/disk', os.O_RDWR)
os.pread(disk, 4096, 0)
other = os.open(sys.argv[1], os.O_RDWR)
numbers = [int(number) for number in os.listdir('/proc/self/fd') if int(number) > other]
assert past_libc(436, other + 1, ctypes.c_uint(-1), 0) == 0
if sys.argv[2] == 'others':
    for number in numbers: assert past_libc(33, other, number) == number
def is_lost(call, *arguments):
    try: call(disk, *arguments)
    except OSError as error:
        assert error.errno == 5, error
        return True
# For as long as the server looks by itself, it needs no descriptor.
while not is_lost(os.pread, 4096, 4 << 20): time.sleep(0.1)
assert is_lost(os.pread, 4096, 4 << 20) and is_lost(os.fsync)
assert os.lseek(other, 0, os.SEEK_CUR) == 0 and os.read(other, 99) == b'the content of a file'
os.kill(os.getpid(), signal.SIGTERM)";
    let yard = Yard::new();
    let (disk, other) = (yard.random("disk.img", BYTES, 38), yard.path("other"));
    for what in ["nothing", "others"] {
        fs::write(&other, "the content of a file").unwrap();
        let words = ["timeout", "-s", "KILL", "60", "/usr/bin/python3", "-c", program].map(OsStr::new);
        let words = words.into_iter().chain([other.as_os_str(), what.as_ref()]);
        let outcome = run_without_leftovers(&mut on_disk(&disk, words));
        assert_eq!(outcome.code, Some(3), "{what}: {}", outcome.stderr);
        assert_eq!(fs::read(&other).unwrap(), b"the content of a file");
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

/// What waits for a server that does nothing ends when the program is asked to, and the handler runs.
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
        rustix::process::kill_process(server.id(), rustix::process::Signal::STOP).unwrap();
        let stat = || fs::read_to_string(format!("/proc/{}/stat", server.id().as_raw_nonzero())).unwrap();
        while !stat().contains(") T ") {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let mut stdin = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, b"go\n").unwrap();
        wait(&mut child, "5\n", true);
        std::io::Write::write_all(&mut stdin, b"end\n").unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(9));
    };
    std::thread::scope(|scope| {
        for (by_hand, flags) in [(true, "restarts"), (false, "interrupts")] {
            scope.spawn(move || asked(by_hand, flags));
        }
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

/// What a shell opens, its commands have: they go on where the one before has ended.
#[test]
fn processes_share_the_place_in_a_disk() {
    let yard = Yard::new();
    let disk = yard.random("disk.img", BYTES, 5);
    let script =
        "exec 3</disk; head -c 0 <&3; dd bs=1000 count=2 <&3 2>/dev/null; dd bs=7 count=1 <&3 2>/dev/null; cat <&3";
    let output = on_disk(&disk, ["sh", "-c", script]).output().unwrap();
    assert!(output.status.success() && output.stdout == fs::read(&disk).unwrap());
    let script = "(printf one; printf two) >/disk; dd if=/disk bs=6 count=1 2>/dev/null";
    assert_eq!(run(&mut on_disk(&disk, ["bash", "-c", script])).succeeded().stdout, "onetwo");
}

/// A lock is an open file description's, whoever has it: a shell keeps what its child has locked.
#[test]
fn processes_lock_a_disk_as_they_do_a_file() {
    let yard = Yard::new();
    let disk = yard.random("disk.img", BYTES, 18);
    let script = "exec 9<>/disk; flock 9; flock -n /disk true || echo taken; flock -u 9; flock -n /disk echo free
                  (exec 8</disk; flock 8; echo locked; read word; echo first) <fifo &
                  exec 7>fifo; while [ \"$(flock -n /disk echo free)\" ]; do :; done; echo go >&7
                  flock /disk echo second; wait";
    fs::create_dir(yard.path("place")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        yard.path("place/fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let mut command = on_disk(&disk, ["sh", "-c", script]);
    let outcome = run(command.current_dir(yard.path("place"))).succeeded();
    assert_eq!(outcome.stdout, "taken\nfree\nlocked\nfirst\nsecond\n", "{outcome:#?}");
}

/// As of any file: what a process has locked, the program has that it executes, and another process does not get it.
/// Not where no descriptor is left to it.
#[test]
fn record_locks_stay_when_another_program_is_executed() {
    let program = "import fcntl, os, sys
disk = os.open('/disk', os.O_RDWR)
fcntl.lockf(disk, fcntl.LOCK_EX, 100)
os.set_inheritable(disk, sys.argv[1] == 'kept')
again = '''import fcntl, os, sys
def other():
    disk = os.open('/disk', os.O_RDWR)
    try: fcntl.lockf(disk, fcntl.LOCK_EX | fcntl.LOCK_NB, 100)
    except OSError: os._exit(1)
    os._exit(0)
def is_free():
    child = os.fork()
    return other() if child == 0 else os.waitpid(child, 0)[1] == 0
print(is_free())
disk = os.open('/disk', os.O_RDONLY)
print(len(os.pread(disk, 9, 0)), is_free())
os.close(disk)
print(is_free())'''
os.execv('/usr/bin/python3', ['python3', '-c', again])";
    let yard = Yard::new();
    let disk = yard.random("disk.img", BYTES, 42);
    for (what, said) in [("kept", "False\n9 False\nTrue\n"), ("closed", "True\n9 True\nTrue\n")] {
        let outcome = run(&mut on_disk(&disk, ["/usr/bin/python3", "-c", program, what])).succeeded();
        assert_eq!(outcome.stdout, said, "{what}: {outcome:#?}");
    }
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

/// It locks what it opens, byte by byte, for itself and against others.
#[test]
fn qemu_img_takes_a_disk_for_a_device() {
    let yard = Yard::new();
    let (disk, copy) = (yard.random("disk.img", BYTES, 19), yard.path("copy.qcow2"));
    let convert = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", NAME].map(OsStr::new);
    run(&mut on_disk(&disk, convert.into_iter().chain([copy.as_os_str()]))).succeeded();
    let compare = ["qemu-img", "compare", "-f", "raw", "-F", "qcow2", NAME].map(OsStr::new);
    run(&mut on_disk(&disk, compare.into_iter().chain([copy.as_os_str()]))).succeeded();
    let other = yard.random("other.img", BYTES, 20);
    let back = ["qemu-img", "convert", "-n", "-f", "qcow2", "-O", "raw"].map(OsStr::new);
    run(&mut on_disk(&other, back.into_iter().chain([copy.as_os_str(), NAME.as_ref()]))).succeeded();
    assert!(same(&disk, &other));
}

/// It locks, writes its journal, and finds both as it left them: by one process, and by several.
#[test]
fn a_database_is_written_by_several_processes() {
    let yard = Yard::new();
    let (database, journal) = (yard.path("database"), yard.path("journal"));
    let make = "CREATE TABLE words(word TEXT); INSERT INTO words VALUES('one'), ('two'), ('three')";
    run(Command::new("sqlite3").arg(&database).arg(make)).succeeded();
    for path in [&database, &journal] {
        fs::File::options().create(true).append(true).open(path).unwrap().set_len(BYTES).unwrap();
    }
    let on_both = |script: &str| {
        let mut command = blockyard();
        command.args(["attach", "--as", "file"]).arg(&database).arg("/base").arg(&journal).arg("/base-journal");
        run(command.args(["--", "sh", "-c", script])).succeeded().stdout
    };
    let many = "sqlite3 /base \"PRAGMA journal_mode=PERSIST; BEGIN; INSERT INTO words SELECT hex(randomblob(300)) FROM words a, \
                words b, words c, words d, words e; ROLLBACK; BEGIN; INSERT INTO words SELECT hex(randomblob(300)) FROM \
                words a, words b, words c, words d; COMMIT; SELECT count(*) FROM words; PRAGMA integrity_check\"";
    assert_eq!(on_both(many), "persist\n84\nok\n");
    let several = "for process in 1 2 3; do
                       (for turn in 1 2 3; do sqlite3 -cmd '.timeout 600000' -cmd 'PRAGMA journal_mode=PERSIST' /base \
                            \"INSERT INTO words VALUES('$process $turn')\" >/dev/null || echo failed; done) &
                   done; wait; sqlite3 /base 'SELECT count(*) FROM words; PRAGMA integrity_check'";
    assert_eq!(on_both(several), "93\nok\n");
    let check = "PRAGMA integrity_check; SELECT count(*) FROM words";
    let checked = Command::new("sqlite3").arg(&database).arg(check).output().unwrap();
    assert_eq!(String::from_utf8(checked.stdout).unwrap(), "ok\n93\n");
}

#[test]
fn file_systems_are_made_filled_and_checked_by_name() {
    let yard = Yard::new();
    let image = yard.path("vm.qcow2");
    run(blockyard()
        .args(["image", "create", "--table", "gpt", "--part", "24M", "--part", "rest"])
        .arg(&image)
        .arg("64M"))
    .succeeded();
    let disk = format!("{},partition=1", image.display());
    let file = yard.random("file", 300_000, 6);
    let path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
    let write = format!("write {} file", file.display());
    for words in [&["mkfs.ext4", "-q", NAME][..], &["debugfs", "-w", "-R", &write, NAME], &["e2fsck", "-fn", NAME]] {
        run(&mut on_disk(&disk, ["env", path].iter().chain(words))).succeeded();
    }
    let output = blockyard().args(["image", "cat"]).arg(&image).args(["-m", "1", "/file"]).output().unwrap();
    assert!(output.status.success() && output.stdout == fs::read(&file).unwrap(), "{output:?}");
}

#[test]
fn fio_verifies_what_several_processes_write() {
    let yard = Yard::new();
    let disk = yard.random("disk.img", BYTES, 7);
    for engine in ["psync", "pvsync2", "sync", "posixaio --iodepth=32"] {
        let engine = format!("--ioengine={engine}");
        let engine = engine.split(' ');
        let words = [
            "fio",
            "--name=x",
            "--filename=/disk",
            "--rw=randwrite",
            "--bs=4k",
            "--size=2m",
            "--verify=crc32c",
            "--verify_state_save=0",
        ];
        let several = ["--offset_increment=2m", "--numjobs=4", "--fsync=64"];
        run(&mut on_disk(&disk, words.into_iter().chain(several).chain(engine))).succeeded();
    }
}

#[test]
fn several_disks_are_told_apart_and_may_look_like_files() {
    let yard = Yard::new();
    let (one, other) = (yard.random("one.img", BYTES, 9), yard.random("other.img", BYTES, 10));
    let mut command = blockyard();
    command
        .arg("attach")
        .arg(format!("{},ro", one.display()))
        .arg("one")
        .arg(&other)
        .args(["/two", "--as", "file", "--"]);
    let script = "cat one; stat -c %F:%s /two; ! dd if=/dev/zero of=one count=1 2>/dev/null && truncate -s 8M /two &&
                  ! truncate -s 4M /two 2>/dev/null && ! truncate -s 8M one 2>/dev/null";
    command.args(["sh", "-c", script]);
    let output = command.output().unwrap();
    let (content, rest) = output.stdout.split_at(BYTES as usize);
    assert!(content == fs::read(&one).unwrap(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(rest), format!("regular file:{BYTES}\n"));
    assert!(output.status.success());
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

#[test]
fn what_takes_no_library_is_refused() {
    let yard = Yard::new();
    let disk = yard.random("disk.img", BYTES, 12);
    let busybox = run(&mut on_disk(&disk, ["/bin/busybox", "cat", NAME]));
    busybox.failed(126, &["/bin/busybox is linked statically"]);
    let script = yard.path("script");
    fs::write(&script, "#!/bin/busybox sh\n").unwrap();
    let cat = yard.path("cat");
    fs::copy("/bin/cat", &cat).unwrap();
    for (program, mode, words) in [(&script, 0o755, "is linked statically"), (&cat, 0o4755, "has more rights than")] {
        fs::set_permissions(program, fs::Permissions::from_mode(mode)).unwrap();
        run(&mut on_disk(&disk, [program])).failed(126, &[words]);
    }
    for words in [&["a", "--", "true"][..], &["mem:1M", "", "--", "true"], &["mem:1M", "a=b", "--", "true"]] {
        run(blockyard().arg("attach").args(words)).failed(2, &["name"]);
    }
    let twice = ["attach", "mem:1M", "a", "mem:1M", "a", "--", "true"];
    run(blockyard().args(twice)).failed(2, &["two disks are called a"]);
    run(&mut on_disk(yard.path("nosuch.img"), ["true"])).failed(1, &["nosuch.img", "No such file"]);
}
