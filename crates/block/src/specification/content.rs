//! Whether a file is what its name or its user says.

use super::format::Format;
use super::opening::OpenError;
use crate::{BlockMapFormat, Compression, FileFormat, Remedy};
use std::fs::File;
use std::path::Path;

/// Of what is compressed, where it cannot be read.
fn only_read(said: Option<Format>) -> String {
    format!("is compressed: {}, and for all else decompress it first; or {}", Remedy::ReadOnce, or_raw(said))
}

/// The same, where more has to be said of it.
fn only_read_as(said: Option<Format>, compression: Compression) -> String {
    let word = compression.word();
    let format = match said {
        Some(said) => format!("format={}.{word}", said.word()),
        None => format!("format=raw.{word}, or format=qcow2.{word} and the like by what is in it"),
    };
    let (remedy, or_raw) = (Remedy::ReadOnce, or_raw(said));
    format!("is compressed: {remedy} with {format}, and for all else decompress it first; or {or_raw}")
}

/// What is raw overrules both name and contents by saying so: where another format is `said`, in the place of that,
/// which may be an option or in the image above.
fn or_raw(said: Option<Format>) -> &'static str {
    match said {
        Some(_) => "say that it is raw if these bytes are the disk's own",
        None => "add ,format=raw if these bytes are the disk's own",
    }
}

/// Makes sure that a file is what its name or its user says. A guest that writes an image's header to its raw disk must
/// not make an image of it for whoever opens it next, and an image must not be taken for a raw disk and be spoiled.
///
/// `said`: what the user said it is; without that, the name's ending decides.
pub(super) fn check(file: &File, path: &Path, said: Option<Format>) -> Result<Format, OpenError> {
    // A disk may be encrypted as a whole from within: only who says so wants that opened here. What is none has no key.
    if let Some(said @ (Format::Raw | Format::Luks)) = said {
        return Ok(said);
    }
    // Whoever opens it as a disk says better what is wrong with what holds none.
    let Some(found) = seen(file, path, said)? else { return check_name(path, said) };
    let named = FileFormat::of_name(path);
    // `None`: what is not supported.
    let wanted = said.or_else(|| named.map_or(Some(Format::Raw), Format::of));
    // What is said to be an OVA is one if it is a tar: that alone says nothing.
    let is_ova = wanted == Some(Format::Ova) && found.is_some_and(|found| found.word == "tar");
    let is = if is_ova { Some(Format::Ova) } else { found.map_or(Some(Format::Raw), Format::of) };
    let problem = match (wanted, is) {
        (Some(wanted), Some(is)) if wanted == is => return Ok(is),
        (_, None) if found.is_some() && named == found && found.and_then(Compression::of).is_some() => {
            match (found.and_then(Compression::of), Compression::of_name(path)) {
                (Some(compression), None) => only_read_as(None, compression),
                (Some(compression), Some(_)) if said.is_some() => only_read_as(said, compression),
                _ => only_read(said),
            }
        }
        (_, None) => found.map_or_else(String::new, |found| {
            if let Some(compression) = Compression::of(found) {
                let word = compression.word();
                return format!(
                    "begins like {}, which its name does not say: {} with ,format=raw.{word}, or ,format=qcow2.{word} \
                     and the like by what is in it, and for all else decompress it first; or {}",
                    found.name,
                    Remedy::ReadOnce,
                    or_raw(said)
                );
            }
            let begins = if found.begins_files() { "begins" } else { "ends" };
            let (name, remedy, or_raw) = (found.name, found.remedy(), or_raw(said));
            format!("{begins} like {name}, which is not supported: {remedy}, or {or_raw}")
        }),
        (None, Some(Format::Raw)) => {
            let or_raw = or_raw(said);
            named.map_or_else(String::new, |named| format!("{}: {}, or {or_raw}", by_name(named), named.remedy()))
        }
        (Some(Format::Raw) | None, Some(is)) => format!(
            "begins like a {is} image, but its name does not say so: add ,format={is} if it is one, or ,format=raw if \
             these bytes are the disk's own",
            is = is.word()
        ),
        (Some(wanted), Some(_)) if file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0) => {
            format!("is empty, and so no {} image", wanted.word())
        }
        (Some(wanted), Some(is)) => format!(
            "does not begin like a {} image, {}{is} if it is one",
            wanted.word(),
            if said.is_some() { "as is said of it: say that it is " } else { "though its name says so: add ,format=" },
            is = is.word()
        ),
    };
    Err(OpenError::Content { path: path.to_owned(), problem })
}

