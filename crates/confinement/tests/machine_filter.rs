//! A process that runs a virtual machine does that and reaches nothing else, whatever its guest has made of it. The
//! process is this test's own binary, run again.

use blockyard_block::{RingsAhead, WakeUp};
use blockyard_confinement::machine_filter::filter_machine;
use blockyard_confinement::{Confinement, MachineThread};
use libc::c_long;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

#[test]
fn a_virtual_machines_process_reaches_nothing_but_what_it_has_open() {
    run_walled("runs_a_machine");
}

#[test]
fn a_process_that_makes_virtual_machines_reaches_nothing_else_and_its_threads_less() {
    run_walled("makes_machines");
}

fn run_walled(child: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.stdin(Stdio::null()).args(["--exact", child, "--ignored", "--nocapture", "--test-threads=1"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// What became of one system call, whose arguments name no memory that is not there.
fn call(number: c_long, arguments: [c_long; 6]) -> io::Result<c_long> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the memory that is named is there while the call takes, and nothing else uses it.
    match unsafe { libc::syscall(number, a, b, c, d, e, f) } {
        -1 => Err(io::Error::last_os_error()),
        returned => Ok(returned),
    }
}

fn refused(number: c_long, arguments: [c_long; 6], what: &str) {
    let errno = call(number, arguments).err().unwrap_or_else(|| panic!("{what} was not refused")).raw_os_error();
    assert_eq!(errno, Some(libc::EPERM), "{what}");
}

/// All that a process might do to others, from whichever thread, but for `may`.
fn attack(may: &[&str]) {
    let path = c"/proc/self/status".as_ptr() as c_long;
    let parent = c_long::from(std::os::unix::process::parent_id());
    let here = c_long::from(libc::AT_FDCWD);
    let mut words = [0_u64; 64];
    let memory = words.as_mut_ptr() as c_long;
    let with_path = [
        (libc::SYS_open, [path, 0, 0, 0, 0, 0], "opening a file"),
        (libc::SYS_openat, [here, path, 0, 0, 0, 0], "opening a file"),
        (libc::SYS_openat2, [here, path, memory, 24, 0, 0], "opening a file"),
        (libc::SYS_creat, [path, 0o600, 0, 0, 0, 0], "making a file"),
        (libc::SYS_stat, [path, memory, 0, 0, 0, 0], "looking for a file"),
        (libc::SYS_newfstatat, [here, path, memory, 0, 0, 0], "looking for a file"),
        (libc::SYS_statx, [here, path, 0, 0, memory, 0], "looking for a file"),
        (libc::SYS_access, [path, 0, 0, 0, 0, 0], "looking for a file"),
        (libc::SYS_readlink, [path, memory, 8, 0, 0, 0], "reading a link"),
        (libc::SYS_unlink, [path, 0, 0, 0, 0, 0], "removing a file"),
        (libc::SYS_rename, [path, path, 0, 0, 0, 0], "renaming a file"),
        (libc::SYS_chmod, [path, 0o777, 0, 0, 0, 0], "changing a file's mode"),
        (libc::SYS_chdir, [path, 0, 0, 0, 0, 0], "changing the directory"),
        (libc::SYS_mount, [path, path, 0, 0, 0, 0], "mounting"),
        (libc::SYS_execve, [path, 0, 0, 0, 0, 0], "executing a program"),
        (libc::SYS_execveat, [0, path, 0, 0, 0, 0], "executing a descriptor"),
    ];
    let (unix, internet) = (c_long::from(libc::AF_UNIX), c_long::from(libc::AF_INET));
    let stream = c_long::from(libc::SOCK_STREAM);
    let sockets = [
        (libc::SYS_socket, [unix, stream, 0, 0, 0, 0], "making a unix socket"),
        (libc::SYS_socket, [internet, stream, 0, 0, 0, 0], "making a TCP socket"),
        (libc::SYS_socketpair, [unix, libc::SOCK_DGRAM.into(), 0, memory, 0, 0], "making a pair of sockets"),
        (libc::SYS_connect, [0, memory, 16, 0, 0, 0], "connecting"),
        (libc::SYS_bind, [0, memory, 16, 0, 0, 0], "binding"),
        (libc::SYS_sendto, [1, memory, 8, 0, memory, 16], "sending by name"),
    ];
    let (own_kind, private, shared) = (libc::MAP_ANONYMOUS, libc::MAP_PRIVATE, libc::MAP_SHARED);
    let (data, code) = (c_long::from(libc::PROT_WRITE), c_long::from(libc::PROT_EXEC));
    let grows = libc::MAP_GROWSDOWN;
    let maps = [
        (libc::SYS_mmap, [0, 4096, data, (own_kind | shared).into(), -1, 0], "memory that no limit counts"),
        (libc::SYS_mmap, [0, 4096, data, (own_kind | private | grows).into(), -1, 0], "a stack that grows"),
        (libc::SYS_mmap, [0, 4096, code, (own_kind | private).into(), -1, 0], "memory that is executed"),
        (libc::SYS_mprotect, [memory & !4095, 4096, code | data, 0, 0, 0], "executing data"),
        (libc::SYS_memfd_create, [path, 0, 0, 0, 0, 0], "making memory with a descriptor"),
        (libc::SYS_shmget, [0, 4096, 0o1600, 0, 0, 0], "making memory that outlives it"),
    ];
    let processes = [
        (libc::SYS_fork, [0; 6], "making a process"),
        (libc::SYS_vfork, [0; 6], "making a process"),
        (libc::SYS_clone, [libc::SIGCHLD.into(), 0, 0, 0, 0, 0], "making a process"),
        (libc::SYS_clone, [libc::CLONE_VM.into(), 0, 0, 0, 0, 0], "making a process"),
        (libc::SYS_kill, [parent, 0, 0, 0, 0, 0], "a signal to another process"),
        (libc::SYS_tgkill, [parent, parent, 0, 0, 0, 0], "a signal to another process"),
        (libc::SYS_tkill, [parent, 0, 0, 0, 0, 0], "a signal to another process"),
        (libc::SYS_pidfd_open, [parent, 0, 0, 0, 0, 0], "getting hold of another process"),
        (libc::SYS_fcntl, [1, libc::F_SETOWN.into(), parent, 0, 0, 0], "having a descriptor signal"),
        (libc::SYS_fcntl, [1, 10, 9, 0, 0, 0], "having a descriptor send any signal"),
        (libc::SYS_ptrace, [libc::PTRACE_ATTACH.into(), parent, 0, 0, 0, 0], "tracing another process"),
        (libc::SYS_process_vm_readv, [parent, memory, 1, memory, 1, 0], "reading another process"),
        (libc::SYS_prlimit64, [parent, 7, 0, memory, 0, 0], "another process's limits"),
        (libc::SYS_setsid, [0; 6], "leaving its session"),
        (libc::SYS_prctl, [libc::PR_SET_PDEATHSIG.into(), 0, 0, 0, 0, 0], "outliving its parent"),
        (libc::SYS_unshare, [libc::CLONE_NEWUSER.into(), 0, 0, 0, 0, 0], "making namespaces"),
        (libc::SYS_setns, [1, 0, 0, 0, 0, 0], "entering namespaces"),
        (libc::SYS_sched_setaffinity, [0, 8, memory, 0, 0, 0], "leaving its processor"),
        (libc::SYS_sched_setscheduler, [parent, libc::SCHED_BATCH.into(), memory, 0, 0, 0], "another process's turns"),
        (libc::SYS_sched_setscheduler, [0, libc::SCHED_FIFO.into(), memory, 0, 0, 0], "going before all others"),
    ];
    let (create_vm, map_memory, enable, terminal) = (0xae01, 0x4020_ae46, 0x4068_aea3, 0x5412);
    let others = [
        (libc::SYS_ioctl, [1, create_vm, 0, 0, 0, 0], "making another virtual machine"),
        (libc::SYS_ioctl, [1, map_memory, memory, 0, 0, 0], "giving the guest other memory"),
        (libc::SYS_ioctl, [1, enable, memory, 0, 0, 0], "switching something of KVM on"),
        (libc::SYS_ioctl, [1, terminal, memory, 0, 0, 0], "typing at a terminal"),
        (libc::SYS_io_uring_setup, [4, memory, 0, 0, 0, 0], "making an io_uring"),
        (libc::SYS_seccomp, [1, 8, 0, 0, 0, 0], "listening to system calls"),
        (libc::SYS_bpf, [0, memory, 8, 0, 0, 0], "bpf"),
        (libc::SYS_keyctl, [0, 0, 0, 0, 0, 0], "keys"),
        (libc::SYS_perf_event_open, [memory, 0, -1, -1, 0, 0], "counting events"),
        (libc::SYS_userfaultfd, [0; 6], "faults of memory"),
    ];
    let all = with_path.iter().chain(&sockets).chain(&maps).chain(&processes).chain(&others);
    for &(number, arguments, what) in all {
        if !may.contains(&what) {
            refused(number, arguments, what);
        }
    }
}

#[test]
#[ignore = "run by the test, in a process of its own"]
fn runs_a_machine() {
    let (mut near, mut far) = UnixStream::pair().unwrap();
    let (ask, asked) = mpsc::channel::<()>();
    let earlier = thread::spawn(move || asked.recv().map(|()| attack(&[])));

    filter_machine().unwrap();

    attack(&[]);
    // What a thread that was there before may do it may do for all.
    ask.send(()).unwrap();
    earlier.join().unwrap().unwrap();
    assert!(File::open("/dev/null").is_err() && UnixDatagram::unbound().is_err());
    // A machine goes on: threads, memory, events, lines.
    near.write_all(b"line").unwrap();
    let read = thread::spawn(move || {
        let mut bytes = vec![0; 4 << 20];
        far.read_exact(&mut bytes[..4]).map(|()| bytes)
    });
    assert_eq!(read.join().unwrap().unwrap()[..4], *b"line");
    assert!(call(libc::SYS_eventfd2, [0; 6]).is_ok());
}

/// What a thread that makes machines may do beside running them, and one that is the guest's may not.
const MAKES: [&str; 4] = [
    "looking for a file",
    "making memory with a descriptor",
    "making another virtual machine",
    "giving the guest other memory",
];
/// What any of them may do: none leaves it worse off than it is. Its memory is counted where it is touched.
const COUNTED: [&str; 3] = ["memory that no limit counts", "a stack that grows", "leaving its processor"];
/// And one that opens queues of sessions.
const SHARES: [&str; 4] = [COUNTED[0], COUNTED[1], COUNTED[2], MAKES[1]];

#[test]
#[ignore = "run by the test, in a process of its own"]
fn makes_machines() {
    let (ask, asked) = mpsc::channel::<()>();
    let earlier = thread::spawn(move || asked.recv().map(|()| attack(&[&MAKES[..], &COUNTED].concat())));
    let status = File::open("/proc/thread-self/status").unwrap();
    let rings = RingsAhead { queues: 1, ..RingsAhead::default() };
    Confinement { rings, machine: true, ..Confinement::default() }.enter().unwrap();

    attack(&[&MAKES[..], &COUNTED].concat());
    ask.send(()).unwrap();
    earlier.join().unwrap().unwrap();
    let status = io::read_to_string(status).unwrap();
    assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"), "{status}");
    // Which files there are it may ask, but not what is in them. Those of a process that leaves no core dump are
    // root's.
    assert_eq!(fs::metadata("/proc/self/status").unwrap().uid(), 0);
    // Each of these is a thread's own: the others go on as they were.
    for kind in [MachineThread::Vcpu { sessions: false }, MachineThread::Vcpu { sessions: true }, MachineThread::Io] {
        in_thread(kind, move || {
            let may = if kind == (MachineThread::Vcpu { sessions: true }) { &SHARES[..] } else { &COUNTED };
            attack(may);
            let run = 0xae80;
            let ran = call(libc::SYS_ioctl, [1, run, 0, 0, 0, 0]).unwrap_err().raw_os_error();
            // It gets as far as the descriptor, which is no vCPU.
            assert_eq!(ran == Some(libc::EPERM), kind == MachineThread::Io, "{ran:?}");
            assert_eq!(WakeUp::Waits.choose().is_ok(), kind == MachineThread::Io);
            // What opens a queue, and threads that carry its requests out.
            assert!(call(libc::SYS_eventfd2, [0; 6]).is_ok());
            thread::spawn(|| attack(may)).join().unwrap();
        });
    }
    let mut byte = [0_u8; 1];
    let memory = byte.as_mut_ptr() as c_long;
    let to_null = [libc::SYS_write, libc::SYS_pwrite64].map(|call| (call, [0, memory, 1, 0, 0, 0], "writing input"));
    for kind in [MachineThread::ConsoleInput, MachineThread::ConsoleOutput, MachineThread::Typing] {
        in_thread(kind, move || {
            attack(&COUNTED[..2]);
            let kinds = [(libc::SYS_eventfd2, [0; 6], "events"), (libc::SYS_pread64, [0, memory, 1, 0, 0, 0], "disks")];
            kinds.iter().for_each(|&(number, arguments, what)| refused(number, arguments, what));
            refused(libc::SYS_clone, [libc::CLONE_THREAD.into(), 0, 0, 0, 0, 0], "threads");
            if kind == MachineThread::ConsoleInput {
                to_null.iter().for_each(|&(number, arguments, what)| refused(number, arguments, what));
                assert_eq!(io::stdin().read(&mut [0]).unwrap(), 0);
            } else {
                refused(libc::SYS_read, [0, memory, 1, 0, 0, 0], "reading input");
                io::stdout().write_all(b"said\n").unwrap();
            }
        });
    }
    assert!(call(libc::SYS_memfd_create, [c"memory".as_ptr() as c_long, 0, 0, 0, 0, 0]).is_ok());
}

/// Has a thread of this kind do something.
fn in_thread(kind: MachineThread, does: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(move || {
        kind.enter().unwrap();
        does();
    });
    thread.join().unwrap();
}
