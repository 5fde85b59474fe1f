//! How a new image is written: by a disk on it, or by a writer of its format.

use crate::Watch;
use crate::error::{Context, Result, refuse};
use crate::whole::new_image::NewDisk;
use crate::whole::{NewImage, WholeDisk};
use blockyard_block::specification::Format;
use blockyard_block::{
    BlockMapWriter, Disk, Extent, ExtentKind, OpenedFile, Preallocation, Qcow2Disk, Qcow2Writer, ReplacementFile,
    VmdkStreamWriter, flush, shown, walk_extents,
};
use std::path::PathBuf;
use std::sync::Arc;

/// How a new image is written.
pub(super) enum Writer {
    /// By a disk on it. `unmap`: zeros give back the storage that was reserved for them.
    Disk {
        new: NewDisk,
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

/// Bitmaps of what was written, which a new qcow2 image gets of the one that is converted.
#[derive(Debug)]
pub struct CopiedBitmaps {
    /// The image that has them, open for reading.
    pub source: OpenedFile,
    /// Those that say nothing any more are left out; else they are an error.
    pub leaves_out_unusable: bool,
}

impl Writer {
    /// Makes the image but for its name, as [`Target::new_image`](super::Target::new_image) says.
    pub(super) fn make(
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
            let file = image.new_file(watch)?;
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
            let file = image.new_file(watch)?;
            let writer = image.vmdk_stream_writer(&file)?;
            return Ok((file, Self::VmdkStream(Box::new(writer))));
        }
        if let Format::BlockMap(format) = image.format {
            let file = image.new_file(watch)?;
            let writer = image.block_map_writer(&file, format, watch)?;
            return Ok((file, Self::BlockMap(Box::new(writer))));
        }
        if source.is_endless() {
            let (file, disk) = image.make_growing(watch)?;
            return Ok((file, Self::Disk { new: NewDisk::of(disk), unmap: false, is_zero: true }));
        }
        let file = image.make(watch)?;
        let is_sparse = image.format == Format::Raw && image.preallocation == Preallocation::Off;
        // What is decompressed says nothing of its zeros before.
        let unmap = is_sparse && source.unpacked.is_empty() && reserve(&file, &*source.disk)?;
        let new = image.open(&file, &[])?;
        // What was never written to a LUKS volume is noise.
        Ok((file, Self::Disk { new, unmap, is_zero: image.format != Format::Luks }))
    }

    /// Completes it, and gives it its name.
    pub(super) fn finish(
        self,
        file: ReplacementFile,
        end: Option<u64>,
        durable: bool,
        bitmaps: Option<&CopiedBitmaps>,
    ) -> Result<()> {
        match self {
            Self::Disk { new, .. } => {
                end.map_or(Ok(()), |end| file.set_length(end))?;
                if durable {
                    flush(&*new.disk).with_context(|| format!("cannot flush {}", shown(file.path())))?;
                }
                new.close()?;
            }
            // Differences are flushed where they are written.
            Self::Overlay { disk, .. } => {
                let closing = disk.closing();
                drop(disk);
                closing.result()?;
            }
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

fn not_complete(file: &ReplacementFile) -> String {
    format!("cannot complete {}", shown(file.path()))
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
