//! What is written by a conversion: a new image, or a disk that is there.

use super::writer::{CopiedBitmaps, Writer};
use super::{Hearing, ToldOfSource};
use crate::Watch;
use crate::error::{Context, Error, Result, refuse};
use crate::whole::new_image::NewDisk;
use crate::whole::{NewImage, WholeDisk};
use blockyard_block::conversion::{Conversion, ConversionError, ConversionOptions, DiskTarget, Qcow2Target};
use blockyard_block::{
    Disk, ImageError, OpenedFile, Qcow2Disk, Qcow2Writer, Remedy, ReplacementFile, RequestError, directory_of, flush,
    reads_as_zeros, shown, write_differences,
};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

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
    /// A device that becomes a qcow2 image, and is none meanwhile.
    OnDevice { device: OpenedFile, device_bytes: u64, writer: Box<Qcow2Writer>, behind: Option<Arc<dyn Disk>> },
    /// A disk that is there.
    InPlace { name: String, disk: WholeDisk, is_zero: bool },
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

    /// The device at `image`'s path, which is open for writing, and nobody else's: it is no image from here on, until
    /// it is this one. `behind` as of a new image.
    ///
    /// # Errors
    /// When there can be no such image on a device, or it cannot be written.
    pub fn on_device(
        image: &NewImage,
        device: OpenedFile,
        source: &WholeDisk,
        behind: Option<Arc<dyn Disk>>,
    ) -> Result<Self> {
        if source.is_endless() && !image.grows() {
            refuse!("{}: it is not known how large it becomes", shown(&image.path));
        }
        let device_bytes = device.file().seek(SeekFrom::End(0)).context("cannot see how large the device is")?;
        let writer = image.device_writer(&device).map_err(|error| match error.cause() {
            // Before anything was written.
            Error::Image(ImageError::Invalid(_) | ImageError::Key(_)) | Error::Usage(_) => error,
            _ => incomplete(&device, device_bytes, error),
        })?;
        Ok(Self(Kind::OnDevice { device, device_bytes, writer: Box::new(writer), behind }))
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

    /// Whether all of its data are compressed.
    pub(super) fn is_compressed(&self) -> bool {
        matches!(self.0, Kind::New { writer: Writer::VmdkStream(_), .. })
    }

    /// A new image over its backing file's disk, of which only what differs is written.
    pub(super) fn overlay(&self) -> Option<&Qcow2Disk> {
        match &self.0 {
            Kind::New { writer: Writer::Overlay { disk, .. }, .. } => Some(disk),
            _ => None,
        }
    }

    /// The directories in which a new image and its data file take their names.
    pub(super) fn replaces_in(&self) -> Vec<PathBuf> {
        match &self.0 {
            Kind::New { file, .. } => {
                let files = [Some(file), file.companion()].into_iter().flatten();
                files.map(|file| directory_of(file.path()).to_owned()).collect()
            }
            Kind::OnDevice { .. } | Kind::InPlace { .. } => Vec::new(),
        }
    }

    pub(super) fn depth(&self) -> usize {
        match &self.0 {
            Kind::New { .. } | Kind::OnDevice { .. } => 1,
            Kind::InPlace { disk, .. } => disk.depth,
        }
    }

    pub(super) fn queues_max(&self) -> usize {
        match &self.0 {
            Kind::New { .. } | Kind::OnDevice { .. } => usize::MAX,
            Kind::InPlace { disk, .. } => disk.queues_max,
        }
    }

    /// An error of filling it. A new image does not appear, for which there may have been no room; a device, or a disk
    /// that was written in place, is incomplete now.
    pub(super) fn failed(&self, error: Error) -> Error {
        match &self.0 {
            Kind::New { path, .. } => error.or_no_space(path),
            Kind::OnDevice { device, device_bytes, .. } => incomplete(device, *device_bytes, error),
            Kind::InPlace { name, .. } => error.context(format!("{name} is incomplete")),
        }
    }

    /// Writes all of `source`. `hears`: its bytes in their order, but where differences are written.
    pub(super) fn fill(
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
                return done.map(drop).map_err(|error| match error.kind() {
                    io::ErrorKind::Interrupted => ConversionError::Stopped,
                    _ => ConversionError::System(error),
                });
            }
            Kind::New { writer: Writer::Disk { new: NewDisk { disk, .. }, unmap, is_zero }, .. } => {
                let target = DiskTarget { disk: &**disk, is_zero: *is_zero, unmap: *unmap };
                Conversion::to_disk(source, target, options)
            }
            Kind::New { writer: Writer::Qcow2 { writer, behind }, .. } | Kind::OnDevice { writer, behind, .. } => {
                let target = Qcow2Target { writer, compress, behind: behind.as_deref() };
                Conversion::to_qcow2(source, target, options)
            }
            Kind::New { writer: Writer::BlockMap(writer), .. } => Conversion::to_block_map(source, writer, options),
            Kind::New { writer: Writer::VmdkStream(writer), .. } => Conversion::to_vmdk_stream(source, writer, options),
            Kind::InPlace { disk, is_zero, .. } => {
                let target = DiskTarget { disk: &*disk.disk, is_zero: *is_zero, unmap: false };
                Conversion::to_disk(source, target, options)
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
    pub(super) fn finish(self, end: Option<u64>, durable: bool, bitmaps: Option<&CopiedBitmaps>) -> Result<()> {
        match self.0 {
            Kind::New { path, file, writer } => {
                writer.finish(file, end, durable, bitmaps).map_err(|error| error.or_no_space(&path))
            }
            Kind::OnDevice { device, device_bytes, writer, .. } => {
                complete(&device, *writer, end, durable, bitmaps).map_err(|error| {
                    // As far as that can be done: what is no whole image is none.
                    let _ = device.file().write_all_at(&[0; 512], 0).and_then(|()| device.file().sync_all());
                    incomplete(&device, device_bytes, error)
                })
            }
            Kind::InPlace { name, disk, .. } if durable => {
                flush(&*disk.disk).with_context(|| format!("{name} is incomplete: its last flush failed"))
            }
            Kind::InPlace { .. } => Ok(()),
        }
    }
}

/// Completes the image on a device.
fn complete(
    device: &OpenedFile,
    mut writer: Qcow2Writer,
    end: Option<u64>,
    durable: bool,
    bitmaps: Option<&CopiedBitmaps>,
) -> Result<()> {
    end.map_or(Ok(()), |end| writer.end_at(end))?;
    writer.finish()?;
    if let Some(CopiedBitmaps { source, leaves_out_unusable }) = bitmaps {
        Qcow2Disk::copy_bitmaps(device, source, *leaves_out_unusable)?;
    }
    if durable { Ok(device.file().sync_all()?) } else { Ok(()) }
}

/// An error of a device that is to be an image, and is none.
fn incomplete(device: &OpenedFile, device_bytes: u64, error: Error) -> Error {
    error.or_small_device(device_bytes).context(format!("{} is incomplete", shown(device.path())))
}
