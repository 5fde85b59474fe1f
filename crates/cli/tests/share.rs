//! A directory of the host's in User-Mode Linux: its kernel's own virtiofs driver mounts what our process serves.

use blockyard_block::{EventFd, MemoryMap};
use blockyard_devices::virtio::{Activation, ActivationQueue, QueueConfig, QueueNotifier, VirtioDevice};
use blockyard_linux_guest::{Device, UserModeLinux};
use blockyard_share::{ServingOptions, Share, ShareProcess, ShareStarter, guest_device};
use blockyard_virtqueue::{Buffer, Chain, DriverQueue, Rings, available_words, descriptor_words, used_words};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use vm_memory::{Bytes, GuestAddress};

const TIMEOUT: Duration = Duration::from_secs(120);

/// A directory that is shared, beside one that is not.
struct Rig {
    directory: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("shared")).unwrap();
        fs::write(directory.path().join("outside"), "secret\n").unwrap();
        Self { directory }
    }

    fn shared(&self) -> PathBuf {
        self.directory.path().join("shared")
    }

    /// What the guest says that runs `script` with the directory mounted at /mnt.
    fn run(&self, read_only: bool, script: &str) -> String {
        let script =
            format!("mount -t virtiofs work /mnt && echo MOUNTED\ncd /mnt\n{script}\ncd /\numount /mnt && echo DONE\n");
        let (mut guest, process) = self.boot(read_only, &script);
        guest.wait_for("DONE").unwrap();
        let transcript = guest.finish().unwrap();
        drop(process);
        println!("{transcript}");
        transcript
    }

    fn boot(&self, read_only: bool, script: &str) -> (blockyard_linux_guest::Guest, ShareProcess) {
        let socket = self.directory.path().join("share.sock");
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let share = Share { directory: self.shared(), tag: "work".parse().unwrap(), read_only, limit: None };
        let process = start(&share, listener.into());
        let uml = UserModeLinux::find().unwrap();
        let devices = [(Device::Share, &*socket)];
        (uml.boot_with(128, self.directory.path(), &devices, script, TIMEOUT).unwrap(), process)
    }
}

fn launcher() -> blockyard_share::Launcher {
    (PathBuf::from(env!("CARGO_BIN_EXE_blockyard")), vec![blockyard_share::COMMAND])
}

fn start(share: &Share, socket: OwnedFd) -> ShareProcess {
    let options = ServingOptions { queues: 1, poll: Duration::ZERO };
    ShareProcess::start(&launcher(), &share.open().unwrap(), options, socket).unwrap()
}

#[test]
fn a_guest_reads_and_writes_what_is_shared() {
    let rig = Rig::new();
    let shared = rig.shared();
    fs::write(shared.join("greeting"), "from the host\n").unwrap();
    let transcript = rig.run(
        false,
        "
cat greeting
echo 'from the guest' > answer
echo more >> answer
mkdir -p a/b && mv answer a/b/renamed && ln a/b/renamed hard && ln -s b/renamed a/soft
cat a/soft
stat -c 'LINKS %h' hard
dd if=/dev/urandom of=bulk bs=64k count=100 2>/dev/null
echo SUM $(sha256sum < bulk)
echo 3 > /proc/sys/vm/drop_caches
echo SUM $(sha256sum < bulk)
truncate -s 1000 bulk
chmod 4751 hard && stat -c 'MODE %a' hard
rm greeting && rmdir a/b || echo NOTEMPTY
mkdir many && cd many && for i in $(seq 2000); do : > entry$i; done && cd .. && echo ENTRIES $(ls many | wc -l)
mkdir bin && cp /bin/busybox bin && bin/busybox echo MAPPED
df /mnt | grep -q work && echo DF
",
    );
    assert!(transcript.contains("MOUNTED") && transcript.contains("from the host"), "{transcript}");
    assert!(transcript.contains("from the guest") && transcript.contains("LINKS 2"), "{transcript}");
    assert!(transcript.contains("NOTEMPTY") && transcript.contains("DF"), "{transcript}");
    assert!(transcript.contains("ENTRIES 2000") && transcript.contains("MAPPED"), "{transcript}");
    let sums: Vec<_> = transcript.lines().filter(|line| line.starts_with("SUM")).collect();
    assert_eq!(sums.len(), 2);
    assert_eq!(sums[0], sums[1]);
    assert!(transcript.contains("MODE 751"), "{transcript}");
    assert_eq!(fs::read_to_string(shared.join("a/b/renamed")).unwrap(), "from the guest\nmore\n");
    assert_eq!(fs::read_link(shared.join("a/soft")).unwrap(), Path::new("b/renamed"));
    assert_eq!(fs::metadata(shared.join("hard")).unwrap().permissions().mode() & 0o7777, 0o751);
    assert_eq!(fs::metadata(shared.join("bulk")).unwrap().len(), 1000);
    assert!(!shared.join("greeting").exists());
    assert_eq!(fs::read_dir(shared.join("many")).unwrap().count(), 2000);
}

