//! The driver against a device that is as the specification wants it, and against one that lies.

use super::*;
use crate::{Buffer, descriptor_words, write_table};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU16, AtomicU64};
use std::sync::mpsc;
use std::vec::Vec;
use std::{thread, vec};

const SIZE: u16 = 8;
const TABLE_ADDRESS: u64 = 0x10_0000;

/// Memory for a virtqueue and for one indirect table a descriptor.
struct Memory {
    size: u16,
    descriptors: Vec<AtomicU64>,
    available: Vec<AtomicU16>,
    used: Vec<AtomicU16>,
    tables: Vec<AtomicU64>,
}

impl Memory {
    fn new(size: u16) -> Self {
        let words = |count: usize| (0..count).map(|_| AtomicU16::new(0xaaaa)).collect();
        Self {
            size,
            descriptors: (0..descriptor_words(size)).map(|_| AtomicU64::new(0)).collect(),
            available: words(available_words(size)),
            used: words(used_words(size)),
            tables: (0..32 * usize::from(size)).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn rings(&self) -> Rings<'_> {
        Rings::new(self.size, &self.descriptors, &self.available, &self.used).unwrap()
    }

    fn queue<const N: usize>(&self, event_idx: bool) -> DriverQueue<'_, N> {
        DriverQueue::new(self.rings(), event_idx).unwrap()
    }

    /// The `index`th table's words and address.
    fn table(&self, index: usize) -> (&[AtomicU64], u64) {
        (&self.tables[32 * index..32 * (index + 1)], TABLE_ADDRESS + 256 * index as u64)
    }
}

/// A device that goes by the specification.
struct Device<'memory> {
    memory: &'memory Memory,
    event_idx: bool,
    taken: u16,
    used: u16,
    signalled: u16,
}

impl<'memory> Device<'memory> {
    fn new(memory: &'memory Memory, event_idx: bool) -> Self {
        Self { memory, event_idx, taken: 0, used: 0, signalled: 0 }
    }

    /// The next chain: its head and what it says.
    fn take(&mut self) -> Option<(u16, Vec<Buffer>)> {
        if self.memory.available[1].load(Acquire) == self.taken {
            return None;
        }
        let head = self.memory.available[2 + usize::from(self.taken % self.memory.size)].load(Relaxed);
        self.taken = self.taken.wrapping_add(1);
        Some((head, self.buffers(head)))
    }

    fn buffers(&self, head: u16) -> Vec<Buffer> {
        let word = |words: &[AtomicU64], index: u16| {
            let (address, rest) = (&words[2 * usize::from(index)], &words[2 * usize::from(index) + 1]);
            (address.load(Relaxed), rest.load(Relaxed))
        };
        let (mut words, mut index) = (self.memory.descriptors.as_slice(), head);
        let (address, rest) = word(words, head);
        if rest >> 32 & 4 != 0 {
            assert_eq!(rest >> 32 & 1, 0, "no chain after a table");
            let start = (address - TABLE_ADDRESS) as usize / 8;
            words = &self.memory.tables[start..start + rest as u32 as usize / 8];
            index = 0;
        }
        let mut buffers = Vec::new();
        loop {
            let (address, rest) = word(words, index);
            let flags = (rest >> 32) as u16;
            buffers.push(Buffer { address, length: rest as u32, writable: flags & 2 != 0 });
            if flags & 1 == 0 {
                return buffers;
            }
            index = (rest >> 48) as u16;
        }
    }

    fn give(&mut self, head: u16, length: u32) {
        let entry = 2 + 4 * usize::from(self.used % self.memory.size);
        for (word, value) in [head, 0, length as u16, (length >> 16) as u16].into_iter().enumerate() {
            self.memory.used[entry + word].store(value, Relaxed);
        }
        self.used = self.used.wrapping_add(1);
        self.memory.used[1].store(self.used, Release);
    }

    /// Whether to interrupt for what was given since the last time.
    fn interrupts(&mut self) -> bool {
        fence(SeqCst);
        let before = core::mem::replace(&mut self.signalled, self.used);
        if self.event_idx {
            let event = self.memory.available[available_words(self.memory.size) - 1].load(Relaxed);
            self.used.wrapping_sub(event).wrapping_sub(1) < self.used.wrapping_sub(before)
        } else {
            self.used != before && self.memory.available[0].load(Relaxed) & 1 == 0
        }
    }

    /// Asks to be notified of what is added from now on. Whether something was already.
    fn listen(&mut self) -> bool {
        self.memory.used[used_words(self.memory.size) - 1].store(self.taken, Relaxed);
        self.memory.used[0].store(0, Relaxed);
        fence(SeqCst);
        self.memory.available[1].load(Acquire) != self.taken
    }

