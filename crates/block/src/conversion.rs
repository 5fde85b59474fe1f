//! Copying all of a disk into another one or into a new image, by several threads, holes and zeros left out.
//!
//! Each thread takes the next piece of the source (`plan`), reads it, looks for zeros, and writes the rest from the
//! same memory (`worker`): what one thread reads it writes itself, while its cache still has it. Nothing is copied but
//! what is compressed.

mod compressed;
mod plan;
mod worker;

use crate::watched_work::WatchedWork;
use crate::{Disk, Qcow2Writer, RequestError};
use plan::Plan;
use std::io;

/// Least length of a run of zeros that is looked for.
pub const ZERO_RUN_BYTES_MIN: u32 = 4096;

/// Bytes of a piece, unless a cluster is larger.
const PIECE_BYTES: u64 = 1 << 20;

/// Most threads.
pub const THREADS_MAX: usize = 16;

/// Where a conversion writes.
#[derive(Clone, Copy)]
pub enum ConversionTarget<'a> {
    /// A disk, at least as large as the source.
    Disk {
        /// The disk.
        disk: &'a dyn Disk,
        /// It reads as zeros everywhere.
        is_zero: bool,
        /// Storage of zeros that are found in data is given back, which only matters where it has some.
        unmap: bool,
    },
    /// A new image, of the source's size rounded up to 512 bytes.
    Qcow2 {
        /// The image.
        writer: &'a Qcow2Writer,
        /// Compress each cluster that becomes smaller by it.
        compress: bool,
    },
}

/// How a conversion is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConversionOptions {
    /// Threads, from 1 to [`THREADS_MAX`].
    pub threads: usize,
    /// Pieces that each thread has under way, at least 1. More than one is for disks that are waited for.
    pub depth: usize,
    /// Runs of zeros at least this long are looked for in data: a multiple of [`ZERO_RUN_BYTES_MIN`]. `None`: nothing
    /// is looked for.
    pub zero_run_bytes: Option<u32>,
}

/// Why a conversion did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum ConversionError {
    /// The source.
    #[error("cannot read the source at byte {offset_bytes}")]
    Read {
        /// Where the request began.
        offset_bytes: u64,
        /// How it failed.
        source: RequestError,
    },
    /// The target.
    #[error("cannot write at byte {offset_bytes}")]
    Write {
        /// Where on the disk the piece that failed begins.
        offset_bytes: u64,
        /// How it failed.
        source: RequestError,
    },
    /// A disk or a file as a whole.
    #[error(transparent)]
    System(#[from] io::Error),
    /// Whoever watched it did not want more.
    #[error("the conversion was stopped")]
    Stopped,
}

/// A conversion: made, then run once.
pub struct Conversion<'a> {
    source: &'a dyn Disk,
    target: ConversionTarget<'a>,
    options: ConversionOptions,
    piece_bytes: u64,
    plan: Plan<'a>,
    /// Zeros that are left out count as done.
    work: WatchedWork<ConversionError>,
}

impl<'a> Conversion<'a> {
    /// Prepares to copy all of `source`.
    pub fn new(source: &'a dyn Disk, target: ConversionTarget<'a>, options: ConversionOptions) -> Self {
        let block_bytes = |disk: &dyn Disk| u64::from(disk.geometry().logical_block_bytes);
        let granule_bytes = match target {
            ConversionTarget::Disk { disk, .. } => block_bytes(disk),
            ConversionTarget::Qcow2 { writer, .. } => writer.cluster_bytes(),
        };
        // Zeros are told apart in pages.
        let granule_bytes = granule_bytes.max(block_bytes(source)).max(ZERO_RUN_BYTES_MIN.into());
        let piece_bytes = PIECE_BYTES.max(granule_bytes);
        let plan = Plan::new(source, granule_bytes, piece_bytes);
        Self { source, target, options, piece_bytes, plan, work: WatchedWork::new() }
    }

    /// Bytes that were data of the source, so far.
    pub fn data_bytes(&self) -> u64 {
        self.work.data_bytes()
    }

    /// Copies. `watch` hears ten times a second how many bytes are done, and says whether to go on. Nothing is flushed.
    ///
    /// # Errors
    /// The first thing that failed, in any thread.
    pub fn run(&self, mut watch: impl FnMut(u64) -> bool) -> Result<(), ConversionError> {
        let threads = self.options.threads.clamp(1, THREADS_MAX);
        let done = self.work.run(threads, || worker::work(self), || ConversionError::Stopped, &mut watch);
        watch(self.work.done_bytes());
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, FileDisk, FileOptions};
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    /// A queue may carry fewer requests than a conversion has pieces under way, on either side.
    #[test]
    fn a_shallow_queue_takes_a_piece_at_a_time() {
        const LENGTH: usize = 5 << 20;
        let disk = |file: &File, engine| {
            FileDisk::from_file(file.try_clone().unwrap(), &FileOptions { engine, ..FileOptions::default() }).unwrap()
        };
        let contents: Vec<u8> = (0..LENGTH).map(|at| (at / 512 % 251) as u8 + 1).collect();
        for [from, to] in [[Engine::Sync, Engine::Threads], [Engine::Threads, Engine::Sync]] {
            let files = [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()];
            files[0].write_all_at(&contents, 0).unwrap();
            files[1].set_len(LENGTH as u64).unwrap();
            let (source, target) = (disk(&files[0], from), disk(&files[1], to));
            let target = ConversionTarget::Disk { disk: &target, is_zero: true, unmap: false };
            let options = ConversionOptions { threads: 1, depth: 4, zero_run_bytes: None };
            Conversion::new(&source, target, options).run(|_| true).unwrap();
            let mut copied = vec![0; LENGTH];
            files[1].read_exact_at(&mut copied, 0).unwrap();
            assert!(copied == contents);
        }
    }
}
