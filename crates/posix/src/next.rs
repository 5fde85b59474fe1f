//! libc's own calls, which this library's take the place of.

use libc::{c_char, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A symbol that is found when it is first needed.
pub(crate) struct Next {
    name: &'static str,
    address: AtomicPtr<c_void>,
}

impl Next {
    /// `name` ends with a zero.
    pub(crate) const fn named(name: &'static str) -> Self {
        Self { name, address: AtomicPtr::new(null_mut()) }
    }

    /// Where the next library has it.
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr().cast::<c_char>()) };
        if found.is_null() {
            // A program that calls it was linked with it.
            std::process::abort();
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Functions that call libc's of their name.
macro_rules! next {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            /// # Safety
            /// As libc's.
            pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
                static NEXT: $crate::next::Next = $crate::next::Next::named(concat!(stringify!($name), "\0"));
                type Function = unsafe extern "C" fn($($type),*) -> $result;
                // SAFETY: that is what libc has by this name.
                let function = unsafe { std::mem::transmute::<*mut libc::c_void, Function>(NEXT.address()) };
                // SAFETY: the caller's.
                unsafe { function($($argument),*) }
            }
        )*
    };
}
pub(crate) use next;
