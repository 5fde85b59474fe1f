//! A disk whose table changes while partitions of it are served.

use crate::rig::{Serving, Yard, wait_until};
use blockyard_block::partition_table::TableChoice;
use blockyard_block::{Disk, Extent, Geometry, MemoryMap, Queue};
use blockyard_session::mediator::{Mediator, MediatorConfig, MediatorNews};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A disk that says that it has changed.
struct ChangingDisk {
    disk: Arc<dyn Disk>,
    generation: AtomicU64,
    event: OwnedFd,
}

impl ChangingDisk {
    fn new(disk: Arc<dyn Disk>) -> Self {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        Self { disk, generation: AtomicU64::new(0), event }
    }

    fn say_so(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        rustix::io::write(&self.event, &1u64.to_ne_bytes()).unwrap();
    }
}

impl Disk for ChangingDisk {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    fn change_event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.event.as_fd())
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        self.disk.extents(range)
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        self.disk.open_queue(memory, depth)
    }
}

#[test]
fn whoever_has_what_is_no_partition_any_more_loses_it() {
    let yard = Yard::new();
    let disk = Arc::new(ChangingDisk::new(yard.disk()));
    let (serving, control) = Serving::start();
    let exports = vec![yard.export(1, ",rw"), yard.export(2, ",rw"), yard.export(6, "")];
    let config = MediatorConfig { exports, table: TableChoice::Auto };
    let seen: Arc<dyn Disk> = disk.clone();
    let mediator = std::thread::spawn(move || {
        let mediator = Mediator::start(control, &config, |_stream| Ok(seen)).unwrap();
        mediator.expect("the driver is there").run().unwrap();
    });
    assert_eq!(serving.hear(), MediatorNews::Ready);
    let mut clients = [1, 2, 6].map(|number| yard.connect(number));
    clients.iter_mut().for_each(|client| assert_ne!(client.greeting(), ""));

    // Partition 1 stays, 2 is half as large, 6 is gone.
    yard.partition(
        "label: dos\nstart=2048, size=4096, type=83\nstart=6144, size=1024, type=83\nstart=8192, size=16384, type=5\ndisk5 : size=2048\n",
    );
    disk.say_so();
    let [stays, shrunk, gone] = &mut clients;
    assert_eq!((shrunk.greeting(), gone.greeting()), (String::new(), String::new()));
    assert!(stays.is_served());
    wait_until("the new partition 2", || yard.connect(2).greeting().starts_with("partition 2 3145728..3670016 rw"));
    // Until the mediator hears that the session has ended, the reason is that there is a client.
    wait_until("a word on the partition that is gone", || {
        assert_eq!(yard.connect(6).greeting(), "");
        serving.has_heard_notice("no such partition any more")
    });

    drop(serving);
    mediator.join().unwrap();
    assert!(!yard.has_socket(1));
}
