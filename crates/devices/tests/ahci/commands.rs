//! What each command does, and what the driver sees of it.

use crate::driver::*;
use crate::scripted_disk::ScriptedDisk;
use blockyard_block::{MemoryDisk, NullDisk, Operation, read_bytes};
use blockyard_devices::IoQueue;
use std::sync::Arc;

fn word(page: &[u8; 512], index: usize) -> u16 {
    u16::from_le_bytes([page[2 * index], page[2 * index + 1]])
}

fn text(page: &[u8; 512], words: std::ops::Range<usize>) -> String {
    let bytes: Vec<_> = words.flat_map(|index| word(page, index).to_be_bytes()).collect();
    String::from_utf8(bytes).unwrap().trim_end().to_owned()
}

fn identify(hba: &mut Hba) -> [u8; 512] {
    let causes = hba.command(&Ata { command: IDENTIFY, ..Ata::default() }, &[(DATA, 512)]);
    assert_eq!(causes, PIO_SETUP);
    assert_eq!(hba.port(0, CI), 0);
    hba.get(DATA)
}

#[test]
fn a_disk_says_what_it_is() {
    let scripted = ScriptedDisk::new(32);
    let geometry = *scripted.geometry.lock().unwrap();
    let mut hba = Hba::started(Arc::new(scripted));
    let page = identify(&mut hba);
    assert_eq!((text(&page, 10..20), text(&page, 27..47)), ("serial-0".to_owned(), "Blockyard disk".to_owned()));
    let blocks = geometry.capacity_bytes / 512;
    assert_eq!(u64::from(word(&page, 60)) | u64::from(word(&page, 61)) << 16, blocks);
    assert_eq!(u64::from(word(&page, 100)) | u64::from(word(&page, 101)) << 16, blocks);
    // 32 queued commands, by NCQ; 8 logical blocks in a physical one; TRIM of one block.
    assert_eq!((word(&page, 75), word(&page, 76) >> 8 & 1), (31, 1));
    assert_eq!((word(&page, 106), word(&page, 105), word(&page, 169)), (0x6003, 1, 1));
    assert_eq!(page.iter().fold(0u8, |sum, &byte| sum.wrapping_add(byte)), 0);
    // The frame that came before the block: its status, the one after it, and its length.
    let frame: [u8; 20] = hba.get(frames(0) + 0x20);
    assert_eq!((frame[0], frame[2], frame[15], &frame[16..18]), (0x5f, 0x58, 0x50, &[0, 2][..]));
    assert_eq!(hba.get::<4>(list(0) + 4), 512u32.to_le_bytes());
}

#[test]
fn blocks_of_4096_bytes_are_addressed_as_such() {
    let disk = Arc::new(MemoryDisk::new(1 << 20, 4096).unwrap());
    let mut hba = Hba::started(disk.clone());
    let page = identify(&mut hba);
    assert_eq!((word(&page, 106) >> 12 & 1, word(&page, 117), word(&page, 60)), (1, 2048, 256));
    hba.put(DATA, &[0x5a; 8192]);
    hba.succeed(&Ata { command: WRITE_DMA_EXT, lba: 254, count: 2, ..Ata::default() }, &[(DATA, 8192)]);
    assert_eq!(read_bytes(&*disk, 254 * 4096..256 * 4096).unwrap(), [0x5a; 8192]);
    let beyond = Ata { command: WRITE_DMA_EXT, lba: 255, count: 2, ..Ata::default() };
    assert_eq!(hba.fail(&beyond, &[(DATA, 8192)]), 0x10);
}

