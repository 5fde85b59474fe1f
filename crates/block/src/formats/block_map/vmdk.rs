//! VMware's disks with grains: a file of them, with its descriptor in it or none, or a descriptor that names several
//! files, some of which may be flat.
//!
//! Where no grain is there, the disk that the descriptor names as its parent shows, if that still has the number (CID)
//! that it had.
//!
//! Sources: VMware's Virtual Disk Format 5.0, the pages of libvmdk on the format, and what QEMU's block/vmdk.c takes.

mod content_id;
pub(super) mod new;
mod se_sparse;
mod sparse;
pub(super) mod stream;
mod tables;
mod tables_check;

use super::chain::{Behind, Body, Id, Opened, Parent};
use super::commit::Difference;
use super::image_file::ImageFile;
use super::layer::BlockMap;
use super::parent_name::ParentNames;
use super::{BlockMapInfo, ImageError};
use crate::OpenedFile;
use crate::formats::VmdkExtent;
use crate::formats::vmdk::descriptor::{DESCRIPTOR_MAX_BYTES, Descriptor};
pub(super) use content_id::{ContentId, Number, Place, successor};
use se_sparse::SeSparseMap;
pub(super) use sparse::SparseMap;
pub(super) use tables::{GrainTables, UncheckedTables};

const SECTOR_BYTES: u64 = 512;

/// A file with grains.
struct Grains {
    map: Box<dyn BlockMap>,
    /// What the line of a descriptor calls it.
    kind: &'static str,
    /// What VMware calls a disk of which this is the only file.
    create_type: &'static str,
    is_compressed: bool,
    /// Whoever wrote to it last has not closed it.
    is_dirty: bool,
    note: Option<String>,
    /// The text in it.
    descriptor: Descriptor,
}

/// A VMDK's file.
enum Contents {
    Grains(Grains),
    Descriptor(Descriptor),
}

impl Contents {
    fn read(file: &ImageFile) -> Result<Self, ImageError> {
        let unusable = |problem| file.unusable(problem);
        let header = file.read_up_to(0, SECTOR_BYTES as usize)?;
        if header.starts_with(se_sparse::MAGIC) {
            let map = SeSparseMap::read(file, &header)?;
            return Ok(Self::Grains(Grains {
                map: Box::new(map),
                kind: "SESPARSE",
                create_type: "seSparse",
                is_compressed: false,
                is_dirty: false,
                note: None,
                descriptor: Descriptor::default(),
            }));
        }
        if header.starts_with(sparse::COWD_MAGIC) {
            let map = SparseMap::parse_cowd(&header, file.length_bytes()).map_err(unusable)?;
            return Ok(Self::Grains(Grains {
                map: Box::new(map),
                kind: "VMFSSPARSE",
                create_type: "vmfsSparse",
                is_compressed: false,
                is_dirty: false,
                note: None,
                descriptor: Descriptor::default(),
            }));
        }
        if !header.starts_with(sparse::MAGIC) {
            let text = file.read_up_to(0, DESCRIPTOR_MAX_BYTES + 1)?;
            return Ok(Self::Descriptor(Descriptor::parse(&text).map_err(unusable)?));
        }
        let header = sparse::Header::read(file, &header)?;
        let text = match header.descriptor {
            // What is longer than a descriptor can be is no more of one.
            Some((offset, length)) => file.read_up_to(offset, length.min(DESCRIPTOR_MAX_BYTES as u64) as usize)?,
            None => Vec::new(),
        };
        let text_offset = header.descriptor.map_or(0, |(offset, _)| offset);
        if header.size_bytes == 0 && header.descriptor.is_some() {
            let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
            let descriptor = Descriptor::parse(text.get(..end).unwrap_or_default()).map_err(unusable)?;
            return Ok(Self::Descriptor(descriptor.from(text_offset)));
        }
        let descriptor = Descriptor::parse_embedded(&text).map_err(unusable)?.from(text_offset);
        let (map, note) = SparseMap::of(&header, file.length_bytes()).map_err(unusable)?;
        let note = note.or_else(|| header.is_dirty.then(|| "it was not closed: what it says is read as it is".into()));
        Ok(Self::Grains(Grains {
            map: Box::new(map),
            kind: "SPARSE",
            create_type: "monolithicSparse",
            is_compressed: header.is_compressed,
            is_dirty: header.is_dirty,
            note,
            descriptor,
        }))
    }
}

/// Where a disk says the numbers of its contents and of its parent's, in how many digits, and the first: for whoever
/// changes what it holds.
pub(super) struct Numbers {
    pub(super) id_at: Option<Place>,
    pub(super) id: u32,
    pub(super) parent_id_at: Option<Place>,
}

