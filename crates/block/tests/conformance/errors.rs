//! Requests that are wrong in themselves, and files that fail.

use crate::on_every_engine;
use crate::rig::{REGION_BYTES, Rig, WRITE, options, pattern, request};
use blockyard_block::{Disk, Engine, FileDisk, FileOptions, Operation, RequestError, Segment};
use std::fs::File;

on_every_engine!(
    ranges_outside_the_disk_are_refused,
    segments_outside_the_memory_are_refused,
    a_read_only_disk_refuses_changes,
    a_shortened_file_is_told_from_padding,
    one_bad_request_does_not_harm_its_neighbours,
    a_queue_carries_something,
    a_depth_beyond_the_limit_is_cut,
);

fn ranges_outside_the_disk_are_refused(engine: Engine) {
    let contents = pattern(8192, 1);
    let mut rig = Rig::new(engine, &contents);
    let segments = rig.segments(0, 1024);
    for offset in [8192 - 512, 8192, 1 << 40, u64::MAX - 1023, u64::MAX] {
        for operation in [
            Operation::Read,
            WRITE,
            Operation::Discard { length_bytes: 1024 },
            Operation::WriteZeroes { length_bytes: 1024, may_unmap: true },
            Operation::WriteZeroes { length_bytes: 1024, may_unmap: false },
            Operation::Discard { length_bytes: u64::MAX },
        ] {
            assert_eq!(
                rig.perform(operation, offset, &segments),
                Err(RequestError::OutOfRange),
                "{operation:?} {offset}"
            );
        }
    }
    assert_eq!(rig.contents(), contents);
}

fn segments_outside_the_memory_are_refused(engine: Engine) {
    let contents = pattern(8192, 2);
    let mut rig = Rig::new(engine, &contents);
    let good = Segment { region: 0, length_bytes: 512, offset_bytes: 0 };
    rig.poke(0, &[5; 512]);
    for bad in [
        Segment { region: 2, length_bytes: 512, offset_bytes: 0 },
        Segment { region: u32::MAX, length_bytes: 512, offset_bytes: 0 },
        Segment { region: 0, length_bytes: 512, offset_bytes: REGION_BYTES as u64 - 511 },
        Segment { region: 0, length_bytes: 512, offset_bytes: u64::MAX - 100 },
        Segment { region: 1, length_bytes: 1, offset_bytes: REGION_BYTES as u64 },
    ] {
        for operation in [Operation::Read, WRITE] {
            assert_eq!(rig.perform(operation, 0, &[good, bad]), Err(RequestError::BadSegment), "{bad:?}");
        }
    }
    assert_eq!(rig.peek(0, 512), [5; 512]);
    assert_eq!(rig.contents(), contents);
}

fn a_read_only_disk_refuses_changes(engine: Engine) {
    let contents = pattern(8192, 3);
    let options = FileOptions { read_only: true, ..options(engine) };
    let mut rig = Rig::with(&contents, &options, 4);
    let geometry = rig.disk.geometry();
    assert!(geometry.read_only && !geometry.discard && !geometry.write_zeroes);
    let segments = rig.segments(0, 512);
    for operation in [
        WRITE,
        Operation::Discard { length_bytes: 512 },
        Operation::WriteZeroes { length_bytes: 512, may_unmap: false },
    ] {
        assert_eq!(rig.perform(operation, 0, &segments), Err(RequestError::ReadOnly));
    }
    assert_eq!(rig.read(0, 8192).unwrap(), contents);
    assert_eq!(rig.contents(), contents);
}

fn a_shortened_file_is_told_from_padding(engine: Engine) {
    let contents = pattern(10_000, 4);
    let mut rig = Rig::new(engine, &contents);
    File::options().write(true).open(&rig.path).unwrap().set_len(5000).unwrap();
    assert_eq!(rig.read(0, 4096).unwrap(), contents[..4096]);
    assert_eq!(rig.read(4096, 1024), Err(RequestError::Truncated));
    assert_eq!(rig.read(8192, 512), Err(RequestError::Truncated));
    assert_eq!(rig.read(0, 10_240), Err(RequestError::Truncated));
}

fn one_bad_request_does_not_harm_its_neighbours(engine: Engine) {
    let contents = pattern(8192, 5);
    let mut rig = Rig::new(engine, &contents);
    let mut results = Vec::new();
    for token in 0..60u64 {
        let offset = if token % 3 == 1 { 1 << 30 } else { 4096 };
        let segments = rig.segments(512 * token, 512);
        while rig.queue.push(&request(Operation::Read, offset, &segments, token)).is_err() {
            results.extend(rig.drain());
        }
    }
    results.extend(rig.drain());
    results.sort_by_key(|completion| completion.token);
    assert_eq!(results.len(), 60);
    for (token, completion) in results.iter().enumerate() {
        let expected = if token % 3 == 1 { Err(RequestError::OutOfRange) } else { Ok(()) };
        assert_eq!((completion.token, completion.result), (token as u64, expected));
        let read = if token % 3 == 1 { vec![0; 512] } else { contents[4096..4608].to_vec() };
        assert_eq!(rig.peek(512 * token as u64, 512), read);
    }
}

fn a_queue_carries_something(engine: Engine) {
    let file = tempfile::tempfile().unwrap();
    let disk = FileDisk::from_file(file, &options(engine)).unwrap();
    assert!(disk.open_queue(&crate::rig::memory(), 0).is_err());
}

fn a_depth_beyond_the_limit_is_cut(engine: Engine) {
    let disk = FileDisk::from_file(tempfile::tempfile().unwrap(), &options(engine)).unwrap();
    let queue = disk.open_queue(&crate::rig::memory(), 1 << 20).unwrap();
    let expected = if engine == Engine::Sync { 1 } else { blockyard_block::QUEUE_DEPTH_MAX };
    assert_eq!(queue.depth(), expected);
}
