//! An image whose files and volumes can be worked on.

use super::failures::{consequence, errno, first_few, sentence};
use super::options::{Access, Boot, ImageOptions, Resources};
use super::records::{Kept, RecordStream, RecordTaker};
use super::{read_in, requests};
use crate::Watch;
use crate::error::{Context, Error, Result, refuse};
use crate::needs::Needs;
use crate::volumes::keys::{Key, Keys};
use crate::volumes::opened_stacks::Stacks;
use blockyard_appliance::{Appliance, ImageDisk, StreamSink, System};
use blockyard_block::layers::{WatchedDisk, ZerosAsHoles};
use blockyard_block::{AtomicChange, Disk, Geometry, Remedy, printable};
use blockyard_protocol::appliance::{Failure, MountPoint, Operation, Record, Response, Volume};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

/// An appliance with an image's disks, and mostly with its file systems mounted.
pub struct OpenImage {
    /// The guest.
    pub(super) appliance: Appliance,
    name: String,
    /// The disks by their names: they know why a request to them failed, which the guest does not.
    watched: Vec<(Arc<str>, Arc<WatchedDisk>)>,
    access: Access,
    pub(crate) synchronous: bool,
    capacity_bytes: u64,
    disks: Vec<Arc<ZerosAsHoles>>,
    /// What makes what was written happen, if that is as a whole.
    change: Option<AtomicChange>,
    permissions: Option<u32>,
    durable: bool,
    /// What shall be mounted; nothing: what is found.
    pub(crate) points: Vec<MountPoint>,
    /// How to boot the appliance again.
    boot: Boot,
    pub(crate) keys: Keys,
    /// What was opened so that there is something to mount.
    pub(crate) stacks: Stacks,
    watch: Arc<dyn Watch>,
}

impl OpenImage {
    pub(super) fn boot(options: ImageOptions, resources: Resources, watch: Arc<dyn Watch>) -> Result<Self> {
        let ImageOptions { disks, access, memory_bytes, raid6, timeout, synchronous, durable, lives_on, .. } = options;
        let ImageOptions { keys, change, permissions, system, .. } = options;
        let capacity_bytes =
            disks.iter().fold(0u64, |sum, image| sum.saturating_add(image.disk.geometry().capacity_bytes));
        let watched =
            |image: &ImageDisk| (Arc::clone(&image.name), Arc::new(WatchedDisk::new(Arc::clone(&image.disk))));
        let watched: Vec<_> = disks.iter().map(watched).collect();
        let over = |(_, disk): &(_, Arc<WatchedDisk>)| Arc::new(ZerosAsHoles::new(Arc::clone(disk) as Arc<dyn Disk>));
        let holes: Vec<_> = watched.iter().map(over).collect();
        let seen = disks.iter().zip(&holes).map(|(image, layer)| {
            let disk: Arc<dyn Disk> = Arc::clone(layer) as Arc<dyn Disk>;
            ImageDisk { disk, name: Arc::clone(&image.name) }
        });
        let seen = seen.collect();
        let boot =
            Boot { resources, disks: seen, memory_bytes, raid6, timeout, lives_on, system, watch: Arc::clone(&watch) };
        let appliance = boot.boot()?;
        let confined = appliance.confined();
        if !confined.is_enough() {
            watch.note(if confined.landlock { LANDLOCK_ALONE } else { UNCONFINED });
        }
        Ok(Self {
            appliance,
            name: disks.first().map_or_else(String::new, |disk| disk.name.to_string()),
            watched,
            access,
            synchronous,
            capacity_bytes,
            disks: holes,
            change,
            permissions,
            durable,
            points: Vec::new(),
            boot,
            keys,
            stacks: Stacks::default(),
            watch,
        })
    }

    /// What the permission bits of the disks' files allow: what is made of all of a disk should not be for more people.
    pub fn permissions(&self) -> Option<u32> {
        self.permissions
    }

