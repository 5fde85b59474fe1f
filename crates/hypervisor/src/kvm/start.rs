//! How a vCPU begins on KVM: what each [`Entry`] means in registers, and in tables in guest memory.

use super::long_mode::LongMode;
use super::protected_mode::ProtectedMode;
use crate::{Entry, Error};
use kvm_bindings::{kvm_regs, kvm_sregs};

/// The beginning of a vCPU that begins by itself, with addresses that are known to fit.
#[derive(Debug)]
pub(super) enum Start {
    /// 64-bit.
    LongMode(LongMode),
    /// 32-bit, paging off.
    ProtectedMode(ProtectedMode),
}

impl Start {
    /// Checks the entry's addresses; `is_memory` says whether a range (address, length) lies in one memory slot. `None`
    /// for a vCPU that another one starts.
    pub(super) fn new(entry: &Entry, is_memory: impl Fn(u64, u64) -> bool) -> Result<Option<Self>, Error> {
        Ok(match entry {
            Entry::Flat64 { .. } | Entry::Linux64 { .. } => LongMode::new(entry, is_memory)?.map(Self::LongMode),
            Entry::Protected32 { .. } | Entry::Pvh { .. } => {
                ProtectedMode::new(entry, is_memory)?.map(Self::ProtectedMode)
            }
            Entry::AwaitStartup => None,
        })
    }

    /// What to write into guest memory, and where.
    pub(super) fn tables(&self) -> Vec<(u64, Vec<u8>)> {
        match self {
            Self::LongMode(mode) => mode.tables().into(),
            Self::ProtectedMode(mode) => mode.table().into_iter().collect(),
        }
    }

    /// General registers at entry.
    pub(super) fn registers(&self) -> kvm_regs {
        match self {
            Self::LongMode(mode) => mode.registers(),
            Self::ProtectedMode(mode) => mode.registers(),
        }
    }

    /// Sets segments and control registers; the rest stays as KVM resets it.
    pub(super) fn set_system_registers(&self, registers: &mut kvm_sregs) {
        match self {
            Self::LongMode(mode) => mode.set_system_registers(registers),
            Self::ProtectedMode(mode) => mode.set_system_registers(registers),
        }
    }
}

pub(super) fn little_endian(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
