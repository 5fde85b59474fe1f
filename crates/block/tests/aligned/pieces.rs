//! Single requests that do not suit the disk below.

use crate::aligned;
use crate::rig::demanding_disk::{DemandingDisk, Demands};
use crate::rig::{Rig, WRITE};
use blockyard_block::layers::{AlignOptions, AlignedDisk};
use blockyard_block::{
    Disk, ExtentKind, FileDisk, FileOptions, MemoryDisk, MemoryMap, NullDisk, Operation, Request, RequestError,
    SEGMENTS_MAX, Segment,
};
use std::sync::Arc;

const DEMANDS: Demands =
    Demands { block_bytes: 4096, transfer_bytes_max: 65536, segments_max: 4, memory_align_bytes: 512, depth: 8 };

fn rig(demands: Demands) -> Rig {
    let memory: Arc<dyn Disk> = Arc::new(MemoryDisk::new(1 << 20, 4096).unwrap());
    aligned(Arc::new(DemandingDisk::new(memory, demands, 1)), 8)
}

fn segment(offset_bytes: u64, length_bytes: u32) -> Segment {
    Segment { region: 0, length_bytes, offset_bytes }
}

#[test]
fn the_disk_on_top_makes_no_demands() {
    let geometry = rig(DEMANDS).disk.geometry();
    assert_eq!((geometry.logical_block_bytes, geometry.physical_block_bytes), (512, 4096));
    assert_eq!((geometry.segments_max, geometry.transfer_bytes_max), (SEGMENTS_MAX, u64::MAX));
    assert_eq!((geometry.memory_align_bytes, geometry.capacity_bytes), (1, 1 << 20));
}

#[test]
fn blocks_can_be_made_larger() {
    let inner: Arc<dyn Disk> = Arc::new(MemoryDisk::new((1 << 20) + 512, 512).unwrap());
    let disk = AlignedDisk::new(inner, &AlignOptions { logical_block_bytes: 4096 }).unwrap();
    assert_eq!((disk.geometry().logical_block_bytes, disk.geometry().capacity_bytes), (4096, 1 << 20));
    let odd = AlignOptions { logical_block_bytes: 1000 };
    assert!(AlignedDisk::new(Arc::new(NullDisk::new(4096, 512).unwrap()), &odd).is_err());
}

#[test]
fn a_disk_without_demands_is_left_as_it_is() {
    let plain: Arc<dyn Disk> = Arc::new(NullDisk::new(1 << 20, 512).unwrap());
    let same = AlignedDisk::where_needed(Arc::clone(&plain), &AlignOptions::default()).unwrap();
    assert!(Arc::ptr_eq(&plain, &same));
    let large: Arc<dyn Disk> = Arc::new(NullDisk::new(1 << 20, 4096).unwrap());
    let other = AlignedDisk::where_needed(Arc::clone(&large), &AlignOptions::default()).unwrap();
    assert_eq!(other.geometry().logical_block_bytes, 512);
    let same = AlignedDisk::where_needed(Arc::clone(&large), &AlignOptions { logical_block_bytes: 4096 }).unwrap();
    assert!(Arc::ptr_eq(&large, &same));
}

#[test]
fn a_large_request_is_split() {
    let mut rig = rig(DEMANDS);
    let bytes: Vec<_> = (0..1_000_000u32).map(|n| (n / 1000) as u8).collect();
    rig.poke(0, &bytes);
    for start in [0, 512, 77] {
        rig.perform(WRITE, start, &[segment(0, 1_000_000)]).unwrap();
        rig.perform(Operation::Read, start, &[segment(1 << 20, 1_000_000)]).unwrap();
        assert!(rig.peek(1 << 20, 1_000_000) == bytes);
    }
}

#[test]
fn many_small_segments_are_split_or_bounced() {
    let mut rig = rig(DEMANDS);
    for length in [512, 100, 4096] {
        let segments: Vec<_> = (0..80).rev().map(|n| segment(n * 5000, length)).collect();
        for (n, segment) in segments.iter().enumerate() {
            rig.poke(segment.offset_bytes, &vec![n as u8 + 1; length as usize]);
        }
        rig.perform(WRITE, 8192, &segments).unwrap();
        rig.perform(Operation::Read, 8192, &[segment(1 << 20, 80 * length)]).unwrap();
        let read = rig.peek(1 << 20, 80 * length as usize);
        assert!(
            read.chunks(length as usize).enumerate().all(|(n, chunk)| chunk.iter().all(|&byte| byte == n as u8 + 1))
        );
    }
}

