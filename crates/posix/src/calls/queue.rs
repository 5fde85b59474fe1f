//! Queues for programs that are linked to this library (blockyard_posix.h).

use crate::errno::{Errno, answer_int};
use crate::queue::{OpenQueue, QueuedDisk, Way};
use crate::setup;
use blockyard_block::Operation;
use libc::{c_char, c_int, c_uint, c_void, timespec};
use std::ffi::CStr;
use std::ptr::null_mut;
use std::time::Duration;

/// `struct blockyard_completion`.
#[repr(C)]
struct Ended {
    token: u64,
    error: c_int,
}

/// What was made, as a program has it, or null with the error in `errno`.
fn made<T>(result: Result<T, Errno>) -> *mut T {
    match result {
        Ok(made) => Box::into_raw(Box::new(made)),
        Err(error) => {
            error.set();
            null_mut()
        }
    }
}

/// What a program's handle stands for.
///
/// # Safety
/// It is null, or one that was made and not closed, and nobody else uses it.
unsafe fn made_before<'handle, T>(handle: *mut T) -> Result<&'handle mut T, Errno> {
    // SAFETY: the caller's.
    unsafe { handle.as_mut() }.ok_or(Errno(libc::EINVAL))
}

/// # Safety
/// `disk` is null or a string; `reason` is null, or there is room for so many bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn blockyard_disk_open(
    disk: *const c_char,
    flags: c_int,
    reason: *mut c_char,
    reason_bytes: usize,
) -> *mut QueuedDisk {
    let tell = |text: &str| {
        if reason.is_null() || reason_bytes == 0 {
            return;
        }
        let length = text.floor_char_boundary(reason_bytes - 1);
        // SAFETY: the caller's: there is room for so many bytes, and the zero behind them.
        unsafe {
            reason.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), length);
            reason.add(length).write(0);
        }
    };
    let open = || {
        let wrong = |text| {
            tell(text);
            Errno(libc::EINVAL)
        };
        if disk.is_null() {
            return Err(wrong("no disk is named"));
        }
        let attached = setup::find(libc::AT_FDCWD, disk).and_then(setup::disk);
        // SAFETY: the caller's.
        let said = || unsafe { CStr::from_ptr(disk) }.to_str().map_err(|_| wrong("the disk's name is no UTF-8"));
        let disk = attached.map_or_else(said, |attached| Ok(&*attached.disk))?;
        let read_only = match flags {
            libc::O_RDONLY => true,
            libc::O_RDWR => false,
            _ => return Err(wrong("a disk is opened with O_RDONLY or with O_RDWR")),
        };
        QueuedDisk::open(disk, read_only).map_err(|refusal| {
            tell(&refusal.reason);
            refusal.errno
        })
    };
    made(open())
}

/// # Safety
/// It is null, or a disk that is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn blockyard_disk_close(disk: *mut QueuedDisk) {
    if !disk.is_null() {
        // SAFETY: the caller's; it was made of a box.
        drop(unsafe { Box::from_raw(disk) });
    }
}

/// # Safety
/// It is null, or a disk that is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn blockyard_disk_capacity(disk: *const QueuedDisk) -> u64 {
    // SAFETY: the caller's.
    unsafe { disk.as_ref() }.map_or(0, |disk| disk.geometry().capacity_bytes)
}

/// # Safety
/// It is null, or a disk that is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn blockyard_disk_logical_block(disk: *const QueuedDisk) -> c_uint {
    // SAFETY: the caller's.
    unsafe { disk.as_ref() }.map_or(0, |disk| disk.geometry().logical_block_bytes)
}

/// # Safety
/// It is null, or a disk that is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn blockyard_disk_is_read_only(disk: *const QueuedDisk) -> c_int {
    // SAFETY: the caller's.
    unsafe { disk.as_ref() }.map_or(0, |disk| disk.geometry().read_only.into())
}

/// # Safety
/// It is null, or a disk that is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn blockyard_queue_open(
    disk: *const QueuedDisk,
    memory_bytes: usize,
    depth: c_uint,
) -> *mut OpenQueue {
    // SAFETY: the caller's.
    let disk = unsafe { disk.as_ref() }.ok_or(Errno(libc::EINVAL));
    made(disk.and_then(|disk| disk.open_queue(memory_bytes, depth as usize)))
}

/// # Safety
/// It is null, or a queue that is open and that nobody else uses.
#[unsafe(no_mangle)]
unsafe extern "C" fn blockyard_queue_close(queue: *mut OpenQueue) {
    if !queue.is_null() {
        // SAFETY: the caller's; it was made of a box.
        drop(unsafe { Box::from_raw(queue) });
    }
}

/// # Safety
/// It is null, or a queue that is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn blockyard_queue_memory(queue: *const OpenQueue) -> *mut c_void {
    // SAFETY: the caller's.
    unsafe { queue.as_ref() }.map_or(null_mut(), |queue| queue.memory().cast())
}

