//! What a driver does to the serial port and to the virtio-blk device.

use super::{Corpus, Seed};

pub(super) fn corpora() -> [Corpus; 3] {
    const HOSTILE: &str = "crates/devices/tests/virtio/hostile.rs";
    [
        Corpus {
            source: "crates/devices/src/serial/port.rs",
            function: "random_accesses",
            modules: "serial__port__tests",
            seeds: serial_port(),
        },
        Corpus { source: HOSTILE, function: "random_register_accesses", modules: "hostile", seeds: registers() },
        Corpus { source: HOSTILE, function: "random_rings", modules: "hostile", seeds: rings() },
    ]
}

fn serial_port() -> Vec<(&'static str, Seed)> {
    const DATA: u8 = 0;
    const INTERRUPT_ENABLE: u8 = 1;
    const FIFO_CONTROL: u8 = 2;
    const LINE_CONTROL: u8 = 3;
    const MODEM_CONTROL: u8 = 4;
    const LINE_STATUS: u8 = 5;
    enum Access<'a> {
        Write(u8, &'a [u8]),
        Read(u8, usize),
    }
    use Access::{Read, Write};
    let seed = |accesses: &[Access<'_>]| {
        accesses.iter().fold(Seed::default().length(accesses.len()), |seed, access| match access {
            Write(offset, bytes) => seed.u8(*offset).bool(true).vector(bytes),
            Read(offset, length) => seed.u8(*offset).bool(false).vector(&vec![0; *length]),
        })
    };
    vec![
        ("a-frame-at-once", seed(&[Write(DATA, &[7, 0, 0x2a, 5, 0x08, 0x80, 0x28, 0x10, 3])])),
        ("no-bytes", seed(&[Write(DATA, &[]), Read(DATA, 0), Write(INTERRUPT_ENABLE, &[])])),
        ("more-than-a-fifo-full-is-read", seed(&[Read(LINE_STATUS, 1), Read(DATA, 64), Read(DATA, 64)])),
        (
            "divisor-latch",
            seed(&[
                Write(LINE_CONTROL, &[0x83]),
                Write(DATA, &[1, 2, 3]),
                Read(DATA, 2),
                Write(FIFO_CONTROL, &[7]),
                Write(LINE_CONTROL, &[0x03]),
                Read(DATA, 1),
            ]),
        ),
        (
            "loopback-until-the-fifo-overflows",
            seed(&[
                Write(MODEM_CONTROL, &[0x10]),
                Write(DATA, &[0x55; 64]),
                Write(DATA, &[0xaa; 64]),
                Read(DATA, 64),
                Write(MODEM_CONTROL, &[0]),
                Read(DATA, 64),
            ]),
        ),
        (
            "receiver-cleared-in-loopback",
            seed(&[
                Read(LINE_STATUS, 1),
                Write(MODEM_CONTROL, &[0x1f]),
                Write(DATA, &[1]),
                Write(FIFO_CONTROL, &[0, 2]),
                Read(DATA, 2),
            ]),
        ),
        (
            "every-interrupt",
            seed(&[Write(INTERRUPT_ENABLE, &[0x0f]), Write(DATA, &[1]), Read(FIFO_CONTROL, 3), Read(DATA, 1)]),
        ),
        ("behind-the-window", seed(&[Write(8, &[1]), Read(8, 2), Write(9, &[1]), Read(9, 64)])),
    ]
}

/// An access to a register of 32 bits, unless `width` says something else.
#[derive(Clone, Copy)]
struct Access {
    offset: u16,
    /// What is written.
    value: Option<u64>,
    width: u8,
}

const fn write(offset: u16, value: u64) -> Access {
    Access { offset, value: Some(value), width: 0 }
}

const fn read(offset: u16) -> Access {
    Access { offset, value: None, width: 0 }
}

/// As many bytes as that, at any offset: both top bits, and the bytes as the remainder of 9.
const fn wide(access: Access, bytes: u8) -> Access {
    let lowest = 0xc0 / 9 * 9 + bytes;
    Access { width: if lowest < 0xc0 { lowest + 9 } else { lowest }, ..access }
}

