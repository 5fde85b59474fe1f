//! Many system calls as one.
//!
//! In User-Mode Linux a system call is a conversation of two of the host's processes, which takes longer than most of
//! what it asks for. An io_uring takes a list of them: the guest's kernel carries them out by itself.

use io_uring::squeue::Entry;
use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, statx};
use rustix::io::Errno;
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

/// Calls that a ring takes at once.
pub(crate) const CALLS_MAX: usize = 64;

/// A list of calls that are carried out in any order, and side by side; one by one where the kernel has no rings.
pub(crate) struct Ring {
    ring: Option<IoUring>,
    results: Box<[i32; CALLS_MAX]>,
}

/// A file that is to be opened.
#[derive(Clone, Copy)]
pub(crate) struct Opening<'call> {
    pub(crate) directory: BorrowedFd<'call>,
    pub(crate) name: &'call CStr,
    pub(crate) flags: OFlags,
    pub(crate) mode: Mode,
}

impl Ring {
    pub(crate) fn new() -> Self {
        Self { ring: IoUring::new(CALLS_MAX as u32).ok(), results: Box::new([0; CALLS_MAX]) }
    }

    /// Opens files: one result for each, in order.
    ///
    /// # Errors
    /// When the ring is of no use any more.
    pub(crate) fn open<'call>(
        &mut self,
        openings: impl ExactSizeIterator<Item = Opening<'call>>,
    ) -> io::Result<Vec<io::Result<OwnedFd>>> {
        if self.ring.is_none() {
            let open = |opening: Opening<'_>| {
                let flags = opening.flags | OFlags::CLOEXEC;
                Ok(rustix::fs::openat(opening.directory, opening.name, flags, opening.mode)?)
            };
            return Ok(openings.map(open).collect());
        }
        let entries = openings.map(|opening| {
            let directory = Fd(opening.directory.as_raw_fd());
            opcode::OpenAt::new(directory, opening.name.as_ptr())
                .flags((opening.flags | OFlags::CLOEXEC).bits() as i32)
                .mode(opening.mode.as_raw_mode())
                .build()
        });
        // SAFETY: names and directories outlive this call, and `perform` returns when nothing uses them any more.
        let results = unsafe { self.perform(entries)? };
        let opened = results.iter().map(|&result| {
            // SAFETY: a result that is no error is a new descriptor, which nobody else knows of.
            checked(result).map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) })
        });
        Ok(opened.collect())
    }

    /// Writes to the beginning of files: how many bytes each took, in order.
    ///
    /// # Errors
    /// When the ring is of no use any more.
    pub(crate) fn write<'call>(
        &mut self,
        writes: impl ExactSizeIterator<Item = (BorrowedFd<'call>, &'call [u8])>,
    ) -> io::Result<Vec<io::Result<usize>>> {
        if self.ring.is_none() {
            return Ok(writes.map(|(file, data)| Ok(rustix::io::pwrite(file, data, 0)?)).collect());
        }
        let entries = writes.map(|(file, data)| {
            opcode::Write::new(Fd(file.as_raw_fd()), data.as_ptr(), data.len() as u32).offset(0).build()
        });
        // SAFETY: files and data outlive this call, and `perform` returns when nothing uses them any more.
        let results = unsafe { self.perform(entries)? };
        Ok(results.iter().map(|&result| checked(result).map(|bytes| bytes as usize)).collect())
    }

    /// Reads the beginnings of files: how many bytes, in order.
    ///
    /// # Errors
    /// When the ring is of no use any more.
    pub(crate) fn read<'call>(
        &mut self,
        reads: impl ExactSizeIterator<Item = (BorrowedFd<'call>, &'call mut [u8])>,
    ) -> io::Result<Vec<io::Result<usize>>> {
        if self.ring.is_none() {
            return Ok(reads.map(|(file, into)| Ok(rustix::io::pread(file, into, 0)?)).collect());
        }
        let entries = reads.map(|(file, into)| {
            opcode::Read::new(Fd(file.as_raw_fd()), into.as_mut_ptr(), into.len() as u32).offset(0).build()
        });
        // SAFETY: files and memory outlive this call, and `perform` returns when nothing uses them any more.
        let results = unsafe { self.perform(entries)? };
        Ok(results.iter().map(|&result| checked(result).map(|bytes| bytes as usize)).collect())
    }

    /// What statx(2) says of files, in order.
    ///
    /// # Errors
    /// When the ring is of no use any more.
    pub(crate) fn status<'call>(
        &mut self,
        files: impl ExactSizeIterator<Item = BorrowedFd<'call>>,
    ) -> io::Result<Vec<io::Result<Statx>>> {
        let wanted = StatxFlags::BASIC_STATS;
        if self.ring.is_none() {
            return Ok(files.map(|file| Ok(statx(file, c"", AtFlags::EMPTY_PATH, wanted)?)).collect());
        }
        let mut found: Vec<MaybeUninit<Statx>> = vec![MaybeUninit::zeroed(); files.len()];
        let entries = files.zip(&mut found).map(|(file, into)| {
            opcode::Statx::new(Fd(file.as_raw_fd()), c"".as_ptr(), into.as_mut_ptr().cast())
                .flags(AtFlags::EMPTY_PATH.bits() as i32)
                .mask(wanted.bits())
                .build()
        });
        // SAFETY: files and memory outlive this call, and `perform` returns when nothing uses them any more.
        let results = unsafe { self.perform(entries)? };
        // SAFETY: it is numbers, which were zeros before the kernel wrote them.
        let found = found.into_iter().map(|found| unsafe { found.assume_init() });
        Ok(results.iter().zip(found).map(|(&result, found)| checked(result).map(|_| found)).collect())
    }

    /// Closes files. Whatever they had to say was said before.
    ///
    /// # Errors
    /// When the ring is of no use any more.
    pub(crate) fn close(&mut self, files: impl ExactSizeIterator<Item = OwnedFd>) -> io::Result<()> {
        if self.ring.is_none() {
            files.for_each(drop);
            return Ok(());
        }
        let entries = files.map(|file| opcode::Close::new(Fd(file.into_raw_fd())).build());
        // SAFETY: the entries have no pointers, and their descriptors nobody else.
        unsafe { self.perform(entries).map(drop) }
    }

    /// Carries out at most [`CALLS_MAX`] calls, and returns when all are done, with what each returned.
    ///
    /// # Safety
    /// What the entries point to is there, and nobody else's, until this returns.
    unsafe fn perform(&mut self, entries: impl ExactSizeIterator<Item = Entry>) -> io::Result<&[i32]> {
        let count = entries.len();
        assert!(count <= CALLS_MAX, "{count} calls at once");
        let Some(ring) = &mut self.ring else { return Err(Errno::NOSYS.into()) };
        for (index, entry) in entries.enumerate() {
            // SAFETY: as this function's callers promise; the queue is empty, and has room for all.
            let pushed = unsafe { ring.submission().push(&entry.user_data(index as u64)) };
            assert!(pushed.is_ok(), "the ring is full");
        }
        let mut left = count;
        while left > 0 {
            // What is in flight must not outlive its memory: nothing but completions ends this.
            match ring.submit_and_wait(left) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if left == count && ring.submission().len() == count => return Err(error),
                Err(_) => std::thread::yield_now(),
            }
            for completion in ring.completion() {
                self.results[completion.user_data() as usize % CALLS_MAX] = completion.result();
                left -= 1;
            }
        }
        Ok(&self.results[..count])
    }
}