    /// Asks not to be notified.
    fn stop_listening(&mut self) {
        if !self.event_idx {
            self.memory.used[0].store(1, Relaxed);
        }
    }
}

fn buffers(count: usize, first: u64) -> Vec<Buffer> {
    (0..count)
        .map(|index| Buffer { address: first + index as u64, length: 16 + index as u32, writable: index >= count / 2 })
        .collect()
}

#[test]
fn a_chain_goes_to_the_device_and_comes_back() {
    let memory = Memory::new(SIZE);
    let mut queue = memory.queue::<8>(true);
    let mut device = Device::new(&memory, true);
    let direct = buffers(3, 0x5000);
    queue.add(7, &Chain::Direct(&direct)).unwrap();
    assert_eq!(device.take(), None, "not published yet");
    assert!(queue.publish());
    assert!(!queue.publish(), "nothing new");
    let (head, seen) = device.take().unwrap();
    assert_eq!(seen, direct);
    assert_eq!(queue.pop_used(), Ok(None));
    device.give(head, 20);
    assert_eq!(queue.pop_used(), Ok(Some(Used { token: 7, length: 20 })));
    assert_eq!(queue.pop_used(), Ok(None));
    assert_eq!((queue.free(), queue.in_flight()), (SIZE, 0));
}

#[test]
fn an_indirect_chain_takes_one_descriptor() {
    let memory = Memory::new(SIZE);
    let mut queue = memory.queue::<8>(false);
    let mut device = Device::new(&memory, false);
    for index in 0..usize::from(SIZE) {
        let (words, address) = memory.table(index);
        let table = write_table(words, address, &buffers(5, 0x9000 * index as u64)).unwrap();
        queue.add(index as u32, &Chain::Indirect(table)).unwrap();
    }
    assert_eq!(queue.add(99, &Chain::Direct(&buffers(1, 0))), Err(AddError::Full));
    assert_eq!(queue.tokens().count(), 8);
    assert!(queue.publish());
    // The device may use them in any order.
    let taken: Vec<_> = core::iter::from_fn(|| device.take()).collect();
    for (head, seen) in taken.iter().rev() {
        let index = seen[0].address / 0x9000;
        assert_eq!(*seen, buffers(5, 0x9000 * index));
        device.give(*head, u32::MAX);
        let writable = seen.iter().filter(|buffer| buffer.writable).map(|buffer| buffer.length).sum();
        assert_eq!(queue.pop_used(), Ok(Some(Used { token: index as u32, length: writable })), "length is bounded");
    }
}

#[test]
fn what_is_no_chain_is_refused_and_changes_nothing() {
    let memory = Memory::new(SIZE);
    let mut queue = memory.queue::<16>(true);
    let wrong = [Buffer { address: 0, length: 1, writable: true }, Buffer { address: 0, length: 1, writable: false }];
    let cases = [
        (vec![], AddError::Chain(ChainError::Empty)),
        (wrong.to_vec(), AddError::Chain(ChainError::ReadableAfterWritable)),
        (buffers(9, 0), AddError::Chain(ChainError::TooLong)),
    ];
    for (buffers, wanted) in cases {
        assert_eq!(queue.add(0, &Chain::Direct(&buffers)), Err(wanted));
    }
    queue.add(0, &Chain::Direct(&buffers(5, 0))).unwrap();
    assert_eq!(queue.add(0, &Chain::Direct(&buffers(4, 0))), Err(AddError::Full));
    assert_eq!((queue.free(), queue.in_flight()), (3, 1));
    let (words, address) = memory.table(0);
    assert_eq!(write_table(&words[..5], address, &buffers(3, 0)), Err(ChainError::TooLong));
    assert_eq!(write_table(words, address, &[]), Err(ChainError::Empty));
}

#[test]
fn impossible_rings_are_refused() {
    let memory = Memory::new(SIZE);
    let new = |size| Rings::new(size, &memory.descriptors, &memory.available, &memory.used).map(|_| ());
    assert_eq!(new(0), Err(RingsError::Size(0)));
    assert_eq!(new(6), Err(RingsError::Size(6)));
    assert_eq!(new(u16::MAX), Err(RingsError::Size(u16::MAX)));
    assert_eq!(new(16), Err(RingsError::TooShort));
    assert_eq!(new(4), Ok(()));
    assert_eq!(DriverQueue::<4>::new(memory.rings(), true).err(), Some(RingsError::Size(8)));
}

