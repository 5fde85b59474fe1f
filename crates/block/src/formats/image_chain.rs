//! An image and all that are behind it, in whatever formats, as they are for people: none is opened as a disk.

use super::block_map::open_behind_block_map;
use super::chain_files::{ChainFiles, ChainFormat};
use super::{AllowedDirectories, BlockMapFormat, BlockMapInfo, ImageError, LocalName, LuksHeader, Qcow2Info, VmdkInfo};
use crate::OpenedFile;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// An image of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainImage {
    /// Its file.
    pub path: PathBuf,
    /// The word of its format.
    pub format: &'static str,
    /// Bytes in the disk.
    pub size_bytes: u64,
    /// Bytes of storage behind the file.
    pub allocated_bytes: u64,
    /// What a qcow2 image's header says.
    pub qcow2: Option<Qcow2Info>,
    /// What a VMDK says.
    pub vmdk: Option<VmdkInfo>,
    /// What an image in another hypervisor's format says.
    pub block_map: Option<BlockMapInfo>,
}

/// An image, which is in the format of this word, and all that are behind it. None for a format that has none.
///
/// # Errors
/// When one cannot be read, is damaged or not allowed, or the chain has no end.
pub fn image_chain(
    image: &OpenedFile,
    format: &str,
    allowed: &AllowedDirectories,
) -> Result<Vec<ChainImage>, ImageError> {
    let failed = |source| ImageError::System { action: "read", path: image.path().to_owned(), source };
    let Some(format) = ChainFormat::of_word(format) else { return Ok(Vec::new()) };
    chain_of(image.file().try_clone().map_err(failed)?, image.path(), format, allowed)
}

/// The same, of the image in `file`, which was opened by `path`.
pub(super) fn chain_of(
    file: File,
    path: &Path,
    format: ChainFormat,
    allowed: &AllowedDirectories,
) -> Result<Vec<ChainImage>, ImageError> {
    let (mut images, mut files) = (Vec::new(), ChainFiles::default());
    let mut next = Some((file, path.to_owned(), format));
    while let Some((file, path, format)) = next.take() {
        files.add_image(&file, &path)?;
        let image = ChainImage::read(&file, &path, format)?;
        next = match (format, &image.qcow2) {
            (_, Some(Qcow2Info { backing_name: Some(name), backing_format, .. })) => {
                let (file, path) = allowed.open(&path, name, false)?;
                let named = LocalName::of(name).ok().and_then(|local| local.format);
                // What is no format here is refused by who opens the image.
                let format = backing_format
                    .as_deref()
                    .or(named.as_deref())
                    .and_then(ChainFormat::of_word)
                    .unwrap_or(ChainFormat::Raw);
                Some((file, path, format))
            }
            (ChainFormat::BlockMap(format), _) => open_behind_block_map(&file, &path, format, allowed)?,
            _ => None,
        };
        images.push(image);
    }
    Ok(images)
}

impl ChainImage {
    fn read(mut file: &File, path: &Path, format: ChainFormat) -> Result<Self, ImageError> {
        let failed = |source| ImageError::System { action: "read", path: path.to_owned(), source };
        let opened = OpenedFile::new(file.try_clone().map_err(failed)?, path.to_owned());
        let mut image = Self {
            path: path.to_owned(),
            format: format.word(),
            size_bytes: 0,
            allocated_bytes: file.metadata().map_err(failed)?.blocks() * 512,
            qcow2: None,
            vmdk: None,
            block_map: None,
        };
        let length_bytes = file.seek(SeekFrom::End(0)).map_err(failed)?;
        image.size_bytes = match format {
            ChainFormat::Raw => length_bytes,
            ChainFormat::Luks => {
                let header = LuksHeader::of_file(file).map_err(failed)?;
                let problem = || ImageError::Unusable { path: path.to_owned(), problem: "is no LUKS 1 volume".into() };
                length_bytes.saturating_sub(header.ok_or_else(problem)?.payload_offset_bytes)
            }
            ChainFormat::Qcow2 => image.qcow2.insert(Qcow2Info::of_opened(&opened)?).size_bytes,
            // It says more than others.
            ChainFormat::BlockMap(BlockMapFormat::Vmdk) => image.vmdk.insert(VmdkInfo::of(&opened)?).size_bytes(),
            ChainFormat::BlockMap(format) => image.block_map.insert(BlockMapInfo::of(&opened, format)?).size_bytes,
        };
        Ok(image)
    }
}