#[test]
fn a_guest_changes_nothing_that_is_for_reading_and_waits_for_no_fifo() {
    let rig = Rig::new();
    let shared = rig.shared();
    fs::write(shared.join("file"), "text\n").unwrap();
    mknodat(CWD, shared.join("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    symlink("../outside", shared.join("out")).unwrap();
    symlink("/proc/1/root", shared.join("magic")).unwrap();
    let transcript = rig.run(
        true,
        "
cat file
for try in 'touch new' 'rm file' 'mkdir d' 'mv file other' 'ln file other' 'ln -s file other' 'chmod 600 file' \
    'touch -d 2001-01-01 file' 'truncate -s 0 file' 'dd if=/dev/zero of=file'; do
    $try 2>&1 | grep -q 'Read-only file system' && echo REFUSED
done
stat -c 'KIND %F' fifo
cat out ../outside 2>/dev/null || echo NOT THERE
readlink magic
",
    );
    assert_eq!(transcript.matches("REFUSED").count(), 10, "{transcript}");
    assert!(transcript.contains("KIND fifo") && transcript.contains("NOT THERE"), "{transcript}");
    assert!(transcript.contains("/proc/1/root") && !transcript.contains("secret"), "{transcript}");
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 4);
    assert_eq!(fs::read_to_string(shared.join("file")).unwrap(), "text\n");
}

/// While the guest walks, a directory of the host's becomes a link that leads out, and is one again.
#[test]
fn a_guest_is_not_led_out_by_what_changes_under_it() {
    let rig = Rig::new();
    let shared = rig.shared();
    fs::create_dir(shared.join("swap")).unwrap();
    fs::write(shared.join("swap/outside"), "inside\n").unwrap();
    symlink("..", shared.join("link")).unwrap();
    let script = "
mount -t virtiofs work /mnt && cat /mnt/swap/outside && echo MOUNTED
for i in $(seq 500); do for name in swap link; do read line < /mnt/$name/outside && echo $line; done; done 2>/dev/null
echo RACED
umount /mnt; echo DONE
";
    let (mut guest, _process) = rig.boot(false, script);
    guest.wait_for("MOUNTED").unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let transcript = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let (one, other) = (shared.join("swap"), shared.join("link"));
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let raced = guest.wait_for("RACED");
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        raced.unwrap();
        guest.finish().unwrap()
    });
    assert!(transcript.contains("inside") && !transcript.contains("secret"), "{transcript}");
}

#[test]
fn what_cannot_be_shared_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    for (path, said) in [
        (directory.path().join("none"), "No such file or directory"),
        (file, "Not a directory"),
        ("/proc/sys".into(), "the kernel's own affairs"),
    ] {
        let share = Share { directory: path, tag: "work".parse().unwrap(), read_only: false, limit: None };
        let error = share.open().unwrap_err();
        let error = format!("{error}: {:?}", std::error::Error::source(&error).map(ToString::to_string));
        assert!(error.contains(said), "{error}");
    }
}