/// From memory of odd lengths, over the edge of two regions.
#[test]
fn every_slot_has_a_command_of_its_own() {
    let disk = Arc::new(MemoryDisk::new(1 << 20, 512).unwrap());
    let mut hba = Hba::started(disk.clone());
    for slot in 0..32 {
        let place = SEAM - 16384 + 1024 * u64::from(slot);
        hba.put(place, &[slot; 1024]);
        let buffers = [(place, 333), (place + 333, 1024 - 333)];
        hba.prepare(0, slot, &Ata::queued(WRITE_QUEUED, slot, 2 * u64::from(31 - slot), 2), &buffers);
    }
    hba.issue(0, !0, true);
    assert_eq!((hba.port(0, SACT), hba.port(0, CI)), (!0, !0));
    hba.run();
    assert_eq!((hba.port(0, SACT), hba.port(0, CI)), (0, 0));
    assert_eq!((hba.read(IS), hba.acknowledge(0), hba.read(IS)), (1, DEVICE_BITS, 0));
    let stored = read_bytes(&*disk, 0..32 * 1024).unwrap();
    assert!((0..32).all(|block| stored[1024 * block..][..1024] == [31 - block as u8; 1024]));

    for slot in 0..32 {
        let place = SEAM - 16384 + 1024 * u64::from(slot);
        hba.prepare(0, slot, &Ata::queued(READ_QUEUED, slot, 2 * u64::from(slot), 2), &[(place, 1024)]);
    }
    hba.issue(0, !0, true);
    hba.run();
    assert!((0..32).all(|slot| hba.get::<1024>(SEAM - 16384 + 1024 * slot) == [31 - slot as u8; 1024]));
    let counts = hba.statistics[0].counts();
    assert_eq!((counts.reads, counts.writes, counts.errors), (32, 32, 0));
}

/// Commands that come while the thread sleeps wake it once, and those that are done together are one frame and one
/// interrupt.
#[test]
fn what_comes_and_goes_together_is_one_batch() {
    let disk = ScriptedDisk::new(32);
    let state = disk.state.clone();
    let mut hba = Hba::started(Arc::new(disk));
    hba.run();
    hba.queues[0].doorbell().take();
    for slot in 0..32 {
        hba.prepare(0, slot, &Ata::queued(READ_QUEUED, slot, 0, 1), &[(DATA, 512)]);
        hba.issue(0, 1 << slot, true);
    }
    assert_eq!(hba.queues[0].doorbell().take(), 1);
    hba.run();
    assert_eq!(state.log.lock().unwrap().len(), 32);
    // The disk has accepted them all, and done none.
    assert_eq!((hba.port(0, CI), hba.port(0, SACT), hba.interrupts.take()), (0, !0, 0));
    state.finish(31, Ok(()));
    hba.run();
    assert_eq!((hba.port(0, SACT), hba.interrupts.take(), hba.acknowledge(0)), (1, 1, DEVICE_BITS));
    assert_eq!(hba.get::<8>(frames(0) + 0x58), [0xa1, 0x40, 0x50, 0, 0xfe, 0xff, 0xff, 0xff]);
    state.finish(1, Ok(()));
    hba.run();
    assert_eq!((hba.port(0, SACT), hba.interrupts.take()), (0, 1));
}

#[test]
fn every_way_to_read_and_write_moves_the_same() {
    let disk = Arc::new(MemoryDisk::new(1 << 20, 512).unwrap());
    let mut hba = Hba::started(disk.clone());
    for (fill, write, read) in [(1, 0x30, 0x20), (2, 0x34, 0x24), (3, 0xca, 0xc8), (4, 0x35, 0x25), (5, 0x3d, 0x25)] {
        // 28-bit commands have the address's upper bits beside the device's.
        let at = Ata { lba: 700, count: 2, device: 0x40, ..Ata::default() };
        hba.put(DATA, &[fill; 1024]);
        hba.succeed(&Ata { command: write, ..at }, &[(DATA, 1024)]);
        assert_eq!(read_bytes(&*disk, 700 * 512..702 * 512).unwrap(), [fill; 1024]);
        hba.succeed(&Ata { command: read, ..at }, &[(DATA + 4096, 1024)]);
        assert_eq!(hba.get::<1024>(DATA + 4096), [fill; 1024]);
        assert_eq!(hba.get::<4>(list(0) + 4), 1024u32.to_le_bytes());
    }
    // A count of zero is the most there can be: as if 256 blocks of the 28-bit command.
    hba.succeed(&Ata { command: 0xc8, device: 0x40, ..Ata::default() }, &[(SEAM, 256 * 512)]);
    assert_eq!(hba.get::<4>(list(0) + 4), (256u32 * 512).to_le_bytes());
}

