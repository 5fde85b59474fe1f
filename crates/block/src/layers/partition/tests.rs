use super::*;
use crate::layers::tests::rig::{Asked, AskedDisk, MEMORY_BYTES, Rig, WRITE, becomes_readable, segment, threads_disk};
use crate::{ExtentKind, MemoryDisk, NullDisk, Segment};
use bolero::TypeGenerator;

const CAPACITY: u64 = 1 << 20;

fn partition(disk: impl Disk + 'static, range: Range<u64>) -> PartitionDisk {
    PartitionDisk::new(Arc::new(disk), range, false).unwrap()
}

#[test]
fn a_range_that_is_no_disk_is_refused() {
    let disk: Arc<dyn Disk> = Arc::new(NullDisk::new(CAPACITY, 4096).unwrap());
    let refused = |range| PartitionDisk::new(Arc::clone(&disk), range, false).err().unwrap().to_string();
    assert_eq!(refused(4096..4096), "the range 4096..4096 is empty");
    assert_eq!(refused(Range { start: 8192, end: 4096 }), "the range 8192..4096 is empty");
    assert_eq!(refused(0..CAPACITY + 4096), "the range ends at byte 1052672, the disk at byte 1048576");
    let unaligned = "the range 512..8192 is not made of whole blocks: the disk has blocks of 4096 bytes";
    assert_eq!(refused(512..8192), unaligned);
    assert!(refused(4096..8704).contains("whole blocks"));
    assert!(refused(0..u64::MAX).contains("the disk at byte 1048576"));
}

#[test]
fn it_reads_and_writes_its_range_and_nothing_else() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new(CAPACITY, 512).unwrap());
    let mut whole = Rig::new(&*disk, 1);
    whole.write(0, &[1; 8192]).unwrap();
    let mut part = Rig::new(&PartitionDisk::new(Arc::clone(&disk), 1024..3072, false).unwrap(), 1);
    part.write(0, &[2; 1024]).unwrap();
    part.write(1024, &[3; 1024]).unwrap();
    assert_eq!(part.write(1536, &[4; 1024]), Err(RequestError::OutOfRange));
    assert_eq!(part.read(0, 2048).unwrap(), [[2; 1024], [3; 1024]].concat());
    let expected = [vec![1; 1024], vec![2; 1024], vec![3; 1024], vec![1; 5120]].concat();
    assert_eq!(whole.read(0, 8192).unwrap(), expected);
}

#[test]
fn its_geometry_is_the_disks_with_its_own_length() {
    let disk = partition(AskedDisk::new(CAPACITY), 1024..5120);
    let inner = disk.disk.geometry();
    assert_eq!(disk.geometry(), Geometry { capacity_bytes: 4096, ..inner });
    let read_only = PartitionDisk::new(Arc::new(AskedDisk::new(CAPACITY)), 0..512, true).unwrap().geometry();
    assert!(read_only.read_only && !read_only.discard && !read_only.write_zeroes);
}

#[test]
fn a_start_within_a_physical_block_promises_no_such_blocks() {
    let disk = AskedDisk::new(CAPACITY);
    disk.geometry.lock().unwrap().physical_block_bytes = 4096;
    let physical = |start| partition(disk.clone(), start..CAPACITY).geometry().physical_block_bytes;
    assert_eq!([0, 512, 1024, 2048, 4096, 1 << 19].map(physical), [4096, 512, 1024, 2048, 4096, 4096]);
}

#[test]
fn it_shrinks_with_its_disk_and_never_grows() {
    let disk = AskedDisk::new(CAPACITY);
    let part = partition(disk.clone(), 4096..8192);
    let capacity_when = |capacity_bytes, logical_block_bytes| {
        let mut geometry = disk.geometry.lock().unwrap();
        (geometry.capacity_bytes, geometry.logical_block_bytes) = (capacity_bytes, logical_block_bytes);
        drop(geometry);
        part.geometry().capacity_bytes
    };
    let cases =
        [(2 << 20, 512), (8192, 512), (6144, 512), (4096, 512), (512, 512), (0, 512), (7168, 2048), (65536, 8192)];
    let capacities = cases.map(|(capacity, block)| capacity_when(capacity, block));
    assert_eq!(capacities, [4096, 4096, 2048, 0, 0, 0, 2048, 0]);
}

