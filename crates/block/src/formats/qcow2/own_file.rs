//! An image's own file, without what it depends on: to read what its header says, and to change that.

use super::header::{Header, read_first_cluster};
use super::repair::Qcow2Check;
use crate::Remedy;
use crate::formats::{ImageError, Repair, WritableFile};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// The image's own file, to read what it says.
pub(super) fn image_file(file: &File) -> io::Result<WritableFile> {
    let mut handle = file.try_clone()?;
    let length_bytes = handle.seek(SeekFrom::End(0))?;
    Ok(WritableFile::new(handle, length_bytes, false, false))
}

/// The same, to be written to.
pub(super) fn writable(file: &File) -> io::Result<WritableFile> {
    let mut handle = file.try_clone()?;
    let length_bytes = handle.seek(SeekFrom::End(0))?;
    let is_growing = handle.metadata()?.is_file();
    Ok(WritableFile::new(handle, length_bytes, is_growing, false))
}

/// The one or the other.
pub(super) fn opened(file: &File, is_writable: bool) -> io::Result<WritableFile> {
    if is_writable { writable(file) } else { image_file(file) }
}

/// The header of an image that is about to be changed, and is locked. What is marked dirty is repaired first, as the
/// format wants it: its refcounts may be behind.
pub(super) fn header_to_change(file: &File, path: &Path) -> Result<Header, ImageError> {
    let header = parse_header(file, path, Header::parse_to_read)?;
    // What says that it is damaged is refused.
    if header.is_corrupt() || !header.is_dirty() {
        return read_header(file, path);
    }
    let failed = |source| ImageError::System { action: "repair", path: path.to_owned(), source };
    let mut check = Qcow2Check::of(path.to_owned(), writable(file).map_err(failed)?)?;
    let report = check.run_without_copies(Repair::All, &mut |_| ())?;
    if report.corruptions > 0 {
        let problem = "is marked dirty, as after a crash of whoever wrote it, and has damage that no repair puts right";
        let problem = format!("{problem}: {} says which", Remedy::RepairImage);
        return Err(ImageError::Unusable { path: path.to_owned(), problem });
    }
    read_header(file, path)
}

pub(super) fn read_header(file: &File, path: &Path) -> Result<Header, ImageError> {
    parse_header(file, path, Header::parse)
}

/// The header as `parse` takes it, of the first cluster and the file's length.
pub(super) fn parse_header(
    file: &File,
    path: &Path,
    parse: fn(&[u8], u64) -> Result<Header, String>,
) -> Result<Header, ImageError> {
    let failed = |source| ImageError::System { action: "read", path: path.to_owned(), source };
    let mut reader = file;
    let first = read_first_cluster(|length| {
        let mut first = Vec::new();
        reader.rewind()?;
        reader.take(length).read_to_end(&mut first)?;
        Ok(first)
    });
    let first = first.map_err(failed)?;
    // A block device's length is where it ends, too.
    let length_bytes = reader.seek(SeekFrom::End(0)).map_err(failed)?;
    parse(&first, length_bytes).map_err(|problem| ImageError::Unusable { path: path.to_owned(), problem })
}