#[test]
fn what_must_be_stable_is_asked_for_so() {
    let disk = ScriptedDisk::new(32);
    let state = disk.state.clone();
    let mut hba = Hba::started(Arc::new(disk));
    let mut operation = |ata: &Ata, queued: bool| {
        hba.prepare(0, 0, ata, &[(DATA, 512)]);
        hba.issue(0, 1, queued);
        hba.run();
        state.finish(1, Ok(()));
        hba.run();
        assert_eq!((hba.port(0, CI), hba.port(0, SACT), hba.acknowledge(0) & TASK_FILE_ERROR), (0, 0, 0));
        state.log.lock().unwrap().pop().unwrap().0
    };
    let stable = |force_unit_access| Operation::Write { force_unit_access };
    let queued = Ata::queued(WRITE_QUEUED, 0, 8, 1);
    let write = Ata { command: WRITE_DMA_EXT, count: 1, ..Ata::default() };
    assert_eq!(operation(&queued, true), stable(false));
    assert_eq!(operation(&Ata { device: 0xc0, ..queued }, true), stable(true));
    assert_eq!(operation(&Ata { command: 0x3d, ..write }, false), stable(true));
    assert_eq!(operation(&Ata { command: FLUSH_EXT, ..Ata::default() }, false), Operation::Flush);
    // Without its cache, every write is stable, and so is what was written before.
    assert_eq!(operation(&Ata { command: 0xef, features: 0x82, ..Ata::default() }, false), Operation::Flush);
    assert_eq!(operation(&queued, true), stable(true));
    assert_eq!(word(&identify(&mut hba), 85) & 1 << 5, 0);
    hba.succeed(&Ata { command: 0xef, features: 0x02, ..Ata::default() }, &[]);
    assert_eq!(word(&identify(&mut hba), 85) & 1 << 5, 1 << 5);
}

#[test]
fn trim_discards_its_ranges() {
    let disk = ScriptedDisk::new(32);
    let state = disk.state.clone();
    let mut hba = Hba::started(Arc::new(disk));
    let trim = Ata { command: TRIM, features: 1, count: 1, ..Ata::default() };
    let range = |lba: u64, blocks: u64| (lba | blocks << 48).to_le_bytes();
    // The first two are one; one of no blocks is none.
    hba.put(DATA, &[range(8, 100), range(108, 28), range(7, 0), range(1000, 1)].concat());
    hba.prepare(0, 0, &trim, &[(DATA, 512)]);
    hba.issue(0, 1, false);
    hba.run();
    assert_eq!((hba.port(0, CI), hba.port(0, TFD) & 0x80), (1, 0x80));
    state.finish(2, Ok(()));
    hba.run();
    assert_eq!((hba.port(0, CI), hba.port(0, TFD)), (0, READY));
    let discard = |blocks: u64| Operation::Discard { length_bytes: 512 * blocks };
    let expected = [(discard(128), 8 * 512, 128 * 512, 0), (discard(1), 1000 * 512, 512, 0)];
    assert_eq!(*state.log.lock().unwrap(), expected);
    assert_eq!(hba.statistics[0].counts().bytes_discarded, 129 * 512);

    hba.put(DATA, &range(2047, 2));
    assert_eq!(hba.fail(&trim, &[(DATA, 512)]), 0x10);
    assert_eq!(hba.fail(&Ata { count: 2, ..trim }, &[(DATA, 1024)]), 0x04);
    assert_eq!(hba.fail(&Ata { features: 0, ..trim }, &[(DATA, 512)]), 0x04);
    assert_eq!(state.log.lock().unwrap().len(), 2);
}

#[test]
fn a_long_read_is_given_to_the_disk_in_pieces() {
    const MIB: u64 = 1 << 20;
    let disk = ScriptedDisk::new(32);
    disk.geometry.lock().unwrap().capacity_bytes = 64 * MIB;
    let state = disk.state.clone();
    let mut hba = Hba::started(Arc::new(disk));
    let buffers = vec![(SEAM, 1 << 19); 10];
    hba.prepare(0, 3, &Ata::queued(READ_QUEUED, 3, 2048, 10240), &buffers);
    hba.issue(0, 1 << 3, true);
    hba.run();
    let places: Vec<_> = state.log.lock().unwrap().iter().map(|piece| (piece.1 / MIB, piece.2 / MIB)).collect();
    assert_eq!(places, [(1, 1), (2, 2), (4, 2)]);
    state.finish(2, Ok(()));
    hba.run();
    assert_eq!(hba.port(0, SACT), 1 << 3);
    state.finish(1, Ok(()));
    hba.run();
    assert_eq!((hba.port(0, SACT), hba.acknowledge(0)), (0, DEVICE_BITS));
}

