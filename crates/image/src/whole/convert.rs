//! Converting a disk into a new image, or into a disk that is there.

use super::digest::{self, CheckedFile, Digest, ExpectedFile};
use super::lost::{Losses, Lost};
use super::new_image::NewImage;
use super::{Told, WholeDisk, check, stopped};
use crate::Watch;
use crate::error::{Context, Error, Result, refuse};
use blockyard_block::Remedy;
use blockyard_block::conversion::{
    self, ConversionError, ConversionOptions, DiskTarget, Qcow2Target, THREADS_MAX, ZERO_RUN_BYTES_MIN,
};
use blockyard_block::specification::Format;
use blockyard_block::{
    BlockMapWriter, Disk, Extent, ExtentKind, OpenedFile, Preallocation, Qcow2Disk, Qcow2Writer, ReplacementFile,
    RequestError, UnpackedDisk, VmdkStreamWriter, directory_of, flush, reads_as_zeros, shown, walk_extents,
    write_differences,
};
use sha2::{Digest as _, Sha256};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

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

/// What is written.
pub struct Target(Kind);

enum Kind {
    /// A new image.
    New {
        /// Its name, as it was given.
        path: PathBuf,
        file: ReplacementFile,
        writer: Writer,
    },
    /// A disk that is there.
    InPlace { name: String, disk: WholeDisk, is_zero: bool },
}

/// How a new image is written.
enum Writer {
    /// By a disk on it. `unmap`: zeros give back the storage that was reserved for them.
    Disk {
        disk: Arc<dyn Disk>,
        unmap: bool,
        /// It reads as zeros.
        is_zero: bool,
    },
    /// By a disk on it, over its backing file's.
    Overlay {
        disk: Qcow2Disk,
        behind: Arc<dyn Disk>,
    },
    /// By a writer of its own.
    Qcow2 {
        writer: Box<Qcow2Writer>,
        behind: Option<Arc<dyn Disk>>,
    },
    BlockMap(Box<BlockMapWriter>),
    VmdkStream(Box<VmdkStreamWriter>),
}

