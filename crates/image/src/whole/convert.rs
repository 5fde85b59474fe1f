//! Converting a disk into a new image, or into a disk that is there.

mod target;
mod writer;

use super::digest::{self, CheckedFile, Digest, ExpectedFile};
use super::lost::{Losses, Lost};
use super::{Told, WholeDisk, check, stopped};
use crate::Watch;
use crate::error::Result;
use blockyard_block::UnpackedDisk;
use blockyard_block::conversion::{ConversionError, ConversionOptions, THREADS_MAX, ZERO_RUN_BYTES_MIN};
use sha2::{Digest as _, Sha256};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
pub use target::Target;
pub use writer::CopiedBitmaps;

/// How a disk is converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvertOptions {
    /// Threads; `None`: one for each CPU, as far as that pays.
    pub threads: Option<usize>,
    /// Runs of zeros that are looked for in data, at least so long; 0: none are.
    pub zero_run_bytes: u64,
    /// Compress the data of a new qcow2 image; those of a streamOptimized VMDK always are.
    pub compress: bool,
    /// Whether all is on stable storage at the end.
    pub durable: bool,
    /// Say the digest of what was read of the source.
    pub digest: bool,
    /// What cannot be read of the source becomes zeros; not over a backing file.
    pub salvage: bool,
}

impl Default for ConvertOptions {
    fn default() -> Self {
        Self {
            threads: None,
            zero_run_bytes: ZERO_RUN_BYTES_MIN.into(),
            compress: false,
            durable: true,
            digest: false,
            salvage: false,
        }
    }
}

impl ConvertOptions {
    fn threads(&self) -> usize {
        const UNCOMPRESSED_THREADS: usize = 4;
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let most = if self.compress { THREADS_MAX } else { UNCOMPRESSED_THREADS };
        self.threads.unwrap_or(cpus.min(most))
    }

    fn zero_run_bytes(&self) -> Option<u32> {
        let unit = u64::from(ZERO_RUN_BYTES_MIN);
        let bytes = self.zero_run_bytes.checked_next_multiple_of(unit).and_then(|bytes| u32::try_from(bytes).ok());
        (self.zero_run_bytes > 0).then(|| bytes.unwrap_or(u32::MAX - (ZERO_RUN_BYTES_MIN - 1)))
    }
}

/// Takes the bytes that a conversion reads, one after the other.
type Hearing<'a> = dyn Fn(&[u8]) + Sync + 'a;

/// How far a conversion has come: by its disk, or by the compressed file that this is decompressed from.
enum ToldOfSource<'a> {
    OfDisk(Told<'a>),
    OfFile(Told<'a>, &'a UnpackedDisk),
}

impl ToldOfSource<'_> {
    /// It is read once, from its beginning to its end.
    fn is_of_stream(&self) -> bool {
        matches!(self, Self::OfFile(..))
    }

    /// As [`Told::goes_on`].
    fn goes_on(&self, done_bytes: u64, data_bytes: u64) -> bool {
        match self {
            Self::OfDisk(told) => told.goes_on(done_bytes, data_bytes),
            Self::OfFile(Told { watch, .. }, unpacked) => {
                let (read_bytes, length_bytes) = unpacked.progress();
                Told { watch: *watch, length_bytes }.goes_on(read_bytes, read_bytes)
            }
        }
    }
}

/// A conversion, with all that it needs open.
pub struct Conversion {
    names: [String; 2],
    source: WholeDisk,
    target: Target,
    options: ConvertOptions,
    expected: Option<ExpectedFile>,
    bitmaps: Option<CopiedBitmaps>,
}

/// What became of a conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    /// Bytes of the disk.
    pub length_bytes: u64,
    /// The digest of the source's contents, if it was wanted.
    pub digest: Option<Digest>,
    /// What could not be read of the source, and is zeros.
    pub lost: Lost,
}

impl Conversion {
    /// Of a disk into another one; `names` is what both are called.
    pub fn new(names: [&str; 2], source: WholeDisk, target: Target, options: ConvertOptions) -> Self {
        let compress = options.compress || target.is_compressed();
        let options = ConvertOptions { compress, ..options };
        Self { names: names.map(str::to_owned), source, target, options, expected: None, bitmaps: None }
    }

