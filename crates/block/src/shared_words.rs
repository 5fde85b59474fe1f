//! Words of memory that others change at any time.

use crate::mapped::Mapped;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

mod sealed {
    pub trait Sealed {}
    impl Sealed for std::sync::atomic::AtomicU16 {}
    impl Sealed for std::sync::atomic::AtomicU32 {}
    impl Sealed for std::sync::atomic::AtomicU64 {}
}

/// What shared memory can be looked at as: integers for which every bit pattern is a value.
pub trait Word: sealed::Sealed + Sync + 'static {}
impl Word for AtomicU16 {}
impl Word for AtomicU32 {}
impl Word for AtomicU64 {}

/// Words of a [`crate::MemoryMap`], kept mapped: the rings of a virtqueue, for example.
pub struct SharedWords<T: Word> {
    first: NonNull<T>,
    count: usize,
    /// Never read: it keeps the words mapped.
    _mapped: Arc<Mapped>,
}

// SAFETY: it is a reference to atomics, with what keeps it valid.
unsafe impl<T: Word> Send for SharedWords<T> {}
// SAFETY: as above.
unsafe impl<T: Word> Sync for SharedWords<T> {}

impl<T: Word> SharedWords<T> {
    /// # Safety
    /// `words` lie in a mapping of `mapped`.
    pub(crate) unsafe fn new(words: &[T], mapped: Arc<Mapped>) -> Self {
        Self { first: NonNull::from(words).cast(), count: words.len(), _mapped: mapped }
    }
}

impl<T: Word> Deref for SharedWords<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: this was a slice when `self` was made, and what it lies in is mapped for as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl<T: Word> fmt::Debug for SharedWords<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} words at {:p}", self.count, self.first)
    }
}

/// The words at `pointer`, unless it is not aligned for them.
///
/// # Safety
/// The words are in memory that stays mapped for `'a`, readable and writable, and that nobody has Rust references to
/// other than to atomics.
pub(crate) unsafe fn words_at<'a, T: Word>(pointer: *mut u8, count: usize) -> Option<&'a [T]> {
    let first = pointer.cast::<T>();
    // SAFETY: mapped (the caller's promise) and aligned; as atomics, others may change them.
    first.is_aligned().then(|| unsafe { std::slice::from_raw_parts(first, count) })
}
