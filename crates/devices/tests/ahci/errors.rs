//! Commands that fail, and how a driver finds out which.

use crate::driver::*;
use crate::scripted_disk::ScriptedDisk;
use blockyard_block::{MemoryDisk, RequestError, explain};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const EIO: RequestError = RequestError::Os(5);

#[test]
fn a_queued_command_that_fails_stops_the_others_and_is_in_the_log() {
    let disk = ScriptedDisk::new(32);
    let state = disk.state.clone();
    let mut hba = Hba::started(Arc::new(disk));
    for slot in [4, 9, 17] {
        hba.prepare(0, slot, &Ata::queued(READ_QUEUED, slot, 100 + u64::from(slot), 1), &[(DATA, 512)]);
        hba.issue(0, 1 << slot, true);
        hba.run();
    }
    // The newest first: 17 succeeds, 9 fails.
    state.finish(1, Ok(()));
    state.finish(1, Err(EIO));
    hba.run();
    assert_eq!((hba.port(0, CI), hba.port(0, SACT), hba.port(0, TFD)), (0, 1 << 4 | 1 << 9, 0x4051));
    assert_eq!(hba.acknowledge(0), DEVICE_BITS | TASK_FILE_ERROR);
    assert_eq!(hba.get::<8>(frames(0) + 0x58), [0xa1, 0x40, 0x51, 0x40, 0, 0, 2, 0]);
    // Nothing is begun, and nothing of the third is shown.
    hba.prepare(0, 5, &Ata::queued(READ_QUEUED, 5, 0, 1), &[(DATA, 512)]);
    hba.issue(0, 1 << 5, true);
    state.finish(1, Ok(()));
    hba.run();
    assert_eq!((hba.port(0, SACT), state.log.lock().unwrap().len()), (1 << 4 | 1 << 5 | 1 << 9, 3));

    hba.restart(0);
    assert_eq!((hba.port(0, SACT), hba.port(0, CI)), (0, 0));
    let log = Ata { command: READ_LOG, lba: 0x10, count: 1, ..Ata::default() };
    hba.succeed(&log, &[(DATA, 512)]);
    let page: [u8; 512] = hba.get(DATA);
    assert_eq!((page[0], page[2], page[3], page[4]), (9, 0x51, 0x40, 109));
    assert_eq!(page.iter().fold(0u8, |sum, &byte| sum.wrapping_add(byte)), 0);
    // By DMA too; the directory says that there is one page of it; others there are not.
    hba.succeed(&Ata { command: 0x47, ..log }, &[(DATA, 512)]);
    assert_eq!(hba.get::<512>(DATA), page);
    hba.succeed(&Ata { lba: 0, ..log }, &[(DATA, 512)]);
    assert_eq!(hba.get::<34>(DATA)[32..], [1, 0]);
    for absent in [Ata { lba: 0x11, ..log }, Ata { lba: 0x110, ..log }, Ata { count: 2, ..log }] {
        assert_eq!(hba.fail(&absent, &[(DATA, 1024)]), 0x04);
    }
}

#[test]
fn a_command_whose_tag_is_not_its_slot_is_aborted() {
    let mut hba = Hba::started(Arc::new(MemoryDisk::new(1 << 20, 512).unwrap()));
    hba.prepare(0, 2, &Ata::queued(READ_QUEUED, 3, 0, 1), &[(DATA, 512)]);
    hba.issue(0, 1 << 2, true);
    hba.run();
    assert_eq!((hba.port(0, TFD), hba.port(0, SACT)), (0x0451, 1 << 2));
}

#[test]
fn disk_errors_are_what_ata_has_for_them() {
    let disk = ScriptedDisk::new(32);
    let state = disk.state.clone();
    let mut hba = Hba::started(Arc::new(disk));
    let ata = |command| Ata { command, count: 1, ..Ata::default() };
    let cases = [
        (READ_DMA_EXT, EIO, 0x40),
        (READ_DMA_EXT, RequestError::OutOfRange, 0x10),
        (WRITE_DMA_EXT, EIO, 0x04),
        (WRITE_DMA_EXT, RequestError::ReadOnly, 0x04),
        (FLUSH_EXT, EIO, 0x04),
    ];
    for (command, error, expected) in cases {
        hba.prepare(0, 0, &ata(command), &[(DATA, 512)]);
        hba.issue(0, 1, false);
        hba.run();
        state.finish(1, Err(error));
        hba.run();
        assert_eq!((hba.port(0, TFD) >> 8, hba.port(0, CI)), (expected, 1), "{error}");
        assert_eq!(hba.acknowledge(0), REGISTERS | TASK_FILE_ERROR);
        assert_eq!(hba.get::<4>(frames(0) + 0x40), [0x34, 0x40, 0x51, expected as u8]);
        hba.restart(0);
    }
    assert_eq!(hba.statistics[0].first_error(), Some(EIO));
}

#[test]
fn memory_that_is_not_there_is_an_error_of_the_bus() {
    const HOST_BUS: u32 = 1 << 29;
    const OVERFLOW: u32 = 1 << 24;
    let mut hba = Hba::started(Arc::new(MemoryDisk::new(1 << 20, 512).unwrap()));
    let read = Ata { command: READ_DMA_EXT, count: 2, ..Ata::default() };
    for (buffers, cause) in [
        (vec![(MEMORY_BYTES - 512, 1024)], HOST_BUS),
        (vec![(DATA, 512), (u64::MAX - 10, 512)], HOST_BUS),
        (vec![(DATA, 512), (DATA, 511)], OVERFLOW),
        (vec![], OVERFLOW),
    ] {
        let causes = hba.command(&read, &buffers);
        assert_eq!(causes, REGISTERS | TASK_FILE_ERROR | cause, "{buffers:?}");
        hba.restart(0);
    }
    // A command table, and a list, at the end of memory and beyond it.
    for table in [MEMORY_BYTES, !0x7f] {
        hba.prepare(0, 0, &read, &[(DATA, 1024)]);
        hba.put(list(0) + 8, &u64::to_le_bytes(table));
        hba.issue(0, 1, false);
        hba.run();
        assert_eq!(hba.acknowledge(0), REGISTERS | TASK_FILE_ERROR | HOST_BUS);
        hba.restart(0);
    }
    hba.set_port(0, CLB, MEMORY_BYTES as u32);
    hba.issue(0, 1, false);
    hba.run();
    assert_eq!(hba.acknowledge(0), REGISTERS | TASK_FILE_ERROR | HOST_BUS);
}

#[test]
fn a_disk_that_breaks_is_unplugged() {
    let disk = ScriptedDisk::new(32);
    let state = disk.state.clone();
    let mut hba = Hba::started(Arc::new(disk));
    hba.prepare(0, 0, &Ata::queued(READ_QUEUED, 0, 0, 1), &[(DATA, 512)]);
    hba.issue(0, 1, true);
    state.broken.store(1, Ordering::Relaxed);
    let failure = hba.try_run().unwrap_err();
    assert!(!failure.is_drivers_fault());
    let sentence = "port 0 of the AHCI controller, disk sd0, cannot be served: the backend broke";
    assert_eq!(explain(&failure), sentence);
    hba.queues.clear();
    assert_eq!((hba.port(0, SSTS), hba.port(0, PORT_IS) & 1 << 22, hba.interrupts.take()), (0, 1 << 22, 1));
    // Nobody waits for it.
    hba.set_port(0, CMD, 0);
    assert_eq!(hba.port(0, CMD) & 1 << 15, 0);
}
