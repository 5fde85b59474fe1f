//! The ATA commands that a disk knows (ACS-3).

use blockyard_block::RequestError;

/// A command's registers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TaskFile {
    pub(super) command: u8,
    pub(super) features: u16,
    /// 48 bits.
    pub(super) lba: u64,
    pub(super) device: u8,
    pub(super) count: u16,
}

/// Status and error register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) status: u8,
    pub(super) error: u8,
}

impl Status {
    /// Ready, and what used to be "seek complete".
    pub(super) const READY: u8 = 0x50;
    pub(super) const BUSY: u8 = 0x80;
    /// Data wait to be moved.
    pub(super) const DATA_REQUEST: u8 = 0x08;
    const ERROR: u8 = 0x01;

    pub(super) const DONE: Self = Self { status: Self::READY, error: 0 };
    /// After a reset: the error register says that the drive's own test passed.
    pub(super) const PASSED: Self = Self { status: Self::READY, error: 0x01 };
    /// The command is none, or cannot be carried out.
    pub(super) const ABORTED: Self = Self::failed(0x04);
    /// The address is not on the disk.
    pub(super) const NOT_FOUND: Self = Self::failed(0x10);
    /// The data cannot be read.
    pub(super) const UNCORRECTABLE: Self = Self::failed(0x40);

    const fn failed(error: u8) -> Self {
        Self { status: Self::READY | Self::ERROR, error }
    }

    /// What a disk's error is to a driver.
    pub(super) fn of_error(error: RequestError, is_read: bool) -> Self {
        match error {
            RequestError::OutOfRange => Self::NOT_FOUND,
            RequestError::Os(_) | RequestError::Truncated if is_read => Self::UNCORRECTABLE,
            _ => Self::ABORTED,
        }
    }

    /// As PxTFD has it.
    pub(super) fn register(self) -> u32 {
        u32::from(self.error) << 8 | u32::from(self.status)
    }
}

/// The first blocks and the number of blocks that a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    pub(super) first: u64,
    pub(super) count: u32,
}

/// How data reach the driver: which frame says that they are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Dma,
    Pio,
    /// NCQ, with the tag that the command says it has.
    Queued {
        tag: u8,
    },
}

/// What a command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtaCommand {
    Read {
        blocks: Blocks,
        protocol: Protocol,
    },
    Write {
        blocks: Blocks,
        protocol: Protocol,
        force_unit_access: bool,
    },
    Verify {
        blocks: Blocks,
    },
    Flush,
    /// So many blocks of 512 bytes, of ranges.
    Trim {
        payload_blocks: u16,
    },
    Identify,
    ReadLog {
        address: u8,
        page: u16,
        pages: u16,
        protocol: Protocol,
    },
    SetWriteCache {
        enabled: bool,
    },
    CheckPowerMode,
    Diagnose,
    /// What a disk without moving parts or modes has nothing to do for.
    Nothing,
    Unknown,
}

impl AtaCommand {
    pub(super) fn decode(task_file: &TaskFile) -> Self {
        let TaskFile { features, lba, count, .. } = *task_file;
        let (short, long) = (task_file.short_blocks(), task_file.long_blocks());
        let queued = task_file.queued_blocks();
        let force_unit_access = task_file.device & 1 << 7 != 0;
        let write = |blocks, protocol| Self::Write { blocks, protocol, force_unit_access: false };
        let read_log = |protocol| Self::ReadLog {
            address: lba as u8,
            page: u16::from_le_bytes([(lba >> 8) as u8, (lba >> 32) as u8]),
            pages: count,
            protocol,
        };
        match task_file.command {
            0x20 | 0x21 => Self::Read { blocks: short, protocol: Protocol::Pio },
            0x24 => Self::Read { blocks: long, protocol: Protocol::Pio },
            0x25 => Self::Read { blocks: long, protocol: Protocol::Dma },
            0xc8 | 0xc9 => Self::Read { blocks: short, protocol: Protocol::Dma },
            0x60 => Self::Read { blocks: queued, protocol: task_file.queued() },
            0x30 | 0x31 => write(short, Protocol::Pio),
            0x34 => write(long, Protocol::Pio),
            0x35 => write(long, Protocol::Dma),
            0xca | 0xcb => write(short, Protocol::Dma),
            0x3d => Self::Write { blocks: long, protocol: Protocol::Dma, force_unit_access: true },
            0x61 => Self::Write { blocks: queued, protocol: task_file.queued(), force_unit_access },
            0x40 | 0x41 => Self::Verify { blocks: short },
            0x42 => Self::Verify { blocks: long },
            0xe7 | 0xea => Self::Flush,
            0x06 if features & 0xff == 1 => Self::Trim { payload_blocks: count },
            0xec => Self::Identify,
            0x2f => read_log(Protocol::Pio),
            0x47 => read_log(Protocol::Dma),
            0xef => match features as u8 {
                0x02 => Self::SetWriteCache { enabled: true },
                0x82 => Self::SetWriteCache { enabled: false },
                // Transfer mode, and look-ahead on and off.
                0x03 | 0xaa | 0x55 => Self::Nothing,
                _ => Self::Unknown,
            },
            0xe5 => Self::CheckPowerMode,
            0x90 => Self::Diagnose,
            // Standby, idle and sleep.
            0xe0..=0xe3 | 0xe6 => Self::Nothing,
            _ => Self::Unknown,
        }
    }

    /// Whether it is one of NCQ's.
    pub(super) fn is_queued(&self) -> bool {
        let (Self::Read { protocol, .. } | Self::Write { protocol, .. }) = self else { return false };
        matches!(protocol, Protocol::Queued { .. })
    }
}

impl TaskFile {
    /// Of a command with 28 bits of address and 8 of count.
    fn short_blocks(&self) -> Blocks {
        let first = self.lba & 0xff_ffff | u64::from(self.device & 0xf) << 24;
        Blocks { first, count: if self.count & 0xff == 0 { 256 } else { u32::from(self.count & 0xff) } }
    }

    fn long_blocks(&self) -> Blocks {
        Blocks { first: self.lba, count: if self.count == 0 { 1 << 16 } else { self.count.into() } }
    }

    /// Of NCQ, whose count is where features are otherwise.
    fn queued_blocks(&self) -> Blocks {
        Blocks { first: self.lba, count: if self.features == 0 { 1 << 16 } else { self.features.into() } }
    }

    fn queued(&self) -> Protocol {
        Protocol::Queued { tag: (self.count >> 3 & 0x1f) as u8 }
    }
}
