//! The file systems of a new image, which has no name yet.

use super::new_partitions::WantedFileSystem;
use super::open_image::OpenArgs;
use crate::signals::EndSignals;
use anyhow::Result;
use blockyard_block::Disk;
use blockyard_image::volumes::file_system_kind::NewFileSystem;
use blockyard_image::{Access, ImageDisk};
use std::path::Path;
use std::sync::Arc;

/// Makes them in an appliance, on the partitions with these numbers, or on the disk. What zeros are written takes no storage if the
/// image `is_sparse`; one that `is_zeros` shows nothing of a backing file.
///
/// # Errors
/// When the appliance or a tool cannot be had, or a tool fails.
pub fn make(
    path: &Path,
    disk: &Arc<dyn Disk>,
    file_systems: &[(Option<usize>, &WantedFileSystem)],
    is_sparse: bool,
    is_zeros: bool,
) -> Result<()> {
    let name = path.display().to_string();
    let disk = ImageDisk { disk: Arc::clone(disk), name: name.as_str().into() };
    let how = OpenArgs::default();
    let mut image = how.boot(how.options(vec![disk], Access::Write)?, EndSignals::catch()?)?;
    image.zeros_as_holes(is_sparse);
    for (number, WantedFileSystem { kind, label }) in file_systems {
        let device = number.map_or_else(|| "vda".to_owned(), |number| format!("vda{number}"));
        let new = NewFileSystem { label, is_zeros, ..NewFileSystem::default() };
        image.make_file_system(*kind, &device, new)?;
    }
    Ok(image.close()?)
}
