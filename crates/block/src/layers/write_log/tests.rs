mod other_ways;

use super::*;
use crate::layers::tests::rig::{AskedDisk, Rig, WRITE, segment};
use crate::layers::{Faults, FaultyDisk};
use bolero::TypeGenerator;
use std::collections::BTreeSet;

const BLOCKS: usize = 8;
const BLOCK: usize = 512;

fn write(block: u64, values: &[u8], force_unit_access: bool) -> Event {
    let data = values.iter().flat_map(|&value| [value; BLOCK]).collect();
    Event::Issued(Change::Write { offset_bytes: block * BLOCK as u64, data, force_unit_access })
}

fn zero(blocks: Range<u64>) -> Event {
    Event::Issued(Change::Zero { range: blocks.start * BLOCK as u64..blocks.end * BLOCK as u64 })
}

const FLUSH: Event = Event::Issued(Change::Flush { range: 0..u64::MAX });

fn done(issued: usize) -> Event {
    Event::Completed { issued, succeeded: true }
}

fn failed(issued: usize) -> Event {
    Event::Completed { issued, succeeded: false }
}

/// The first byte of each block; all of a block's are the same.
fn blocks(image: &[u8]) -> [u8; BLOCKS] {
    assert!(image.chunks(BLOCK).all(|block| block.iter().all(|&byte| byte == block[0])));
    std::array::from_fn(|block| image[block * BLOCK])
}

/// What the first `N` blocks may hold after a cut behind all events.
fn outcomes<const N: usize>(events: &[Event]) -> BTreeSet<[u8; N]> {
    let recording = Recording { events: events.to_vec(), block_bytes: BLOCK as u64 };
    let outcome = |seed| {
        let mut replay = Replay::new(&recording, vec![9; BLOCKS * BLOCK]);
        let found = blocks(replay.cut(events.len(), seed).unwrap());
        std::array::from_fn(|block| found[block])
    };
    (0..400).map(outcome).collect()
}

#[test]
fn what_was_not_flushed_may_be_there_or_not_or_torn() {
    let all: BTreeSet<_> = (0..8).map(|bits: u8| [0, 1, 2].map(|n| if bits >> n & 1 == 1 { 1 } else { 9 })).collect();
    assert_eq!(outcomes(&[write(0, &[1, 1, 1], false)]), all);
    assert_eq!(outcomes(&[write(0, &[1, 1, 1], false), done(0)]), all);
    assert_eq!(outcomes(&[write(0, &[1, 1, 1], false), done(0), FLUSH]), all);
    assert_eq!(outcomes(&[write(0, &[1, 1, 1], false), done(0), FLUSH, failed(2)]), all);
    // Complete only behind the flush's issue.
    assert_eq!(outcomes(&[write(0, &[1, 1, 1], false), FLUSH, done(0), done(1)]), all);
    assert_eq!(outcomes(&[write(0, &[1, 1, 1], false), failed(0), FLUSH, done(2)]), all);
}

#[test]
fn what_was_complete_before_a_flush_that_succeeded_is_there() {
    assert_eq!(outcomes(&[write(0, &[1, 2], false), done(0), FLUSH, done(2)]), BTreeSet::from([[1, 2]]));
    assert_eq!(outcomes(&[zero(0..2), done(0), FLUSH, done(2)]), BTreeSet::from([[0, 0]]));
}

#[test]
fn forced_unit_access_makes_its_own_write_certain_and_no_other() {
    let events = [write(0, &[1], false), done(0), write(1, &[2], true), done(2)];
    assert_eq!(outcomes(&events), BTreeSet::from([[1, 2], [9, 2]]));
    assert_eq!(outcomes(&events[..3]), BTreeSet::from([[1, 2], [1, 9], [9, 2], [9, 9]]));
}

#[test]
fn writes_reach_the_disk_in_any_order() {
    let events = [write(0, &[1], false), done(0), write(1, &[2], false), done(2)];
    assert_eq!(outcomes(&events), BTreeSet::from([[1, 2], [1, 9], [9, 2], [9, 9]]));
    let same_place = [write(0, &[1], false), done(0), write(0, &[2], false), done(2)];
    assert_eq!(outcomes(&same_place), BTreeSet::from([[9], [1], [2]]));
}

#[test]
fn an_older_write_does_not_come_back_over_one_that_is_certain() {
    let older = [write(0, &[1, 1], false), done(0), write(0, &[2], true), done(2)];
    assert_eq!(outcomes(&older), BTreeSet::from([[2, 1], [2, 9]]));
    let flushed = [older.to_vec(), vec![FLUSH, done(4)]].concat();
    assert_eq!(outcomes(&flushed), BTreeSet::from([[2, 1]]));
    let newer = [older.to_vec(), vec![write(0, &[3], false)]].concat();
    assert_eq!(outcomes(&newer), BTreeSet::from([[2, 1], [2, 9], [3, 1], [3, 9]]));
}

#[test]
fn cuts_ascend_and_each_takes_back_what_the_one_before_added() {
    let events = vec![write(0, &[1], false), done(0), write(0, &[2], false), done(2), FLUSH, done(4)];
    let recording = Recording { events, block_bytes: BLOCK as u64 };
    let mut replay = Replay::new(&recording, vec![9; BLOCKS * BLOCK]);
    for seed in 0..50 {
        assert_eq!(blocks(replay.cut(0, seed).unwrap())[0], 9);
    }
    let seen: BTreeSet<_> = (0..50).map(|seed| blocks(replay.cut(2, seed).unwrap())[0]).collect();
    assert_eq!(seen, BTreeSet::from([1, 9]));
    assert_eq!(blocks(replay.cut(99, 0).unwrap())[0], 2);
    assert!(replay.cut(3, 0).is_err());
}

