//! What a trapped guest wants: judged from one snapshot of its registers and one copy of its instruction's bytes.
//!
//! Everything here is the guest's word. It is checked against the guest's memory map and against what the instruction
//! says itself; whatever does not fit is a crash, with a sentence.

use super::control::Snapshot;
use super::layout::{GUEST_ADDRESS_LIMIT, TRAP_PAGE_FAULT};
use super::memory::GuestMemory;
use super::registers::{Registers, mask};
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

#[cfg(test)]
mod tests;

/// Most that a repeated string instruction transfers in one exit.
pub(super) const STRING_BYTES_MAX: u64 = 64 << 10;

/// What the instruction asks for, and where the guest goes on after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) wish: Wish,
    pub(super) next_rip: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// `in`: into al, ax or eax.
    PortIn { port: u16, size: u8 },
    /// `out`.
    PortOut { port: u16, size: u8, value: u32 },
    /// `ins` or `outs`, all or a part of what it repeats; checked against memory.
    String(StringTransfer),
    /// `hlt`.
    Halt,
    /// A load from an address without memory.
    Read { address: u64, size: u8, destination: Register, signed: bool },
    /// A store there.
    Write { address: u64, size: u8, value: u64, source: Source },
    /// Nothing: a string instruction with a count of zero.
    Nothing,
}

/// Where a stored value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Register(Register),
    Immediate,
}

/// A string instruction's transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StringTransfer {
    pub(super) port: u16,
    pub(super) size: u8,
    pub(super) output: bool,
    /// Lowest address of the buffer.
    pub(super) address: u64,
    /// Bytes in this part.
    pub(super) length: u64,
    /// From the highest item to the lowest.
    pub(super) down: bool,
    /// Items left, this part's included, if the instruction repeats.
    count: Option<u64>,
    /// rdi or rsi, or their low halves.
    pointer: Register,
    /// rcx or ecx.
    counter: Register,
}

/// The processor's number for a general protection fault.
const TRAP_PROTECTION: u64 = 13;
/// Bit of a page fault's error code: it was an instruction fetch.
const PAGE_FAULT_FETCH: u64 = 1 << 4;

/// Judges a trap.
///
/// # Errors
/// What is wrong with the guest, as a sentence.
pub(super) fn judge(snapshot: &Snapshot, memory: &GuestMemory) -> Result<Request, String> {
    let rip = snapshot.registers.rip();
    let code = memory.code(rip);
    if code.bytes().is_empty() {
        return Err(format!("the guest jumped to {rip:#x}, where it has no memory"));
    }
    match snapshot.trap {
        TRAP_PROTECTION => judge_privileged(&decode(rip, code.bytes())?, &snapshot.registers, memory),
        TRAP_PAGE_FAULT if snapshot.error & PAGE_FAULT_FETCH != 0 => {
            Err(format!("the guest's code at {rip:#x} runs over the end of its memory"))
        }
        TRAP_PAGE_FAULT => judge_access(&decode(rip, code.bytes())?, snapshot, memory),
        _ => Err(fault(snapshot, rip, code.bytes())),
    }
}

/// Builds the decoder's tables, which takes as long as starting a process does; so it is best done meanwhile.
pub(super) fn prepare() {
    let _ = Decoder::new(64, &[], DecoderOptions::NONE);
}

fn decode(rip: u64, code: &[u8]) -> Result<Instruction, String> {
    let instruction = Decoder::with_ip(64, code, rip, DecoderOptions::NONE).decode();
    if instruction.is_invalid() {
        return Err(format!("the guest's code at {rip:#x} is no instruction ({})", hex(code)));
    }
    Ok(instruction)
}

/// Instructions that only ring 0 may execute.
fn judge_privileged(instruction: &Instruction, registers: &Registers, memory: &GuestMemory) -> Result<Request, String> {
    let wish = match instruction.mnemonic() {
        Mnemonic::In => {
            let size = instruction.op0_register().size() as u8;
            Wish::PortIn { port: port(instruction, 1, registers), size }
        }
        Mnemonic::Out => {
            let source = instruction.op1_register();
            let value = registers.get(source).unwrap_or_default() as u32;
            Wish::PortOut { port: port(instruction, 0, registers), size: source.size() as u8, value }
        }
        Mnemonic::Insb | Mnemonic::Insw | Mnemonic::Insd => string(instruction, false, registers, memory)?,
        Mnemonic::Outsb | Mnemonic::Outsw | Mnemonic::Outsd => string(instruction, true, registers, memory)?,
        Mnemonic::Hlt => Wish::Halt,
        _ => {
            return Err(format!(
                "the guest executed {} at {:#x}, which faults outside ring 0 or with the address it was given",
                name(instruction),
                instruction.ip()
            ));
        }
    };
    Ok(Request { wish, next_rip: instruction.next_ip() })
}

