//! The PCI transport's registers.

use crate::driver::*;
use crate::scripted_disk::ScriptedDisk;
use blockyard_block::{Disk, MemoryDisk, MemoryMap, explain};
use blockyard_devices::Interrupt;
use blockyard_devices::pci::{Bar, PciFunction, Signalling};
use blockyard_devices::virtio::{BlockDevice, BlockDeviceOptions, BlockQueue, DeviceFailure, PciTransport};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

const CONFIG_VECTOR: u64 = 0x10;
const STATUS_REGISTER: u64 = 0x14;
const QUEUE_SELECT: u64 = 0x16;
const QUEUE_SIZE_REGISTER: u64 = 0x18;
const QUEUE_VECTOR: u64 = 0x1a;
const QUEUE_ENABLE: u64 = 0x1c;
const ISR: u64 = 0x1000;
const NO_VECTOR: u64 = 0xffff;

/// A device with a vector for its configuration and two queues.
pub(crate) struct PciMachine {
    memory: MemoryMap,
    pub(crate) transport: PciTransport<BlockDevice>,
    pub(crate) queues: Arc<Mutex<Vec<BlockQueue>>>,
    vectors: Vec<Arc<Interrupts>>,
    failures: Arc<Mutex<Vec<String>>>,
}

impl PciMachine {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        let queues = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&queues);
        Self::with_sink(disk, queues, Box::new(move |queues| *sink.lock().unwrap() = queues))
    }

    fn with_sink(
        disk: Arc<dyn Disk>,
        queues: Arc<Mutex<Vec<BlockQueue>>>,
        sink: Box<dyn FnMut(Vec<BlockQueue>) + Send>,
    ) -> Self {
        let memory = memory();
        let options =
            BlockDeviceOptions { name: "test".into(), serial: String::new(), queues: 2, queue_size: QUEUE_SIZE };
        let device = BlockDevice::new(disk, memory.clone(), &options, sink).unwrap();
        let vectors: Vec<Arc<Interrupts>> =
            (0..PciTransport::vectors_wanted(&device)).map(|_| Arc::default()).collect();
        let shared = vectors.iter().map(|vector| Arc::clone(vector) as Arc<dyn Interrupt>).collect();
        let failures = Arc::new(Mutex::new(Vec::new()));
        let reported = Arc::clone(&failures);
        let report = Box::new(move |failure: &DeviceFailure| reported.lock().unwrap().push(explain(failure)));
        let transport = PciTransport::new(device, shared, report).unwrap();
        Self { memory, transport, queues, vectors, failures }
    }

    fn read(&mut self, offset: u64, width: usize) -> u64 {
        let mut data = [0; 8];
        self.transport.read(0, offset, &mut data[..width]);
        u64::from_le_bytes(data)
    }

    fn write(&mut self, offset: u64, width: usize, value: u64) {
        self.transport.write(0, offset, &value.to_le_bytes()[..width]);
    }

    fn status(&mut self) -> u64 {
        self.read(STATUS_REGISTER, 1)
    }

    fn negotiate(&mut self) {
        [0, 1, 3].into_iter().for_each(|status| self.write(STATUS_REGISTER, 1, status));
        for half in 0..2 {
            self.write(0, 4, half);
            self.write(8, 4, half);
            let offered = self.read(4, 4);
            self.write(0xc, 4, offered);
            assert_eq!(self.read(0xc, 4), offered);
        }
        self.write(STATUS_REGISTER, 1, 11);
        assert_eq!(self.status(), 11);
    }

    fn set_up_queue(&mut self, index: u16, vector: u64) -> DriverQueue {
        let queue = DriverQueue::new(self.memory.clone(), 0x1_0000 + u64::from(index) * 0x1_0000, 8);
        self.write(QUEUE_SELECT, 2, index.into());
        assert_eq!(self.read(QUEUE_SIZE_REGISTER, 2), u64::from(QUEUE_SIZE));
        self.write(QUEUE_SIZE_REGISTER, 2, 8);
        self.write(0x20, 8, queue.table);
        self.write(0x28, 4, queue.available);
        self.write(0x30, 4, queue.used);
        self.write(0x34, 4, 0);
        self.write(QUEUE_VECTOR, 2, vector);
        assert_eq!(self.read(QUEUE_VECTOR, 2), vector);
        self.write(QUEUE_ENABLE, 2, 1);
        assert_eq!((self.read(0x20, 8), self.read(0x2c, 4), self.read(QUEUE_ENABLE, 2)), (queue.table, 0, 1));
        queue
    }

    pub(crate) fn start(&mut self, vectors: [u64; 2]) -> Vec<DriverQueue> {
        self.negotiate();
        self.write(CONFIG_VECTOR, 2, 0);
        let queues = (0..).zip(vectors).map(|(index, vector)| self.set_up_queue(index, vector)).collect();
        self.write(STATUS_REGISTER, 1, 15);
        assert_eq!(self.status(), 15);
        queues
    }

    fn signals(&self) -> Vec<usize> {
        self.vectors.iter().map(|vector| vector.0.load(Ordering::SeqCst)).collect()
    }

    fn process(&self) {
        for queue in self.queues.lock().unwrap().iter_mut() {
            while queue.process().unwrap() {}
        }
    }
}