fn registers() -> Vec<(&'static str, Seed)> {
    const DEVICE_FEATURES: u16 = 0x10;
    const DEVICE_FEATURES_PAGE: u16 = 0x14;
    const DRIVER_FEATURES: u16 = 0x20;
    const DRIVER_FEATURES_PAGE: u16 = 0x24;
    const QUEUE: u16 = 0x30;
    const QUEUE_SIZE: u16 = 0x38;
    const QUEUE_READY: u16 = 0x44;
    const NOTIFY: u16 = 0x50;
    const INTERRUPT_STATUS: u16 = 0x60;
    const INTERRUPT_ACKNOWLEDGE: u16 = 0x64;
    const STATUS: u16 = 0x70;
    const TABLE: u16 = 0x80;
    const TABLE_HIGH: u16 = 0x84;
    const AVAILABLE: u16 = 0x90;
    const USED: u16 = 0xa0;
    const GENERATION: u16 = 0xfc;
    const CONFIG: u16 = 0x100;
    const FOUND: u64 = 3;
    const FEATURES_OK: u64 = 11;
    const DRIVER_OK: u64 = 15;
    // An even number of accesses is made to a device as after power-on, an odd one to one that a driver has started.
    let seed = |started: bool, accesses: &[Access]| {
        let mut accesses = accesses.to_vec();
        if (accesses.len() % 2 == 1) != started {
            accesses.push(read(0));
        }
        accesses.iter().fold(Seed::default().length(accesses.len()), |seed, access| {
            let seed = seed.u16(access.offset).bool(access.value.is_some());
            seed.u8(access.width).u64(access.value.unwrap_or_default())
        })
    };
    let negotiated = [
        write(STATUS, FOUND),
        read(DEVICE_FEATURES),
        write(DEVICE_FEATURES_PAGE, 1),
        write(DRIVER_FEATURES_PAGE, 1),
        write(DRIVER_FEATURES, 1),
        write(STATUS, FEATURES_OK),
    ];
    let after = |accesses: &[Access]| seed(false, &[&negotiated[..], accesses].concat());
    vec![
        ("identity", seed(false, &[read(0), read(4), read(8), read(12)])),
        (
            "bring-up",
            after(&[
                write(QUEUE, 0),
                write(QUEUE_SIZE, 16),
                write(TABLE, 0x1_0000),
                write(AVAILABLE, 0x1_4000),
                write(USED, 0x1_8000),
                write(QUEUE_READY, 1),
                write(STATUS, DRIVER_OK),
                write(NOTIFY, 0),
            ]),
        ),
        ("driver-ok-without-features", seed(false, &[write(STATUS, FOUND), write(STATUS, DRIVER_OK)])),
        (
            "features-that-were-not-offered",
            seed(
                false,
                &[
                    write(STATUS, FOUND),
                    write(DRIVER_FEATURES_PAGE, u32::MAX.into()),
                    write(DRIVER_FEATURES, u32::MAX.into()),
                    write(STATUS, FEATURES_OK),
                ],
            ),
        ),
        (
            "queue-outside-memory",
            after(&[
                write(QUEUE, 1),
                write(QUEUE_SIZE, 16),
                write(TABLE, 0xffff_fff0),
                write(TABLE_HIGH, u32::MAX.into()),
                write(QUEUE_READY, 1),
                write(STATUS, DRIVER_OK),
            ]),
        ),
        (
            "queue-of-no-size",
            after(&[write(QUEUE_SIZE, 0), write(QUEUE_READY, 1), write(QUEUE_SIZE, 3), write(QUEUE_READY, 1)]),
        ),
        (
            "queue-size-of-32-bits",
            after(&[write(QUEUE_SIZE, 0x1_0010), write(QUEUE_READY, 1), write(STATUS, DRIVER_OK)]),
        ),
        ("queue-that-does-not-exist", after(&[write(QUEUE, 0x1_0000), write(QUEUE_READY, 1), write(NOTIFY, 0x1_0000)])),
        ("reset-while-running", seed(true, &[write(STATUS, 0), read(STATUS), write(STATUS, FOUND)])),
        (
            "queue-changed-while-running",
            seed(true, &[write(QUEUE, 0), write(TABLE, 0), write(QUEUE_READY, 0), write(QUEUE_READY, 1)]),
        ),
        (
            "interrupt-never-raised-acknowledged",
            seed(true, &[write(INTERRUPT_ACKNOWLEDGE, 3), read(INTERRUPT_STATUS), read(GENERATION)]),
        ),
        (
            "configuration-in-every-width",
            seed(true, &[0, 1, 2, 3, 4, 8].map(|bytes| wide(read(CONFIG + u16::from(bytes) % 8), bytes))),
        ),
        ("configuration-across-its-end", seed(true, &[wide(read(CONFIG + 0x3c), 8), wide(write(0x1fe, 1), 4)])),
        ("registers-in-bytes", seed(true, &[wide(read(1), 1), wide(write(STATUS, 0), 1), wide(write(STATUS, 0), 8)])),
        ("far-behind-the-window", seed(true, &[wide(read(u16::MAX), 4), wide(write(u16::MAX, u64::MAX), 8)])),
    ]
}

/// A change that spoils a descriptor of the good requests.
#[derive(Clone, Copy)]
enum Change {
    Header(u8),
    Table,
    Edge(u8),
    Anywhere(u64),
    Length(u16),
    LengthHuge(u32),
    Flags(u8),
    Next(u8),
}

