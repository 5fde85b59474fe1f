//! Whatever a guest puts into its registers and its code, judging it does not panic, and what comes out is within
//! bounds.

use super::*;
use blockyard_block::MemoryMap;

const LOWEST: u64 = 0x10000;
const MEMORY_BYTES: u64 = 0x40000;

/// Registers, trap, fault address, error code, instruction bytes, answer.
type Input = ([u64; 18], u8, u64, u64, [u8; 15], [u8; 8]);

fn memory() -> (MemoryMap, GuestMemory) {
    let map = MemoryMap::allocate(&[(0, MEMORY_BYTES as usize)]).unwrap();
    let mut memory = GuestMemory::new(LOWEST);
    memory.add(0, &map, 0).unwrap();
    (map, memory)
}

fn check(input: &Input, memory: &GuestMemory) {
    let (words, trap, address, error, code, answer) = input;
    let mut registers = Registers(*words);
    // Mostly where there is code, and often with small pointers and counts: elsewhere nothing much happens.
    if words[0] % 8 != 0 {
        registers.set_rip(LOWEST + words[16] % (MEMORY_BYTES - LOWEST));
    }
    if words[1] % 2 != 0 {
        for register in [Register::RSI, Register::RDI, Register::RCX, Register::RBX] {
            registers.set(register, registers.get(register).unwrap() % (2 * MEMORY_BYTES));
        }
    }
    memory.write(registers.rip(), code);
    let trap = [TRAP_PROTECTION, TRAP_PAGE_FAULT, (*trap).into()][usize::from(*trap) % 3];
    let address = if words[2] % 4 == 0 { *address } else { touched(&registers, memory).unwrap_or(*address) };
    let snapshot = Snapshot { signal: 11, registers, code_segment: 0x33, trap, address, error: *error };
    let Ok(request) = judge(&snapshot, memory) else { return };
    let length = match request.wish {
        Wish::PortIn { size, .. } | Wish::PortOut { size, .. } => {
            assert!(matches!(size, 1 | 2 | 4));
            size.into()
        }
        Wish::Read { address, size, .. } | Wish::Write { address, size, .. } => {
            assert!(matches!(size, 1 | 2 | 4 | 8));
            assert!(!memory.overlaps(address, size.into()));
            size.into()
        }
        Wish::String(transfer) => {
            assert!(transfer.length > 0 && transfer.length <= STRING_BYTES_MAX);
            assert!(transfer.length.is_multiple_of(transfer.size.into()));
            assert!(transfer.address >= LOWEST && transfer.address + transfer.length <= MEMORY_BYTES);
            transfer.length as usize
        }
        Wish::Halt | Wish::Nothing => 0,
    };
    let mut data: Vec<u8> = answer.iter().copied().cycle().take(length).collect();
    request.complete(&mut registers, memory, &mut data);
    let stays = matches!(request.wish, Wish::String(_)) && registers.rip() == snapshot.registers.rip();
    assert!(stays || registers.rip() == request.next_rip);
}

/// The address that the instruction itself says, as an honest page fault has it.
fn touched(registers: &Registers, memory: &GuestMemory) -> Option<u64> {
    let code = memory.code(registers.rip());
    match plain_move(&decode(registers.rip(), code.bytes()).ok()?, registers)? {
        Wish::Read { address, .. } | Wish::Write { address, .. } => Some(address),
        _ => None,
    }
}

#[test]
fn judging_never_panics() {
    let (_map, memory) = memory();
    blockyard_fuzz::check!(100_000).with_type::<Input>().for_each(|input| check(input, &memory));
}

/// Random bytes seldom are what this is about, so: every prefix and opcode that a request can have.
#[test]
fn judging_requests_never_panics() {
    let (_map, memory) = memory();
    let prefixes: [&[u8]; 9] =
        [&[], &[0xf3], &[0xf2], &[0x66], &[0x67], &[0x67, 0xf3], &[0x66, 0xf3], &[0x64], &[0x65, 0xf3]];
    let rex: [&[u8]; 3] = [&[], &[0x48], &[0x4f]];
    let opcodes: [&[u8]; 28] = [
        &[0xe4],
        &[0xe5],
        &[0xe6],
        &[0xe7],
        &[0xec],
        &[0xed],
        &[0xee],
        &[0xef],
        &[0x6c],
        &[0x6d],
        &[0x6e],
        &[0x6f],
        &[0xf4],
        &[0x88],
        &[0x89],
        &[0x8a],
        &[0x8b],
        &[0xc6],
        &[0xc7],
        &[0xa0],
        &[0xa1],
        &[0xa2],
        &[0xa3],
        &[0x63],
        &[0x0f, 0xb6],
        &[0x0f, 0xb7],
        &[0x0f, 0xbe],
        &[0x0f, 0xbf],
    ];
    let forms: Vec<Vec<u8>> = prefixes
        .iter()
        .flat_map(|prefix| rex.iter().map(move |rex| [*prefix, *rex].concat()))
        .flat_map(|start| opcodes.iter().map(move |opcode| [&start[..], *opcode].concat()))
        .collect();
    blockyard_fuzz::check!(100_000).with_type::<(u16, Input)>().for_each(|(form, input)| {
        let mut input = *input;
        let form = &forms[usize::from(*form) % forms.len()];
        input.4[..form.len()].copy_from_slice(form);
        check(&input, &memory);
    });
}