fn port(instruction: &Instruction, operand: u32, registers: &Registers) -> u16 {
    match instruction.op_kind(operand) {
        OpKind::Immediate8 => instruction.immediate8().into(),
        _ => registers.get(Register::DX).unwrap_or_default() as u16,
    }
}

fn string(
    instruction: &Instruction,
    output: bool,
    registers: &Registers,
    memory: &GuestMemory,
) -> Result<Wish, String> {
    let kind = instruction.op_kind(u32::from(output));
    let (pointer, counter) = match kind {
        OpKind::MemoryESRDI => (Register::RDI, Register::RCX),
        OpKind::MemoryESEDI => (Register::EDI, Register::ECX),
        OpKind::MemorySegRSI => (Register::RSI, Register::RCX),
        OpKind::MemorySegESI => (Register::ESI, Register::ECX),
        _ => return Err(unsupported(instruction)),
    };
    if matches!(instruction.segment_prefix(), Register::FS | Register::GS) {
        return Err(unsupported(instruction));
    }
    let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    let count = repeats.then(|| registers.get(counter).unwrap_or_default());
    if count == Some(0) {
        return Ok(Wish::Nothing);
    }
    let size = instruction.memory_size().size() as u64;
    let items = count.unwrap_or(1).min(STRING_BYTES_MAX / size);
    let length = items * size;
    let first = registers.get(pointer).unwrap_or_default();
    let down = registers.direction_down();
    let address = if down { first.checked_sub(length - size) } else { Some(first) };
    let address = address.filter(|&address| memory.contains(address, length)).ok_or_else(|| {
        format!(
            "the guest's {} at {:#x} transfers {length} bytes at {first:#x}, not all of them in its memory",
            name(instruction),
            instruction.ip()
        )
    })?;
    let port = registers.get(Register::DX).unwrap_or_default() as u16;
    Ok(Wish::String(StringTransfer { port, size: size as u8, output, address, length, down, count, pointer, counter }))
}

/// Accesses that hit no memory.
fn judge_access(instruction: &Instruction, snapshot: &Snapshot, memory: &GuestMemory) -> Result<Request, String> {
    let (rip, fault) = (instruction.ip(), snapshot.address);
    if memory.overlaps(fault, 1) {
        return Err(if fault < memory.lowest_address() {
            let lowest = memory.lowest_address();
            format!("the guest's code at {rip:#x} accessed {fault:#x}; here it can reach no address below {lowest:#x}")
        } else {
            format!("the guest's code at {rip:#x} could not access its own memory at {fault:#x}")
        });
    }
    if fault >= GUEST_ADDRESS_LIMIT {
        return Err(format!(
            "the guest's code at {rip:#x} accessed {fault:#x}, where neither memory nor devices can be"
        ));
    }
    let access = plain_move(instruction, &snapshot.registers).ok_or_else(|| {
        format!(
            "the guest accessed {fault:#x}, where it has no memory, with {} at {rip:#x}; devices take plain moves only",
            name(instruction)
        )
    })?;
    let (address, size) = match access {
        Wish::Read { address, size, .. } | Wish::Write { address, size, .. } => (address, size),
        _ => return Err(unsupported(instruction)),
    };
    if address != fault || memory.overlaps(address, size.into()) {
        return Err(format!(
            "the guest's access to {size} bytes at {address:#x} by the code at {rip:#x} faulted at {fault:#x}"
        ));
    }
    Ok(Request { wish: access, next_rip: instruction.next_ip() })
}

