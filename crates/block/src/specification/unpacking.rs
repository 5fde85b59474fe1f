//! Disks and images in compressed files.

use super::content;
use super::format::Format;
use super::kinds::FileSpecification;
use super::open::temporary_directory;
use super::opening::{OnBackend, OpenContext, OpenError, Unpacking};
use crate::formats::TOLD_BYTES;
use crate::specification::kinds::DiskKind;
use crate::{Compression, OpenedFile, UnpackedDisk, Unpacker, descriptor_path, shown};
use rustix::fs::{Mode, fchmod, tell};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::sync::Arc;

/// Opens the disk in a compressed file: one whose bytes are the disk's own while it is decompressed, any other after it
/// was unpacked.
pub(super) fn open(
    named: &FileSpecification,
    compression: Compression,
    unpacking: &Unpacking<'_>,
    context: &OpenContext<'_>,
) -> Result<OnBackend, OpenError> {
    let path = &named.path;
    let failed = |error: io::Error| OpenError::other(shown(path).to_string(), error);
    let file = match context.file {
        Some(file) => file.try_clone().map_err(failed)?,
        None => OpenedFile::open(path, true)?,
    };
    let content = named.compressed().map_or_else(|| path.clone(), |(_, content)| content);
    let format = content::check_compressed(file.file(), path, compression, &content, named.format)?;
    file.lock(&named.options(true))?;
    let input = reopen(file.file()).map_err(failed)?;
    let start = (unpacking.starting)(&input, compression, unpacking.patience).map_err(failed)?;
    let permissions = file.permissions().map_err(failed)?;
    if format != Format::Raw {
        // What is none is not to fill a file system first.
        let looks = |first: &[u8]| content::check_first(first, format).map_err(io::Error::other);
        let unpacked = start().and_then(|unpacker| unpack(unpacker, &input, unpacking, permissions, looks));
        // What is said of it is said of the file that is there.
        let image = OpenedFile::new(unpacked.map_err(failed)?, path.clone());
        let named = FileSpecification { format: Some(format), compression: None, ..named.clone() };
        let context = OpenContext { file: Some(&image), unpacking: None, ..*context };
        return named.open(true, &context).map_err(|error| match error {
            OpenError::Content { .. } => failed(io::Error::other(content::is_not_in_it(format))),
            error => error,
        });
    }
    let refused = [
        ("snapshot-name=", named.snapshot_name.is_some()),
        ("key-file=", named.keys.own().is_some()),
        ("backing-key-file=", !named.keys.behind().is_empty()),
        ("disk=", named.disk_number.is_some()),
        ("block-size=", named.logical_block_bytes.is_some_and(|bytes| bytes != 512)),
    ];
    if let Some((key, _)) = refused.into_iter().find(|(_, is_said)| *is_said) {
        return Err(failed(io::Error::other(format!(
            "{key} is for other disks than compressed raw ones: leave it out"
        ))));
    }
    let is_said = named.format.is_some();
    let disk = UnpackedDisk::new(path, input, compression, start, unpacking.bytes_max, is_said).map_err(failed)?;
    let disk = Arc::new(disk);
    Ok(OnBackend {
        disk: Arc::clone(&disk) as Arc<_>,
        length_bytes: None,
        file: Some(file),
        permissions: Some(permissions),
        unfinished: None,
        sector_bytes: None,
        unpacked: Some(disk),
    })
}

/// A file without a name that has what comes out, its zeros left out. `looks` may refuse what that begins with.
fn unpack(
    unpacker: Unpacker,
    input: &File,
    unpacking: &Unpacking<'_>,
    permissions: u32,
    looks: impl Fn(&[u8]) -> io::Result<()>,
) -> io::Result<File> {
    let Unpacking { bytes_max, scratch, progress, .. } = *unpacking;
    let input_bytes = input.metadata()?.len();
    let is_temporary = scratch == temporary_directory();
    let hint = if is_temporary { " (TMPDIR names another place)" } else { "" };
    let place = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot unpack it in {}{hint}: {error}", shown(scratch)))
    };
    let file = tempfile::tempfile_in(scratch).map_err(place)?;
    fchmod(&file, Mode::from_raw_mode(permissions))?;
    let length_bytes = unpacker.pieces(bytes_max, |bytes, at| {
        if at == 0 {
            looks(bytes)?;
        }
        if at.is_multiple_of(TOLD_BYTES) {
            progress(tell(input)?.min(input_bytes), input_bytes);
        }
        if bytes.iter().all(|&byte| byte == 0) { Ok(()) } else { file.write_all_at(bytes, at).map_err(place) }
    })?;
    file.set_len(length_bytes).map_err(place)?;
    Ok(file)
}

/// The same file, open for reading only and with a position of its own: locks of the other one are nothing to whoever
/// has this. Where the system does not let us, it is the other one.
fn reopen(file: &File) -> io::Result<File> {
    let kind = file.metadata()?.file_type();
    let reopened =
        (kind.is_file() || kind.is_block_device()).then(|| File::open(descriptor_path(file))).and_then(Result::ok);
    reopened.map_or_else(|| file.try_clone(), Ok)
}
