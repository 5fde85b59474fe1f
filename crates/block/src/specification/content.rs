//! What a file's first bytes say it is.

use super::{Format, OpenError};
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

/// qcow2 begins with "QFI\xfb" (QEMU's docs/interop/qcow2.txt, Header).
const QCOW2_MAGIC: &[u8] = b"QFI\xfb";
/// A VMDK is text (VMware's Virtual Disk Format 5.0, The Descriptor) or begins with a sparse extent's magic (Hosted
/// Sparse Extent Header; ESXi's is COWD).
const VMDK_BEGINNINGS: [&[u8]; 3] = [b"# Disk DescriptorFile", b"KDMV", b"COWD"];

/// Makes sure that a file is what its name or its user says. A guest that writes an image's header to its raw disk must
/// not make an image of it for whoever opens it next, and an image must not be taken for a raw disk and be spoiled.
///
/// `said`: what the user said it is; without that, the name's ending decides.
pub(super) fn check(file: &File, path: &Path, said: Option<Format>) -> Result<Format, OpenError> {
    let format = said.unwrap_or_else(|| Format::of_name(path));
    let wrong = |problem: String| Err(OpenError::Content { path: path.to_owned(), problem });
    // Whoever opens it as a disk says better what is wrong with a file that cannot be read.
    let Some(found) = beginning(file).map(|bytes| looks_like(&bytes)) else { return Ok(format) };
    if found == format || said == Some(Format::Raw) {
        return Ok(format);
    }
    match (format, found) {
        (Format::Raw, image) => wrong(format!(
            "begins like a {image} image, but its name does not say so: add format={image} if it is one, or format=raw if \
             these bytes are the disk's own",
            image = image.word()
        )),
        (format, found) => wrong(format!(
            "does not begin like a {} image, though its {} says so: add format={} if it is one",
            format.word(),
            if said.is_some() { "format=" } else { "name" },
            found.word()
        )),
    }
}

/// What begins like no image is raw.
fn looks_like(beginning: &[u8]) -> Format {
    if beginning.starts_with(QCOW2_MAGIC) {
        return Format::Qcow2;
    }
    let is_vmdk = VMDK_BEGINNINGS.iter().any(|magic| beginning.starts_with(magic));
    if is_vmdk { Format::Vmdk } else { Format::Raw }
}

/// Up to 512 bytes from the start; `None` where there is nothing to read.
fn beginning(mut file: &File) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(512);
    file.rewind().ok()?;
    file.take(512).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
