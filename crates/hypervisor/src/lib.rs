//! Who executes guest code.
//!
//! [`Hypervisor`] → [`Vm`] → [`Vcpu`]. A VM maps regions of a memory map as slots, registers doorbells (a guest's write
//! at an address signals an eventfd) and interrupts (an eventfd raises one), and creates vCPUs. Those of them that
//! change while the VM runs are its [`EventRoutes`]. [`Vcpu::run`] executes guest code until the guest wants something
//! of the VMM, and returns that as an [`Exit`]; [`Kick`] fetches a vCPU back from another thread.
//!
//! Two implementations run exactly the same guest binaries: [`kvm`] (/dev/kvm) and [`user`] (no hypervisor: the guest
//! is a deprivileged process whose privileged instructions trap). What differs between them is asked for
//! ([`Capabilities`]), never assumed.
//!
//! Deliberately absent: device models, loaders, and any idea of what the guest is for.

use blockyard_block::MemoryMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

pub mod kvm;
mod registers;
pub mod user;

pub use registers::{Registers, SegmentRegister, TableRegister};

/// Lines of a VM's I/O APIC.
pub const INTERRUPT_LINES: u32 = 24;

/// What a hypervisor can do beyond running [`Entry::Flat64`] guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Guests may use ring 0 and their own page tables: kernels can boot.
    pub kernels: bool,
    /// vCPUs a VM may have.
    pub vcpus_max: u32,
    /// Memory slots a VM may have.
    pub memory_slots_max: u32,
    /// Lowest guest-physical address that the guest itself can reach.
    pub lowest_address: u64,
}

/// How a vCPU starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Entry {
    /// 64-bit, memory and devices mapped at their own addresses below 1 GiB, interrupts off, SSE usable, all other
    /// registers zero. For flat binaries.
    Flat64 {
        /// First instruction.
        entry: u64,
        /// Initial stack pointer.
        stack_top: u64,
        /// Where a 32-byte GDT may be written, should the hypervisor need one.
        gdt: u64,
        /// Where 12 KiB of page tables may be written, should the hypervisor need them; 4 KiB aligned.
        page_tables: u64,
    },
    /// As Linux's 64-bit boot protocol has it: 64-bit, memory below 1 GiB mapped at its own addresses, segments by the
    /// selectors that the protocol names, interrupts off, RSI with the boot parameters' address.
    Linux64 {
        /// First instruction.
        entry: u64,
        /// Where the boot parameters lie: the protocol's zero page.
        boot_parameters: u64,
        /// Where a 32-byte GDT may be written.
        gdt: u64,
        /// Where 12 KiB of page tables may be written; 4 KiB aligned.
        page_tables: u64,
    },
    /// As Linux's 32-bit boot protocol has it: protected mode without paging, flat segments of 4 GiB by the selectors
    /// that the protocol names, interrupts off, ESI with the boot parameters' address.
    Protected32 {
        /// First instruction, below 4 GiB.
        entry: u64,
        /// Where the boot parameters lie: the protocol's zero page.
        boot_parameters: u64,
        /// Where a 32-byte GDT may be written.
        gdt: u64,
    },
    /// As Xen's PVH has it, by which other hypervisors start kernels too: protected mode without paging, flat segments
    /// of 4 GiB, interrupts off, EBX with the start information's address.
    Pvh {
        /// First instruction, below 4 GiB.
        entry: u64,
        /// Where the start information lies (`struct hvm_start_info`, version 1).
        start_info: u64,
    },
    /// Nothing runs until another vCPU of the VM sends a startup IPI, as a PC's other processors begin. Takes a VM with
    /// [interrupt controllers](Vm::create_interrupt_controllers).
    AwaitStartup,
}

/// Why [`Vcpu::run`] came back. Data that an `In` or `Read` exit asks for is written into the exit's buffer and reaches
/// the guest with the next `run`.
#[derive(Debug, PartialEq, Eq)]
pub enum Exit<'a> {
    /// Port input of `data.len() / size` items of `size` bytes (1, 2 or 4): more than one for a repeated string
    /// instruction.
    PortIn {
        /// Port number.
        port: u16,
        /// Bytes an item.
        size: u8,
        /// To be filled.
        data: &'a mut [u8],
    },
    /// Port output, likewise.
    PortOut {
        /// Port number.
        port: u16,
        /// Bytes an item.
        size: u8,
        /// What was written.
        data: &'a [u8],
    },
    /// A read of 1, 2, 4 or 8 bytes at an address with no memory.
    MmioRead {
        /// Guest-physical address.
        address: u64,
        /// To be filled.
        data: &'a mut [u8],
    },
    /// A write of 1, 2, 4 or 8 bytes at an address with no memory.
    MmioWrite {
        /// Guest-physical address.
        address: u64,
        /// What was written.
        data: &'a [u8],
    },
    /// `hlt`.
    Halt,
    /// The guest shut itself down, or faulted beyond repair (triple fault). [`Vcpu::registers`] may say where.
    Shutdown,
    /// Somebody called [`Kick::kick`].
    Kicked,
    /// The guest cannot go on, and it is the guest's doing: a sentence that says what it did. [`Vcpu::registers`] may
    /// say more.
    Crashed(String),
}

/// A hypervisor.
pub trait Hypervisor: Send + Sync {
    /// The word users know it by: `kvm`, `user`.
    fn name(&self) -> &'static str;

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Creates a VM without memory or vCPUs.
    ///
    /// # Errors
    /// When the operating system refuses.
    fn create_vm(&self) -> Result<Box<dyn Vm>, Error>;
}