    /// Whether files of the host that are written are to be on stable storage before a function returns.
    pub fn is_durable(&self) -> bool {
        self.durable
    }

    /// The keys that were given for `volume`.
    pub fn keys_of(&self, volume: &Volume) -> Vec<Key> {
        self.keys.of(volume)
    }

    /// Whether there is somebody to ask for a passphrase.
    pub(crate) fn can_ask(&self) -> bool {
        self.watch.can_ask()
    }

    /// Asks for a passphrase. `None` where there is nobody to ask.
    ///
    /// # Errors
    /// When asking fails, or somebody wants the end.
    pub fn ask(&self, question: &str) -> Result<Option<Key>> {
        self.watch.passphrase(question)
    }

    /// Boots the appliance again, with more. What was opened and mounted in it is not any more.
    pub(crate) fn boot_again(&mut self, needs: Needs) -> Result<()> {
        self.boot.memory_bytes = self.boot.memory_bytes.max(needs.memory_bytes);
        self.boot.raid6 |= needs.raid6;
        self.stacks = Stacks::default();
        self.appliance.end();
        self.appliance = self.boot.boot()?;
        Ok(())
    }

    /// Says that something failed because the appliance has too little memory.
    pub fn tell_of_memory(&self) {
        let mebibytes = self.boot.memory_bytes >> 20;
        self.note(&format!("the appliance's memory was used up: {}", Remedy::MoreMemoryThan(mebibytes)));
    }

    /// What the appliance has of what something may need.
    pub(crate) fn has(&self) -> Needs {
        Needs { memory_bytes: self.boot.memory_bytes, raid6: self.boot.raid6 }
    }

    /// What is left of it when the guest was handed over.
    pub fn into_system(self) -> System {
        self.appliance.into_system()
    }

    /// Has the guest handed over, as far as it can be.
    pub(crate) fn try_hand_over(&mut self, modules: &[&str]) -> Result<Response> {
        Ok(self.appliance.hand_over(modules)?)
    }

    /// Whether nothing may be written.
    pub fn reads_only(&self) -> bool {
        self.access == Access::Read
    }

    /// What the image is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many disks the image is: the appliance's first.
    pub fn disks(&self) -> u32 {
        self.disks.len() as u32
    }

    /// Gives back, from now on, the storage of what is zeroed on the image's disks, and zeroes what is discarded; or
    /// not any more.
    pub fn zeros_as_holes(&self, on: bool) {
        self.disks.iter().for_each(|disk| disk.switch(on));
    }

    /// Whether the image's disks do what `is_done` says of one.
    pub fn all_disks(&self, is_done: impl Fn(&Geometry) -> bool) -> bool {
        self.disks.iter().all(|disk| is_done(&disk.geometry()))
    }

    /// Says something that is no failure.
    pub fn note(&self, line: &str) {
        self.watch.note(&format!("{}: {}", printable(&self.name), printable(line)));
    }

    /// Has the appliance do something.
    ///
    /// # Errors
    /// When it failed, in part or as a whole: a line for each of the first few failures.
    pub fn call(&mut self, mut operation: Operation) -> Result<Response> {
        if let Some(sources) = requests::streamed_sources(&mut operation) {
            let bytes = read_in(self, operation, io::Cursor::new(sources))?;
            return Ok(Response { bytes, ..Response::default() });
        }
        let mut whole = Response::default();
        for part in requests::split(operation) {
            let response = self.appliance.call(part)?;
            response.notes.iter().for_each(|note| self.note(note));
            let (failures, failed, bytes) = (whole.failures, whole.failed, whole.bytes);
            whole = Response { failed: failed + response.failed, bytes: bytes + response.bytes, ..response };
            whole.failures.splice(0..0, failures);
        }
        self.judge(whole)
    }

    /// As [`OpenImage::call`], for what fits into a message; what failed is in the response.
    pub(crate) fn try_call(&mut self, operation: Operation) -> Result<Response> {
        Ok(self.appliance.call(operation)?)
    }

