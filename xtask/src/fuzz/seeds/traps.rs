//! Traps of `user` guests, as `check` in crates/hypervisor/src/user/decode/tests.rs takes them.

use super::{Corpus, Seed};

const SOURCE: &str = "crates/hypervisor/src/user/decode/tests.rs";
const MODULES: &str = "user__decode__tests";

/// The target's guest memory.
const LOWEST: u64 = 0x1_0000;
const END: u64 = 0x4_0000;
/// Where nothing but devices can be.
const DEVICE: u64 = 0x10_0000;

const PROTECTION: u8 = 0;
const PAGE_FAULT: u8 = 1;
/// A trap that stands for itself in the target: alignment check.
const ALIGNMENT: u8 = 17;

const DIRECTION_DOWN: u64 = 1 << 10;

/// A trap's registers and code; the rest is as it is in an honest one.
#[derive(Clone, Copy)]
struct Trapped<'a> {
    trap: u8,
    code: &'a [u8],
    rip: u64,
    rax: u64,
    rbx: u64,
    rcx: u64,
    rsi: u64,
    rdi: u64,
    rflags: u64,
    fault_address: Option<u64>,
    error: u64,
}

const TRAPPED: Trapped<'_> = Trapped {
    trap: PROTECTION,
    code: &[],
    rip: 0x2_0000,
    rax: 0x41,
    rbx: DEVICE,
    rcx: 16,
    rsi: 0x3_0000,
    rdi: 0x3_0000,
    rflags: 2,
    fault_address: None,
    error: 0,
};

impl Trapped<'_> {
    fn seed(self) -> Seed {
        self.after(Seed::default())
    }

    fn after(self, mut seed: Seed) -> Seed {
        // r8: a multiple of 8 means rip as it is. r9: even means the pointers as they are. r10: a multiple of 4 means
        // the fault's address as it is, else the one that the instruction says.
        let r10 = if self.fault_address.is_some() { 0 } else { 1 };
        const COM1: u64 = 0x3f8;
        // In the order of a signal frame: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, rflags.
        for word in [0, 0, r10, 0, 0, 0, 0, 0, self.rdi, self.rsi, 0, self.rbx, COM1, self.rax, self.rcx] {
            seed = seed.u64(word);
        }
        let mut code = [0x90; 15];
        code[..self.code.len()].copy_from_slice(self.code);
        seed.u64(END)
            .u64(self.rip)
            .u64(self.rflags)
            .u8(self.trap)
            .u64(self.fault_address.unwrap_or_default())
            .u64(self.error)
            .bytes(&code)
            .bytes(b"answered")
    }
}

pub(super) fn corpora() -> [Corpus; 2] {
    [
        Corpus { source: SOURCE, function: "judging_never_panics", modules: MODULES, seeds: any_code() },
        Corpus { source: SOURCE, function: "judging_requests_never_panics", modules: MODULES, seeds: forms() },
    ]
}

