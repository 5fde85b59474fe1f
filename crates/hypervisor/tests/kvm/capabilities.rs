//! What the hypervisor says of itself, and whether it is taken for native.

use crate::machine::hypervisor;
use blockyard_hypervisor::Hypervisor;
use blockyard_hypervisor::kvm::{examine, nanoseconds_per_instruction, probe};

#[test]
fn says_what_it_can_do() {
    let Some(hypervisor) = hypervisor() else { return };
    assert_eq!(hypervisor.name(), "kvm");
    let capabilities = hypervisor.capabilities();
    assert!(capabilities.kernels && capabilities.vcpus_max >= 1 && capabilities.memory_slots_max >= 8);
}

#[test]
fn is_probed_as_native_where_it_executes_guest_code() {
    let Some(hypervisor) = hypervisor() else { return };
    let per_instruction = nanoseconds_per_instruction(&hypervisor).unwrap();
    eprintln!("{per_instruction:.2} ns an instruction; {:?}", probe());
    // A loaded machine may preempt the one measurement, but not each of ten.
    assert!((0..10).any(|_| probe().native), "{:?}", probe());
    assert!(probe().usable && examine().usable, "{:?}", examine());
}