impl Target {
    /// A new image of `source`'s size, which is made here but for its name. `behind` is the disk of its backing file,
    /// if it has one; all that the image refers to lies in `allow_dirs`.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn new_image(
        image: &NewImage,
        source: &WholeDisk,
        behind: Option<Arc<dyn Disk>>,
        allow_dirs: &[PathBuf],
        watch: &dyn Watch,
    ) -> Result<Self> {
        let made = Writer::make(image, source, behind, allow_dirs, watch);
        let (file, writer) = made.map_err(|error| error.or_no_space(&image.path))?;
        Ok(Self(Kind::New { path: image.path.clone(), file, writer }))
    }

    /// A disk that is there, called `name`, and written in place. `is_zero`: whoever calls knows that it reads as
    /// zeros.
    ///
    /// # Errors
    /// When it cannot be written, or has too little room for `source`.
    pub fn in_place(name: &str, disk: WholeDisk, source: &WholeDisk, is_zero: bool) -> Result<Self> {
        let (geometry, length_bytes) = (disk.disk.geometry(), source.capacity_bytes());
        if geometry.read_only {
            refuse!("{name} is read-only");
        }
        if source.is_endless() {
            source.unpacked.iter().for_each(|unpacked| unpacked.limit(geometry.capacity_bytes));
        } else if geometry.capacity_bytes < length_bytes {
            let room = geometry.capacity_bytes;
            refuse!("{name} has {room} bytes, too few for {length_bytes}: {}", Remedy::LargerImage);
        }
        let is_zero = is_zero || reads_as_zeros(&*disk.disk, source.capacity_bytes())?;
        Ok(Self(Kind::InPlace { name: name.to_owned(), disk, is_zero }))
    }

    fn depth(&self) -> usize {
        match &self.0 {
            Kind::New { .. } => 1,
            Kind::InPlace { disk, .. } => disk.depth,
        }
    }

    fn queues_max(&self) -> usize {
        match &self.0 {
            Kind::New { .. } => usize::MAX,
            Kind::InPlace { disk, .. } => disk.queues_max,
        }
    }

    /// An error of filling it. A new image does not appear, for which there may have been no room; a disk that was
    /// written in place is incomplete now.
    fn failed(&self, error: Error) -> Error {
        match &self.0 {
            Kind::New { path, .. } => error.or_no_space(path),
            Kind::InPlace { name, .. } => error.context(format!("{name} is incomplete")),
        }
    }

    /// Writes all of `source`. `hears`: its bytes in their order, but where differences are written.
    fn fill(
        &self,
        source: &dyn Disk,
        options: ConversionOptions,
        compress: bool,
        hears: Option<&Hearing<'_>>,
        losses: Option<&(dyn Fn(Range<u64>, RequestError) + Sync)>,
        told: &ToldOfSource<'_>,
    ) -> Result<(), ConversionError> {
        let conversion = match &self.0 {
            Kind::New { writer: Writer::Overlay { disk, behind }, .. } => {
                let done = write_differences(disk, source, Some(&**behind), &mut |at, data| told.goes_on(at, data));
                return done.map_err(|error| match error.kind() {
                    io::ErrorKind::Interrupted => ConversionError::Stopped,
                    _ => ConversionError::System(error),
                });
            }
            Kind::New { writer: Writer::Disk { disk, unmap, is_zero }, .. } => {
                let target = DiskTarget { disk: &**disk, is_zero: *is_zero, unmap: *unmap };
                conversion::Conversion::to_disk(source, target, options)
            }
            Kind::New { writer: Writer::Qcow2 { writer, behind }, .. } => {
                let target = Qcow2Target { writer, compress, behind: behind.as_deref() };
                conversion::Conversion::to_qcow2(source, target, options)
            }
            Kind::New { writer: Writer::BlockMap(writer), .. } => {
                conversion::Conversion::to_block_map(source, writer, options)
            }
            Kind::New { writer: Writer::VmdkStream(writer), .. } => {
                conversion::Conversion::to_vmdk_stream(source, writer, options)
            }
            Kind::InPlace { disk, is_zero, .. } => {
                let target = DiskTarget { disk: &*disk.disk, is_zero: *is_zero, unmap: false };
                conversion::Conversion::to_disk(source, target, options)
            }
        };
        let conversion = match hears {
            Some(hears) => conversion.heard_by(hears),
            None => conversion,
        };
        let conversion = match losses {
            Some(lost) => conversion.salvaging(lost),
            None => conversion,
        };
        let conversion = if told.is_of_stream() { conversion.of_stream() } else { conversion };
        conversion.run(|done_bytes| told.goes_on(done_bytes, conversion.data_bytes()))
    }

    /// Gives a new image its name. `end`: where its disk ends, if nobody knew before.
    fn finish(self, end: Option<u64>, durable: bool, bitmaps: Option<&CopiedBitmaps>) -> Result<()> {
        match self.0 {
            Kind::New { path, file, writer } => {
                writer.finish(file, end, durable, bitmaps).map_err(|error| error.or_no_space(&path))
            }
            Kind::InPlace { name, disk, .. } if durable => {
                flush(&*disk.disk).with_context(|| format!("cannot flush {name}"))
            }
            Kind::InPlace { .. } => Ok(()),
        }
    }
}

impl Writer {
    fn make(
        image: &NewImage,
        source: &WholeDisk,
        behind: Option<Arc<dyn Disk>>,
        allow_dirs: &[PathBuf],
        watch: &dyn Watch,
    ) -> Result<(ReplacementFile, Self)> {
        if source.is_endless() && !image.grows() {
            refuse!("{}: it is not known how large it becomes", shown(&image.path));
        }
        if image.backing.is_some() != behind.is_some() {
            refuse!("{}: a backing file and its disk come together", shown(&image.path));
        }
        let is_in_one_go = image.preallocation == Preallocation::Off && image.data_file.is_none();
        let is_in_one_go = is_in_one_go && (behind.is_none() || image.features.can_hide_clusters());
        if image.format == Format::Qcow2 && is_in_one_go {
            let file = ReplacementFile::create_like(&image.path, image.permissions)?;
            let handle = file.file().try_clone().context("cannot duplicate a file descriptor")?;
            let writer = Qcow2Writer::new(handle, &image.qcow2_options())?;
            return Ok((file, Self::Qcow2 { writer: Box::new(writer), behind }));
        }
        if let Some(behind) = behind {
            let file = image.make(watch)?;
            let disk = image.open_qcow2(&file, allow_dirs)?;
            return Ok((file, Self::Overlay { disk, behind }));
        }
        if image.is_vmdk_stream() {
            let file = ReplacementFile::create_like(&image.path, image.permissions)?;
            let writer = image.vmdk_stream_writer(&file)?;
            return Ok((file, Self::VmdkStream(Box::new(writer))));
        }
        if let Format::BlockMap(format) = image.format {
            let file = ReplacementFile::create_like(&image.path, image.permissions)?;
            let writer = image.block_map_writer(&file, format)?;
            return Ok((file, Self::BlockMap(Box::new(writer))));
        }
        if source.is_endless() {
            let (file, disk) = image.make_growing()?;
            return Ok((file, Self::Disk { disk, unmap: false, is_zero: true }));
        }
        let file = image.make(watch)?;
        let is_sparse = image.format == Format::Raw && image.preallocation == Preallocation::Off;
        // What is decompressed says nothing of its zeros before.
        let unmap = is_sparse && source.unpacked.is_empty() && reserve(&file, &*source.disk)?;
        let disk = image.open(&file, &[])?;
        // What was never written to a LUKS volume is noise.
        Ok((file, Self::Disk { disk, unmap, is_zero: image.format != Format::Luks }))
    }