fn any_code() -> Vec<(&'static str, Seed)> {
    let code = |code: &'static [u8]| Trapped { code, ..TRAPPED };
    let fault = |code: &'static [u8]| Trapped { code, trap: PAGE_FAULT, ..TRAPPED };
    const OUTSB: &[u8] = &[0xf3, 0x6e];
    const INSB: &[u8] = &[0xf3, 0x6c];
    const INSD: &[u8] = &[0xf3, 0x6d];
    vec![
        ("hlt", code(&[0xf4]).seed()),
        ("out-dx-al", code(&[0xee]).seed()),
        ("out-imm8-eax", code(&[0xe7, 0x80]).seed()),
        ("in-ax-dx", code(&[0x66, 0xed]).seed()),
        ("cli-is-no-request", code(&[0xfa]).seed()),
        ("outsb-frame", code(OUTSB).seed()),
        ("outsb-none", Trapped { rcx: 0, ..code(OUTSB) }.seed()),
        ("outsb-more-than-one-exit-takes", Trapped { rcx: 0x1_8000, rsi: LOWEST, ..code(OUTSB) }.seed()),
        ("outsb-as-often-as-can-be-said", Trapped { rcx: u64::MAX, rsi: LOWEST, ..code(OUTSB) }.seed()),
        ("outsb-up-to-the-end", Trapped { rsi: END - 16, ..code(OUTSB) }.seed()),
        ("outsb-over-the-end", Trapped { rsi: END - 15, ..code(OUTSB) }.seed()),
        ("outsb-where-addresses-end", Trapped { rsi: u64::MAX - 7, ..code(OUTSB) }.seed()),
        ("insb", code(INSB).seed()),
        ("insd-down", Trapped { rflags: DIRECTION_DOWN | 2, ..code(INSD) }.seed()),
        ("insd-down-to-below-0", Trapped { rflags: DIRECTION_DOWN | 2, rdi: 4, ..code(INSD) }.seed()),
        ("insb-over-its-own-code", Trapped { rdi: 0x2_0000, ..code(INSB) }.seed()),
        ("outsb-of-gs", code(&[0x65, 0xf3, 0x6e]).seed()),
        ("load-eax", fault(&[0x8b, 0x03]).seed()),
        ("load-sign-extended-byte", fault(&[0x48, 0x0f, 0xbe, 0x03]).seed()),
        ("load-of-gs", fault(&[0x65, 0x8b, 0x03]).seed()),
        ("load-by-a-64-bit-offset", fault(&[0xa1, 0, 0, 0x10, 0, 0, 0, 0, 0]).seed()),
        ("store-ah", fault(&[0x88, 0x23]).seed()),
        ("store-immediate", fault(&[0x48, 0xc7, 0x03, 0xff, 0xff, 0xff, 0xff]).seed()),
        ("load-into-a-segment-register", fault(&[0x8e, 0x03]).seed()),
        ("add-to-a-device", fault(&[0x01, 0x03]).seed()),
        ("load-half-of-it-in-memory", Trapped { rbx: LOWEST - 2, ..fault(&[0x8b, 0x03]) }.seed()),
        ("load-where-addresses-end", Trapped { rbx: u64::MAX - 1, ..fault(&[0x8b, 0x03]) }.seed()),
        ("fault-elsewhere-than-said", Trapped { fault_address: Some(DEVICE + 1), ..fault(&[0x8b, 0x03]) }.seed()),
        ("fault-in-memory", Trapped { fault_address: Some(LOWEST), ..fault(&[0x8b, 0x03]) }.seed()),
        ("fault-of-a-fetch", Trapped { error: 0x10, ..fault(&[0x8b, 0x03]) }.seed()),
        ("code-ends-with-memory", Trapped { rip: END - 1, ..code(OUTSB) }.seed()),
        ("code-outside-memory", Trapped { rip: u64::MAX - 7, ..code(&[0xf4]) }.seed()),
        ("no-instruction", code(&[0x06]).seed()),
        ("prefixes-only", code(&[0x66; 15]).seed()),
        ("alignment-check", Trapped { trap: ALIGNMENT, ..code(&[0x8b, 0x03]) }.seed()),
    ]
}

/// With the number of the prefixes and opcode that the target puts in front of the code.
fn forms() -> Vec<(&'static str, Seed)> {
    const FORMS_OF_A_PREFIX: u16 = 3 * 28;
    const INSB: u16 = 8;
    const OUTSB: u16 = 10;
    const MOVZX_BYTE: u16 = 24;
    let form = |prefix: u16, opcode: u16, trapped: Trapped<'_>| {
        trapped.after(Seed::default().u16(prefix * FORMS_OF_A_PREFIX + opcode))
    };
    let fault = Trapped { trap: PAGE_FAULT, code: &[0, 0, 0x03], ..TRAPPED };
    vec![
        ("repne-outsb", form(2, OUTSB, TRAPPED)),
        ("outsb-by-esi-and-ecx", form(5, OUTSB, Trapped { rsi: 1 << 32 | 0x3_0000, rcx: 7 << 32 | 9, ..TRAPPED })),
        ("insb-by-edi-to-below-0", form(5, INSB, Trapped { rflags: DIRECTION_DOWN | 2, rdi: 3, ..TRAPPED })),
        ("load-zero-extended-byte", form(0, MOVZX_BYTE, fault)),
    ]
}
