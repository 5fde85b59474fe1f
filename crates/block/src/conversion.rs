//! Copying all of a disk into another one or into a new image, by several threads, holes and zeros left out.
//!
//! Each thread takes the next piece of the source (`plan`), reads it, looks for zeros, and writes the rest from the
//! same memory (`worker`, `output`): what one thread reads it writes itself, while its cache still has it. Nothing is
//! copied but what is compressed. How a piece is written is its target's to say (`target`): there is one for disks, and
//! one each for new qcow2 images, those of other hypervisors, and compressed VMDKs.

mod behind;
mod block_map_target;
mod compressed;
mod deflate;
mod disk_target;
mod in_order;
mod output;
mod plan;
mod qcow2_target;
mod target;
mod vmdk_stream_target;
mod worker;

pub use disk_target::DiskTarget;
pub use qcow2_target::Qcow2Target;

use crate::reading_again::Lost;
use crate::watched_work::WatchedWork;
use crate::{BlockMapWriter, Disk, RequestError, VmdkStreamWriter};
use in_order::InOrder;
use plan::Plan;
use std::io;
use std::ops::Range;
use target::ConversionTarget;

/// Least length of a run of zeros that is looked for.
pub const ZERO_RUN_BYTES_MIN: u32 = 4096;

/// Bytes of a piece, unless a cluster is larger.
const PIECE_BYTES: u64 = 1 << 20;

/// Most threads.
pub const THREADS_MAX: usize = 16;

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
    /// A request to the source failed.
    #[error("cannot read the source at byte {offset_bytes}")]
    Read {
        /// Where the first block lies that cannot be read, as far as that could be found out.
        offset_bytes: u64,
        /// How it failed.
        source: RequestError,
    },
    /// A request to the target failed.
    #[error("cannot write at byte {offset_bytes}")]
    Write {
        /// Where on the disk the piece that failed begins, or the zeros.
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

type Outcome = Result<(), ConversionError>;

/// A conversion: made, then run once.
pub struct Conversion<'a> {
    source: &'a dyn Disk,
    target: Box<dyn ConversionTarget + 'a>,
    options: ConversionOptions,
    piece_bytes: u64,
    plan: Plan<'a>,
    in_order: Option<InOrder<'a>>,
    /// Hears what cannot be read, and becomes zeros.
    lost: Option<&'a Lost<'a>>,
    /// The source can be read at any place, and again.
    reads_again: bool,
    /// Zeros that are left out count as done.
    work: WatchedWork<ConversionError>,
}

impl<'a> Conversion<'a> {
    /// Prepares to copy all of `source` into a disk.
    pub fn to_disk(source: &'a dyn Disk, target: DiskTarget<'a>, options: ConversionOptions) -> Self {
        Self::new(source, Box::new(target), options)
    }

    /// Prepares to copy all of `source` into a new qcow2 image.
    pub fn to_qcow2(source: &'a dyn Disk, target: Qcow2Target<'a>, options: ConversionOptions) -> Self {
        Self::new(source, Box::new(target), options)
    }

    /// Prepares to copy all of `source` into a new image in another hypervisor's format.
    pub fn to_block_map(source: &'a dyn Disk, target: &'a BlockMapWriter, options: ConversionOptions) -> Self {
        Self::new(source, Box::new(target), options)
    }

    /// Prepares to copy all of `source` into a new streamOptimized VMDK.
    pub fn to_vmdk_stream(source: &'a dyn Disk, target: &'a VmdkStreamWriter, options: ConversionOptions) -> Self {
        Self::new(source, Box::new(target), options)
    }

    fn new(source: &'a dyn Disk, target: Box<dyn ConversionTarget + 'a>, options: ConversionOptions) -> Self {
        let block_bytes = u64::from(source.geometry().logical_block_bytes);
        // Zeros are told apart in pages.
        let granule_bytes = target.granule_bytes().max(block_bytes).max(ZERO_RUN_BYTES_MIN.into());
        let piece_bytes = PIECE_BYTES.max(granule_bytes);
        let plan = Plan::new(source, granule_bytes, piece_bytes);
        Self {
            source,
            target,
            options,
            piece_bytes,
            plan,
            in_order: None,
            lost: None,
            reads_again: true,
            work: WatchedWork::new(),
        }
    }

    /// The same, with somebody who hears all that is read, from the disk's first byte to its last.
    #[must_use]
    pub fn heard_by(mut self, take: &'a (dyn Fn(&[u8]) + Sync)) -> Self {
        // Who waits for its turn keeps nobody waiting.
        self.options.depth = 1;
        self.in_order = Some(InOrder::new(take));
        self
    }

    /// The same, which goes on where the source cannot be read: these bytes become zeros, and `lost` hears of them, in
    /// runs that may touch, in any order.
    #[must_use]
    pub fn salvaging(mut self, lost: &'a (dyn Fn(Range<u64>, RequestError) + Sync)) -> Self {
        self.lost = Some(lost);
        self.plan.goes_on_where_unknown();
        self
    }

    /// The same, of a source that is read once, from its beginning to its end.
    #[must_use]
    pub fn of_stream(self) -> Self {
        Self { reads_again: false, ..self }
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
    use crate::layers::FaultyDisk;
    use crate::{Engine, FileDisk, FileOptions};
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;

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
            let target = DiskTarget { disk: &target, is_zero: true, unmap: false };
            let options = ConversionOptions { threads: 1, depth: 4, zero_run_bytes: None };
            Conversion::to_disk(&source, target, options).run(|_| true).unwrap();
            let mut copied = vec![0; LENGTH];
            files[1].read_exact_at(&mut copied, 0).unwrap();
            assert!(copied == contents);
        }
    }

    #[test]
    fn zeros_that_cannot_be_written_are_said_where_they_are() {
        const LENGTH: u64 = 8 << 20;
        let disk = |file: &File| FileDisk::from_file(file.try_clone().unwrap(), &FileOptions::default()).unwrap();
        let files = [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()];
        files.iter().for_each(|file| file.set_len(LENGTH).unwrap());
        files[0].write_all_at(&[1; 3 << 20], 0).unwrap();
        let (source, target) = (disk(&files[0]), disk(&files[1]));
        let target = FaultyDisk::new(Arc::new(target), &"zero-error:1".parse().unwrap());
        let target = DiskTarget { disk: &target, is_zero: false, unmap: false };
        let options = ConversionOptions { threads: 1, depth: 1, zero_run_bytes: None };
        let error = Conversion::to_disk(&source, target, options).run(|_| true).unwrap_err();
        assert!(matches!(error, ConversionError::Write { offset_bytes, .. } if offset_bytes == 3 << 20), "{error}");
    }
}