/// A virtual machine. Map its memory and register its doorbells, then create its vCPUs.
///
/// Dropping the VM and its vCPUs ends the guest; no process of it is left.
pub trait Vm: Send {
    /// Maps region `region` of `memory` (counted in order of address) as slot `slot`, readable, writable and
    /// executable, at the region's own guest-physical address. All slots of a VM are mapped before its first vCPU.
    ///
    /// # Errors
    /// When there is no such region, the slot is taken, or the operating system refuses.
    fn map_memory(&mut self, slot: u32, memory: &MemoryMap, region: usize) -> Result<(), Error>;

    /// From now on a 4-byte write of `value` at `address` adds one to `event` (an eventfd) instead of causing an exit.
    ///
    /// # Errors
    /// When the address has a doorbell for that value already, or the operating system refuses.
    fn register_doorbell(&mut self, address: u64, value: u32, event: BorrowedFd<'_>) -> Result<(), Error>;

    /// Undoes [`Vm::register_doorbell`]: such writes are exits again.
    ///
    /// # Errors
    /// When there is no such doorbell.
    fn unregister_doorbell(&mut self, address: u64, value: u32) -> Result<(), Error>;

    /// Gives the VM a PC's interrupt controllers: an I/O APIC with 24 lines, and a local APIC for each of `vcpus`
    /// vCPUs, which then are one processor package. Comes before the first vCPU. From then on `hlt` waits for an
    /// interrupt, and is no exit.
    ///
    /// # Errors
    /// When the hypervisor has none ([`Capabilities::kernels`]), they are there already, there is a vCPU, or the
    /// operating system refuses.
    fn create_interrupt_controllers(&mut self, vcpus: u32) -> Result<(), Error>;

    /// From now on each signal of `event` (an eventfd) raises line `line` of the I/O APIC for a moment: an edge.
    ///
    /// # Errors
    /// When there are no interrupt controllers, or no such line, or the operating system refuses.
    fn register_interrupt(&mut self, line: u32, event: BorrowedFd<'_>) -> Result<(), Error>;

    /// What registers doorbells and interrupts that change while the VM runs: the same for all who ask.
    ///
    /// # Errors
    /// When there are no interrupt controllers, or the hypervisor lacks something that it takes.
    fn event_routes(&mut self) -> Result<Arc<dyn EventRoutes>, Error>;

    /// Creates vCPU `index`, about to enter as `entry` says.
    ///
    /// # Errors
    /// When the index is taken or too large, the entry's addresses do not fit the VM's memory, or the operating system
    /// refuses.
    fn create_vcpu(&mut self, index: u32, entry: &Entry) -> Result<Box<dyn Vcpu>, Error>;
}

/// Ways between a VM and events that change while it runs: those of devices whose registers move, and whose interrupts
/// the guest routes. May be used on any thread.
pub trait EventRoutes: Send + Sync {
    /// From now on a write at `address`, of any width and value, adds one to `event` (an eventfd) instead of causing an
    /// exit.
    ///
    /// # Errors
    /// When the address has a doorbell already, or the operating system refuses.
    fn add_doorbell(&self, address: u64, event: BorrowedFd<'_>) -> Result<(), Error>;

    /// Undoes [`EventRoutes::add_doorbell`].
    ///
    /// # Errors
    /// When there is no such doorbell.
    fn remove_doorbell(&self, address: u64) -> Result<(), Error>;

    /// An interrupt that signals of `event` (a non-blocking eventfd) raise, once it is unmasked. Dropping it masks it
    /// for good.
    ///
    /// # Errors
    /// When there are no more, or the operating system refuses.
    fn add_message_interrupt(&self, event: BorrowedFd<'_>) -> Result<Box<dyn MessageInterrupt>, Error>;
}

/// A message-signalled interrupt. It begins masked. May be used on any thread.
pub trait MessageInterrupt: Send + Sync {
    /// From now on signals raise what a write of `data` at `address` is to the interrupt controllers. Signals that came
    /// while it was masked raise it now, once.
    ///
    /// # Errors
    /// When the operating system refuses. It is then as it was.
    fn unmask(&self, address: u64, data: u32) -> Result<(), Error>;

    /// From now on the event keeps its signals.
    ///
    /// # Errors
    /// When the operating system refuses.
    fn mask(&self) -> Result<(), Error>;
}

/// A virtual CPU. Runs on whichever thread calls [`Vcpu::run`].
pub trait Vcpu: Send {
    /// Executes guest code until something is wanted of the VMM.
    ///
    /// # Errors
    /// When the hypervisor itself fails; what the guest does wrong is an [`Exit`].
    fn run(&mut self) -> Result<Exit<'_>, Error>;

    /// What fetches this vCPU back from [`Vcpu::run`]. Outlives it harmlessly.
    fn kicker(&self) -> Arc<dyn Kick>;

    /// What it has in its registers, to be told of a guest that died. `None` where nobody knows.
    fn registers(&self) -> Option<Registers> {
        None
    }

    /// Host process that executes the guest's code, if it is not the thread that calls [`Vcpu::run`].
    fn process_id(&self) -> Option<u32> {
        None
    }
}

/// Fetches a vCPU back.
pub trait Kick: Send + Sync {
    /// Makes the current [`Vcpu::run`], or else the next, return [`Exit::Kicked`] soon, whatever the guest does.
    /// An exit that is already on its way may come first.
    fn kick(&self);
}

/// The hypervisor failed, or was asked for what it cannot do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("{what}")]
    Os {
        /// What was being done.
        what: &'static str,
        /// The operating system's answer.
        source: io::Error,
    },
    /// A request that does not fit the VM.
    #[error("{0}")]
    Refused(String),
}