/// A drive has one task file: a command that is not queued has it alone, and those after it wait.
#[test]
fn a_command_that_is_not_queued_is_carried_out_alone() {
    let disk = ScriptedDisk::new(32);
    let state = disk.state.clone();
    let mut hba = Hba::started(Arc::new(disk));
    let write = Ata { command: WRITE_DMA_EXT, count: 1, ..Ata::default() };
    hba.prepare(0, 0, &Ata::queued(READ_QUEUED, 0, 0, 1), &[(DATA, 512)]);
    hba.prepare(0, 1, &write, &[(DATA, 512)]);
    hba.prepare(0, 2, &write, &[(DATA, 512)]);
    hba.prepare(0, 3, &Ata::queued(READ_QUEUED, 3, 0, 1), &[(DATA, 512)]);
    hba.set_port(0, SACT, 0b1001);
    hba.set_port(0, CI, 0b1111);
    for (pushed, issued, active) in [(1, 0b1110, 0b1001), (2, 0b1110, 0b1000), (3, 0b1100, 0b1000), (4, 0, 0b1000)] {
        hba.run();
        assert_eq!(state.log.lock().unwrap().len(), pushed);
        assert_eq!((hba.port(0, CI), hba.port(0, SACT)), (issued, active), "after {pushed}");
        state.finish(1, Ok(()));
    }
    hba.run();
    assert_eq!((hba.port(0, CI), hba.port(0, SACT), hba.port(0, TFD)), (0, 0, READY));
}

#[test]
fn commands_without_data_answer_at_once_and_unknown_ones_are_aborted() {
    let mut hba = Hba::started(Arc::new(NullDisk::new(1 << 30, 512).unwrap()));
    let ata = |command| Ata { command, ..Ata::default() };
    for (command, features) in [(0xe0, 0), (0xe1, 0), (0xe7, 0), (0xef, 0x03), (0xef, 0xaa)] {
        hba.succeed(&Ata { features, ..ata(command) }, &[]);
    }
    hba.succeed(&Ata { count: 8, ..ata(0x42) }, &[]);
    assert_eq!(hba.command(&ata(0xe5), &[]), REGISTERS);
    // Of CHECK POWER MODE, the count says that the disk is not asleep.
    assert_eq!(hba.get::<2>(frames(0) + 0x40 + 12), [0xff, 0]);
    // NOP, SMART, what is not of NCQ here, packets, other features, what of TRIM's command is none.
    for (command, features) in [(0x00, 0), (0xb0, 0xd0), (0x63, 0), (0xa0, 0), (0xef, 0x05), (TRIM, 2)] {
        assert_eq!(hba.fail(&Ata { features, count: 1, ..ata(command) }, &[(DATA, 512)]), 0x04, "{command:#x}");
    }
    assert_eq!(hba.fail(&Ata { lba: 1 << 21, count: 1, ..ata(0x42) }, &[]), 0x10);
}

#[test]
fn ports_are_served_apart() {
    let disks: Vec<Arc<MemoryDisk>> = (0..2).map(|_| Arc::new(MemoryDisk::new(1 << 20, 512).unwrap())).collect();
    let mut hba = Hba::new(disks.iter().map(|disk| Arc::clone(disk) as _).collect());
    assert_eq!((hba.read(0) & 0x1f, hba.read(0x0c)), (1, 0b11));
    (0..2).for_each(|port| hba.start(port));
    for port in 0..2 {
        hba.put(DATA + 512 * port, &[port as u8 + 1; 512]);
        hba.prepare(port, 0, &Ata::queued(WRITE_QUEUED, 0, port, 1), &[(DATA + 512 * port, 512)]);
        hba.issue(port, 1, true);
    }
    hba.run();
    assert_eq!(hba.read(IS), 0b11);
    assert_eq!([0, 1].map(|port| hba.acknowledge(port)), [DEVICE_BITS; 2]);
    for (port, disk) in disks.iter().enumerate() {
        let mut expected = vec![0; 1024];
        expected[512 * port..][..512].fill(port as u8 + 1);
        assert_eq!(read_bytes(&**disk, 0..1024).unwrap(), expected);
    }
}
