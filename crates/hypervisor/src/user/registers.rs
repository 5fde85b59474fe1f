//! A guest's registers, and what an instruction's register operands mean.

use super::layout::{ANSWER_WORDS, FRAME_RIP};
use iced_x86::Register;

/// General-purpose registers, rip and rflags, in the order of a signal frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Registers(pub(super) [u64; ANSWER_WORDS]);

/// Where register number n (as instructions count them) is in a frame.
const FRAME_INDEX: [usize; 16] = [13, 14, 12, 11, 15, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7];
const FRAME_RFLAGS: usize = FRAME_RIP + 1;

const RFLAGS_RESERVED: u64 = 1 << 1;
const RFLAGS_DIRECTION: u64 = 1 << 10;

impl Registers {
    /// All zero but where to begin.
    pub(super) fn entry(rip: u64, stack_top: u64) -> Self {
        let mut registers = Self::default();
        registers.0[FRAME_RIP] = rip;
        registers.0[FRAME_RFLAGS] = RFLAGS_RESERVED;
        registers.set(Register::RSP, stack_top);
        registers
    }

    pub(super) fn rip(&self) -> u64 {
        self.0[FRAME_RIP]
    }

    pub(super) fn set_rip(&mut self, rip: u64) {
        self.0[FRAME_RIP] = rip;
    }

    /// Whether string instructions go down.
    pub(super) fn direction_down(&self) -> bool {
        self.0[FRAME_RFLAGS] & RFLAGS_DIRECTION != 0
    }

    /// What an instruction reads from `register`, zero-extended; `None` if that is no general-purpose register.
    pub(super) fn get(&self, register: Register) -> Option<u64> {
        let value = self.0[frame_index(register)?];
        Some(if is_high_byte(register) { value >> 8 & 0xff } else { value & mask(register.size()) })
    }

    /// Writes the register as an instruction would: 32 bits clear the upper half, 8 and 16 bits leave the rest. Does
    /// nothing to what is no general-purpose register.
    pub(super) fn set(&mut self, register: Register, value: u64) {
        let Some(index) = frame_index(register) else { return };
        let (shift, kept) = match register.size() {
            1 if is_high_byte(register) => (8, !0xff00),
            1 => (0, !0xff),
            2 => (0, !0xffff),
            _ => (0, 0),
        };
        let value = value & mask(register.size());
        self.0[index] = self.0[index] & kept | value << shift;
    }
}

/// Where the register is in a frame, if it is a general-purpose one.
pub(super) fn frame_index(register: Register) -> Option<usize> {
    register.is_gpr().then(|| FRAME_INDEX[register.full_register().number()])
}

/// The low `bytes` bytes of a word.
pub(super) fn mask(bytes: usize) -> u64 {
    if bytes >= 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 }
}

fn is_high_byte(register: Register) -> bool {
    matches!(register, Register::AH | Register::BH | Register::CH | Register::DH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_writes_keep_what_instructions_keep() {
        let mut registers = Registers::default();
        let full = 0x1122_3344_5566_7788;
        for (register, expected) in [
            (Register::AL, 0x1122_3344_5566_77ff),
            (Register::AH, 0x1122_3344_5566_ff88),
            (Register::AX, 0x1122_3344_5566_ffff),
            (Register::EAX, 0x0000_0000_ffff_ffff),
            (Register::RAX, u64::MAX),
        ] {
            registers.set(Register::RAX, full);
            registers.set(register, u64::MAX);
            assert_eq!(registers.get(Register::RAX), Some(expected), "{register:?}");
        }
        registers.set(Register::RBX, full);
        assert_eq!(registers.get(Register::BH), Some(0x77));
        assert_eq!(registers.get(Register::BL), Some(0x88));
        assert_eq!(registers.get(Register::EBX), Some(0x5566_7788));
    }

    #[test]
    fn every_register_has_its_own_place() {
        let all = [
            Register::RAX,
            Register::RCX,
            Register::RDX,
            Register::RBX,
            Register::RSP,
            Register::RBP,
            Register::RSI,
            Register::RDI,
            Register::R8,
            Register::R15,
        ];
        let mut places: Vec<_> = all.iter().filter_map(|&register| frame_index(register)).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), all.len());
        assert_eq!(frame_index(Register::RIP), None);
        assert_eq!(frame_index(Register::DS), None);
    }
}