impl Change {
    fn after(self, seed: Seed) -> Seed {
        const CHANGES: u16 = 5;
        const PLACES: u16 = 5;
        let address = |place| seed.clone().choice(0, CHANGES).choice(place, PLACES);
        match self {
            Self::Header(index) => address(0).u8(index),
            Self::Table => address(2),
            Self::Edge(before) => address(3).u8(before),
            Self::Anywhere(place) => address(4).u64(place),
            Self::Length(length) => seed.choice(1, CHANGES).u16(length),
            Self::LengthHuge(length) => seed.choice(2, CHANGES).u32(length),
            Self::Flags(flags) => seed.choice(3, CHANGES).u8(flags),
            Self::Next(next) => seed.choice(4, CHANGES).u8(next),
        }
    }
}

/// Chains 0 to 4 are descriptors 0 to 14 of the queue's table in threes: header, data, status. Descriptor 15 refers to
/// an indirect table with one more.
fn rings() -> Vec<(&'static str, Seed)> {
    const INDIRECT: u8 = 0x80;
    const NEXT: u8 = 1;
    const WRITE: u8 = 2;
    const TABLE: u8 = 4;
    const INDIRECT_HEAD: u8 = 15;
    const ALL: u8 = 0xff;
    // Read, write, flush, identify, discard, write zeroes; of sector 8 if any.
    const TYPES: [u8; 6] = [0, 2, 4, 5, 6, 7];
    let seed = |changes: &[(u8, Change)], heads: &[u8], available: u8, features: u8| {
        let mut seed = Seed::default();
        for request_type in TYPES {
            seed = seed.u8(request_type).u8(1);
        }
        seed = seed.length(changes.len());
        for &(descriptor, change) in changes {
            seed = change.after(seed.u8(descriptor));
        }
        seed.vector(heads).u8(available).u8(features)
    };
    let good = |changes: &[(u8, Change)]| seed(changes, &[0, 3, 6, 9, 12, INDIRECT_HEAD], 6, ALL);
    vec![
        ("good", good(&[])),
        ("nothing-available", seed(&[], &[], 0, ALL)),
        ("indirect-without-the-feature", seed(&[], &[INDIRECT_HEAD], 1, 0)),
        ("the-same-head-twice", seed(&[], &[0, 0], 2, ALL)),
        ("head-outside-the-table", seed(&[], &[16], 1, ALL)),
        ("more-available-than-the-queue-has", seed(&[], &[], 17, ALL)),
        ("status-goes-on-at-the-header", good(&[(2, Change::Flags(NEXT | WRITE)), (2, Change::Next(0))])),
        ("next-outside-the-table", good(&[(0, Change::Next(16))])),
        ("readable-after-writable", good(&[(4, Change::Flags(NEXT | WRITE)), (5, Change::Flags(0))])),
        ("no-status", good(&[(2, Change::Flags(0))])),
        ("status-of-no-bytes", good(&[(2, Change::Length(0))])),
        ("header-of-15-bytes", good(&[(0, Change::Length(15))])),
        ("header-and-data-in-one", good(&[(3, Change::Length(16 + 512)), (3, Change::Next(5))])),
        ("header-where-addresses-end", good(&[(0, Change::Anywhere(u64::MAX - 7))])),
        ("data-up-to-the-end-of-memory", good(&[(1, Change::Edge(255)), (1, Change::Length(255))])),
        ("data-over-the-end-of-memory", good(&[(1, Change::Edge(255))])),
        ("data-over-the-next-header", good(&[(1, Change::Header(1))])),
        ("data-over-the-indirect-table", good(&[(1, Change::Table), (1, Change::Length(512))])),
        ("data-of-half-a-block", good(&[(1, Change::Length(256)), (4, Change::Length(1))])),
        ("data-of-4-gib", good(&[(1, Change::LengthHuge(u32::MAX))])),
        ("data-and-status-of-2-gib-each", good(&[(1, Change::LengthHuge(1 << 31)), (2, Change::LengthHuge(1 << 31))])),
        ("status-outside-memory", good(&[(2, Change::Anywhere(1 << 40))])),
        ("status-where-addresses-end", good(&[(2, Change::Anywhere(u64::MAX)), (2, Change::Length(2))])),
        ("range-of-15-bytes", good(&[(13, Change::Length(15))])),
        ("indirect-table-of-no-bytes", good(&[(INDIRECT_HEAD, Change::Length(0))])),
        ("indirect-table-of-half-a-descriptor", good(&[(INDIRECT_HEAD, Change::Length(40))])),
        ("indirect-table-of-too-many", good(&[(INDIRECT_HEAD, Change::LengthHuge(16 * 0x1_0000))])),
        ("indirect-table-outside-memory", good(&[(INDIRECT_HEAD, Change::Anywhere(u64::MAX - 15))])),
        ("indirect-with-next", good(&[(INDIRECT_HEAD, Change::Flags(TABLE | NEXT))])),
        ("indirect-in-indirect", good(&[(INDIRECT, Change::Flags(TABLE)), (INDIRECT, Change::Length(16))])),
        ("indirect-loops", good(&[(INDIRECT | 2, Change::Flags(NEXT | WRITE)), (INDIRECT | 2, Change::Next(0))])),
    ]
}
