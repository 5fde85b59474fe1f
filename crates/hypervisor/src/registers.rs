//! What a processor had in its registers when its guest died.

use std::fmt;

/// A processor's registers, for people who look for what a guest died of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// Where it was.
    pub rip: u64,
    /// RFLAGS.
    pub rflags: u64,
    /// By the numbers that instructions have for them: RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 to R15.
    pub general: [u64; 16],
    /// CR0, CR2, CR3 and CR4.
    pub control: [u64; 4],
    /// EFER.
    pub efer: u64,
    /// CS, SS, DS, ES, FS, GS.
    pub segments: [SegmentRegister; 6],
    /// Where the GDT lies.
    pub gdt: TableRegister,
    /// Where the IDT lies.
    pub idt: TableRegister,
}

/// A segment register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentRegister {
    /// Which descriptor was loaded.
    pub selector: u16,
    /// Where the segment begins.
    pub base: u64,
}

/// A register that says where a table lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableRegister {
    /// First byte.
    pub base: u64,
    /// Its length less one.
    pub limit: u16,
}

const GENERAL: [&str; 16] =
    ["rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];
const CONTROL: [&str; 4] = ["cr0", "cr2", "cr3", "cr4"];
const SEGMENTS: [&str; 6] = ["cs", "ss", "ds", "es", "fs", "gs"];
/// So that a line fits a terminal of 80 letters.
const NUMBERS_A_LINE: usize = 3;

impl Registers {
    /// Whether they are as after a reset, where no guest begins or goes (AMD64 volume 2, 14.1.3).
    pub fn are_as_after_a_reset(&self) -> bool {
        const CODE_SEGMENT_BASE: u64 = 0xffff_0000;
        const INSTRUCTION_POINTER: u64 = 0xfff0;
        self.rip == INSTRUCTION_POINTER && self.segments[0].base == CODE_SEGMENT_BASE
    }
}

impl fmt::Display for Registers {
    /// A block of lines, without a newline at its end.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers = vec![("rip", self.rip), ("rflags", self.rflags)];
        numbers.extend(GENERAL.into_iter().zip(self.general));
        numbers.extend(CONTROL.into_iter().zip(self.control));
        numbers.push(("efer", self.efer));
        for line in numbers.chunks(NUMBERS_A_LINE) {
            line.iter().try_for_each(|(name, value)| write!(formatter, "  {name:<6} {value:016x}"))?;
            writeln!(formatter)?;
        }
        for line in SEGMENTS.iter().zip(&self.segments).collect::<Vec<_>>().chunks(NUMBERS_A_LINE) {
            let segment = |(name, SegmentRegister { selector, base }): &(&&str, &SegmentRegister)| {
                write!(formatter, "  {name} {selector:04x} {base:016x}")
            };
            line.iter().try_for_each(segment)?;
            writeln!(formatter)?;
        }
        let TableRegister { base, limit } = self.gdt;
        write!(formatter, "  gdt {base:016x} limit {limit:04x}")?;
        let TableRegister { base, limit } = self.idt;
        write!(formatter, "  idt {base:016x} limit {limit:04x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_a_block_that_fits_a_terminal() {
        let registers = Registers {
            rip: 0x10_0204,
            general: std::array::from_fn(|index| 0x1111_1111_1111_1111 * index as u64),
            control: [0x8005_0033, 0xdead_beef, 0x9000, 0x6b0],
            segments: [SegmentRegister { selector: 0x10, base: 7 }; 6],
            idt: TableRegister { base: 0xffff_fe00_0000_0000, limit: 0xfff },
            ..Registers::default()
        };
        let text = registers.to_string();
        for expected in [
            "rip    0000000000100204",
            "r15    ffffffffffffffff",
            "cr2    00000000deadbeef",
            "gs 0010 0000000000000007",
            "idt fffffe0000000000 limit 0fff",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let names = GENERAL.iter().chain(&CONTROL).chain(&["efer", "rflags"]);
        assert!(names.into_iter().all(|name| text.contains(&format!("  {name:<6} "))), "{text}");
        assert!(text.lines().all(|line| line.starts_with("  ") && line.len() <= 80), "{text}");
    }

    #[test]
    fn a_reset_is_told_by_where_it_leads() {
        let mut registers = Registers { rip: 0xfff0, ..Registers::default() };
        assert!(!registers.are_as_after_a_reset());
        registers.segments[0] = SegmentRegister { selector: 0xf000, base: 0xffff_0000 };
        assert!(registers.are_as_after_a_reset());
    }
}
