//! Zeros that take no storage, for a while.

use super::layer;
use crate::{Disk, Geometry, MemoryMap, Operation, Queue, QueueError, Request};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A disk that, while it is switched on, gives back the storage of whatever is zeroed, and zeroes whatever is
/// discarded: so a file system's free blocks become zeros on any disk, and holes where the disk has holes.
///
/// It says that it discards if the disk below does that, or zeroes cheaply; switched off, the disk below gets what it
/// was asked.
pub struct ZerosAsHoles {
    disk: Arc<dyn Disk>,
    on: Arc<AtomicBool>,
}

impl ZerosAsHoles {
    /// A layer that is off.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, on: Arc::default() }
    }

    /// Switches it on or off, for the requests that are pushed from now on.
    pub fn switch(&self, on: bool) {
        self.on.store(on, Ordering::Release);
    }
}

impl layer::DiskLayer for ZerosAsHoles {
    fn below(&self) -> &dyn Disk {
        &*self.disk
    }

    fn geometry(&self) -> Geometry {
        let below = self.disk.geometry();
        Geometry { discard: below.discard || below.write_zeroes, ..below }
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        let queue = self.disk.open_queue(memory, depth)?;
        Ok(Box::new(ZerosAsHolesQueue { queue, on: Arc::clone(&self.on) }))
    }
}

struct ZerosAsHolesQueue {
    queue: Box<dyn Queue>,
    on: Arc<AtomicBool>,
}

impl layer::QueueLayer for ZerosAsHolesQueue {
    fn below(&self) -> &dyn Queue {
        &*self.queue
    }

    fn below_mut(&mut self) -> &mut dyn Queue {
        &mut *self.queue
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        match request.operation {
            Operation::Discard { length_bytes } | Operation::WriteZeroes { length_bytes, .. }
                if self.on.load(Ordering::Acquire) =>
            {
                let operation = Operation::WriteZeroes { length_bytes, may_unmap: true };
                self.queue.push(&Request { operation, ..*request })
            }
            _ => self.queue.push(request),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::perform;
    use crate::{Engine, ExtentKind, FileDisk, FileOptions};
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::fs::File;
    use std::io::Error;
    use std::os::unix::fs::FileExt;

    const DISK_BYTES: u64 = 1 << 20;

    fn data() -> (File, ZerosAsHoles) {
        let file = File::from(memfd_create("disk", MemfdFlags::CLOEXEC).unwrap());
        file.write_all_at(&vec![0xa5; DISK_BYTES as usize], 0).unwrap();
        let options = FileOptions { engine: Engine::Sync, ..FileOptions::default() };
        let disk = FileDisk::from_file(file.try_clone().unwrap(), &options).unwrap();
        (file, ZerosAsHoles::new(Arc::new(disk)))
    }

    fn ask(disk: &dyn Disk, operation: Operation, offset_bytes: u64) -> Result<(), Error> {
        let memory = MemoryMap::allocate(&[(0, 4096)]).unwrap();
        perform(&mut *disk.open_queue(&memory, 1).unwrap(), operation, offset_bytes, &[])
    }

    #[test]
    fn what_is_zeroed_or_discarded_while_it_is_on_is_a_hole() {
        let half = DISK_BYTES / 2;
        for operation in
            [Operation::Discard { length_bytes: half }, Operation::WriteZeroes { length_bytes: half, may_unmap: false }]
        {
            let (_, disk) = data();
            disk.switch(true);
            ask(&disk, operation, half).unwrap();
            assert_eq!(disk.extents(half..DISK_BYTES).unwrap().kind, ExtentKind::Hole, "{operation:?}");
            assert_eq!(disk.extents(0..half).unwrap().kind, ExtentKind::Data);
        }
    }

    #[test]
    fn while_it_is_off_the_disk_gets_what_it_was_asked() {
        let (file, disk) = data();
        ask(&disk, Operation::WriteZeroes { length_bytes: DISK_BYTES, may_unmap: false }, 0).unwrap();
        let mut bytes = vec![1; DISK_BYTES as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0));
    }
}