#[test]
fn zeroes_and_discards_keep_what_is_beside_them() {
    let mut rig = rig(DEMANDS);
    rig.poke(0, &[7; 65536]);
    for may_unmap in [false, true] {
        rig.perform(WRITE, 0, &[segment(0, 65536)]).unwrap();
        rig.perform(Operation::WriteZeroes { length_bytes: 20_000, may_unmap }, 1000, &[]).unwrap();
        rig.perform(Operation::Discard { length_bytes: 12_000 }, 40_000, &[]).unwrap();
        rig.perform(Operation::Discard { length_bytes: 4000 }, 60_000, &[]).unwrap();
        rig.perform(Operation::Read, 0, &[segment(1 << 20, 65536)]).unwrap();
        let read = rig.peek(1 << 20, 65536);
        let is = |range: std::ops::Range<usize>, value: u8| read[range].iter().all(|&byte| byte == value);
        assert!(is(0..1000, 7) && is(1000..21_000, 0) && is(21_000..40_960, 7));
        assert!(is(40_960..49_152, 0) && is(49_152..65536, 7), "a discard of whole blocks alone");
    }
    assert_eq!(rig.disk.extents(40_960..49_152).unwrap().kind, ExtentKind::Hole);
}

#[test]
fn wrong_requests_fail_and_change_nothing() {
    let mut rig = rig(DEMANDS);
    rig.poke(0, &[5; 4096]);
    let end = 1 << 20;
    for operation in [Operation::Read, WRITE] {
        for (offset, length) in [(end - 100, 200), (end - 4096, 8192), (end, 1), (u64::MAX, 1), (u64::MAX - 4095, 4096)]
        {
            let found = rig.perform(operation, offset, &[segment(0, length)]);
            assert_eq!(found, Err(RequestError::OutOfRange), "{operation:?} {offset} {length}");
        }
        // The queue's own bounce buffers are the region behind the only one there is.
        for bad in [
            Segment { region: 1, length_bytes: 4096, offset_bytes: 0 },
            segment(u64::MAX - 100, 512),
            segment(4 << 20, 1),
            segment((4 << 20) - 4095, 4096),
        ] {
            assert_eq!(rig.perform(operation, 100, &[segment(0, 300), bad]), Err(RequestError::BadSegment));
            assert_eq!(rig.perform(operation, 4096, &[bad]), Err(RequestError::BadSegment));
        }
        rig.perform(operation, 100, &[]).unwrap();
    }
    rig.perform(Operation::Read, 0, &[segment(1 << 20, 65536)]).unwrap();
    assert!(rig.peek(1 << 20, 65536) == [0; 65536]);
}

#[test]
fn a_read_only_disk_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    std::fs::write(&path, [3; 8192]).unwrap();
    let options = FileOptions { read_only: true, logical_block_bytes: 4096, ..FileOptions::default() };
    let mut rig = aligned(Arc::new(FileDisk::open(&path, &options).unwrap()), 8);
    for (operation, offset) in [
        (WRITE, 100),
        (WRITE, 4096),
        (Operation::Discard { length_bytes: 100 }, 0),
        (Operation::WriteZeroes { length_bytes: 100, may_unmap: true }, 0),
    ] {
        assert_eq!(rig.perform(operation, offset, &[segment(0, 512)]), Err(RequestError::ReadOnly), "{operation:?}");
    }
    rig.perform(Operation::Read, 100, &[segment(3, 8000)]).unwrap();
    assert!(rig.peek(3, 8000) == [3; 8000]);
    rig.perform(Operation::Flush, 0, &[]).unwrap();
}

#[test]
fn a_dropped_queue_has_done_what_was_pushed() {
    let mut rig = rig(DEMANDS);
    rig.poke(0, &[9; 4096]);
    for token in 0..8 {
        rig.push(WRITE, token * 1000, &[segment(0, 1000)], token);
    }
    let Rig { disk, queue, .. } = rig;
    drop(queue);
    let mut rig = Rig::on(disk, 8);
    rig.perform(Operation::Read, 0, &[segment(0, 8192)]).unwrap();
    assert!(rig.peek(0, 8000) == [9; 8000]);
}

#[test]
fn a_full_queue_says_so() {
    let mut rig = rig(DEMANDS);
    for token in 0..8 {
        let bad = Segment { region: 9, length_bytes: 4096, offset_bytes: 0 };
        rig.push(Operation::Read, 100, &[if token % 2 == 0 { bad } else { segment(0, 100) }], token);
    }
    let request = Request { operation: Operation::Flush, offset_bytes: 0, segments: &[], token: 8 };
    assert!(rig.queue.push(&request).is_err());
    assert_eq!(rig.queue.in_flight(), 8);
    assert_eq!(rig.drain().len(), 8);
    rig.queue.push(&request).unwrap();
    assert_eq!(rig.drain().len(), 1);
}

#[test]
fn memory_up_to_the_last_address_leaves_no_room() {
    let disk = rig(DEMANDS).disk;
    let memory = MemoryMap::allocate(&[(u64::MAX - 8191, 4096)]).unwrap();
    let error = disk.open_queue(&memory, 4).err().expect("there is no address for bounce buffers").to_string();
    assert!(error.contains("behind the last region") || error.contains("wraps around"), "{error}");
}
