//! What an image is: what its file says of it, who uses it, and which partitions its disk has.

use super::new_image::named_from;
use crate::error::{Context, Result, refuse};
use blockyard_block::partition_table::{self, PartitionTable};
use blockyard_block::specification::{DiskSpecification, Format, Kind, OpenError};
use blockyard_block::{
    AllowedDirectories, BlockMapFormat, BlockMapInfo, ChainImage, Disk, FileFormat, FileUsers, ImageError, LuksDisk,
    LuksHeader, OpenedFile, Ova, OvaDisk, Qcow2Info, VmdkInfo, explain, image_chain, shown,
};
use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A look at an image's file, which nobody has opened as a disk yet.
pub struct Look {
    named: DiskSpecification,
    /// Once: all that is said is said of this file.
    file: Option<(OpenedFile, Metadata)>,
    format: &'static str,
    qcow2: Option<Qcow2Info>,
    vmdk: Option<VmdkInfo>,
    block_map: Option<BlockMapInfo>,
    luks: Option<LuksHeader>,
    ova_disks: Vec<OvaDisk>,
    users: FileUsers,
}

/// What the image is as a disk.
pub struct LookedAtDisk {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// Bytes in it.
    pub length_bytes: u64,
    /// The file of a change to it that was cut off, and through which it is seen.
    pub unfinished: Option<PathBuf>,
}

/// What is known of an image before its disk is read.
pub struct Known {
    info: ImageInfo,
    disk: Result<Arc<dyn Disk>, OpenError>,
}

/// What is known of an image.
pub struct ImageInfo {
    /// Its file, if it is in one.
    pub file: Option<PathBuf>,
    /// The word of its format, supported or not; of its kind, if it is in no file.
    pub format: &'static str,
    /// Bytes in its disk; `None` where only somebody could tell who understands the format.
    pub virtual_bytes: Option<u64>,
    /// Bytes of storage; `None` for what is in no file.
    pub storage_bytes: Option<u64>,
    /// What a qcow2 image says of itself.
    pub qcow2: Option<Qcow2Info>,
    /// What a VMDK does.
    pub vmdk: Option<VmdkInfo>,
    /// What an image in another hypervisor's format does.
    pub block_map: Option<BlockMapInfo>,
    /// What a LUKS volume does.
    pub luks: Option<LuksHeader>,
    /// The disks in an OVA.
    pub ova_disks: Vec<OvaDisk>,
    /// The images behind it, the nearest first, if they were asked for.
    pub behind: Vec<ChainImage>,
    /// Who uses it.
    pub users: FileUsers,
    /// The file of a change to it that was cut off, and through which its disk is seen.
    pub unfinished: Option<PathBuf>,
    /// What is on its disk.
    pub partitions: Partitions,
}

/// Which partitions a disk has.
pub enum Partitions {
    /// These.
    Table(PartitionTable),
    /// There is no telling, and why.
    Unknown(String),
    /// There is no disk: the image is why, and not who uses it or what it may refer to.
    Unusable(String),
}

impl Look {
    /// At the file of a disk, if it is in one.
    ///
    /// # Errors
    /// When there is nothing to look at.
    pub fn at(named: &DiskSpecification) -> Result<Self> {
        let path = named.path().filter(|_| named.kind() == Kind::File);
        if let Some(path) = path.filter(|path| path.is_dir()) {
            refuse!("{} is a directory", shown(path));
        }
        let failed = || path.map_or_else(String::new, |path| format!("cannot look at {}", shown(path)));
        let file = match path.map(|path| OpenedFile::open(path, true)).transpose()? {
            Some(file) => {
                let metadata = file.file().metadata().with_context(failed)?;
                Some((file, metadata))
            }
            None => None,
        };
        let opened = file.as_ref().map(|(file, _)| file);
        // What it is: as it was said, else as it looks, whatever its name.
        let unsaid = opened.filter(|_| !named.says_format());
        let seen = unsaid.map(|file| FileFormat::of_file(file.file())).transpose().with_context(failed)?;
        let seen = seen.flatten().flatten();
        let format = match (seen, opened) {
            (Some(seen), _) if seen.word == "tar" && named.format() == Some(Format::Ova) => Format::Ova.word(),
            (Some(seen), _) => seen.word,
            (None, Some(_)) if !named.says_format() => "raw",
            _ => named.format().map_or(named.kind().word(), Format::word),
        };
        let qcow2 = opened.filter(|_| format == "qcow2").and_then(|file| Qcow2Info::of_opened(file).ok());
        let vmdk = opened.filter(|_| format == "vmdk").and_then(|file| VmdkInfo::of(file).ok());
        let block_map = match (opened, format.parse()) {
            // A VMDK says more.
            (Some(file), Ok(Format::BlockMap(format))) if format != BlockMapFormat::Vmdk => {
                BlockMapInfo::of(file, format).ok()
            }
            _ => None,
        };
        let luks = opened.filter(|_| format == "luks").and_then(|file| LuksHeader::of_file(file.file()).ok()).flatten();
        let ova = opened.filter(|_| format == Format::Ova.word()).and_then(|file| Ova::open(file).ok());
        let ova_disks = ova.map_or(Vec::new(), |ova| ova.disks().to_vec());
        let users = opened.map(FileUsers::of).transpose().with_context(failed)?.unwrap_or_default();
        Ok(Self { named: named.clone(), file, format, qcow2, vmdk, block_map, luks, ova_disks, users })
    }