#[test]
fn its_extents_are_the_disks_moved_to_its_start() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new(CAPACITY, 512).unwrap());
    Rig::new(&*disk, 1).write(65536, &[1; 4096]).unwrap();
    let part = PartitionDisk::new(disk, 61440..CAPACITY, false).unwrap();
    let extent = |offset_bytes, length_bytes, kind| Extent { offset_bytes, length_bytes, kind };
    assert_eq!(part.extents(0..65536).unwrap(), extent(0, 4096, ExtentKind::Hole));
    assert_eq!(part.extents(4096..65536).unwrap(), extent(4096, 4096, ExtentKind::Data));
    for range in [0..0, 512..512, 0..CAPACITY, u64::MAX - 1..u64::MAX] {
        assert!(part.extents(range).is_err());
    }
}

#[test]
fn a_read_only_partition_refuses_changes_and_never_asks_the_disk_for_them() {
    let disk = AskedDisk::new(CAPACITY);
    let part = PartitionDisk::new(Arc::new(disk.clone()), 4096..8192, true).unwrap();
    let mut rig = Rig::new(&part, 8);
    let zeroes = Operation::WriteZeroes { length_bytes: 512, may_unmap: true };
    rig.push(Operation::Read, 0, &[segment(0, 512)], 5).unwrap();
    for operation in [WRITE, Operation::Discard { length_bytes: 512 }, zeroes] {
        let segments = if operation == WRITE { &[segment(0, 512)][..] } else { &[] };
        rig.push(operation, 0, segments, 5).unwrap();
    }
    rig.push(Operation::Read, 8192, &[segment(0, 512)], 5).unwrap();
    rig.push(Operation::Flush, 0, &[], 5).unwrap();
    let mut results: Vec<_> = rig.drain().iter().map(|completion| format!("{:?}", completion.result)).collect();
    results.sort_unstable();
    let read_only = "Err(ReadOnly)";
    assert_eq!(results, ["Err(OutOfRange)", read_only, read_only, read_only, "Ok(())", "Ok(())"]);
    let changed = disk
        .take_asked()
        .into_iter()
        .any(|Asked { operation, .. }| !matches!(operation, Operation::Read | Operation::Flush));
    assert!(!changed);
}

/// What a refused request goes down as.
#[test]
fn a_read_of_nothing_from_nowhere_fails_on_every_disk() {
    let disks: [Arc<dyn Disk>; 4] = [
        Arc::new(NullDisk::new(CAPACITY, 512).unwrap()),
        Arc::new(MemoryDisk::new(CAPACITY, 512).unwrap()),
        threads_disk(CAPACITY),
        Arc::new(partition(AskedDisk::new(CAPACITY), 512..1024)),
    ];
    for disk in disks {
        assert_eq!(Rig::new(&*disk, 1).perform(Operation::Read, NOWHERE_BYTES, &[]), Err(RequestError::OutOfRange));
    }
}

#[test]
fn a_refused_request_wakes_who_waits_for_it() {
    let part = PartitionDisk::new(threads_disk(CAPACITY), 0..4096, true).unwrap();
    let mut rig = Rig::new(&part, 4);
    rig.push(WRITE, 0, &[segment(0, 512)], 1).unwrap();
    rig.queue.submit().unwrap();
    assert!(becomes_readable(&*rig.queue));
    assert_eq!(rig.reap(), [Completion { token: 1, result: Err(RequestError::ReadOnly) }]);
}

#[derive(Clone, Debug, TypeGenerator)]
struct Asking {
    operation: u8,
    /// Added to one of a few places where things go wrong.
    place: u8,
    distance: i16,
    length: u32,
    blocks: bool,
    token: u8,
}