/// What a file looks like ([`FileFormat::of_file`]). One that cannot be read is not taken for a raw disk.
fn seen(file: &File, path: &Path, said: Option<Format>) -> Result<Option<Option<&'static FileFormat>>, OpenError> {
    FileFormat::of_file(file).map_err(|error| {
        let or_raw = or_raw(said);
        let problem = format!("cannot be read where it would show its format ({error}): {or_raw}");
        OpenError::Content { path: path.to_owned(), problem }
    })
}

/// Why a compressed file is no disk here.
pub(super) fn is_compressed(path: &Path) -> OpenError {
    OpenError::Content { path: path.to_owned(), problem: only_read(None) }
}

/// The same of a compressed file: it is one, and what its name says is in it is a disk. What is in it is looked at
/// while it is decompressed.
pub(super) fn check_compressed(
    file: &File,
    path: &Path,
    compression: Compression,
    content: &Path,
    said: Option<Format>,
) -> Result<Format, OpenError> {
    let wrong = |problem| OpenError::Content { path: path.to_owned(), problem };
    let found = seen(file, path, said)?.flatten();
    if found.and_then(Compression::of) != Some(compression) {
        let by = if said.is_some() { "as is said of it" } else { "though its name says so" };
        return Err(wrong(format!("does not begin like {}, {by}: {}", compression.word(), or_raw(said))));
    }
    match (said, FileFormat::of_name(content)) {
        (Some(said), _) => Ok(said),
        (None, None) => Ok(Format::Raw),
        (None, Some(named)) => Format::of(named).ok_or_else(|| {
            let word = compression.word();
            wrong(format!(
                "has {} in it by its name, which is not supported: add ,format=raw.{word} if it is a disk",
                named.name
            ))
        }),
    }
}

/// That what is in a compressed file begins like the image that it is to be, as far as images of its format begin in
/// one way. All of it is looked at when it is unpacked.
pub(super) fn check_first(first: &[u8], wanted: Format) -> Result<(), String> {
    let sector = first.get(..512).unwrap_or(first);
    let found = FileFormat::of_ends(sector, &[]);
    let is = match wanted {
        // Only the one who says so has a key, and a fixed VHD has nothing but an end.
        Format::Raw | Format::Luks | Format::BlockMap(BlockMapFormat::Vhd) => true,
        Format::Ova => found.is_some_and(|found| found.word == "tar"),
        wanted => found.and_then(Format::of) == Some(wanted),
    };
    if is { Ok(()) } else { Err(is_not_in_it(wanted)) }
}

/// Why what is in a compressed file is no image in this format.
pub(super) fn is_not_in_it(wanted: Format) -> String {
    format!("what is in it does not look like a {} image, which it is to be", wanted.word())
}

/// The same of a file that need not be there, or whose contents do not matter as they are replaced.
pub(super) fn check_name(path: &Path, said: Option<Format>) -> Result<Format, OpenError> {
    match (said, FileFormat::of_name(path)) {
        (Some(said), _) => Ok(said),
        (None, None) => Ok(Format::Raw),
        (None, Some(named)) => Format::of(named).ok_or_else(|| OpenError::Content {
            path: path.to_owned(),
            problem: format!("{}: choose another name, or {}", by_name(named), or_raw(None)),
        }),
    }
}

fn by_name(named: &FileFormat) -> String {
    format!("is {} by its name, which is not supported", named.name)
}