    /// An error if something failed.
    pub(crate) fn judge(&self, response: Response) -> Result<Response> {
        self.told(&response.failures, response.failed)?;
        Ok(response)
    }

    /// Why a request to a disk failed on the host, if one did.
    fn failed_request(&self) -> Option<String> {
        let failed = |(name, disk): &(Arc<str>, Arc<WatchedDisk>)| Some((Arc::clone(name), disk.first_error()?));
        let (name, error) = self.watched.iter().find_map(failed)?;
        let advice = match (self.reads_only(), self.is_atomic()) {
            (false, false) => format!("; once it works again, {}", Remedy::RepairFileSystem),
            _ => String::new(),
        };
        Some(format!("{name}: a request to it failed: {}{advice}", error.with_remedy()))
    }

    /// An error that says each of the first few failures, if there are any, and what is known besides.
    pub fn told(&self, failures: &[Failure], count: u64) -> Result<()> {
        if failures.is_empty() {
            return Ok(());
        }
        let request = self.failed_request();
        let said = if request.is_some() { consequence } else { sentence };
        let mut lines = first_few(failures.iter().map(said), count);
        if let Some(error) = request {
            // The others came of it.
            lines.insert(0, error);
        } else if failures.iter().any(|failure| DAMAGE.contains(&failure.errno)) {
            let said = self.appliance.kernel_log();
            if !said.is_empty() {
                lines.push(format!("the appliance's kernel says: {}", said.join(" · ")));
            }
        }
        Err(Error::refused(lines.join("\nblockyard: ")))
    }

    /// Has the appliance list something, and gives each record to `take`, in a thread of its own. What could not be
    /// looked at is an error when all the rest was.
    ///
    /// # Errors
    /// When it failed, or `take` did.
    pub fn records<T, H>(&mut self, operation: Operation, take: H) -> Result<T>
    where
        T: Send + 'static,
        H: RecordTaker<Output = T>,
    {
        let (result, failures) = self.records_and_failures(operation, take)?;
        self.told(&failures, failures.len() as u64).map(|()| result)
    }