/// A guest that has another share which this one lies in can change what its name leads to, before it begins anew.
#[test]
fn a_share_stays_the_directory_that_was_opened() {
    let rig = Rig::new();
    let (shared, elsewhere) = (rig.shared(), rig.directory.path().join("elsewhere"));
    fs::create_dir(&elsewhere).unwrap();
    fs::write(shared.join("which"), "the one that was opened").unwrap();
    fs::write(elsewhere.join("which"), "another").unwrap();
    let share =
        Share { directory: shared.clone(), tag: "work".parse().unwrap(), read_only: true, limit: None }.open().unwrap();
    fs::rename(&shared, rig.directory.path().join("moved")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &shared).unwrap();
    let options = ServingOptions { queues: 1, poll: Duration::ZERO };
    let (socket, _client) = std::os::unix::net::UnixStream::pair().unwrap();
    let process = ShareProcess::start(&launcher(), &share, options, socket.into()).unwrap();
    let served = |process: u32| fs::read_to_string(format!("/proc/{process}/cwd/which")).unwrap();
    assert_eq!(served(process.id()), "the one that was opened");
    let mut starter = ShareStarter::start(&launcher(), &share, options).unwrap();
    let _stream = starter.serve().unwrap();
    assert_eq!(served(starter.id()), "the one that was opened");
}

const QUEUE_SIZE: u16 = 16;
/// The parts of the queue, and what is said and answered, from the memory's start.
const RINGS: [u64; 3] = [0x1000, 0x2000, 0x3000];
const REQUEST: u64 = 0x4000;
const REPLY: u64 = 0x8000;

/// A driver by hand's side of its transport.
struct Rung(mpsc::Sender<()>);

impl QueueNotifier for Rung {
    fn notify_used(&self) {
        let _ = self.0.send(());
    }

    fn needs_reset(&self) {}
}

/// Has requests answered by the server at the other end, whatever they are: each the bytes of a FUSE message. What a
/// reply's header says is wrong, and its body.
fn by_hand(queue: &mut DriverQueue<'_, { QUEUE_SIZE as usize }>, hand: &Hand, request: &[u8]) -> (i32, Vec<u8>) {
    let memory = hand.memory.guest_memory();
    memory.write_slice(request, GuestAddress(REQUEST)).unwrap();
    let buffers = [
        Buffer { address: REQUEST, length: request.len() as u32, writable: false },
        Buffer { address: REPLY, length: 4096, writable: true },
    ];
    queue.add(0, &Chain::Direct(&buffers)).unwrap();
    if queue.publish() {
        hand.doorbell.ring();
    }
    let used = loop {
        if let Some(used) = queue.pop_used().unwrap() {
            break used;
        }
        if !queue.enable_interrupts() {
            hand.rung.recv_timeout(TIMEOUT).expect("the server rings");
        }
    };
    let mut reply = vec![0; used.length as usize];
    memory.read_slice(&mut reply, GuestAddress(REPLY)).unwrap();
    assert_eq!(u32::from_ne_bytes(reply[..4].try_into().unwrap()), used.length);
    (-i32::from_ne_bytes(reply[4..8].try_into().unwrap()), reply[16..].to_vec())
}

struct Hand {
    memory: MemoryMap,
    doorbell: Arc<EventFd>,
    rung: mpsc::Receiver<()>,
}

fn message(opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
    let header = [40 + body.len() as u32, opcode].map(u32::to_ne_bytes).concat();
    let rest = [9, node, 0, 0].map(u64::to_ne_bytes).concat();
    [header, rest, body.to_vec()].concat()
}