fn checked(result: i32) -> io::Result<i32> {
    if result < 0 { Err(Errno::from_raw_os_error(-result).into()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::fd::AsFd;

    fn calls_have_their_own_results(mut ring: Ring) {
        let directory = tempfile::tempdir().unwrap();
        let here = std::fs::File::open(directory.path()).unwrap();
        let names = ["one", "two", "one"].map(|name| CString::new(name).unwrap());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let opening = |name| Opening { directory: here.as_fd(), name, flags, mode: Mode::from_raw_mode(0o600) };
        let first: Vec<_> = ring.open(names[..2].iter().map(|name| opening(name.as_c_str()))).unwrap();
        let files: Vec<OwnedFd> = first.into_iter().map(Result::unwrap).collect();
        let again = ring.open([opening(names[2].as_c_str())].into_iter()).unwrap();
        assert_eq!(again[0].as_ref().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let data: [&[u8]; 2] = [b"first", b""];
        let written = ring.write(files.iter().map(AsFd::as_fd).zip(data)).unwrap();
        assert_eq!(written.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [5, 0]);
        ring.close(files.into_iter()).unwrap();
        let mode = Mode::empty();
        let reading = |name| Opening { directory: here.as_fd(), name, flags: OFlags::RDONLY, mode };
        let opened = ring.open(names[..2].iter().map(|name| reading(name.as_c_str()))).unwrap();
        let files: Vec<OwnedFd> = opened.into_iter().map(Result::unwrap).collect();
        let status = ring.status(files.iter().map(AsFd::as_fd)).unwrap();
        let sizes: Vec<_> = status.iter().map(|status| status.as_ref().unwrap().stx_size).collect();
        assert_eq!(sizes, [5, 0]);
        let mut read = [[0; 3]; 2];
        let bytes = ring.read(files.iter().map(AsFd::as_fd).zip(read.iter_mut().map(|read| &mut read[..]))).unwrap();
        assert_eq!(bytes.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [3, 0]);
        assert_eq!(&read[0], b"fir");
        ring.close(files.into_iter()).unwrap();
        assert_eq!(std::fs::read(directory.path().join("one")).unwrap(), b"first");
    }

    #[test]
    fn each_call_has_its_own_result() {
        calls_have_their_own_results(Ring::new());
    }

    #[test]
    fn each_call_has_its_own_result_without_a_ring_too() {
        calls_have_their_own_results(Ring { ring: None, ..Ring::new() });
    }
}
