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

/// What libc's own function of a name answers.
macro_rules! own {
    ($name:ident($($argument:ident: $type:ty),*) -> $result:ty) => {{
        static NEXT: $crate::next::Next = $crate::next::Next::named(concat!(stringify!($name), "\0"));
        type Function = unsafe extern "C" fn($($type),*) -> $result;
        // SAFETY: that is what libc has by this name.
        let function = unsafe { std::mem::transmute::<*mut libc::c_void, Function>(NEXT.address()) };
        // SAFETY: the program's arguments.
        unsafe { function($($argument),*) }
    }};
}

/// Functions of the program's. Each has one or more names (of 64 bits, `pread` and `pread64` are one), and in its body
/// a word for what libc's own function of its name answers, given the same.
macro_rules! calls {
    ($(fn [$($name:ident),+] $arguments:tt -> $result:ty |$own:ident| $body:block)*) => {
        $($($crate::next::call! { $name $arguments $result, $own, $body })+)*
    };
}

/// One of them, by one name.
macro_rules! call {
    ($name:ident ($($argument:ident: $type:ty),* $(,)?) $result:ty, $own:ident, $body:block) => {
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            let $own = || $crate::next::own!($name($($argument: $type),*) -> $result);
            $body
        }
    };
}
pub(crate) use {call, calls, own};
