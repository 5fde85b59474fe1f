//! The `kvm` backend on a real /dev/kvm: small guests, each about one exit, and hostile ones.
//!
//! These run where `BLOCKYARD_TEST_KVM=1` says that there is a KVM that executes guest code: in `cargo xtask lab`, or
//! on a machine of that kind. Elsewhere (no KVM, or PVM, whose emulator knows too few instructions) they return early.

mod capabilities;
mod doorbells;
mod entries;
mod exits;
mod hostile;
mod interrupts;
mod kicks;
mod machine;
mod memory;