fn memory_disk() -> Arc<dyn Disk> {
    Arc::new(MemoryDisk::new(1 << 20, 512).unwrap())
}

#[test]
fn its_structures_are_where_its_capabilities_say() {
    let machine = PciMachine::new(memory_disk());
    let identity = machine.transport.identity();
    assert_eq!((identity.vendor, identity.device, identity.revision), (0x1af4, 0x1042, 1));
    assert_eq!(machine.transport.bars(), [Bar { index: 0, bytes: 0x4000 }]);
    assert_eq!((machine.transport.signalling(), machine.vectors.len()), (Signalling::MsiX, 3));
    let capabilities = machine.transport.capabilities();
    let place = |at: &Vec<u8>, from: usize| u32::from_le_bytes(at[from..from + 4].try_into().unwrap());
    let found: Vec<_> = capabilities
        .iter()
        .map(|capability| &capability.body)
        .map(|body| (usize::from(body[0]) - body.len(), body[1], place(body, 6), place(body, 10)))
        .collect();
    let expected = [(1, 0, 0x38), (2, 0x3000, 0x1000), (3, 0x1000, 1), (4, 0x2000, 0x1000), (5, 0, 0)];
    assert_eq!(found, expected.map(|(kind, offset, length)| (2, kind, offset, length)));
    let doorbells: Vec<_> = machine.transport.doorbells().iter().map(|doorbell| doorbell.offset).collect();
    assert_eq!(doorbells, [0x3000, 0x3004]);
}

#[test]
fn queues_have_vectors_and_doorbells_of_their_own() {
    let mut machine = PciMachine::new(memory_disk());
    let mut queues = machine.start([2, 1]);
    for (index, signals) in [(0, [0, 0, 1]), (1, [0, 1, 1])] {
        queues[index].request(0, 0, &[(DATA, 512, true)]);
        machine.write(0x3000 + 4 * index as u64, 2, index as u64);
        assert_eq!(machine.queues.lock().unwrap()[index].doorbell().take(), 1);
        machine.process();
        assert_eq!((queues[index].get_status(), machine.signals()), (OK, signals.to_vec()));
        assert_eq!([machine.read(ISR, 1), machine.read(ISR, 1)], [1, 0], "a read clears it");
    }
    // Of a queue that has none, and of none.
    machine.write(QUEUE_SELECT, 2, 0);
    for nothing in [NO_VECTOR, 3] {
        machine.write(QUEUE_VECTOR, 2, nothing);
        assert_eq!(machine.read(QUEUE_VECTOR, 2), NO_VECTOR);
    }
    // EVENT_IDX: it wants to know of the second, too.
    queues[0].put16(queues[0].available + 4 + 2 * u64::from(queues[0].size), 1);
    queues[0].request(0, 0, &[(DATA, 512, true)]);
    machine.process();
    assert_eq!((machine.signals(), machine.read(ISR, 1)), (vec![0, 1, 1], 1));
    machine.write(0x3008, 2, 2);
}

