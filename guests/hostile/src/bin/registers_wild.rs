//! Writes a number to every register of both devices but the status register, reads them all back, and rings doorbells
//! of virtqueues that do not exist: each number is an attempt. The last writes the status register too. The VMM takes
//! it, and an honest request afterwards has status 0, or it says what rule the guest broke.
#![no_std]
#![no_main]

use blockyard_guest_hostile::{Answer, DATA, Findings, RawQueue, begin, registers};
use blockyard_guest_runtime::virtio_mmio::register;
use blockyard_protocol::messages::{GuestOperation, VmmConfig};

blockyard_guest_runtime::entry!(main);

fn main() {
    let config = begin();
    let mut findings = Findings::new(&config);
    for value in [0, 1, 3, 4, 0xf, 0x7f, 0x8000, u32::MAX] {
        findings.attempt("numbers", || {
            write_everywhere(&config, value, false);
            honest_request(&config)
        });
    }
    findings.attempt("status", || {
        write_everywhere(&config, u32::MAX, true);
        honest_request(&config)
    });
    findings.report(GuestOperation::Probe);
}

fn write_everywhere(config: &VmmConfig, value: u32, status: bool) {
    for name in ["input", "output"] {
        let registers = registers(config, name);
        for offset in (0..0x200).step_by(4).filter(|&offset| status || offset != register::STATUS) {
            registers.write(offset, value);
            registers.read(offset);
        }
        for queue in [1, 4, 255, 0xffff, u32::MAX] {
            registers.notify(queue);
        }
        registers.config8(0xeff);
        registers.config16(0xefe);
    }
}

fn honest_request(config: &VmmConfig) -> Answer {
    let queue = RawQueue::new(config, "input");
    queue.request(0, 0, DATA, 512);
    queue.offer(0)
}