/// The access of a `mov`, `movzx`, `movsx` or `movsxd` between memory and a general-purpose register, or of an
/// immediate to memory.
fn plain_move(instruction: &Instruction, registers: &Registers) -> Option<Wish> {
    let (plain, signed) = match instruction.mnemonic() {
        Mnemonic::Mov => (true, false),
        Mnemonic::Movzx => (false, false),
        Mnemonic::Movsx | Mnemonic::Movsxd => (false, true),
        _ => return None,
    };
    let size = u8::try_from(instruction.memory_size().size()).ok().filter(|size| matches!(size, 1 | 2 | 4 | 8))?;
    let address = |operand| instruction.virtual_address(operand, 0, |register, _, _| base(register, registers));
    let (to, from) = (instruction.op0_kind(), instruction.op1_kind());
    if to == OpKind::Register && from == OpKind::Memory {
        let destination = instruction.op0_register();
        return destination.is_gpr().then_some(Wish::Read { address: address(1)?, size, destination, signed });
    }
    if !plain || to != OpKind::Memory {
        return None;
    }
    let (value, source) = if from == OpKind::Register {
        let register = instruction.op1_register();
        (registers.get(register)?, Source::Register(register))
    } else {
        (instruction.try_immediate(1).ok()?, Source::Immediate)
    };
    Some(Wish::Write { address: address(0)?, size, value: value & mask(size.into()), source })
}

/// A register in an address. The bases of fs and gs are not known here.
fn base(register: Register, registers: &Registers) -> Option<u64> {
    match register {
        Register::CS | Register::DS | Register::ES | Register::SS => Some(0),
        _ => registers.get(register),
    }
}

impl Request {
    /// What happens to the registers and, for `ins`, to memory when the VMM has answered with `data`.
    pub(super) fn complete(&self, registers: &mut Registers, memory: &GuestMemory, data: &mut [u8]) {
        match self.wish {
            Wish::PortIn { size, .. } => {
                let accumulator = match size {
                    1 => Register::AL,
                    2 => Register::AX,
                    _ => Register::EAX,
                };
                registers.set(accumulator, word(data));
            }
            Wish::Read { size, destination, signed, .. } => {
                let shift = 64 - 8 * u32::from(size.clamp(1, 8));
                let value = word(data) << shift;
                registers.set(destination, if signed { (value as i64 >> shift) as u64 } else { value >> shift });
            }
            Wish::String(transfer) => return self.complete_string(&transfer, registers, memory, data),
            Wish::PortOut { .. } | Wish::Halt | Wish::Write { .. } | Wish::Nothing => {}
        }
        registers.set_rip(self.next_rip);
    }

    fn complete_string(
        &self,
        transfer: &StringTransfer,
        registers: &mut Registers,
        memory: &GuestMemory,
        data: &mut [u8],
    ) {
        if !transfer.output {
            transfer.turn(data);
            // Judged to be in memory, and slots never go.
            memory.write(transfer.address, data);
        }
        let pointer = registers.get(transfer.pointer).unwrap_or_default();
        let moved =
            if transfer.down { pointer.wrapping_sub(transfer.length) } else { pointer.wrapping_add(transfer.length) };
        registers.set(transfer.pointer, moved);
        let left = transfer.count.map_or(0, |count| count - transfer.length / u64::from(transfer.size));
        if transfer.count.is_some() {
            registers.set(transfer.counter, left);
        }
        if left == 0 {
            registers.set_rip(self.next_rip);
        }
    }
}

impl StringTransfer {
    /// Between the order in memory and the order of transfer.
    pub(super) fn turn(&self, data: &mut [u8]) {
        if self.down {
            let size = usize::from(self.size);
            data.reverse();
            data.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
    }
}

fn word(data: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(data).for_each(|(to, from)| *to = *from);
    u64::from_le_bytes(bytes)
}

/// Faults that are nobody's request.
fn fault(snapshot: &Snapshot, rip: u64, code: &[u8]) -> String {
    let what = match snapshot.trap {
        0 => "divided by zero or overflowed a division",
        1 => "single-stepped or hit a debug register",
        3 => "executed a breakpoint",
        4 => "overflowed",
        6 => "executed an invalid instruction",
        12 => "used a stack address that cannot exist",
        16 | 19 => "raised a floating-point exception",
        17 => "made an unaligned access with alignment checks on",
        trap => return format!("the guest stopped at {rip:#x} with signal {} and trap {trap}", snapshot.signal),
    };
    format!("the guest {what} at {rip:#x} ({})", hex(code))
}

fn unsupported(instruction: &Instruction) -> String {
    format!(
        "the guest executed {} at {:#x} in a form that this backend does not emulate",
        name(instruction),
        instruction.ip()
    )
}

fn name(instruction: &Instruction) -> String {
    format!("`{:?}`", instruction.mnemonic()).to_lowercase()
}

fn hex(code: &[u8]) -> String {
    code.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}
