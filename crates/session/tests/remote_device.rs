//! A device of this process that a server serves: what its driver makes available reaches the server, and what the
//! server rings comes back, until one of them has enough.

use blockyard_block::{EventFd, MemoryMap};
use blockyard_devices::virtio::{
    Activation, ActivationQueue, FailureCause, Message, MessageHandler, MessageVirtqueue, MessageVirtqueueParts,
    QueueConfig, QueueNotifier, ServedQueue, VirtioDevice,
};
use blockyard_session::client::{RemoteDevice, RemoteDeviceOptions};
use blockyard_session::server::{EndReason, ServedDevice, ServedQueueParts, Server, ServerOptions, Session};
use blockyard_virtqueue::{Buffer, Chain, DriverQueue, Rings, available_words, descriptor_words, used_words};
use std::num::NonZeroU32;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use vm_memory::{Bytes, GuestAddress};

const TIMEOUT: Duration = Duration::from_secs(20);
const VERSION_1: u64 = 1 << 32;
const EVENT_IDX: u64 = 1 << 29;
const QUEUE_SIZE: u16 = 16;
/// Where the guest has its memory, and in it the parts of queue 1.
const GUEST: u64 = 0x10_0000;
const RINGS: [u64; 3] = [GUEST, GUEST + 0x1000, GUEST + 0x2000];
const QUESTION: u64 = 0x4000;
const ANSWER: u64 = 0x5000;

/// Answers each message with its bytes in reverse.
struct Reverses;

impl MessageHandler for Reverses {
    fn handle(&mut self, message: &Message<'_>) -> u32 {
        let mut bytes = vec![0; message.readable_bytes() as usize];
        message.read(0, &mut bytes);
        bytes.reverse();
        message.write(0, &bytes) as u32
    }
}

impl ServedDevice for Reverses {
    fn features(&self) -> u64 {
        VERSION_1 | EVENT_IDX
    }

    fn queues(&self) -> u16 {
        2
    }

    fn config(&self) -> Vec<u8> {
        b"a device that reverses".to_vec()
    }

    fn open_queue(&self, parts: ServedQueueParts) -> Result<Box<dyn ServedQueue>, FailureCause> {
        let ServedQueueParts { device, index, ring, memory, features, notifier, statistics, .. } = parts;
        let parts = MessageVirtqueueParts { device, index, ring, memory, features, notifier, statistics };
        Ok(Box::new(MessageVirtqueue::new(parts, Reverses)))
    }
}

/// The transport's side of a queue.
struct Driver {
    rung: mpsc::Sender<()>,
    needs_reset: AtomicBool,
}

impl QueueNotifier for Driver {
    fn notify_used(&self) {
        let _ = self.rung.send(());
    }

    fn needs_reset(&self) {
        self.needs_reset.store(true, Ordering::SeqCst);
    }
}

struct Rig {
    device: RemoteDevice,
    session: Session,
    memory: MemoryMap,
    doorbell: Arc<EventFd>,
    driver: Arc<Driver>,
    rings: mpsc::Receiver<()>,
    ended: mpsc::Receiver<String>,
    _server: Server,
}

impl Rig {
    fn new() -> Self {
        let server = Server::start(&ServerOptions::default()).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let session = server.attach_device(theirs, "reverses".into(), Arc::new(Reverses), NonZeroU32::MIN).unwrap();
        // The queue is in the second region.
        let memory = MemoryMap::allocate(&[(0, 0x1000), (GUEST, 0x10000)]).unwrap();
        let options = RemoteDeviceOptions {
            name: "reverses".into(),
            device_type: 42,
            features: 0,
            config_bytes: 8,
            queue_size: QUEUE_SIZE,
            patience: TIMEOUT,
        };
        let (end, ended) = mpsc::channel();
        let on_end = Box::new(move |error: blockyard_session::client::SessionError| _ = end.send(error.to_string()));
        let device = RemoteDevice::new(ours, &options, memory.clone(), on_end).unwrap();
        let (rung, rings) = mpsc::channel();
        let driver = Arc::new(Driver { rung, needs_reset: AtomicBool::new(false) });
        let doorbell = Arc::new(EventFd::new().unwrap());
        Self { device, session, memory, doorbell, driver, rings, ended, _server: server }
    }

