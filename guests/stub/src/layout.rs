//! Where things lie in the guest process, and the control area that stub and VMM share.
//!
//! One file, compiled into both: into the stub as it is, into `blockyard-hypervisor` by path. Fields are named after
//! who writes them where that matters; the VMM trusts none of them.

/// Guest-physical addresses, of memory and of devices, lie below this. Above it there is only the stub.
pub const GUEST_ADDRESS_LIMIT: u64 = 0x1000_0000_0000;

/// Where the stub is linked. Its first eight bytes are the number one, little-endian and read-only: what the stub
/// writes to eventfds and (the first byte of it) to the trap pipe, and all that its filter lets anybody write.
pub const STUB_BASE: u64 = 0x6000_0000_0000;

/// End of what the stub keeps of its own image: everything outside is unmapped before the guest's memory comes.
pub const STUB_END: u64 = STUB_BASE + 0x10_0000;

/// Where the control area is mapped in the guest process.
pub const CONTROL_BASE: u64 = STUB_END;

/// Bytes of the control area.
pub const CONTROL_BYTES: usize = 8192;

/// Memory slots a guest may have.
pub const SLOTS_MAX: usize = 32;

/// Doorbells whose eventfds a guest process may hold, and instructions the stub knows as doorbells.
pub const DOORBELLS_MAX: usize = 64;

/// Instructions of the seccomp filter.
pub const FILTER_MAX: usize = 256;

/// The trap pipe's write end in the guest process.
pub const TRAP_FD: u32 = 0;
/// The control area's memfd, closed once it is mapped.
pub const CONTROL_FD: u32 = 1;
/// The first doorbell's eventfd; the others follow, then the slots' memfds, which are closed once they are mapped.
pub const EVENT_FD_FIRST: u32 = 2;

/// [`Control::turn`]: the guest runs.
pub const TURN_GUEST: u32 = 0;
/// [`Control::turn`]: the guest is trapped until the VMM has answered.
pub const TURN_VMM: u32 = 1;

/// A signal frame's general registers, in the order of `gregs` in Linux's `ucontext_t`.
pub const FRAME_WORDS: usize = 23;
/// The leading words of a frame that the VMM answers with: 16 general-purpose registers, rip and rflags.
pub const ANSWER_WORDS: usize = 18;
/// Index of rip in a frame.
pub const FRAME_RIP: usize = 16;
/// Index of the page fault's error code in a frame.
pub const FRAME_ERROR: usize = 19;
/// Index of the trap number in a frame.
pub const FRAME_TRAP: usize = 20;
/// Index of the faulting address (cr2) in a frame.
pub const FRAME_ADDRESS: usize = 22;

/// The processor's number for a page fault.
pub const TRAP_PAGE_FAULT: u64 = 14;
/// Bit of a page fault's error code: it was a write.
pub const PAGE_FAULT_WRITE: u64 = 1 << 1;

/// Everything stub and VMM share.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Control {
    /// Whose turn it is; also the futex the stub waits on.
    pub turn: u32,
    /// Doorbell entries that may be in use, from the first.
    pub doorbell_entries: u32,
    /// By the stub: why it stopped.
    pub trap: Trap,
    /// By the VMM: registers to go on with.
    pub answer: [u64; ANSWER_WORDS],
    /// By the VMM: instructions that ring doorbells.
    pub doorbells: [Doorbell; DOORBELLS_MAX],
    /// By whoever fails before the guest runs: the failing step's [`Step`] and errno.
    pub failure: [u64; 2],
    /// By the VMM, before the stub starts.
    pub start: Start,
}

/// A trap as the stub saw it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Trap {
    /// The signal's number.
    pub signal: u64,
    /// The frame's registers.
    pub frame: [u64; FRAME_WORDS],
}

/// An instruction that stores four bytes to a doorbell. If its code changes while the entry stands, the stub acts on
/// what it was.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Doorbell {
    /// The instruction's address; 0: no entry.
    pub rip: u64,
    /// Where it stores.
    pub address: u64,
    /// The value that rings.
    pub value: u32,
    /// Index in the frame of the register that is stored; [`NO_REGISTER`] when the instruction stores `value` itself.
    pub register: u32,
    /// The instruction's length.
    pub length: u32,
    /// The eventfd's descriptor in the guest process.
    pub event: u32,
}

/// [`Doorbell::register`] of an instruction with an immediate.
pub const NO_REGISTER: u32 = u32::MAX;

/// What the stub has to set up.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Start {
    /// Doorbell eventfds passed.
    pub events: u32,
    /// Slots passed.
    pub slots: u32,
    /// Length of the filter.
    pub filter_length: u32,
    /// Unused.
    pub reserved: u32,
    /// What to map.
    pub slot: [Slot; SLOTS_MAX],
    /// The seccomp filter: `struct sock_filter`, eight bytes each.
    pub filter: [u64; FILTER_MAX],
}

/// A memory slot.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Slot {
    /// Guest-physical address, and virtual address in the guest process.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// Offset in the memfd.
    pub offset: u64,
}

const _: () = assert!(size_of::<Control>() <= CONTROL_BYTES);
const _: () = assert!(CONTROL_BYTES.is_multiple_of(4096));
const _: () = assert!(GUEST_ADDRESS_LIMIT < STUB_BASE);

/// What can fail before the guest runs, in order. 1 to 99 happen in the VMM's child before the stub is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
#[allow(dead_code, reason = "each side uses its own half")]
pub enum Step {
    /// Asking to die with the VMM.
    ParentDeath = 1,
    /// Leaving the terminal's session.
    Session = 2,
    /// Forbidding core dumps.
    CoreLimit = 3,
    /// Putting the descriptors in their places.
    Descriptors = 4,
    /// Closing all others.
    Close = 5,
    /// Executing the stub.
    Execute = 6,
    /// Giving up capabilities, and the means to get any.
    Capabilities = 7,
    /// Mapping the control area.
    MapControl = 100,
    /// Mapping a slot.
    MapSlot = 101,
    /// Becoming undumpable and nameable.
    Dumpable = 102,
    /// Setting up the signal stack.
    SignalStack = 103,
    /// Setting up a signal's handler.
    SignalHandler = 104,
    /// Unblocking signals.
    SignalMask = 105,
    /// Giving up new privileges.
    NoNewPrivileges = 106,
    /// Installing the filter.
    Filter = 107,
}
