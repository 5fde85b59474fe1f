use super::*;
use crate::RequestError;
use crate::layers::random::Random;
use crate::layers::tests::rig::{Asked, AskedDisk, MEMORY_BYTES, Rig, WRITE, segment, threads_disk, tokens};
use crate::layers::{Faults, FaultyDisk};
use rustix::io::Errno;
use std::collections::HashMap;

const CAPACITY: u64 = 1 << 20;
const BLOCK: u64 = 512;
const EIO: RequestError = RequestError::Os(Errno::IO.raw_os_error());

fn asked() -> (AskedDisk, Rig) {
    let disk = AskedDisk::new(CAPACITY);
    let rig = Rig::new(&GatheringDisk::new(Arc::new(disk.clone())), 64);
    (disk, rig)
}

/// Where each request that the disk was asked begins and how long it is, and in how many segments.
fn shapes(asked: &[Asked]) -> Vec<(u64, u64, usize)> {
    asked.iter().map(|asked| (asked.offset_bytes, asked.length_bytes, asked.segments.len())).collect()
}

#[test]
fn writes_that_follow_each_other_are_one() {
    let (disk, mut rig) = asked();
    for (token, memory) in [0, 4096, 65536, 32768].into_iter().enumerate() {
        rig.push(WRITE, token as u64 * 4096, &[segment(memory, 4096)], token as u64).unwrap();
    }
    assert_eq!((disk.take_asked().len(), rig.queue.in_flight()), (0, 4));
    assert_eq!(tokens(&rig.submit_and_reap()), [0, 1, 2, 3]);
    let asked = disk.take_asked();
    assert_eq!(shapes(&asked), [(0, 16384, 3)], "two lie in a row in memory");
    assert_eq!(asked[0].segments, [segment(0, 8192), segment(65536, 4096), segment(32768, 4096)]);
    // Those of the next submit are another.
    rig.push(WRITE, 16384, &[segment(0, 4096)], 4).unwrap();
    assert_eq!(tokens(&rig.submit_and_reap()), [4]);
    assert_eq!(shapes(&disk.take_asked()), [(16384, 4096, 1)]);
}

#[test]
fn all_else_goes_by_itself_and_in_its_order() {
    let (disk, mut rig) = asked();
    let forced = Operation::Write { force_unit_access: true };
    rig.push(WRITE, 0, &[segment(0, 512)], 7).unwrap();
    rig.push(Operation::Read, 512, &[segment(512, 512)], 7).unwrap();
    rig.push(WRITE, 512, &[segment(512, 512)], 7).unwrap();
    rig.push(forced, 1024, &[segment(1024, 512)], 7).unwrap();
    rig.push(WRITE, 1536, &[segment(0, 512), segment(4096, 512)], 7).unwrap();
    rig.push(WRITE, 2560, &[segment(0, 512)], 7).unwrap();
    rig.push(Operation::Flush, 0, &[], 7).unwrap();
    rig.push(WRITE, 8192, &[segment(0, 512)], 7).unwrap();
    rig.push(WRITE, 4096, &[segment(0, 512)], 7).unwrap();
    rig.push(WRITE, 4608, &[segment(0, 512)], 7).unwrap();
    assert_eq!(tokens(&rig.submit_and_reap()), [7; 10], "tokens may be the same");
    let expected =
        [(0, 512), (512, 512), (512, 512), (1024, 512), (1536, 1024), (2560, 512), (0, 0), (8192, 512), (4096, 1024)];
    let shapes: Vec<_> = shapes(&disk.take_asked()).into_iter().map(|(offset, length, _)| (offset, length)).collect();
    assert_eq!(shapes, expected);
}

#[test]
fn one_is_no_longer_and_no_more_scattered_than_the_disk_takes() {
    let disk = AskedDisk::new(CAPACITY);
    {
        let mut geometry = disk.geometry.lock().unwrap();
        (geometry.transfer_bytes_max, geometry.segments_max) = (8192, 3);
    }
    let mut rig = Rig::new(&GatheringDisk::new(Arc::new(disk.clone())), 64);
    (0..5).for_each(|place| rig.push(WRITE, place * 2048, &[segment(place * 2048, 2048)], place).unwrap());
    (0..5).for_each(|place| rig.push(WRITE, 65536 + place * 512, &[segment(place * 2048, 512)], place).unwrap());
    assert_eq!(rig.submit_and_reap().len(), 10);
    assert_eq!(shapes(&disk.take_asked()), [(0, 8192, 1), (8192, 2048, 1), (65536, 1536, 3), (67072, 1024, 2)]);
    // What is as long as one may be is nobody's part, and an end past all numbers is no end.
    let (disk, mut rig) = asked();
    rig.push(WRITE, 0, &[segment(0, 256 << 10)], 0).unwrap();
    rig.push(WRITE, 256 << 10, &[segment(0, 512)], 1).unwrap();
    rig.push(WRITE, u64::MAX - 511, &[segment(0, 512)], 2).unwrap();
    rig.push(WRITE, 0, &[], 3).unwrap();
    let mut results: Vec<_> = rig.submit_and_reap().iter().map(|end| (end.token, end.result)).collect();
    results.sort_by_key(|(token, _)| *token);
    assert_eq!(results, [(0, Ok(())), (1, Ok(())), (2, Err(RequestError::OutOfRange)), (3, Ok(()))]);
    assert_eq!(shapes(&disk.take_asked())[..2], [(0, 256 << 10, 1), (256 << 10, 512, 1)]);
}