    fn activation(&self) -> Activation {
        let [descriptor_table, available_ring, used_ring] = RINGS;
        let config = QueueConfig { size: QUEUE_SIZE.into(), descriptor_table, available_ring, used_ring };
        let (doorbell, notifier) = (Arc::clone(&self.doorbell), Arc::clone(&self.driver) as Arc<dyn QueueNotifier>);
        let queues = vec![ActivationQueue { index: 1, config, doorbell, notifier }];
        Activation { features: VERSION_1 | EVENT_IDX, queues }
    }

    /// Has the server answer these, by a driver that begins anew and waits to be rung.
    fn ask(&mut self, words: &[&[u8]]) -> Vec<Vec<u8>> {
        self.memory.guest_memory().write_slice(&[0; 0x3000], GuestAddress(GUEST)).unwrap();
        let activation = self.activation();
        self.device.activate(activation).unwrap();
        let memory = &self.memory;
        let rings = Rings::new(
            QUEUE_SIZE,
            memory.words(RINGS[0], descriptor_words(QUEUE_SIZE)).unwrap(),
            memory.words(RINGS[1], available_words(QUEUE_SIZE)).unwrap(),
            memory.words(RINGS[2], used_words(QUEUE_SIZE)).unwrap(),
        );
        let mut queue = DriverQueue::<{ QUEUE_SIZE as usize }>::new(rings.unwrap(), true).unwrap();
        let mut answer = |word: &[u8]| {
            memory.guest_memory().write_slice(word, GuestAddress(GUEST + QUESTION)).unwrap();
            let length = word.len() as u32;
            let buffers = [
                Buffer { address: GUEST + QUESTION, length, writable: false },
                Buffer { address: GUEST + ANSWER, length, writable: true },
            ];
            queue.add(7, &Chain::Direct(&buffers)).unwrap();
            if queue.publish() {
                self.doorbell.ring();
            }
            while queue.pop_used().unwrap().is_none() {
                if !queue.enable_interrupts() {
                    self.rings.recv_timeout(TIMEOUT).expect("the server rings");
                }
            }
            let mut answer = vec![0; word.len()];
            memory.guest_memory().read_slice(&mut answer, GuestAddress(GUEST + ANSWER)).unwrap();
            answer
        };
        words.iter().map(|word| answer(word)).collect()
    }
}

#[test]
fn what_a_driver_asks_is_answered_by_the_server_before_and_after_a_reset() {
    let mut rig = Rig::new();
    assert_eq!((rig.device.device_type(), rig.device.config()), (42, &b"a device"[..]));
    assert_eq!(rig.device.queue_sizes_max(), [QUEUE_SIZE; 2]);
    assert_eq!(rig.ask(&[b"one", b"another"]), [b"eno".to_vec(), b"rehtona".to_vec()]);
    rig.device.reset();
    assert_eq!(rig.ask(&[b"anew"]), [b"wena"]);
    rig.device.stop_queue(0);
    rig.device.stop_queue(1);
    let Rig { device, session, ended, .. } = rig;
    drop(device);
    assert_eq!(session.wait(), &EndReason::Disconnected);
    assert!(ended.try_recv().is_err(), "nobody was left");
}

#[test]
fn a_queue_that_cannot_be_is_refused_before_the_server_hears_of_it() {
    let mut rig = Rig::new();
    let changes: [fn(&mut QueueConfig); 4] = [
        |config| config.size = 0,
        |config| config.size = 32,
        |config| config.used_ring = GUEST + 0x10000,
        |config| config.descriptor_table += 1,
    ];
    for change in changes {
        let mut activation = rig.activation();
        change(&mut activation.queues[0].config);
        assert!(rig.device.activate(activation).unwrap_err().is_drivers_fault());
    }
    assert_eq!(rig.ask(&[b"good"]), [b"doog"]);
}

#[test]
fn a_server_that_leaves_is_said_and_nobody_waits_for_it() {
    for revoked in [true, false] {
        let mut rig = Rig::new();
        rig.ask(&[b"once"]);
        match revoked {
            true => rig.session.revoke(),
            false => {
                // More than the queue has room for: the server takes this for the lie that it is.
                rig.memory.guest_memory().write_slice(&[9, 9], GuestAddress(RINGS[1] + 2)).unwrap();
                rig.doorbell.ring();
            }
        }
        let why = rig.ended.recv_timeout(TIMEOUT).unwrap();
        assert!(why.contains("closed the connection"), "{why}");
        assert!(rig.driver.needs_reset.load(Ordering::SeqCst));
        rig.device.reset();
        let activation = rig.activation();
        let failure = rig.device.activate(activation).unwrap_err();
        assert!(!failure.is_drivers_fault());
    }
}
