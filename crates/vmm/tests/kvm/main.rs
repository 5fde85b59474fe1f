//! Stock Linux kernels on a PC of ours, on a real /dev/kvm.
//!
//! These run in `cargo xtask lab`, where `BLOCKYARD_LAB_GUEST` names a directory with a kernel and its modules.
//! Elsewhere they return early.

mod ahci;
mod boots;
mod rig;