#[test]
fn an_image_that_is_too_small_is_an_error() {
    let recording = Recording { events: vec![write(7, &[1], true), done(0)], block_bytes: BLOCK as u64 };
    let error = Replay::new(&recording, vec![0; 7 * BLOCK]).cut(2, 0).err().unwrap();
    assert_eq!(error.to_string(), "512 bytes at 3584 reach past the image's 3584 bytes");
}

#[test]
fn a_discard_of_a_large_disk_is_cut_into_few_pieces() {
    let recording =
        Recording { events: vec![Event::Issued(Change::Zero { range: 0..1 << 40 })], block_bytes: BLOCK as u64 };
    assert_eq!(replay_pieces(&recording), 1024);
}

fn replay_pieces(recording: &Recording) -> usize {
    let range = recording.events.iter().find_map(|event| match event {
        Event::Issued(change) => change.range(),
        Event::Completed { .. } => None,
    });
    replay::block_pieces(&range.unwrap(), recording.block_bytes).len()
}

#[test]
fn the_log_has_what_was_asked_and_how_it_ended() {
    let faulty = FaultyDisk::new(Arc::new(AskedDisk::new(1 << 20)), &"write-error:2nd".parse::<Faults>().unwrap());
    let disk = WriteLogDisk::new(Arc::new(faulty));
    let mut rig = Rig::new(&disk, 4);
    rig.write(512, &[1; 512]).unwrap();
    rig.read(512, 512).unwrap();
    rig.write(1024, &[2; 512]).unwrap_err();
    // The disk refuses these, so they change nothing.
    rig.write(1 << 20, &[3; 512]).unwrap_err();
    rig.perform(WRITE, 0, &[segment(1 << 30, 512)]).unwrap_err();
    rig.perform(Operation::Flush, 0, &[]).unwrap();
    rig.perform(Operation::Discard { length_bytes: 4096 }, 8192, &[]).unwrap();
    let expected =
        [write(1, &[1], false), done(0), write(2, &[2], false), failed(2), FLUSH, done(4), zero(16..24), done(6)];
    assert_eq!(format!("{:?}", disk.log().recording(512).events), format!("{expected:?}"));
    assert_eq!(disk.log().event_count(), 8);
}

#[derive(Clone, Debug, TypeGenerator)]
enum Step {
    Write { block: u8, blocks: u8, force_unit_access: bool },
    Zero { block: u8, blocks: u8 },
    Flush,
    Complete { which: u8, fails: bool },
}

/// Events that make sense: what completes was issued, and once.
fn events(steps: &[Step]) -> Vec<Event> {
    let (mut events, mut in_flight) = (Vec::new(), Vec::new());
    for step in steps {
        let range = |block: u8, blocks: u8| {
            let start = u64::from(block) % BLOCKS as u64;
            start..(start + 1 + u64::from(blocks) % 4).min(BLOCKS as u64)
        };
        let event = match *step {
            Step::Write { block, blocks, force_unit_access } => {
                let range = range(block, blocks);
                // Each write has a value of its own.
                let values = vec![events.len() as u8 + 10; (range.end - range.start) as usize];
                write(range.start, &values, force_unit_access)
            }
            Step::Zero { block, blocks } => zero(range(block, blocks)),
            Step::Flush => FLUSH,
            Step::Complete { .. } if in_flight.is_empty() => continue,
            Step::Complete { which, fails } => {
                let issued = in_flight.remove(usize::from(which) % in_flight.len());
                Event::Completed { issued, succeeded: !fails }
            }
        };
        if matches!(event, Event::Issued(_)) {
            in_flight.push(events.len());
        }
        events.push(event);
    }
    events
}

/// What a block may hold after a cut, worked out from the definition.
fn allowed(events: &[Event], cut: usize, block: usize) -> BTreeSet<u8> {
    let events = &events[..cut];
    let succeeded_at = |issued: usize| {
        events
            .iter()
            .position(|event| matches!(event, Event::Completed { issued: of, succeeded: true } if *of == issued))
    };
    let flushes: Vec<_> = (0..cut)
        .filter(|&index| matches!(events[index], Event::Issued(Change::Flush { .. })) && succeeded_at(index).is_some())
        .collect();
    let mut allowed = BTreeSet::from([9]);
    for (index, event) in events.iter().enumerate() {
        let Event::Issued(change) = event else { continue };
        let Some(range) = change.range() else { continue };
        if !(range.start..range.end).contains(&((block * BLOCK) as u64)) {
            continue;
        }
        let (value, forced) = match change {
            Change::Write { data, force_unit_access, .. } => (data[0], *force_unit_access),
            _ => (0, false),
        };
        let at = succeeded_at(index);
        let certain = at.is_some_and(|at| forced || flushes.iter().any(|&flush| at < flush));
        if certain {
            allowed.clear();
        }
        allowed.insert(value);
    }
    allowed
}

#[test]
fn fuzz_after_every_cut_each_block_holds_what_it_may() {
    blockyard_fuzz::check!(1000).with_type::<(u64, Vec<Step>)>().for_each(|(seed, steps)| {
        let events = events(steps);
        let recording = Recording { events: events.clone(), block_bytes: BLOCK as u64 };
        let mut replay = Replay::new(&recording, vec![9; BLOCKS * BLOCK]);
        for cut in 0..=events.len() {
            for again in 0..3 {
                let found = blocks(replay.cut(cut, seed.wrapping_add(again)).unwrap());
                for (block, value) in found.iter().enumerate() {
                    let allowed = allowed(&events, cut, block);
                    assert!(
                        allowed.contains(value),
                        "block {block} is {value}, not of {allowed:?}, after {cut} events"
                    );
                }
            }
        }
    });
}
