//! Flat segments, as guests of every kind begin with them: by the selectors of Linux's boot protocol, of which other
//! guests ask for none.
//!
//! Formats: AMD64 Architecture Programmer's Manual volume 2, chapter 4.

use super::start::little_endian;
use kvm_bindings::{kvm_segment, kvm_sregs};

pub(super) const GDT_BYTES: u64 = 32;

/// `__BOOT_CS` and `__BOOT_DS`.
const CODE_SELECTOR: u16 = 0x10;
const DATA_SELECTOR: u16 = 0x18;

/// What the code segment's code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Bits32,
    Bits64,
}

/// The table with both segments: [`GDT_BYTES`] bytes.
pub(super) fn table(width: Width) -> Vec<u8> {
    little_endian(&[0, 0, descriptor(&code_segment(width)), descriptor(&data_segment())])
}

/// Sets the segment registers as if they had been loaded from that table.
pub(super) fn set_segments(registers: &mut kvm_sregs, width: Width) {
    registers.cs = code_segment(width);
    for segment in [&mut registers.ds, &mut registers.es, &mut registers.fs, &mut registers.gs, &mut registers.ss] {
        *segment = data_segment();
    }
    registers.tr = task_segment();
}

fn code_segment(width: Width) -> kvm_segment {
    // L: 64-bit. D: 32-bit.
    let (l, db) = match width {
        Width::Bits32 => (0, 1),
        Width::Bits64 => (1, 0),
    };
    // Type: code, readable, accessed.
    kvm_segment { selector: CODE_SELECTOR, type_: 0xb, l, db, ..flat_segment() }
}

fn data_segment() -> kvm_segment {
    // Type: data, writable, accessed.
    kvm_segment { selector: DATA_SELECTOR, type_: 0x3, db: 1, ..flat_segment() }
}

fn flat_segment() -> kvm_segment {
    kvm_segment { limit: 0xffff_ffff, present: 1, s: 1, g: 1, ..Default::default() }
}

/// Never used, but Intel processors enter no guest without a busy TSS (SDM volume 3, 27.3.1.2), and PVH demands one.
fn task_segment() -> kvm_segment {
    kvm_segment { limit: 0x67, type_: 0xb, present: 1, ..Default::default() }
}

/// A segment as the table has it (4.7).
fn descriptor(segment: &kvm_segment) -> u64 {
    let limit = u64::from(segment.limit >> if segment.g == 1 { 12 } else { 0 });
    let flags = u64::from(segment.type_)
        | u64::from(segment.s) << 4
        | u64::from(segment.dpl) << 5
        | u64::from(segment.present) << 7
        | u64::from(segment.l) << 13
        | u64::from(segment.db) << 14
        | u64::from(segment.g) << 15;
    limit & 0xffff | (limit >> 16 & 0xf) << 48 | flags << 40
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_the_well_known_ones() {
        assert_eq!(descriptor(&code_segment(Width::Bits64)), 0x00af_9b00_0000_ffff);
        assert_eq!(descriptor(&code_segment(Width::Bits32)), 0x00cf_9b00_0000_ffff);
        assert_eq!(descriptor(&data_segment()), 0x00cf_9300_0000_ffff);
        assert_eq!(table(Width::Bits32).len() as u64, GDT_BYTES);
    }
}