    /// The same, if the source's file has the bytes that it is to have, before anything is written and in the end.
    #[must_use]
    pub fn of_expected(self, file: ExpectedFile) -> Self {
        Self { expected: Some(file), ..self }
    }

    /// The same, with these bitmaps in the new image.
    #[must_use]
    pub fn with_bitmaps(self, bitmaps: Option<CopiedBitmaps>) -> Self {
        Self { bitmaps, ..self }
    }

    /// Bytes that it goes through.
    pub fn length_bytes(&self) -> u64 {
        self.source.capacity_bytes()
    }

    /// How many threads it has, each with a queue of either disk.
    pub fn threads(&self) -> usize {
        self.options.threads().min(self.source.queues_max).min(self.target.queues_max())
    }

    /// The directories in which a new image and its data file take their names.
    pub fn replaces_in(&self) -> Vec<PathBuf> {
        self.target.replaces_in()
    }

    /// Converts.
    ///
    /// # Errors
    /// When something cannot be read or written, the source's file has other bytes than it is to have, or `watch` ends
    /// it. A new image does not appear then.
    pub fn run(self, watch: &dyn Watch) -> Result<Converted> {
        let options = ConversionOptions {
            threads: self.threads(),
            depth: self.source.depth.max(self.target.depth()),
            zero_run_bytes: self.options.zero_run_bytes(),
        };
        let is_endless = self.source.is_endless();
        let told = Told { watch, length_bytes: self.length_bytes() };
        let Self { names: [from, to], source, target, options: convert, expected, bitmaps } = self;
        let ConvertOptions { compress, durable, digest, salvage, .. } = convert;
        let checked = expected.map(|file| file.check(watch)).transpose()?;
        let told = match source.unpacked.as_slice() {
            [only] => ToldOfSource::OfFile(told, only),
            _ => ToldOfSource::OfDisk(told),
        };
        let hasher = Mutex::new(Sha256::new());
        let hash = |bytes: &[u8]| hasher.lock().unwrap_or_else(PoisonError::into_inner).update(bytes);
        let hears = if digest { Some(&hash as &Hearing<'_>) } else { None };
        let losses = Losses::default();
        let hear_lost = |range, reason| losses.hear(range, reason);
        let lost = if salvage { Some(&hear_lost as &(dyn Fn(_, _) + Sync)) } else { None };
        target.fill(&*source.disk, options, compress, hears, lost, &told).map_err(|error| {
            target.failed(match error {
                ConversionError::Stopped => stopped(watch),
                // It ends what reads as well.
                _ if watch.ends().is_some() => stopped(watch),
                error => {
                    source.failure().unwrap_or_else(|| error.into()).context(format!("cannot convert {from} to {to}"))
                }
            })
        })?;
        let complete = || {
            source.finish()?;
            checked.iter().try_for_each(CheckedFile::is_unchanged)?;
            Ok(match target.overlay() {
                _ if !digest => None,
                Some(disk) => Some(digest::of_contents(disk, watch)?),
                None => Some(Digest::from(hasher.into_inner().unwrap_or_else(PoisonError::into_inner))),
            })
        };
        let digest = complete().map_err(|error| target.failed(check(watch).err().unwrap_or(error)))?;
        let length_bytes = source.capacity_bytes();
        target.finish(is_endless.then_some(length_bytes), durable, bitmaps.as_ref())?;
        Ok(Converted { length_bytes, digest, lost: losses.end() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::whole::NewImage;
    use crate::whole::compare::{Compared, Comparison};
    use crate::{Nobody, Progress};
    use blockyard_block::specification::Format;
    use blockyard_block::{
        AllowedDirectories, FileDisk, FileOptions, MemoryDisk, OpenedFile, Qcow2Backing, Qcow2Disk, write_bytes,
    };
    use std::sync::Arc;
    use std::time::SystemTime;

    #[derive(Default)]
    struct Listener(Mutex<Option<Progress>>);

    impl Watch for Listener {
        fn progress(&self, progress: &Progress) {
            *self.0.lock().unwrap() = Some(*progress);
        }
    }

    fn memory(length: u64) -> WholeDisk {
        WholeDisk::new(Arc::new(MemoryDisk::new(length, 512).unwrap()))
    }

    fn compare(one: &WholeDisk, other: &WholeDisk, is_strict: bool) -> Compared {
        Comparison::new(["one", "other"], [one.clone(), other.clone()], is_strict).run(&Nobody).unwrap()
    }

    #[test]
    fn a_new_image_holds_the_same_and_appears_at_the_end() {
        const LENGTH: u64 = 3 << 20;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.qcow2");
        let source = memory(LENGTH);
        write_bytes(&*source.disk, 1 << 20, &[7; 4096]).unwrap();
        let image = NewImage::new(&path, Format::Qcow2, LENGTH);
        let target = Target::new_image(&image, &source, None, &[], &Nobody).unwrap();
        let conversion = Conversion::new(["a", "b"], source.clone(), target, ConvertOptions::default());
        assert_eq!(conversion.replaces_in(), [directory.path()]);
        assert!(!path.exists());
        let listener = Listener::default();
        conversion.run(&listener).unwrap();
        let heard = listener.0.lock().unwrap().unwrap();
        assert_eq!((heard.done_bytes, heard.length_bytes), (LENGTH, LENGTH));
        let allowed = AllowedDirectories::new::<PathBuf>(&[]).unwrap();
        let made = Qcow2Disk::open(&path, &FileOptions::default(), &allowed).unwrap();
        assert_eq!(compare(&source, &WholeDisk::new(Arc::new(made)), false), Compared::Same);
        assert_eq!(compare(&source, &memory(LENGTH), false), Compared::Contents(1 << 20));
        assert_eq!(compare(&source, &memory(LENGTH), true), Compared::Allocation(1 << 20));
        assert_eq!(compare(&source, &memory(LENGTH + 512), true), Compared::Sizes);
    }

    /// Touches a file as soon as something of it was done.
    struct Meddler(OpenedFile);

    impl Watch for Meddler {
        fn progress(&self, _: &Progress) {
            self.0.file().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
    }

    #[test]
    fn what_is_changed_while_it_is_read_is_not_converted() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("a.img"), directory.path().join("b.img"));
        std::fs::write(&from, [0; 4096]).unwrap();
        let digest = "ad7facb2586fc6e966c004d7d1d16b024f5805ff7cb47c7a85dabd8b48892ca7".parse().unwrap();
        let convert = |watch: &dyn Watch| {
            let file = OpenedFile::open(&from, false).unwrap();
            let disk = FileDisk::open(&from, &FileOptions::default()).unwrap();
            let source = WholeDisk::new(Arc::new(disk));
            let target =
                Target::new_image(&NewImage::new(&to, Format::Raw, 4096), &source, None, &[], &Nobody).unwrap();
            let conversion = Conversion::new(["a", "b"], source, target, ConvertOptions::default());
            conversion.of_expected(ExpectedFile::new(file, digest).unwrap()).run(watch)
        };
        let refused = convert(&Meddler(OpenedFile::open(&from, false).unwrap())).unwrap_err().in_one_line();
        assert!(refused.contains("a.img was changed while it was read"), "{refused}");
        assert!(!to.exists());
        convert(&Nobody).unwrap();
        assert!(to.exists());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let backing = Some(Qcow2Backing { name: "base.img".to_owned(), format: "raw".to_owned() });
        let image = NewImage { backing, ..NewImage::new(directory.path().join("a.qcow2"), Format::Qcow2, 1 << 20) };
        assert!(Target::new_image(&image, &memory(1 << 20), None, &[], &Nobody).is_err());
        let refused = Target::in_place("b", memory(1 << 20), &memory(2 << 20), false).err().unwrap();
        assert!(refused.to_string().starts_with("b has 1048576 bytes, too few for 2097152"), "{refused}");
    }
}