impl Asking {
    fn offset_bytes(&self, length: u64) -> u64 {
        let place = [0, length, length / 2, u64::MAX, CAPACITY, 1 << 63][usize::from(self.place) % 6];
        let distance = if self.blocks { i64::from(self.distance) * 512 } else { self.distance.into() };
        place.wrapping_add_signed(distance)
    }

    fn operation(&self) -> Operation {
        let length_bytes = if self.place.is_multiple_of(7) { u64::from(self.length) << 32 } else { self.length.into() };
        match self.operation % 5 {
            0 => Operation::Read,
            1 => Operation::Write { force_unit_access: self.blocks },
            2 => Operation::Flush,
            3 => Operation::Discard { length_bytes },
            _ => Operation::WriteZeroes { length_bytes, may_unmap: self.blocks },
        }
    }

    fn segments(&self) -> Vec<Segment> {
        match self.operation {
            operation if operation % 5 < 2 => {
                let length = self.length as usize % MEMORY_BYTES;
                vec![segment(0, length / 3), segment(1, length - length / 3)]
            }
            _ => Vec::new(),
        }
    }
}

#[test]
fn fuzz_no_request_touches_a_byte_outside_the_range() {
    blockyard_fuzz::check!(4000).with_type::<(u16, u16, bool, Vec<Asking>)>().for_each(
        |(start, blocks, read_only, asking)| {
            let start = u64::from(*start) * 512 % CAPACITY;
            let end = (start + 512 + u64::from(*blocks) * 512).min(CAPACITY);
            let disk = AskedDisk::new(CAPACITY);
            let part = PartitionDisk::new(Arc::new(disk.clone()), start..end, *read_only).unwrap();
            let mut rig = Rig::new(&part, asking.len().max(1));
            for request in asking {
                let offset_bytes = request.offset_bytes(end - start);
                rig.push(request.operation(), offset_bytes, &request.segments(), request.token.into()).unwrap();
            }
            let completions = rig.drain();
            assert_eq!(completions.len(), asking.len());
            check_asked(&disk.take_asked(), asking, start..end, *read_only);
            check_completions(&completions, asking, end - start, *read_only);
        },
    );
}

/// Each request came down moved by the partition's start, or as one that touches nothing.
fn check_asked(asked: &[Asked], asking: &[Asking], range: Range<u64>, read_only: bool) {
    assert_eq!(asked.len(), asking.len());
    for (asked, asking) in asked.iter().zip(asking) {
        let changes = !matches!(asked.operation, Operation::Read | Operation::Flush);
        assert!(!(changes && read_only));
        if asked.operation == Operation::Flush || asked.length_bytes == 0 && asked.segments.is_empty() {
            continue;
        }
        let end = asked.offset_bytes.checked_add(asked.length_bytes).unwrap();
        assert!(asked.offset_bytes >= range.start && end <= range.end, "{asked:?} is not in {range:?}");
        assert_eq!(asked.offset_bytes - range.start, asking.offset_bytes(range.end - range.start));
        assert_eq!((asked.operation, &asked.segments), (asking.operation(), &asking.segments()));
    }
}

/// As a disk of the range's length would have answered.
fn check_completions(completions: &[Completion], asking: &[Asking], length: u64, read_only: bool) {
    let geometry = Geometry { read_only, ..NullDisk::new(length, 512).unwrap().geometry() };
    let expected = asking.iter().map(|asking| {
        let (offset_bytes, segments) = (asking.offset_bytes(length), asking.segments());
        let token = asking.token.into();
        let request = Request { operation: asking.operation(), offset_bytes, segments: &segments, token };
        (token, format!("{:?}", geometry.check(&request)))
    });
    let mut expected: Vec<_> = expected.collect();
    let mut found: Vec<_> = completions.iter().map(|done| (done.token, format!("{:?}", done.result))).collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
}
