//! `blockyard attach`: programs that were never changed, on disks.

#[path = "attach/aio.rs"]
mod aio;
#[path = "attach/behind.rs"]
mod behind;
#[path = "attach/descriptors.rs"]
mod descriptors;
#[path = "attach/ends.rs"]
mod ends;
#[path = "attach/further.rs"]
mod further;
#[path = "attach/holding.rs"]
mod holding;
#[path = "attach/memory.rs"]
mod memory;
#[path = "attach/names.rs"]
mod names;
#[path = "attach/programs.rs"]
mod programs;
#[path = "server/mod.rs"]
mod server;
#[path = "attach/sessions.rs"]
mod sessions;
#[path = "attach/streams.rs"]
mod streams;
mod support;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{Yard, blockyard, run, run_without_leftovers, same};

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

/// The program has been run on one.
#[test]
fn a_disk_answers_as_a_block_device_does() {
    let yard = Yard::new();
    let program = c_program(&yard, "posix_device", &[]);
    let disk = yard.random("disk.img", BYTES, 46);
    run_without_leftovers(&mut on_disk(&disk, [program.as_os_str(), NAME.as_ref()])).succeeded();
}

/// libc has other names for calls whose room a compiler knows.
#[test]
fn a_program_that_was_compiled_to_check_its_room_is_on_the_disk() {
    let yard = Yard::new();
    let program = c_program(&yard, "posix_fortified", &["-O2", "-D_FORTIFY_SOURCE=2"]);
    let (disk, before) = (yard.random("disk.img", BYTES, 47), yard.path("before"));
    fs::copy(&disk, &before).unwrap();
    run_without_leftovers(&mut on_disk(&disk, [program.as_os_str(), NAME.as_ref(), before.as_ref()])).succeeded();
}