/// The process as a machine of ours has it, and a driver that says what no kernel would.
#[test]
fn a_driver_by_hand_reaches_nothing_and_ends_only_its_own_share() {
    let rig = Rig::new();
    fs::write(rig.shared().join("file"), "text").unwrap();
    let share = Share { directory: rig.shared(), tag: "work".parse().unwrap(), read_only: true, limit: None };
    let options = ServingOptions { queues: 1, poll: Duration::ZERO };
    let mut starter = ShareStarter::start(&launcher(), &share.open().unwrap(), options).unwrap();
    let stream = starter.serve().unwrap();
    let memory = MemoryMap::allocate(&[(0, 1 << 20)]).unwrap();
    let (end, ended) = mpsc::channel();
    let on_end = Box::new(move |error: blockyard_session::client::SessionError| _ = end.send(error.to_string()));
    let mut device = guest_device(stream, &share.tag, memory.clone(), on_end).unwrap();
    assert_eq!(device.device_type(), 26);
    assert_eq!((&device.config()[..6], &device.config()[36..]), (&b"work\0\0"[..], &[1, 0, 0, 0][..]));
    let (sender, rung) = mpsc::channel();
    let hand = Hand { memory: memory.clone(), doorbell: Arc::new(EventFd::new().unwrap()), rung };
    let [descriptor_table, available_ring, used_ring] = RINGS;
    let config = QueueConfig { size: QUEUE_SIZE.into(), descriptor_table, available_ring, used_ring };
    let notifier = Arc::new(Rung(sender)) as Arc<dyn QueueNotifier>;
    let queue = ActivationQueue { index: 1, config, doorbell: Arc::clone(&hand.doorbell), notifier };
    device.activate(Activation { features: device.features(), queues: vec![queue] }).unwrap();
    let rings = Rings::new(
        QUEUE_SIZE,
        memory.words(RINGS[0], descriptor_words(QUEUE_SIZE)).unwrap(),
        memory.words(RINGS[1], available_words(QUEUE_SIZE)).unwrap(),
        memory.words(RINGS[2], used_words(QUEUE_SIZE)).unwrap(),
    );
    let mut queue = DriverQueue::new(rings.unwrap(), true).unwrap();
    let mut ask = |opcode, node, body: &[u8]| by_hand(&mut queue, &hand, &message(opcode, node, body));
    let (lookup, open, init) = (1, 14, 26);
    let version = [7_u32, 38, 0, 0, 0].map(u32::to_ne_bytes).concat();
    assert_eq!(ask(init, 0, &version).0, 0);
    assert_eq!(ask(lookup, 1, b"../outside\0").0, rustix::io::Errno::INVAL.raw_os_error());
    assert_eq!(ask(lookup, 77, b"file\0").0, rustix::io::Errno::STALE.raw_os_error());
    let (error, entry) = ask(lookup, 1, b"file\0");
    assert_eq!((error, entry.len()), (0, 128));
    let file = u64::from_ne_bytes(entry[..8].try_into().unwrap());
    assert_eq!(ask(open, file, &[2, 0, 0, 0, 0, 0, 0, 0]).0, rustix::io::Errno::ROFS.raw_os_error());
    assert_eq!(ask(open, file, &[0; 8]).0, 0);
    assert_eq!(ask(9999, 1, b"").0, rustix::io::Errno::NOSYS.raw_os_error());
    // A ring that lies ends the share, and the process, and nothing else.
    assert!(ended.try_recv().is_err());
    memory.guest_memory().write_slice(&[0xff, 0x7f], GuestAddress(RINGS[1] + 2)).unwrap();
    hand.doorbell.ring();
    assert!(ended.recv_timeout(TIMEOUT).unwrap().contains("closed the connection"));
    drop(device);
    // The machine that begins anew has another.
    let device = guest_device(starter.serve().unwrap(), &share.tag, memory, Box::new(drop)).unwrap();
    assert_eq!(&device.config()[..6], b"work\0\0");
    drop((device, starter));
    assert_eq!(fs::read_to_string(rig.shared().join("file")).unwrap(), "text");
    let nothing = (PathBuf::from("/bin/false"), Vec::new());
    let failed = ShareStarter::start(&nothing, &share.open().unwrap(), options).unwrap().serve().unwrap_err();
    let failed = failed.to_string();
    assert!(failed.contains("does not begin"), "{failed}");
}
