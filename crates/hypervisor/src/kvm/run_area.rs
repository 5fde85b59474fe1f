//! The memory a vCPU shares with the kernel: `struct kvm_run` and the port I/O data behind it.

use kvm_bindings::{
    KVM_EXIT_FAIL_ENTRY, KVM_EXIT_HLT, KVM_EXIT_INTERNAL_ERROR, KVM_EXIT_IO, KVM_EXIT_IO_IN, KVM_EXIT_MMIO,
    KVM_EXIT_SHUTDOWN, KVM_EXIT_SYSTEM_EVENT, kvm_run,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU8;

/// A mapping of a vCPU's shared area. kvm-ioctls has one too, but drops the item size of port I/O and lends its own
/// only to the thread that runs the vCPU.
#[derive(Debug)]
pub(super) struct RunArea {
    base: NonNull<u8>,
    length_bytes: usize,
}

// SAFETY: the mapping belongs to no thread. Safe methods touch one atomic byte; the rest is for the vCPU alone, see
// `RunArea::left`.
unsafe impl Send for RunArea {}
// SAFETY: as above.
unsafe impl Sync for RunArea {}

/// What KVM_RUN left in the area.
#[derive(Debug)]
pub(super) enum Left<'a> {
    /// Port I/O: `data` is to be filled if `input`.
    Port { port: u16, size: u8, input: bool, data: &'a mut [u8] },
    /// An access where no memory is: `data` is to be filled unless `write`.
    Mmio { address: u64, write: bool, data: &'a mut [u8] },
    /// `hlt`.
    Halt,
    /// Triple fault.
    Shutdown,
    /// The guest asked for an end through a paravirtual interface.
    SystemEvent(u32),
    /// The processor refused the guest's state.
    FailEntry { reason: u64 },
    /// KVM gave up on the guest.
    InternalError { suberror: u32, instruction: Option<Vec<u8>> },
    /// Any other `KVM_EXIT_…`.
    Other(u32),
}

impl RunArea {
    /// Maps the area of `vcpu`, which has `length_bytes` bytes (KVM_GET_VCPU_MMAP_SIZE).
    pub(super) fn map(vcpu: BorrowedFd<'_>, length_bytes: usize) -> io::Result<Self> {
        if length_bytes < size_of::<kvm_run>() {
            return Err(io::Error::other("the area a vCPU shares with KVM is too small"));
        }
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let base = unsafe {
            mmap(ptr::null_mut(), length_bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, vcpu, 0)?
        };
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { base, length_bytes })
    }

    /// The flag that makes KVM_RUN return at once with EINTR.
    pub(super) fn immediate_exit(&self) -> &AtomicU8 {
        // SAFETY: in the mapping, which lives as long as `self`; everybody accesses this byte atomically through this
        // method, and the kernel only reads it.
        unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(offset_of!(kvm_run, immediate_exit))) }
    }

    /// What KVM_RUN left.
    ///
    /// # Safety
    /// Only the vCPU's owner may call this, holding it exclusively as long as the result lives: KVM_RUN must not be
    /// under way, and no earlier result may be in use.
    pub(super) unsafe fn left(&self) -> Left<'_> {
        let run: *mut kvm_run = self.base.as_ptr().cast();
        // SAFETY: `run` points to a `kvm_run` in the mapping, aligned to a page, and by this function's contract
        // nobody else writes it now. `exit_reason` says which field of the union the kernel filled in; all of them are
        // integers. No reference is made to the whole, because `immediate_exit` is written by others at any time.
        unsafe {
            let detail = &raw mut (*run).__bindgen_anon_1;
            match (*run).exit_reason {
                KVM_EXIT_IO => {
                    let io = (*detail).io;
                    let length_bytes = usize::from(io.size) * io.count as usize;
                    let data = self.bytes(io.data_offset as usize, length_bytes);
                    let input = u32::from(io.direction) == KVM_EXIT_IO_IN;
                    Left::Port { port: io.port, size: io.size, input, data }
                }
                KVM_EXIT_MMIO => {
                    let mmio = &raw mut (*detail).mmio;
                    let length_bytes = ((*mmio).len as usize).min(8);
                    let data = slice::from_raw_parts_mut((&raw mut (*mmio).data).cast::<u8>(), length_bytes);
                    Left::Mmio { address: (*mmio).phys_addr, write: (*mmio).is_write != 0, data }
                }
                KVM_EXIT_HLT => Left::Halt,
                KVM_EXIT_SHUTDOWN => Left::Shutdown,
                KVM_EXIT_SYSTEM_EVENT => Left::SystemEvent((*detail).system_event.type_),
                KVM_EXIT_FAIL_ENTRY => Left::FailEntry { reason: (*detail).fail_entry.hardware_entry_failure_reason },
                KVM_EXIT_INTERNAL_ERROR => {
                    let failure = (*detail).emulation_failure;
                    let instruction = failure.__bindgen_anon_1.__bindgen_anon_1;
                    let length = usize::from(instruction.insn_size).min(instruction.insn_bytes.len());
                    // KVM_INTERNAL_ERROR_EMULATION with the flag that the instruction's bytes are there.
                    let known = failure.suberror == 1 && failure.ndata >= 3 && failure.flags & 1 != 0;
                    let instruction = known.then(|| instruction.insn_bytes[..length].to_vec());
                    Left::InternalError { suberror: failure.suberror, instruction }
                }
                other => Left::Other(other),
            }
        }
    }

    /// # Safety
    /// As for [`RunArea::left`].
    #[expect(clippy::mut_from_ref, reason = "exclusive by the contract of `left`")]
    unsafe fn bytes(&self, offset_bytes: usize, length_bytes: usize) -> &mut [u8] {
        let inside = offset_bytes.checked_add(length_bytes).is_some_and(|end| end <= self.length_bytes);
        assert!(inside, "KVM's port data lies outside the area it shares");
        // SAFETY: inside the mapping, as just checked; exclusive by the contract.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr().add(offset_bytes), length_bytes) }
    }
}

impl Drop for RunArea {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and nothing borrows from it any more.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.length_bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