    /// The file, to be opened as a disk.
    pub fn file(&self) -> Option<&OpenedFile> {
        self.file.as_ref().map(|(file, _)| file)
    }

    /// The word of its format as somebody said it, if it was.
    pub(super) fn said_format(&self) -> Option<&'static str> {
        self.named.says_format().then_some(self.format)
    }

    /// Whether it is a qcow2 image, whatever is wrong with it.
    pub(super) fn is_qcow2(&self) -> bool {
        self.qcow2.is_some()
    }

    /// Takes its disk, or why there is none. What an image refers to lies in `allow_dirs`; `with_chain`: the images
    /// behind it are wanted too.
    ///
    /// # Errors
    /// When one of those cannot be had.
    pub fn with_disk(
        self,
        opened: Result<LookedAtDisk, OpenError>,
        with_chain: bool,
        allow_dirs: &[PathBuf],
    ) -> Result<Known> {
        let is_image = self.qcow2.is_some() || self.vmdk.is_some() || self.block_map.is_some();
        let mut behind = match self.file().filter(|_| is_image && with_chain) {
            Some(image) => image_chain(image, self.format, &AllowedDirectories::new(allow_dirs)?)?,
            None => Vec::new(),
        };
        behind.drain(..behind.len().min(1));
        for image in &mut behind {
            if let (Some(info), Ok(_)) = (&image.vmdk, &opened) {
                image.allocated_bytes += extents_bytes(&image.path, info);
            }
        }
        let Self { named, file, format, qcow2, vmdk, block_map, luks, ova_disks, users } = self;
        let metadata = file.as_ref().map(|(_, metadata)| metadata);
        let said_bytes = qcow2.as_ref().map(|info| info.size_bytes);
        let said_bytes = said_bytes.or(block_map.as_ref().map(|info| info.size_bytes));
        let said_bytes = said_bytes.or(vmdk.as_ref().map(VmdkInfo::size_bytes));
        let volume = file.as_ref().filter(|_| luks.is_some()).and_then(|(file, _)| LuksDisk::place_in(file).ok());
        let said_bytes = said_bytes.or(volume.map(|place| place.end - place.start));
        let virtual_bytes = match (said_bytes, &opened) {
            (Some(bytes), _) => Some(bytes),
            (None, Ok(opened)) => Some(opened.length_bytes),
            // Somebody who writes to a raw image keeps others from opening it, not from looking at how long it is.
            (None, Err(_)) if format == "raw" => metadata.map(Metadata::len),
            (None, Err(_)) => None,
        };
        let path = named.path().filter(|_| file.is_some());
        // Those of a VMDK that may be looked at: who opened it saw to that, as of those behind it.
        let extents_bytes = match (path, &vmdk, &opened) {
            (Some(path), Some(info), Ok(_)) => extents_bytes(path, info),
            _ => 0,
        };
        let info = ImageInfo {
            file: path.map(Path::to_owned),
            format,
            virtual_bytes,
            storage_bytes: metadata.map(|metadata| metadata.blocks() * 512 + extents_bytes),
            qcow2,
            vmdk,
            block_map,
            luks,
            ova_disks,
            behind,
            users,
            unfinished: opened.as_ref().ok().and_then(|opened| opened.unfinished.clone()),
            partitions: Partitions::Unknown(String::new()),
        };
        Ok(Known { info, disk: opened.map(|opened| opened.disk) })
    }
}

impl Known {
    /// Reads the partition table.
    ///
    /// # Errors
    /// When there is no disk, and no file that could be looked at.
    pub fn run(self) -> Result<ImageInfo> {
        let Self { info, disk } = self;
        let partitions = match disk.map(|disk| partition_table::read(&*disk)) {
            Ok(Ok(table)) => Partitions::Table(table),
            Ok(Err(error)) => Partitions::Unknown(explain(&error)),
            Err(error) if info.file.is_none() => return Err(error.into()),
            Err(error @ (OpenError::Content { .. } | OpenError::Image(ImageError::Unusable { .. }))) => {
                Partitions::Unusable(explain(&error))
            }
            Err(error) => Partitions::Unknown(explain(&error)),
        };
        Ok(ImageInfo { partitions, ..info })
    }
}

/// Bytes of storage behind the files that a VMDK in `file` is made of.
fn extents_bytes(file: &Path, info: &VmdkInfo) -> u64 {
    let names: BTreeSet<_> = info.extents.iter().filter_map(|extent| extent.name.as_ref()).collect();
    let storage = |name: &String| Some(Path::new(&full_name(file, name)).metadata().ok()?.blocks() * 512);
    names.into_iter().filter_map(storage).sum()
}

/// The name from here of a file that an image refers to, as QEMU writes it: a protocol's, or an absolute one, as it is.
pub fn full_name(image: &Path, name: &str) -> String {
    let has_protocol = name.split_once(':').is_some_and(|(before, _)| !before.contains('/'));
    let in_place = image.parent().is_none_or(|parent| parent.as_os_str().is_empty());
    if has_protocol || in_place { name.to_owned() } else { named_from(image, name).display().to_string() }
}
