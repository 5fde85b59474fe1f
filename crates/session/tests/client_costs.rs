//! What a request costs: no allocation, and few system calls.

use blockyard_block::{Completion, CountingAllocator, Disk, MemoryMap, Operation, Queue, Request, Segment};
use blockyard_session::client::{SessionDisk, SessionError, SessionOptions};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

const DEPTH: usize = 64;

/// qemu-storage-daemon on an image of 16 MiB. Killed when dropped.
struct Server(Child);

impl Server {
    fn start(directory: &Path) -> (Self, SessionDisk) {
        Self::start_with(directory, &SessionOptions::default())
    }

    fn start_with(directory: &Path, options: &SessionOptions) -> (Self, SessionDisk) {
        let (image, socket) = (directory.join("disk.img"), directory.join("disk.sock"));
        std::fs::write(&image, vec![0; 16 << 20]).unwrap();
        let file = format!("driver=file,node-name=f,filename={}", image.display());
        let export =
            format!("type=vhost-user-blk,id=e,node-name=f,writable=on,addr.type=unix,addr.path={}", socket.display());
        let child = Command::new("qemu-storage-daemon").args(["--blockdev", &file, "--export", &export]).spawn();
        let server = Self(child.expect("Debian's qemu-system-common brings qemu-storage-daemon"));
        for _ in 0..4000 {
            match SessionDisk::connect(&socket, options) {
                Err(SessionError::NobodyListens(_)) => std::thread::sleep(Duration::from_millis(5)),
                disk => return (server, disk.unwrap()),
            }
        }
        panic!("qemu-storage-daemon does not listen");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Keeps the queue full until `count` requests are done.
fn run(queue: &mut dyn Queue, completions: &mut Vec<Completion>, count: u64, flushes: bool) {
    let (mut pushed, mut reaped) = (0, 0);
    while reaped < count {
        while pushed < count && queue.in_flight() < queue.depth() {
            let place = pushed % DEPTH as u64;
            let segments = [
                Segment { region: 0, length_bytes: 1024, offset_bytes: place * 4096 },
                Segment { region: 0, length_bytes: 3072, offset_bytes: place * 4096 + 1024 },
            ];
            let operation = match pushed % 8 {
                7 if flushes => Operation::Flush,
                0..3 => Operation::Write { force_unit_access: flushes && pushed % 50 == 0 },
                _ => Operation::Read,
            };
            let request = Request { operation, offset_bytes: place * 4096, segments: &segments, token: pushed };
            queue.push(&request).unwrap();
            pushed += 1;
        }
        queue.submit().unwrap();
        queue.wait(&[], Some(Duration::from_secs(10))).unwrap();
        queue.reap(completions);
        assert!(completions.iter().all(|completion| completion.result.is_ok()));
        reaped += completions.len() as u64;
        completions.clear();
    }
}

#[test]
fn a_session_allocates_nothing_per_request() {
    for (io_buffer_bytes, is_passed_on) in [(None, false), (Some(64 << 10), false), (None, true)] {
        let directory = tempfile::tempdir().unwrap();
        let options = SessionOptions { io_buffer_bytes, is_passed_on, ..SessionOptions::default() };
        let (_server, disk) = Server::start_with(directory.path(), &options);
        let memory = MemoryMap::allocate(&[(0, 1 << 20)]).unwrap();
        let mut queue = disk.open_queue(&memory, DEPTH).unwrap();
        let mut completions = Vec::with_capacity(DEPTH);
        let before = CountingAllocator::of_this_thread().expect("it is installed");
        run(&mut *queue, &mut completions, 3000, true);
        assert_eq!(
            CountingAllocator::of_this_thread(),
            Some(before),
            "with an I/O buffer of {io_buffer_bytes:?} bytes, shared: {is_passed_on}"
        );
    }
}

/// What this thread asks of the kernel: to wake the server, to sleep, to take what woke it, and to let others run while
/// it spins. How often it sleeps depends on who else has the processors (`cargo xtask figures` counts that), but a wait
/// brings a request.
#[test]
fn a_request_costs_no_call_but_to_wake_and_to_wait() {
    const REQUESTS: u64 = 20_000;
    let directory = tempfile::tempdir().unwrap();
    let (_server, disk) = Server::start(directory.path());
    let memory = MemoryMap::allocate(&[(0, 1 << 20)]).unwrap();
    let mut queue = disk.open_queue(&memory, DEPTH).unwrap();
    let mut completions = Vec::with_capacity(DEPTH);
    let marker = |name: &str| {
        // A call that is made nowhere else, for strace's output to be cut at.
        let _ = std::fs::metadata(format!("/marker/{name}"));
    };
    let trace = directory.path().join("trace");
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    let tracer = Command::new("strace").args(["-o", trace.to_str().unwrap(), "-p", &thread.to_string()]).spawn();
    let mut tracer = tracer.expect("Debian's strace brings strace");
    // Not by reading the trace: that would be traced.
    let status = format!("/proc/self/task/{thread}/status");
    while std::fs::read_to_string(&status).unwrap().contains("TracerPid:\t0\n") {
        assert_eq!(tracer.try_wait().unwrap(), None, "strace has ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    marker("begin");
    run(&mut *queue, &mut completions, REQUESTS, false);
    marker("end");
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(tracer.id() as i32).unwrap(),
        rustix::process::Signal::INT,
    )
    .unwrap();
    tracer.wait().unwrap();
    let text = std::fs::read_to_string(&trace).unwrap();
    let lines = text.lines().skip_while(|line| !line.contains("/marker/begin"));
    let calls = lines.skip(1).take_while(|line| !line.contains("/marker/end"));
    let mut counts = std::collections::HashMap::<_, u64>::new();
    calls.filter_map(|line| line.split_once('(')).for_each(|(name, _)| *counts.entry(name).or_default() += 1);
    assert!(counts.keys().all(|name| ["write", "preadv2", "ppoll", "sched_yield"].contains(name)), "{counts:?}");
    for name in ["write", "preadv2", "ppoll"] {
        assert!(counts.get(name).is_none_or(|&count| count <= REQUESTS), "{counts:?}");
    }
}