    fn finish(
        self,
        file: ReplacementFile,
        end: Option<u64>,
        durable: bool,
        bitmaps: Option<&CopiedBitmaps>,
    ) -> Result<()> {
        match self {
            Self::Disk { disk, .. } => {
                end.map_or(Ok(()), |end| file.set_length(end))?;
                if durable {
                    flush(&*disk).with_context(|| format!("cannot flush {}", shown(file.path())))?;
                }
            }
            // Differences are flushed where they are written.
            Self::Overlay { disk, .. } => drop(disk),
            Self::Qcow2 { mut writer, .. } => {
                let ended = end.map_or(Ok(()), |end| writer.end_at(end));
                ended.and_then(|()| writer.finish()).with_context(|| not_complete(&file))?;
            }
            Self::BlockMap(writer) => writer.finish().with_context(|| not_complete(&file))?,
            Self::VmdkStream(writer) => writer.finish().with_context(|| not_complete(&file))?,
        }
        if let Some(CopiedBitmaps { source, leaves_out_unusable }) = bitmaps {
            let handle = file.file().try_clone().context("cannot duplicate a file descriptor")?;
            let image = OpenedFile::new(handle, file.path().to_owned());
            Qcow2Disk::copy_bitmaps(&image, source, *leaves_out_unusable)?;
        }
        Ok(file.commit(durable)?)
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

fn not_complete(file: &ReplacementFile) -> String {
    format!("cannot complete {}", shown(file.path()))
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

/// Bitmaps of what was written, which a new qcow2 image gets of the one that is converted.
#[derive(Debug)]
pub struct CopiedBitmaps {
    /// The image that has them, open for reading.
    pub source: OpenedFile,
    /// Those that say nothing any more are left out; else they are an error.
    pub leaves_out_unusable: bool,
}

impl Conversion {
    /// Of a disk into another one; `names` is what both are called.
    pub fn new(names: [&str; 2], source: WholeDisk, target: Target, options: ConvertOptions) -> Self {
        let compress = options.compress || matches!(target.0, Kind::New { writer: Writer::VmdkStream(_), .. });
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
        match &self.target.0 {
            Kind::New { file, .. } => {
                let files = [Some(file), file.companion()].into_iter().flatten();
                files.map(|file| directory_of(file.path()).to_owned()).collect()
            }
            Kind::InPlace { .. } => Vec::new(),
        }
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
            Ok(match &target.0 {
                _ if !digest => None,
                Kind::New { writer: Writer::Overlay { disk, .. }, .. } => Some(digest::of_contents(disk, watch)?),
                _ => Some(Digest::from(hasher.into_inner().unwrap_or_else(PoisonError::into_inner))),
            })
        };
        let digest = complete().map_err(|error| target.failed(check(watch).err().unwrap_or(error)))?;
        let length_bytes = source.capacity_bytes();
        target.finish(is_endless.then_some(length_bytes), durable, bitmaps.as_ref())?;
        Ok(Converted { length_bytes, digest, lost: losses.end() })
    }
}

/// Reserves storage for what the source calls data, which makes writing it a third faster on ext4; zeros that are found
/// there give theirs back. False where there is not enough for that: there may be for what turns out to be needed.
fn reserve(file: &ReplacementFile, source: &dyn Disk) -> Result<bool> {
    const WORTH_A_CALL_BYTES: u64 = 1 << 20;
    let length_bytes = source.geometry().capacity_bytes;
    for extent in walk_extents(source, 0..length_bytes) {
        // Whoever reads it says what is wrong, or goes on.
        let Ok(Extent { offset_bytes, length_bytes: extent_bytes, kind }) = extent else { break };
        let is_worth_it = kind == ExtentKind::Data && extent_bytes >= WORTH_A_CALL_BYTES;
        if is_worth_it && file.preallocate(offset_bytes..offset_bytes + extent_bytes).is_err() {
            file.set_length(0)?;
            file.set_length(length_bytes)?;
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::whole::compare::{Compared, Comparison};
    use crate::{Nobody, Progress};
    use blockyard_block::{
        AllowedDirectories, FileDisk, FileOptions, MemoryDisk, OpenedFile, Qcow2Backing, write_bytes,
    };
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
