//! Descriptors on disks, and what processes share of them.

use crate::support::{Yard, blockyard, run, run_without_leftovers, same};
use crate::{BYTES, NAME, c_program, on_disk, piped};
use std::ffi::OsStr;
use std::fs;
use std::process::Command;

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

/// By `_Fork`, and by a system call of the program's own.
#[test]
fn a_child_that_nobody_is_told_of_has_the_disk_for_itself() {
    let yard = Yard::new();
    let program = c_program(&yard, "posix_children", &[]);
    let (disk, before) = (yard.random("disk.img", BYTES, 45), yard.path("before"));
    fs::copy(&disk, &before).unwrap();
    run_without_leftovers(&mut on_disk(&disk, [program.as_os_str(), NAME.as_ref(), before.as_ref()])).succeeded();
}

#[test]
fn a_descriptor_that_changes_hands_is_always_one_or_the_other() {
    let yard = Yard::new();
    let program = c_program(&yard, "posix_dup2", &[]);
    let (disk, file) = (yard.random("disk.img", BYTES, 48), yard.random("file", BYTES, 49));
    run_without_leftovers(&mut on_disk(&disk, [program.as_os_str(), NAME.as_ref(), file.as_ref()])).succeeded();
}

#[test]
fn what_takes_a_disks_place_past_this_library_is_not_the_disk() {
    let yard = Yard::new();
    let program = c_program(&yard, "posix_stale", &["-lutil"]);
    let disk = yard.random("disk.img", BYTES, 52);
    let before = fs::read(&disk).unwrap();
    let outcome = run_without_leftovers(&mut on_disk(&disk, [program.as_os_str(), NAME.as_ref()])).succeeded();
    assert_eq!(outcome.stdout, "done");
    assert!(fs::read(&disk).unwrap() == before);
}