impl Numbers {
    /// Where the disk has to say its own, `advice` is what helps if it does not.
    pub(super) fn of(file: &ImageFile, advice: Option<&str>) -> Result<Self, ImageError> {
        let (Contents::Grains(Grains { descriptor, .. }) | Contents::Descriptor(descriptor)) = Contents::read(file)?;
        match (descriptor.cid_at, advice) {
            (None, Some(advice)) => Err(file.unusable(format!(
                "does not say its CID once, as a number, and a VMDK that does not is only read: {advice}"
            ))),
            (id_at, _) => Ok(Self { id_at, id: descriptor.cid, parent_id_at: descriptor.parent_cid_at }),
        }
    }
}

/// Reads the file of a disk.
pub(super) fn read(file: &ImageFile) -> Result<Opened, ImageError> {
    let (descriptor, body, info, note) = match Contents::read(file)? {
        Contents::Grains(Grains { map, kind, is_compressed, is_dirty, note, descriptor, .. }) => {
            let shape = map.shape();
            let info = BlockMapInfo {
                size_bytes: shape.size_bytes,
                block_bytes: Some(shape.block_bytes),
                sector_bytes: None,
                subformat: if is_compressed { "compressed" } else { kind },
                parent: None,
                is_dirty,
            };
            (descriptor, Body::Map(map), info, note)
        }
        Contents::Descriptor(mut descriptor) => {
            let extents = std::mem::take(&mut descriptor.extents);
            let size_bytes = extents.iter().map(|extent| extent.length_bytes).sum();
            let info = BlockMapInfo {
                size_bytes,
                block_bytes: None,
                sector_bytes: None,
                subformat: "extents",
                parent: None,
                is_dirty: false,
            };
            (descriptor, Body::Extents(extents), info, None)
        }
    };
    let identity = id(descriptor.cid);
    let behind = parent_of(descriptor).map_or(Behind::Nothing, Behind::Parent);
    let info = BlockMapInfo { parent: behind.name(), ..info };
    Ok(Opened { body, info, behind, identity, note })
}

fn parent_of(descriptor: Descriptor) -> Option<Parent> {
    let is_there = descriptor.depends_on_another();
    is_there.then(|| {
        let mut names = ParentNames::default();
        descriptor.parent.into_iter().for_each(|name| names.add_any(name));
        Parent { names, ids: vec![id(descriptor.parent_cid)], committed: Some(descriptor.cid) }
    })
}

/// Reads a difference that is to be committed.
///
/// # Errors
/// When it is none, or not in one file whose grains are written in place.
pub(super) fn difference(file: &ImageFile) -> Result<Difference, ImageError> {
    let advice = "`blockyard image convert` makes one image of it and what is behind it";
    let Contents::Grains(Grains { map, descriptor, .. }) = Contents::read(file)? else {
        return Err(file.unusable(format!("is in several files, and such a VMDK is not committed: {advice}")));
    };
    let map = map.to_change().map_err(|problem| file.unusable(format!("{problem}: {advice}")))?.clone();
    let (own_id, parent_id_at) = (descriptor.cid, descriptor.parent_cid_at);
    let parent = parent_of(descriptor).ok_or_else(|| file.unusable("has no parent that it could be committed to"))?;
    Ok(Difference { map, parent, id: own_id, parent_id_at })
}

/// Reads a file of grains that is an extent of a disk, and what is worth saying of it.
pub(super) fn read_extent(file: &ImageFile) -> Result<(Box<dyn BlockMap>, Option<String>), ImageError> {
    match Contents::read(file)? {
        Contents::Grains(Grains { map, note, .. }) => Ok((map, note)),
        Contents::Descriptor(_) => Err(file.unusable("is a descriptor, and not the file of grains that it is to be")),
    }
}

/// What a VMDK says of itself; of a file of grains what that is, too, and whether it was not closed.
///
/// # Errors
/// When it cannot be read, or understood.
pub(in crate::formats) fn describe(file: &OpenedFile) -> Result<(Descriptor, Option<(VmdkExtent, bool)>), ImageError> {
    Ok(match Contents::read(&ImageFile::of(file.file(), file.path())?)? {
        Contents::Descriptor(descriptor) => (descriptor, None),
        Contents::Grains(Grains { map, kind, create_type, is_compressed, is_dirty, descriptor, .. }) => {
            let shape = map.shape();
            let grains = Some((shape.block_bytes, is_compressed));
            let extent = VmdkExtent { length_bytes: shape.size_bytes, name: None, kind, grains };
            let said = Some(descriptor.create_type).filter(|said| !said.is_empty());
            let create_type = said.unwrap_or_else(|| create_type.to_owned());
            (Descriptor { create_type, ..descriptor }, Some((extent, is_dirty)))
        }
    })
}

/// The number of a disk's contents.
fn id(cid: u32) -> Id {
    u128::from(cid).to_le_bytes()
}

/// What a disk's number becomes when this difference is committed to it.
pub(super) fn id_after_commit(identity: &Id, of_difference: u32) -> Id {
    id(successor(number(identity), of_difference))
}

/// The number by which a difference from a disk knows it.
pub(super) fn number(identity: &Id) -> u32 {
    let [one, two, three, four, ..] = *identity;
    u32::from_le_bytes([one, two, three, four])
}
