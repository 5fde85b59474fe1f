//! A new VMDK of one file with grains (monolithicSparse): header, descriptor, the redundant grain directory and its
//! tables, the other ones, and grains.

use super::super::writer::{BlockMapCreateOptions, NewLayout, NewMap, Places, invalid, write_entries};
use super::SECTOR_BYTES;
use super::sparse::{HAS_LINE_ENDS, HAS_REDUNDANT_TABLES, HAS_ZEROED_GRAINS, LINE_ENDS, MAGIC};
use crate::formats::ImageError;
use crate::formats::vmdk::descriptor::NO_PARENT;
use crate::{random_bytes::random_bytes, shown};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What everybody makes.
pub(super) const GRAIN_BYTES: u64 = 64 << 10;
pub(super) const TABLE_ENTRIES: u64 = 512;
const TABLE_BYTES: u64 = TABLE_ENTRIES * 4;

pub(super) const DESCRIPTOR_OFFSET: u64 = SECTOR_BYTES;
const DESCRIPTOR_BYTES: u64 = 20 * SECTOR_BYTES;
const TABLES_OFFSET: u64 = DESCRIPTOR_OFFSET + DESCRIPTOR_BYTES;

/// With all its tables such a disk ends within 2 TiB: a grain's place is a sector's number of 32 bits.
const SIZE_MAX_BYTES: u64 = 2047 << 30;

/// What a VMDK's descriptor says of the machine that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmdkCreateOptions {
    /// What the disk is attached to.
    pub adapter: VmdkAdapter,
    /// The version of VMware's virtual hardware.
    pub hardware_version: u16,
    /// It is compressed and written in one pass (streamOptimized), which is what `VmdkStreamWriter` does.
    pub is_stream: bool,
    /// Grains may be zeros by their entries alone, for whoever writes to it; here they have none.
    pub has_zeroed_grains: bool,
}

impl Default for VmdkCreateOptions {
    /// As qemu-img has it.
    fn default() -> Self {
        Self { adapter: VmdkAdapter::Ide, hardware_version: 4, is_stream: false, has_zeroed_grains: false }
    }
}

/// What a machine of VMware's attaches a disk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmdkAdapter {
    /// An IDE controller.
    Ide,
    /// LSI Logic's SCSI controller.
    LsiLogic,
    /// BusLogic's SCSI controller.
    BusLogic,
    /// What old versions of ESX write.
    LegacyEsx,
}

impl VmdkAdapter {
    /// Every adapter.
    pub const ALL: [Self; 4] = [Self::Ide, Self::LsiLogic, Self::BusLogic, Self::LegacyEsx];

    /// Its word in a descriptor.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ide => "ide",
            Self::LsiLogic => "lsilogic",
            Self::BusLogic => "buslogic",
            Self::LegacyEsx => "legacyESX",
        }
    }

    /// Heads of a disk that is attached to it.
    fn heads(self) -> u64 {
        if self == Self::Ide { 16 } else { 255 }
    }
}

#[derive(Debug)]
struct NewSparse {
    layout: NewLayout,
    options: VmdkCreateOptions,
    /// The file's.
    name: String,
}

pub(in super::super) fn map(options: &BlockMapCreateOptions, path: &Path) -> Result<Box<dyn NewMap>, ImageError> {
    let &BlockMapCreateOptions { size_bytes, block_bytes, is_fixed, vmdk, .. } = options;
    if block_bytes.is_some_and(|bytes| u64::from(bytes) != GRAIN_BYTES) {
        return Err(invalid("the grains, or blocks, of a VMDK made here have 64 KiB"));
    }
    if vmdk.is_stream {
        return Err(invalid("how large a compressed VMDK becomes shows when it is made"));
    }
    if is_fixed {
        return Err(invalid("a VMDK that is flat is not made here: its grains can have their places from the start"));
    }
    if size_bytes == 0 || size_bytes > SIZE_MAX_BYTES {
        return Err(invalid(format!(
            "a disk of {size_bytes} bytes is not possible in a VMDK made here: 512 bytes at least, 2047 GiB at most; \
             VHDX has more"
        )));
    }
    let mut layout = NewLayout { size_bytes, block_bytes: GRAIN_BYTES, lead_bytes: 0, data_offset: 0 };
    layout.data_offset = (TABLES_OFFSET + 2 * set_bytes(&layout)).next_multiple_of(GRAIN_BYTES);
    Ok(Box::new(NewSparse { layout, options: vmdk, name: extent_name(path)? }))
}

/// What a descriptor calls the file at `path`.
pub(super) fn extent_name(path: &Path) -> Result<String, ImageError> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.filter(|name| !name.contains(|letter: char| letter == '"' || letter.is_control()));
    name.map(str::to_owned).ok_or_else(|| {
        let path = shown(path);
        invalid(format!(
            "{path}: a VMDK says its own name: one of UTF-8 without quotation marks and control characters"
        ))
    })
}

fn tables(layout: &NewLayout) -> u64 {
    layout.blocks().div_ceil(TABLE_ENTRIES)
}

fn directory_bytes(layout: &NewLayout) -> u64 {
    (tables(layout) * 4).next_multiple_of(SECTOR_BYTES)
}