    /// Has the appliance list something; what `of` takes out of the records, so many at most.
    ///
    /// # Errors
    /// As [`OpenImage::records`].
    pub(crate) fn kept_records<T: Send + 'static>(
        &mut self,
        operation: Operation,
        most: usize,
        of: fn(Record) -> Option<T>,
    ) -> Result<Vec<T>> {
        self.records(operation, Kept::new(most, of))
    }

    /// As [`OpenImage::records`], with what could not be looked at.
    ///
    /// # Errors
    /// When it failed as a whole, or `take` did.
    pub fn records_and_failures<T, H>(&mut self, operation: Operation, take: H) -> Result<(T, Vec<Failure>)>
    where
        T: Send + 'static,
        H: RecordTaker<Output = T>,
    {
        let mut records = RecordStream::new(take);
        for part in requests::split(operation) {
            let sink = StreamSink::with_bytes_max(records, self.bytes_max()).context("making a stream")?;
            self.appliance.bind_sink_stream(&sink);
            let response = self.appliance.call(part)?;
            let finished = sink.finish();
            self.appliance.release();
            records = match finished {
                // The output's own failure is why the appliance failed.
                Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(Error::Output(error)),
                finished => {
                    self.judge(response)?;
                    finished.context("the appliance's answer is not whole")?
                }
            };
        }
        let (taker, failures) = records.into_parts();
        Ok((taker.finish().map_err(Error::Output)?, failures))
    }

    /// As [`OpenImage::records`], when something that is not there is no failure.
    ///
    /// # Errors
    /// As there.
    pub fn records_if_any<T, H>(&mut self, operation: Operation, take: H) -> Result<T>
    where
        T: Send + 'static,
        H: RecordTaker<Output = T>,
    {
        let (result, mut failures) = self.records_and_failures(operation, take)?;
        failures.retain(|failure| errno(failure) != Some(Errno::NOENT));
        self.told(&failures, failures.len() as u64).map(|()| result)
    }

    /// More than the files of the image can have, as files mostly are: what claims to be more goes where it does no
    /// harm, or is not honest.
    pub fn bytes_max(&self) -> u64 {
        self.capacity_bytes.saturating_mul(BYTES_PER_IMAGE_BYTE_MAX).saturating_add(1 << 30)
    }

    /// The same for what goes to a file or a directory: there may be more, as a file system that compresses packs a
    /// thousand bytes into one, while at least half of the room is left that is there. What goes through a pipe is for
    /// who reads it to bound.
    pub fn bytes_max_into(&self, place: impl AsFd) -> u64 {
        let free = rustix::fs::fstatvfs(place).map_or(0, |found| match found.f_blocks {
            0 => u64::MAX,
            _ => found.f_bavail.saturating_mul(found.f_frsize),
        });
        let compressed = self.capacity_bytes.saturating_mul(BYTES_PER_COMPRESSED_BYTE_MAX);
        self.bytes_max().max(compressed.min(free / 2))
    }

    /// More than an image can have files, whatever they are.
    pub fn files_max(&self) -> u64 {
        (self.capacity_bytes / BYTES_PER_FILE_MIN).saturating_add(1 << 20)
    }

    /// Unmounts, so that what was changed is on stable storage.
    ///
    /// # Errors
    /// When it is not.
    pub fn close(mut self) -> Result<()> {
        self.unmount()?;
        if self.reads_only() {
            return Ok(());
        }
        self.close_stacks().with_context(|| self.name.clone())?;
        self.check_written()?;
        let Self { appliance, disks, watched, boot, change, .. } = self;
        // They let go of the disk.
        drop((appliance, disks, watched, boot));
        change.map_or(Ok(()), |change| change.commit().map_err(Error::other))
    }

    /// Whether nothing has been changed until it is closed.
    pub fn is_atomic(&self) -> bool {
        self.change.is_some()
    }

    /// Lets go of the image without the change, where that happens as a whole: what can be said of it then.
    pub fn give_up(self) -> String {
        format!("{} is as it was", self.name)
    }

    /// Unmounts all, so that what was changed is on stable storage.
    ///
    /// # Errors
    /// When it is not.
    pub fn unmount(&mut self) -> Result<()> {
        if self.reads_only() {
            return Ok(());
        }
        self.call(Operation::Unmount).with_context(|| self.name.clone())?;
        self.check_written()
    }

    fn check_written(&self) -> Result<()> {
        // Linux unmounts a file system whose last writes failed without a word.
        self.failed_request().map_or(Ok(()), |why| refuse!("what was written is not all there: {why}"))
    }
}

/// Numbers of errors that a damaged file system has: EIO, EINVAL, EROFS, EBADMSG, EUCLEAN.
const DAMAGE: [u32; 5] = [5, 22, 30, 74, 117];

/// A file's inode, or one of its names, takes as much at least; where it is compressed, less.
const BYTES_PER_FILE_MIN: u64 = 64;

/// Files may be compressed by their file system.
const BYTES_PER_IMAGE_BYTE_MAX: u64 = 16;
/// By one that is made for that, and once.
const BYTES_PER_COMPRESSED_BYTE_MAX: u64 = 1024;

/// What is said where nothing of what confines an appliance can be had.
const LANDLOCK_ALONE: &str = "warning: this machine has neither namespaces nor seccomp's notifications for the appliance, so an image that takes \
                              over its kernel is kept from your files by Landlock, but can connect to the sockets of programs on this machine";
const UNCONFINED: &str = "warning: this machine has neither namespaces nor Landlock nor seccomp's notifications for the appliance, so an \
                          image that takes over its kernel has your rights on this machine";