#[test]
fn common_configuration_has_widths() {
    let mut machine = PciMachine::new(memory_disk());
    assert_eq!((machine.read(0x12, 2), machine.read(CONFIG_VECTOR, 2)), (2, NO_VECTOR));
    for (offset, width) in [(0x12, 4), (0x12, 1), (0x10, 4), (0x14, 2), (0x1e, 4), (4, 8), (4, 2), (0x21, 4), (0x24, 8)]
    {
        assert_eq!(machine.read(offset, width), 0, "{width} bytes at {offset:#x}");
        machine.write(offset, width, u64::MAX);
    }
    assert_eq!(machine.status(), 0);
    for absent in [2, 0xfff0] {
        machine.write(QUEUE_SELECT, 2, absent);
        [0x18, 0x1a, 0x1c].into_iter().for_each(|offset| machine.write(offset, 2, 1));
        let all = [0x18, 0x1a, 0x1c, 0x1e].map(|offset| machine.read(offset, 2));
        assert_eq!((all, machine.read(0x20, 8)), ([0, NO_VECTOR, 0, 0], 0));
    }
    machine.write(QUEUE_SELECT, 2, 1);
    assert_eq!(machine.read(0x1e, 2), 1);
    let capacity = machine.read(0x2000, 8);
    assert_eq!(capacity, 2048);
    assert_eq!([machine.read(0x2022, 2), machine.read(0x2ff8, 8), machine.read(0x1800, 4)], [2, 0, 0]);
}

#[test]
fn what_cannot_work_is_told_by_the_configurations_vector() {
    let mut machine = PciMachine::new(memory_disk());
    machine.negotiate();
    machine.write(CONFIG_VECTOR, 2, 0);
    machine.write(QUEUE_SIZE_REGISTER, 2, 12);
    machine.write(QUEUE_ENABLE, 2, 1);
    machine.write(QUEUE_ENABLE, 2, 0);
    assert_eq!(machine.read(QUEUE_ENABLE, 2), 1, "only a reset disables it");
    machine.write(STATUS_REGISTER, 1, 15);
    assert_eq!((machine.status(), machine.signals(), machine.read(ISR, 1)), (0x4f, vec![1, 0, 0], 2));
    assert!(machine.failures.lock().unwrap()[0].contains("a queue size of 12"));
    machine.write(STATUS_REGISTER, 1, 0);
    assert_eq!((machine.status(), machine.read(CONFIG_VECTOR, 2)), (0, NO_VECTOR));
    machine.start([1, 2]);
}

#[test]
fn a_disk_that_grows_is_told() {
    let disk = Arc::new(ScriptedDisk::new(4));
    let mut machine = PciMachine::new(disk.clone());
    machine.start([1, 2]);
    disk.geometry.lock().unwrap().capacity_bytes *= 2;
    disk.generation.fetch_add(1, Ordering::SeqCst);
    let before = machine.read(0x15, 1);
    machine.transport.refresh_config();
    assert_eq!((machine.read(0x15, 1), machine.read(0x2000, 8)), (before + 1, 4096));
    assert_eq!((machine.signals(), machine.read(ISR, 1)), (vec![1, 0, 0], 2));
}

/// The thread that has the queues waits for the disk; the driver resets the device meanwhile, and sets it up again.
#[test]
fn a_reset_waits_for_what_the_disk_has() {
    let disk = Arc::new(ScriptedDisk::new(4));
    let (sender, handed_over) = mpsc::channel();
    let mut machine =
        PciMachine::with_sink(disk.clone(), Arc::default(), Box::new(move |queues| sender.send(queues).unwrap()));
    let owner = thread::spawn(move || {
        // Two lives of the device.
        handed_over.iter().take(2).for_each(serve);
    });
    for life in 1..=2 {
        machine.negotiate();
        let mut queue = machine.set_up_queue(1, 2);
        machine.write(STATUS_REGISTER, 1, 15);
        queue.request(0, 8, &[(DATA, 512, true)]);
        machine.write(0x3004, 2, 1);
        while disk.state.log.lock().unwrap().len() < life {
            thread::yield_now();
        }
        let state = Arc::clone(&disk.state);
        let finisher = thread::spawn(move || state.finish(1, Ok(())));
        machine.write(STATUS_REGISTER, 1, 0);
        finisher.join().unwrap();
        assert_eq!(machine.status(), 0);
        assert_eq!((queue.take_used(), queue.get_status()), (Some((0, 513)), OK));
    }
    owner.join().unwrap();
    assert!(machine.failures.lock().unwrap().is_empty());
}