/// Bytes of a directory and its tables.
fn set_bytes(layout: &NewLayout) -> u64 {
    directory_bytes(layout) + tables(layout) * TABLE_BYTES
}

/// The number of a sector in a file that has no more than 32 bits can count.
fn sector(offset: u64) -> u32 {
    (offset / SECTOR_BYTES) as u32
}

impl NewSparse {
    /// Where the two directories lie, the redundant one first.
    fn directories(&self) -> [u64; 2] {
        [TABLES_OFFSET, TABLES_OFFSET + set_bytes(&self.layout)]
    }
}

impl NewMap for NewSparse {
    fn layout(&self) -> NewLayout {
        self.layout
    }

    fn write(&self, file: &File, places: &Places) -> io::Result<()> {
        let entry = |block| places.of(block).map_or(0, |place| sector(self.layout.lead_offset(place))).to_le_bytes();
        for directory in self.directories() {
            let first_table = directory + directory_bytes(&self.layout);
            let table = |number| sector(first_table + number * TABLE_BYTES).to_le_bytes();
            write_entries(file, directory, 0..tables(&self.layout), table)?;
            write_entries(file, first_table, 0..self.layout.blocks(), entry)?;
        }
        let NewLayout { size_bytes, data_offset, .. } = self.layout;
        let descriptor = descriptor(size_bytes, "monolithicSparse", &self.name, self.options)?;
        file.write_all_at(descriptor.as_bytes(), DESCRIPTOR_OFFSET)?;
        let [redundant, directory] = self.directories();
        let places = [redundant, directory, data_offset].map(|offset| offset / SECTOR_BYTES);
        let (version, zeroed) = if self.options.has_zeroed_grains { (2, HAS_ZEROED_GRAINS) } else { (1, 0) };
        file.write_all_at(&header(version, HAS_LINE_ENDS | HAS_REDUNDANT_TABLES | zeroed, size_bytes, places), 0)
    }
}

/// The header of a file with grains. `places`: the sectors where the redundant directory lies, the other one, and what
/// comes after everything that is no grain.
pub(super) fn header(version: u32, flags: u32, size_bytes: u64, places: [u64; 3]) -> [u8; SECTOR_BYTES as usize] {
    let [redundant, directory, data] = places;
    let mut header = [0; SECTOR_BYTES as usize];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, MAGIC);
    put(4, &version.to_le_bytes());
    put(8, &flags.to_le_bytes());
    for (at, value) in [
        (12, size_bytes / SECTOR_BYTES),
        (20, GRAIN_BYTES / SECTOR_BYTES),
        (28, DESCRIPTOR_OFFSET / SECTOR_BYTES),
        (36, DESCRIPTOR_BYTES / SECTOR_BYTES),
        (48, redundant),
        (56, directory),
        (64, data),
    ] {
        put(at, &value.to_le_bytes());
    }
    put(44, &(TABLE_ENTRIES as u32).to_le_bytes());
    put(73, &LINE_ENDS);
    header
}

/// The text in a file with grains that is called `name`.
pub(super) fn descriptor(
    size_bytes: u64,
    create_type: &str,
    name: &str,
    options: VmdkCreateOptions,
) -> io::Result<String> {
    let VmdkCreateOptions { adapter, hardware_version, .. } = options;
    let (adapter, heads, sectors) = (adapter.word(), adapter.heads(), size_bytes / SECTOR_BYTES);
    let cylinders = sectors / (heads * 63);
    // NO_PARENT is no disk's.
    let cid = u32::from_le_bytes(random_bytes::<4>()?) % NO_PARENT;
    Ok(format!(
        "# Disk DescriptorFile\n\
         version=1\n\
         CID={cid:08x}\n\
         parentCID={NO_PARENT:08x}\n\
         createType=\"{create_type}\"\n\
         \n\
         # Extent description\n\
         RW {sectors} SPARSE \"{name}\"\n\
         \n\
         # The Disk Data Base\n\
         #DDB\n\
         \n\
         ddb.virtualHWVersion = \"{hardware_version}\"\n\
         ddb.geometry.cylinders = \"{cylinders}\"\n\
         ddb.geometry.heads = \"{heads}\"\n\
         ddb.geometry.sectors = \"63\"\n\
         ddb.adapterType = \"{adapter}\"\n\
         ddb.toolsVersion = \"2147483647\"\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlockMapFormat;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn the_largest_disk_has_places_of_32_bits() {
        let options = BlockMapCreateOptions::new(BlockMapFormat::Vmdk, SIZE_MAX_BYTES);
        let layout = map(&options, Path::new("a.vmdk")).unwrap().layout();
        assert!(layout.lead_offset(layout.blocks()) / SECTOR_BYTES <= u64::from(u32::MAX));
    }

    #[test]
    fn a_name_that_would_say_something_else_is_refused() {
        assert_eq!(extent_name(Path::new("/vm/größe 1.vmdk")).unwrap(), "größe 1.vmdk");
        for name in [&b"a\".vmdk"[..], b"a\nRW 1 ZERO", b"a\r", b"a\0", b"\xff.vmdk", b".."] {
            let error = extent_name(Path::new(OsStr::from_bytes(name))).unwrap_err().to_string();
            assert!(error.contains("says its own name") && !error.contains('\n'), "{error}");
        }
    }
}