#[test]
fn event_idx_notifies_once_for_what_the_device_waits_for() {
    let memory = Memory::new(SIZE);
    let mut queue = memory.queue::<8>(true);
    let mut device = Device::new(&memory, true);
    for round in 0..70_000_u32 {
        assert!(!device.listen());
        queue.disable_interrupts();
        queue.add(round, &Chain::Direct(&buffers(1, 0))).unwrap();
        queue.add(round, &Chain::Direct(&buffers(1, 0))).unwrap();
        assert!(queue.publish(), "the device waits for the first of them");
        queue.add(round, &Chain::Direct(&buffers(1, 0))).unwrap();
        assert!(!queue.publish(), "it has not asked again");
        while let Some((head, _)) = device.take() {
            device.give(head, 0);
        }
        assert!(!device.interrupts(), "not asked for, in round {round}");
        for _ in 0..3 {
            assert!(queue.pop_used().unwrap().is_some());
        }
    }
}

#[test]
fn interrupts_come_after_as_many_as_were_asked_for() {
    for event_idx in [true, false] {
        let memory = Memory::new(SIZE);
        let mut queue = memory.queue::<8>(event_idx);
        let mut device = Device::new(&memory, event_idx);
        for token in 0..6 {
            queue.add(token, &Chain::Direct(&buffers(1, 0))).unwrap();
        }
        assert!(queue.publish());
        let heads: Vec<u16> = core::iter::from_fn(|| device.take()).map(|chain| chain.0).collect();
        assert!(!queue.enable_interrupt_after(3));
        let interrupts: Vec<bool> =
            heads[..4].iter().map(|&head| (device.give(head, 0), device.interrupts()).1).collect();
        assert_eq!(interrupts, if event_idx { [false, false, true, false] } else { [true; 4] });
        assert!(queue.enable_interrupts(), "some are used already");
        while queue.pop_used().unwrap().is_some() {}
        queue.disable_interrupts();
        device.give(heads[4], 0);
        assert!(!device.interrupts());
        assert!(queue.pop_used().unwrap().is_some());
        assert!(!queue.enable_interrupt_after(100), "more than are in flight: the last of them");
        device.give(heads[5], 0);
        assert!(device.interrupts());
    }
}