#[test]
fn as_many_are_taken_as_below() {
    let (_disk, mut rig) = asked();
    (0..64).for_each(|place| rig.push(WRITE, place * 512, &[segment(0, 512)], place).unwrap());
    assert_eq!(rig.push(WRITE, 64 * 512, &[segment(0, 512)], 64), Err(QueueError::Full));
    assert_eq!(rig.submit_and_reap().len(), 64);
    rig.push(WRITE, 64 * 512, &[segment(0, 512)], 64).unwrap();
    assert_eq!(tokens(&rig.submit_and_reap()), [64]);
}

#[test]
fn where_one_of_several_fails_the_others_are_written() {
    let disk = threads_disk(CAPACITY);
    let faults: Faults = "error:2048-2560".parse().unwrap();
    let gathering = GatheringDisk::new(Arc::new(FaultyDisk::new(Arc::clone(&disk), &faults)));
    let mut rig = Rig::new(&gathering, 16);
    rig.poke(0, &[7; 8192]);
    (0..8).for_each(|place| rig.push(WRITE, place * BLOCK, &[segment(place * BLOCK, 512)], place).unwrap());
    // Outside of the memory map: in nobody's way either.
    rig.push(WRITE, 8 * BLOCK, &[segment(MEMORY_BYTES as u64, 512)], 8).unwrap();
    let mut results: Vec<_> = rig.drain().iter().map(|end| (end.token, end.result)).collect();
    results.sort_by_key(|(token, _)| *token);
    let expected = |token| match token {
        4 => Err(EIO),
        8 => Err(RequestError::BadSegment),
        _ => Ok(()),
    };
    assert_eq!(results, (0..9).map(|token| (token, expected(token))).collect::<Vec<_>>());
    let content = Rig::new(&*disk, 1).read(0, 4608).unwrap();
    for (place, block) in content.chunks(512).enumerate() {
        assert_eq!(block, [if matches!(place, 4 | 8) { 0 } else { 7 }; 512], "{place}");
    }
}

#[test]
fn what_is_not_submitted_is_written_when_the_queue_is_dropped() {
    let disk = threads_disk(CAPACITY);
    let mut rig = Rig::new(&GatheringDisk::new(Arc::clone(&disk)), 16);
    rig.poke(0, &[9; 4096]);
    (0..4).for_each(|place| rig.push(WRITE, place * 1024, &[segment(place * 1024, 1024)], place).unwrap());
    drop(rig);
    assert_eq!(Rig::new(&*disk, 1).read(0, 4096).unwrap(), [9; 4096]);
}

/// Requests of all kinds, some of which fail: each ends once, as it would by itself, and the disk is what they say.
#[test]
fn any_requests_end_as_they_would_by_themselves() {
    let mut random = Random::new(11);
    for round in 0..200 {
        let disk = threads_disk(CAPACITY);
        let from = random.below(64) * BLOCK;
        let bad = from..from + (1 + random.below(4)) * BLOCK;
        let faults: Faults = format!("write-error:{}-{}", bad.start, bad.end).parse().unwrap();
        let gathering = GatheringDisk::new(Arc::new(FaultyDisk::new(Arc::clone(&disk), &faults)));
        let mut rig = Rig::new(&gathering, 32);
        let mut expected = vec![0; 64 * BLOCK as usize];
        let mut results = HashMap::new();
        let (mut place, mut token) = (0, 0);
        while token < 60 {
            // Within a batch, no two are of one block.
            let mut is_taken = [false; 64];
            for _ in 0..random.below(20) {
                let length = 1 + random.below(3);
                if random.below(4) == 0 {
                    place = random.below(61);
                }
                let blocks = place as usize..(place + length) as usize;
                if blocks.end > 64 || is_taken[blocks.clone()].contains(&true) {
                    place = 0;
                    continue;
                }
                is_taken[blocks].fill(true);
                let (offset, bytes) = (place * BLOCK, length * BLOCK);
                let memory = (token % 32) * 2048;
                rig.poke(memory, &vec![token as u8 + 1; bytes as usize]);
                rig.push(WRITE, offset, &[segment(memory, bytes as usize)], token).unwrap();
                let fails = offset < bad.end && bad.start < offset + bytes;
                results.insert(token, if fails { Err(EIO) } else { Ok(()) });
                if !fails {
                    expected[offset as usize..][..bytes as usize].fill(token as u8 + 1);
                }
                (place, token) = (place + length, token + 1);
            }
            for end in rig.drain() {
                assert_eq!(results.remove(&end.token), Some(end.result), "round {round}");
            }
            assert!(results.is_empty() && rig.queue.in_flight() == 0, "round {round}: {results:?}");
        }
        assert!(Rig::new(&*disk, 1).read(0, expected.len()).unwrap() == expected, "round {round}");
    }
}
