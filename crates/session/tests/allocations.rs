//! The data path allocates nothing and makes few system calls.

#[path = "server/client.rs"]
#[allow(dead_code)]
mod client;

use blockyard_block::layers::layer;
use blockyard_block::{Disk, MemoryMap, NullDisk, Queue, QueueError, Request};
use client::{Client, IN, TIMEOUT, export, server};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

thread_local! {
    /// Set where the disk's queue is used: on an I/O thread.
    static SERVING: Cell<bool> = const { Cell::new(false) };
}

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: all is the system's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if SERVING.try_with(Cell::get).unwrap_or(false) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A null disk whose queue marks the thread that it is used on.
struct Marking(NullDisk);

impl layer::DiskLayer for Marking {
    fn below(&self) -> &dyn Disk {
        &self.0
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(MarkingQueue(self.0.open_queue(memory, depth)?)))
    }
}

struct MarkingQueue(Box<dyn Queue>);

impl layer::QueueLayer for MarkingQueue {
    fn below(&self) -> &dyn Queue {
        &*self.0
    }

    fn below_mut(&mut self) -> &mut dyn Queue {
        &mut *self.0
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        SERVING.set(true);
        self.0.push(request)
    }
}

#[test]
fn no_request_allocates() {
    let server = server(Duration::from_micros(200));
    let (client, session) =
        Client::start(&server, export(Arc::new(Marking(NullDisk::new(1 << 30, 512).unwrap())), 1, 1));
    let mut driver = client.driver(0);
    (0..20).for_each(|slot| driver.add(slot, IN, 0, 0x80_0000, 4096));
    driver.publish();
    while session.statistics().counts.reads < 50_000 {
        for _ in 0..100 {
            let slot = driver.next(TIMEOUT).unwrap();
            driver.add(slot, IN, 0, 0x80_0000, 4096);
            while let Some(used) = driver.queue.pop_used().unwrap() {
                driver.add(used.token, IN, 0, 0x80_0000, 4096);
            }
            driver.publish();
        }
    }
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), 0);
    let counts = session.statistics().counts;
    let calls = counts.interrupts + server.waits().iter().sum::<u64>();
    println!("{calls} system calls for {} requests", counts.reads);
}
