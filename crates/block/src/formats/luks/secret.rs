//! Memory for what is secret: of no core, not swapped out where that can be had, wiped when it is given back.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap_anonymous, munmap};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use zeroize::Zeroize;

/// Bytes in pages of their own. As many as a process may lock (RLIMIT_MEMLOCK) are not swapped out; more would still
/// be in no core.
pub struct SecretBytes {
    pages: NonNull<u8>,
    length: usize,
}

// SAFETY: the pages are this value's alone, as a box's memory is the box's.
unsafe impl Send for SecretBytes {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for SecretBytes {}

impl SecretBytes {
    /// Zeros.
    pub(super) fn zeroed(length: usize) -> io::Result<Self> {
        let mapped = length.max(1);
        // SAFETY: new pages, at an address that nobody has.
        let pages =
            unsafe { mmap_anonymous(ptr::null_mut(), mapped, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)? };
        // SAFETY: the advice changes nothing in them. A kernel that does not know it does without.
        let _ = unsafe { madvise(pages, mapped, Advice::LinuxDontDump) };
        // SAFETY: locking changes nothing in them. What is over the limit is not locked.
        let _ = unsafe { mlock(pages, mapped) };
        let pages = NonNull::new(pages.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { pages, length })
    }

    /// The same with these bytes in it, and then zeros.
    pub(super) fn with(bytes: &[u8], length: usize) -> io::Result<Self> {
        let mut secret = Self::zeroed(length.max(bytes.len()))?;
        secret[..bytes.len()].copy_from_slice(bytes);
        Ok(secret)
    }

    /// The same bytes, and none in `bytes` any more.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn taking(mut bytes: Vec<u8>) -> io::Result<Self> {
        let secret = Self::with(&bytes, 0);
        bytes.zeroize();
        secret
    }

    /// Without what is behind so many.
    pub(super) fn shortened(&self, length: usize) -> io::Result<Self> {
        Self::with(&self[..length.min(self.length)], 0)
    }
}

impl Deref for SecretBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes are mapped as long as this value lives, and all are initialized, as zeros at first.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr(), self.length) }
    }
}

impl DerefMut for SecretBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has a reference.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_ptr(), self.length) }
    }
}

impl Drop for SecretBytes {
    fn drop(&mut self) {
        self.zeroize();
        // SAFETY: what was mapped, and no reference is left. Unmapping ends the lock.
        let _ = unsafe { munmap(self.pages.as_ptr().cast(), self.length.max(1)) };
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretBytes(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_copied_and_not_shown() {
        let secret = SecretBytes::with(b"hush", 5000).unwrap();
        assert_eq!((&secret[..4], secret[4..].iter().all(|&byte| byte == 0)), (&b"hush"[..], true));
        assert_eq!((&*secret.shortened(3).unwrap(), secret.shortened(0).unwrap().len()), (&b"hus"[..], 0));
        assert!(!format!("{secret:?}").contains("hush"));
    }

    /// What the kernel says of its pages (proc_pid_smaps(5)).
    #[test]
    fn secrets_are_in_no_core() {
        let secret = SecretBytes::zeroed(4096).unwrap();
        let start = format!("{:x}-", secret.as_ptr() as usize);
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = maps.lines().skip_while(|line| !line.starts_with(&start));
        let flags = lines.find_map(|line| line.strip_prefix("VmFlags:")).unwrap();
        assert!(flags.split(' ').any(|flag| flag == "dd"), "{flags}");
    }
}
