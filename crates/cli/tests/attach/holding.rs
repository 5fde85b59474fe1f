//! What a process has of a disk that is given another environment or user, or a descriptor of another process.

use crate::support::{Yard, run, run_without_leftovers};
use crate::{BYTES, NAME, c_program, on_disk};
use std::fs;

const PYTHON: [&str; 2] = ["/usr/bin/python3", "-c"];

/// By each call that executes a program.
#[test]
fn a_program_has_the_disk_whatever_environment_it_is_given() {
    let yard = Yard::new();
    let program = c_program(&yard, "posix_executes", &[]);
    let disk = yard.random("disk.img", BYTES, 50);
    let expected = yard.path("expected");
    fs::write(&expected, &fs::read(&disk).unwrap()[..4096]).unwrap();
    run(&mut on_disk(&disk, [program.as_os_str(), NAME.as_ref(), expected.as_ref()])).succeeded();
    // What else it is given is as it was.
    let script = "env -i A=b LD_PRELOAD= /usr/bin/printenv A &&
                  env -i PATH=/usr/bin:/bin sh -c 'cmp -n 4096 /disk \"$0\"' \"$0\"";
    let outcome = run(&mut on_disk(&disk, ["sh".as_ref(), "-c".as_ref(), script.as_ref(), expected.as_os_str()]));
    assert_eq!(outcome.succeeded().stdout, "b\n");
}

/// It shares the place, and has none of the other one's locks.
#[test]
fn a_descriptor_that_another_process_passes_is_on_the_disk() {
    let program = "import errno, fcntl, os, socket, sys
ours, theirs = socket.socketpair()
expected = open(sys.argv[1], 'rb').read()
child = os.fork()
if not child:
    _, (disk,), _, _ = socket.recv_fds(theirs, 1, 1)
    assert os.read(disk, 4096) == expected[4096:8192]
    assert os.pwrite(disk, b'passed', 100) == 6 and os.pread(disk, 6, 100) == b'passed'
    try: fcntl.flock(disk, fcntl.LOCK_EX)
    except OSError as error: assert error.errno == errno.ENOLCK, error
    else: os._exit(1)
    # So has what it executes.
    os.set_inheritable(disk, True)
    program = '''import os, sys
sys.exit(os.read(int(sys.argv[1]), 4096) != open(sys.argv[2], 'rb').read()[8192:12288])'''
    os.execv('/usr/bin/python3', ['python3', '-c', program, str(disk), sys.argv[1]])
disk = os.open('/disk', os.O_RDWR)
os.lseek(disk, 4096, os.SEEK_SET)
fcntl.flock(disk, fcntl.LOCK_EX)
socket.send_fds(ours, [b'd'], [disk])
assert os.waitpid(child, 0)[1] == 0
assert os.lseek(disk, 0, os.SEEK_CUR) == 12288 and os.pread(disk, 6, 100) == b'passed'";
    let yard = Yard::new();
    let (disk, before) = (yard.random("disk.img", BYTES, 51), yard.path("before"));
    fs::copy(&disk, &before).unwrap();
    let words = [PYTHON[0].as_ref(), PYTHON[1].as_ref(), program.as_ref(), before.as_os_str()];
    run_without_leftovers(&mut on_disk(&disk, words)).succeeded();
}

/// Whatever number it has there.
#[test]
fn a_descriptor_of_another_attach_is_none_of_this_ones() {
    let yard = Yard::new();
    let (one, other) = (yard.random("one.img", BYTES, 52), yard.random("other.img", BYTES, 53));
    let script = "exec 3<>/disk; exec \"$0\" attach \"$1\" /other -- sh -c 'head -c 1 <&3; head -c 4096 /other'";
    let words = ["sh", "-c", script, env!("CARGO_BIN_EXE_blockyard"), other.to_str().unwrap()];
    let output = on_disk(&one, words).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("Bad file descriptor"), "{output:?}");
    assert!(output.status.success() && output.stdout == fs::read(&other).unwrap()[..4096]);
}

/// One that it had before it was another user; a child, which would need a connection of its own, may not come where
/// those are made, and hears so.
#[test]
fn a_process_that_becomes_another_user_keeps_the_disk() {
    let program = "import errno, os, sys
user = 65534 if os.getuid() == 0 else os.getuid()
held = os.open('/disk', os.O_RDONLY) if sys.argv[1] == 'held' else None
os.setuid(user)
disk = os.open('/disk', os.O_RDWR)
assert os.pwrite(disk, b'another user', 1000) == 12 and os.pread(disk, 12, 1000) == b'another user'
for n in range(8): assert os.pwrite(disk, bytes(4096), n * 4096 + 8192) == 4096
os.fsync(disk)
child = os.fork()
if not child:
    errors = []
    for call in lambda: os.open('/disk', os.O_RDONLY), lambda: os.pread(disk, 4096, 0):
        try: call()
        except OSError as error: errors.append(error.errno)
    os._exit(errors != ([errno.EACCES, errno.EIO] if os.getuid() == 65534 else []))
assert os.waitpid(child, 0)[1] == 0";
    let yard = Yard::new();
    let disk = yard.random("disk.img", BYTES, 54);
    for what in ["held", "first"] {
        run(&mut on_disk(&disk, [PYTHON[0], PYTHON[1], program, what])).succeeded();
    }
}