/// # Safety
/// It is null, or a queue that is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn blockyard_queue_depth(queue: *const OpenQueue) -> c_uint {
    // SAFETY: the caller's.
    unsafe { queue.as_ref() }.map_or(0, |queue| queue.depth() as c_uint)
}

/// # Safety
/// It is null, or a queue that is open and that nobody else uses.
#[unsafe(no_mangle)]
unsafe extern "C" fn blockyard_queue_read(
    queue: *mut OpenQueue,
    offset: u64,
    address: *mut c_void,
    length: usize,
    token: u64,
) -> c_int {
    // SAFETY: the caller's.
    let queue = unsafe { made_before(queue) };
    let push = |queue: &mut OpenQueue| queue.transfer(Way::Read, offset, address.cast(), length, token);
    answer_int(queue.and_then(push).map(|()| 0))
}

/// # Safety
/// It is null, or a queue that is open and that nobody else uses.
#[unsafe(no_mangle)]
unsafe extern "C" fn blockyard_queue_write(
    queue: *mut OpenQueue,
    offset: u64,
    address: *const c_void,
    length: usize,
    token: u64,
) -> c_int {
    // SAFETY: the caller's.
    let queue = unsafe { made_before(queue) };
    let push = |queue: &mut OpenQueue| queue.transfer(Way::Write, offset, address.cast(), length, token);
    answer_int(queue.and_then(push).map(|()| 0))
}

/// # Safety
/// It is null, or a queue that is open and that nobody else uses.
#[unsafe(no_mangle)]
unsafe extern "C" fn blockyard_queue_flush(queue: *mut OpenQueue, token: u64) -> c_int {
    // SAFETY: the caller's.
    let queue = unsafe { made_before(queue) };
    answer_int(queue.and_then(|queue| queue.perform(Operation::Flush, 0, token)).map(|()| 0))
}

/// # Safety
/// It is null, or a queue that is open and that nobody else uses.
#[unsafe(no_mangle)]
unsafe extern "C" fn blockyard_queue_discard(queue: *mut OpenQueue, offset: u64, length: u64, token: u64) -> c_int {
    // SAFETY: the caller's.
    let queue = unsafe { made_before(queue) };
    let operation = Operation::Discard { length_bytes: length };
    answer_int(queue.and_then(|queue| queue.perform(operation, offset, token)).map(|()| 0))
}

/// # Safety
/// It is null, or a queue that is open and that nobody else uses.
#[unsafe(no_mangle)]
unsafe extern "C" fn blockyard_queue_write_zeroes(
    queue: *mut OpenQueue,
    offset: u64,
    length: u64,
    may_unmap: c_int,
    token: u64,
) -> c_int {
    // SAFETY: the caller's.
    let queue = unsafe { made_before(queue) };
    let operation = Operation::WriteZeroes { length_bytes: length, may_unmap: may_unmap != 0 };
    answer_int(queue.and_then(|queue| queue.perform(operation, offset, token)).map(|()| 0))
}

/// # Safety
/// It is null, or a queue that is open and that nobody else uses.
#[unsafe(no_mangle)]
unsafe extern "C" fn blockyard_queue_submit(queue: *mut OpenQueue) -> c_int {
    // SAFETY: the caller's.
    let queue = unsafe { made_before(queue) };
    answer_int(queue.and_then(OpenQueue::submit).map(|()| 0))
}

/// # Safety
/// The queue is null, or one that is open and that nobody else uses; of the others, each is null or as it is said.
#[unsafe(no_mangle)]
unsafe extern "C" fn blockyard_queue_reap(
    queue: *mut OpenQueue,
    completions: *mut Ended,
    max: c_uint,
    min: c_uint,
    timeout: *const timespec,
) -> c_int {
    // SAFETY: the caller's.
    let (queue, timeout) = unsafe { (made_before(queue), timeout.as_ref()) };
    let reap = || {
        let timeout = timeout.map(duration).transpose()?;
        if completions.is_null() || max == 0 || max > c_int::MAX as c_uint || min > max {
            return Err(Errno(libc::EINVAL));
        }
        queue?.reap(max as usize, min as usize, timeout, |index, completion| {
            let error = completion.result.map_or_else(|error| Errno::from(error).0, |()| 0);
            // SAFETY: the caller's: there is room for `max` of them, and fewer were given.
            unsafe { completions.add(index).write(Ended { token: completion.token, error }) };
        })
    };
    answer_int(reap())
}

fn duration(time: &timespec) -> Result<Duration, Errno> {
    let seconds = u64::try_from(time.tv_sec).ok();
    let nanoseconds = u32::try_from(time.tv_nsec).ok().filter(|&nanoseconds| nanoseconds < 1_000_000_000);
    let duration = seconds.zip(nanoseconds).map(|(seconds, nanoseconds)| Duration::new(seconds, nanoseconds));
    duration.ok_or(Errno(libc::EINVAL))
}
