//! A virtual machine: memory map, buses, devices, vCPU and I/O threads, and the CPUs they run on.
//!
//! [`machine::Machine`] is put together and started; it becomes a [`machine::RunningMachine`], which tells what happens
//! in it through [`event::MachineEvent`]s. [`io_thread::IoThreads`] serve the virtqueues of its disks; [`backend`]
//! chooses who executes the guest's code.
//!
//! Deliberately absent: what the guest is for (the commands know), and how its code is executed (the hypervisor knows).
#![forbid(unsafe_code)]

pub mod ahci;
pub mod attached_disk;
pub mod backend;
pub mod bus;
pub mod event;
pub mod interrupt_latch;
pub mod io_thread;
pub mod machine;
mod patience;
pub mod pc;
pub mod placement;
pub mod serial;
pub mod threads;
pub mod virtio_disk;
pub mod virtio_mmio;
