//! Moving bytes between files and the memory that requests point into, without a copy: where a device is no disk.

use crate::memory_map::{MemoryMap, Segment};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Pieces of memory that go into one system call. They are on the stack, and a request of a megabyte in pages fits.
const PIECES: usize = 256;

/// What is still to be moved, in pieces that lie in one mapping each.
struct Pieces {
    pieces: [libc::iovec; PIECES],
    count: usize,
}

impl Pieces {
    /// As many of the next segments as fit, joined where they are neighbours; at most `length_bytes` of them.
    fn next(
        memory: &MemoryMap,
        segments: &mut impl Iterator<Item = Segment>,
        rest: &mut Option<libc::iovec>,
        length_bytes: &mut usize,
    ) -> io::Result<Self> {
        let mut this = Self { pieces: [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PIECES], count: 0 };
        while *length_bytes > 0 {
            let piece = match rest.take() {
                Some(piece) => piece,
                None => match segments.next() {
                    Some(segment) => memory.resolve(segment).ok_or(Errno::FAULT)?,
                    None => break,
                },
            };
            let piece = libc::iovec { iov_len: piece.iov_len.min(*length_bytes), ..piece };
            let last = this.count.checked_sub(1).map(|last| &mut this.pieces[last]);
            match last {
                Some(last) if last.iov_base.wrapping_byte_add(last.iov_len) == piece.iov_base => {
                    last.iov_len += piece.iov_len;
                }
                _ if this.count == PIECES => {
                    *rest = Some(piece);
                    break;
                }
                _ => {
                    this.pieces[this.count] = piece;
                    this.count += 1;
                }
            }
            *length_bytes -= piece.iov_len;
        }
        Ok(this)
    }

    /// Leaves out what was moved. Whether anything is left.
    fn advance(&mut self, mut moved: usize) -> bool {
        for piece in &mut self.pieces[..self.count] {
            let part = piece.iov_len.min(moved);
            moved -= part;
            piece.iov_base = piece.iov_base.wrapping_byte_add(part);
            piece.iov_len -= part;
        }
        self.pieces[..self.count].iter().any(|piece| piece.iov_len > 0)
    }
}

impl MemoryMap {
    /// Reads a file from `offset_bytes` on into the segments, up to `length_bytes` or its end. How much.
    ///
    /// # Errors
    /// What the system said of the first read, or that a segment lies outside the map. After something was read, an
    /// error is an end.
    pub fn read_from_file(
        &self,
        file: impl AsFd,
        offset_bytes: u64,
        segments: impl Iterator<Item = Segment>,
        length_bytes: usize,
    ) -> io::Result<usize> {
        self.transfer(file.as_fd(), libc::SYS_preadv2, Some(offset_bytes), segments, length_bytes)
    }

    /// Writes up to `length_bytes` of the segments into a file from `offset_bytes` on, or behind its end if there is
    /// no such place. How much.
    ///
    /// # Errors
    /// As [`MemoryMap::read_from_file`].
    pub fn write_to_file(
        &self,
        file: impl AsFd,
        offset_bytes: Option<u64>,
        segments: impl Iterator<Item = Segment>,
        length_bytes: usize,
    ) -> io::Result<usize> {
        self.transfer(file.as_fd(), libc::SYS_pwritev2, offset_bytes, segments, length_bytes)
    }

    fn transfer(
        &self,
        file: BorrowedFd<'_>,
        call: libc::c_long,
        offset_bytes: Option<u64>,
        mut segments: impl Iterator<Item = Segment>,
        mut length_bytes: usize,
    ) -> io::Result<usize> {
        let (mut done, mut rest) = (0, None);
        let flags = if offset_bytes.is_some() { 0 } else { libc::RWF_APPEND };
        loop {
            let mut pieces = Pieces::next(self, &mut segments, &mut rest, &mut length_bytes)?;
            if pieces.count == 0 {
                return Ok(done);
            }
            loop {
                let offset = offset_bytes.unwrap_or(0).checked_add(done as u64);
                let Some(offset) = offset.and_then(|offset| i64::try_from(offset).ok()) else {
                    return or_error(done, Errno::INVAL.into());
                };
                let (pointer, count) = (pieces.pieces.as_ptr(), pieces.count as libc::c_long);
                // SAFETY: the pieces lie in mappings that `self` keeps, which others change at any time and the kernel
                // is the only one to touch here. With 64 bits, all of the offset is in its low half.
                let moved = unsafe { libc::syscall(call, file.as_raw_fd(), pointer, count, offset, 0, flags) };
                let moved = match usize::try_from(moved) {
                    Ok(0) => return Ok(done),
                    Ok(moved) => moved,
                    Err(_) => match io::Error::last_os_error() {
                        error if error.kind() == io::ErrorKind::Interrupted => continue,
                        error => return or_error(done, error),
                    },
                };
                done += moved;
                if !pieces.advance(moved) {
                    break;
                }
            }
        }
    }
}

/// What was done counts, if anything was.
fn or_error(done: usize, error: io::Error) -> io::Result<usize> {
    if done > 0 { Ok(done) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use vm_memory::{Bytes, GuestAddress};

    fn every_other_page(pages: u32) -> impl Iterator<Item = Segment> {
        (0..pages).map(|page| Segment { region: 0, length_bytes: 4096, offset_bytes: 8192 * u64::from(page) })
    }

    #[test]
    fn what_is_written_from_many_pieces_is_read_into_others() {
        let memory = MemoryMap::allocate(&[(0, 8 << 20)]).unwrap();
        let bytes: Vec<u8> = (0..4096 * 600_u32).map(|at| (at / 7) as u8).collect();
        for (page, part) in bytes.chunks(4096).enumerate() {
            memory.guest_memory().write_slice(part, GuestAddress(8192 * page as u64)).unwrap();
        }
        let file = tempfile::tempfile().unwrap();
        let written = memory.write_to_file(&file, Some(5), every_other_page(600), bytes.len() - 3).unwrap();
        assert_eq!(written, bytes.len() - 3);
        let mut found = vec![0; written];
        file.read_exact_at(&mut found, 5).unwrap();
        assert_eq!(found, bytes[..written]);
        assert_eq!(file.metadata().unwrap().len(), 5 + written as u64);
        assert_eq!(memory.write_to_file(&file, None, every_other_page(1), 4096).unwrap(), 4096);
        assert_eq!(file.metadata().unwrap().len(), 5 + written as u64 + 4096);
        file.set_len(5 + written as u64).unwrap();
        // In one piece, and up to the file's end.
        let whole = Segment { region: 0, length_bytes: 4 << 20, offset_bytes: 4 << 20 };
        assert_eq!(memory.read_from_file(&file, 5, std::iter::once(whole), 4 << 20).unwrap(), written);
        memory.guest_memory().read_slice(&mut found, GuestAddress(4 << 20)).unwrap();
        assert_eq!(found, bytes[..written]);
    }

    #[test]
    fn what_lies_outside_is_refused() {
        let memory = MemoryMap::allocate(&[(0, 8192)]).unwrap();
        let file = tempfile::tempfile().unwrap();
        let outside = Segment { region: 0, length_bytes: 4096, offset_bytes: 4097 };
        assert!(memory.write_to_file(&file, Some(0), std::iter::once(outside), 4096).is_err());
        let inside = || std::iter::once(Segment { region: 0, length_bytes: 4096, offset_bytes: 0 });
        assert!(memory.write_to_file(&file, Some(u64::MAX), inside(), 4096).is_err());
        assert_eq!(memory.read_from_file(&file, 0, inside(), 4096).unwrap(), 0);
    }
}
