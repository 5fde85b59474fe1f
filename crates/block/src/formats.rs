//! Disks in image files: [`Qcow2Disk`] and [`BlockMapDisk`].
//!
//! All find out where in which file a request's bytes lie, and push requests with the caller's own segments to the
//! queues of the [`crate::FileDisk`]s below: reading what an image holds costs a look-up in memory more than reading
//! a raw file. What one image says of other files is opened through [`AllowedDirectories`] only.
//!
//! Deliberately absent: guessing a format from a file's contents. A guest that may write a raw disk could make it look
//! like an image that refers to any file of its host.

mod allowed_directories;
mod atomic_change;
mod block_map;
mod chain_files;
mod check_report;
mod compression;
#[cfg(test)]
mod cut_files;
mod error;
mod file_format;
mod fold;
mod host_file;
mod image_chain;
mod inbox;
mod inflate;
mod l2_cache;
mod local_name;
mod luks;
mod ova;
mod pending_check;
#[cfg(test)]
mod power_cut;
mod preallocation;
mod qcow2;
#[cfg(test)]
mod random;
mod readers;
#[cfg(test)]
mod recorded_file;
mod runs;
pub(crate) mod scatter;
mod vmdk;
mod writable_file;

pub use allowed_directories::AllowedDirectories;
pub use atomic_change::{AtomicChange, ForeignJournal, FoundJournal, UnfinishedChange};
pub(crate) use block_map::PackedGrains;
pub use block_map::{BlockMapCreateOptions, BlockMapDisk, BlockMapFormat, BlockMapInfo, BlockMapWriter};
pub use block_map::{VmdkAdapter, VmdkCommit, VmdkCreateOptions, VmdkStreamWriter};
pub use check_report::{CheckReport, Repair};
pub(crate) use compression::TOLD_BYTES;
pub use compression::{Compression, StartUnpacker, UnpackedDisk, Unpacker};
pub use error::ImageError;
pub use file_format::FileFormat;
pub use fold::FoldError;
pub(crate) use fold::fold;
pub use image_chain::{ChainImage, image_chain};
pub use local_name::LocalName;
pub use luks::{
    ChainKeys, KeyFile, KeyFileError, LineEnd, LuksDisk, LuksHeader, LuksOptions, LuksSlot, LuksSlotChange, NewLuks,
    SecretBytes, read_key_file,
};
pub use ova::{Digest as OvaDigest, Ova, OvaDisk};
pub use preallocation::Preallocation;
pub use qcow2::{
    Qcow2Amendment, Qcow2Backing, Qcow2CreateOptions, Qcow2DataFile, Qcow2Disk, Qcow2Features, Qcow2Held, Qcow2Writer,
};
pub use qcow2::{Qcow2Bitmap, Qcow2BitmapAction, Qcow2Encryption, Qcow2Info, Qcow2Snapshot};
pub use qcow2::{Qcow2Check, Qcow2Closing, Qcow2Commit, Qcow2Rebase, Qcow2Shown, write_differences};
pub use qcow2::{Qcow2Mapping, Qcow2MappingKind};
pub(crate) use qcow2::{base_of_delta, create_delta};
pub use vmdk::{VmdkExtent, VmdkInfo};

use crate::Geometry;
use writable_file::WritableFile;

/// Makes a disk's geometry at least as demanding as that of a disk below it.
fn demand(geometry: &mut Geometry, below: &Geometry) {
    geometry.logical_block_bytes = geometry.logical_block_bytes.max(below.logical_block_bytes);
    geometry.physical_block_bytes = geometry.physical_block_bytes.max(below.physical_block_bytes);
    geometry.segments_max = geometry.segments_max.min(below.segments_max);
    geometry.transfer_bytes_max = geometry.transfer_bytes_max.min(below.transfer_bytes_max);
    geometry.memory_align_bytes = geometry.memory_align_bytes.max(below.memory_align_bytes);
}