#[test]
fn lies_are_errors_for_good() {
    type Lie<'lie> = &'lie dyn Fn(&Memory);
    let cases: [(Lie<'_>, DeviceError); 4] = [
        (&|memory| memory.used[1].store(3, Release), DeviceError::UsedIndex { moved: 3, in_flight: 2 }),
        (&|memory| memory.used[1].store(u16::MAX, Release), DeviceError::UsedIndex { moved: u16::MAX, in_flight: 2 }),
        (
            &|memory| {
                memory.used[3].store(1, Relaxed);
                memory.used[1].store(1, Release);
            },
            DeviceError::UsedIdOutside(0x1_0000),
        ),
        (
            &|memory| {
                memory.used[2].store(5, Relaxed);
                memory.used[1].store(1, Release);
            },
            DeviceError::UsedIdNotInFlight(5),
        ),
    ];
    for (lie, wanted) in cases {
        let memory = Memory::new(SIZE);
        let mut queue = memory.queue::<8>(true);
        for token in 0..3 {
            queue.add(token, &Chain::Direct(&buffers(1, 0))).unwrap();
            // The third stays unpublished: the device cannot have used it.
            if token == 1 {
                assert!(queue.publish());
            }
        }
        lie(&memory);
        assert_eq!(queue.pop_used(), Err(wanted));
        memory.used[1].store(0, Release);
        assert_eq!(queue.pop_used(), Err(wanted), "it stays broken");
        assert_eq!(queue.tokens().count(), 3, "what was in flight is still known");
    }
}

#[test]
fn a_chain_cannot_be_used_twice() {
    let memory = Memory::new(SIZE);
    let mut queue = memory.queue::<8>(true);
    let mut device = Device::new(&memory, true);
    for token in 0..2 {
        queue.add(token, &Chain::Direct(&buffers(2, 0))).unwrap();
    }
    assert!(queue.publish());
    let (head, _) = device.take().unwrap();
    device.give(head, 0);
    device.give(head, 0);
    assert!(queue.pop_used().unwrap().is_some());
    assert_eq!(queue.pop_used(), Err(DeviceError::UsedIdNotInFlight(head)));
}

#[test]
fn fuzz_every_chain_comes_back_once_and_as_it_was() {
    blockyard_fuzz::check!(50_000).with_type::<(bool, Vec<(u8, u8)>)>().for_each(|(event_idx, steps)| {
        let memory = Memory::new(SIZE);
        let mut queue = memory.queue::<8>(*event_idx);
        let mut device = Device::new(&memory, *event_idx);
        let (mut added, mut taken) = (HashMap::new(), VecDeque::new());
        let mut token = 0_u32;
        for (step, detail) in steps {
            match step % 5 {
                0 | 1 => {
                    let chain = buffers(1 + usize::from(detail % 4), u64::from(token) << 8);
                    let free = queue.free();
                    let wanted = if usize::from(free) < chain.len() { Err(AddError::Full) } else { Ok(()) };
                    assert_eq!(queue.add(token, &Chain::Direct(&chain)), wanted);
                    if wanted.is_ok() {
                        added.insert(token, chain);
                    }
                    token += 1;
                }
                2 => _ = queue.publish(),
                3 => taken.extend(device.take()),
                _ => {
                    if !taken.is_empty() {
                        let (head, seen) = taken.remove(usize::from(*detail) % taken.len()).unwrap();
                        device.give(head, u32::from(*detail));
                        let used = queue.pop_used().unwrap().unwrap();
                        assert_eq!(added.remove(&used.token), Some(seen));
                    }
                }
            }
            assert_eq!(usize::from(queue.in_flight()), added.len());
            let descriptors: usize = added.values().map(Vec::len).sum();
            assert_eq!(usize::from(queue.free()), usize::from(SIZE) - descriptors);
        }
    });
}

#[test]
fn fuzz_a_lying_device_neither_loops_nor_confuses_the_driver() {
    blockyard_fuzz::check!(50_000).with_type::<(bool, Vec<(u8, u16, u16)>)>().for_each(|(event_idx, steps)| {
        let memory = Memory::new(SIZE);
        let mut queue = memory.queue::<8>(*event_idx);
        let (mut token, mut in_flight) = (0_u32, Vec::new());
        for &(step, place, value) in steps {
            match step % 8 {
                0 | 1 => {
                    let count = 1 + usize::from(place % 3);
                    if queue.add(token, &Chain::Direct(&buffers(count, 0))).is_ok() {
                        in_flight.push(token);
                    }
                    token += 1;
                }
                2 => _ = queue.publish(),
                3 => _ = queue.enable_interrupt_after(value),
                // Anything anywhere in what the two share, the driver's own parts included.
                4 => memory.used[usize::from(place) % memory.used.len()].store(value % 16, Relaxed),
                5 => memory.descriptors[usize::from(place) % 16].store(u64::from(value) << 40, Relaxed),
                6 => memory.used[1].store(memory.used[1].load(Relaxed).wrapping_add(value % 3), Relaxed),
                _ => {
                    let mut count = 0;
                    while let Ok(Some(used)) = queue.pop_used() {
                        let position = in_flight.iter().position(|&token| token == used.token);
                        in_flight.swap_remove(position.expect("in flight, and only once"));
                        count += 1;
                    }
                    assert!(count <= 8);
                }
            }
            let mut known: Vec<u32> = queue.tokens().collect();
            known.sort_unstable();
            in_flight.sort_unstable();
            assert_eq!(known, in_flight);
            assert!(queue.free() <= SIZE && queue.in_flight() <= SIZE);
        }
    });
}

/// Both sides sleep whenever they may: a wake-up that gets lost hangs this test.
#[test]
fn no_wake_up_is_lost_between_two_threads() {
    const REQUESTS: u32 = 50_000;
    for event_idx in [true, false] {
        let memory = &Memory::new(SIZE);
        let mut queue = memory.queue::<8>(event_idx);
        let (doorbell, rung) = mpsc::channel();
        let (interrupt, interrupted) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut device = Device::new(memory, event_idx);
                let mut left = REQUESTS;
                while left > 0 {
                    device.stop_listening();
                    while let Some((head, _)) = device.take() {
                        device.give(head, 0);
                        left -= 1;
                    }
                    if device.interrupts() {
                        interrupt.send(()).unwrap();
                    }
                    if left > 0 && !device.listen() {
                        rung.recv().unwrap();
                    }
                }
            });
            let (mut added, mut popped) = (0, 0);
            while popped < REQUESTS {
                queue.disable_interrupts();
                while let Some(_used) = queue.pop_used().unwrap() {
                    popped += 1;
                }
                while added < REQUESTS && queue.add(added, &Chain::Direct(&buffers(1, 0))).is_ok() {
                    added += 1;
                }
                if queue.publish() {
                    // The device may have seen everything and be gone.
                    _ = doorbell.send(());
                }
                if popped < REQUESTS && !queue.enable_interrupts() {
                    interrupted.recv().unwrap();
                }
            }
        });
    }
}
