//! Unified kernel images (UAPI Group, Unified Kernel Image): a program for UEFI whose sections are kernel, initrd and
//! command line.

use crate::boot_loader_specification::EntryText;
use crate::files::{Image, Place};
use crate::{COMMAND_LINE_BYTES_MAX, Piece};

/// Sections that are looked at (PE format specification: no loader takes more than 96).
const SECTIONS_MAX: usize = 96;
const SECTION_BYTES: usize = 40;
/// Longest os-release.
const RELEASE_BYTES_MAX: u64 = 16 << 10;

/// What an image boots.
#[derive(Debug)]
pub(crate) struct UnifiedKernelImage {
    pub(crate) linux: Piece,
    pub(crate) initrds: Vec<Piece>,
    pub(crate) command_line: String,
}

/// What a sections' header says of it.
struct Section {
    name: [u8; 8],
    offset: u64,
    length: u64,
}

/// Reads the headers, and the command line.
pub(crate) fn read(image: &Image<'_>, place: &Place) -> Result<UnifiedKernelImage, String> {
    let sections = sections(image, place).ok_or("it is no program for UEFI, or is cut off")?;
    let piece = |section: &Section, name: &str| Piece {
        place: place.clone(),
        name: format!("{} ({name})", image.shown(place)),
        offset: section.offset,
        length: section.length,
    };
    let linux = find(&sections, ".linux").ok_or("it is no unified kernel image: it has no section .linux")?;
    let initrds = [".ucode", ".initrd"].into_iter().filter_map(|name| Some(piece(find(&sections, name)?, name)));
    let command_line = match find(&sections, ".cmdline") {
        None => String::new(),
        Some(section) if section.length > COMMAND_LINE_BYTES_MAX as u64 => {
            return Err(format!("its command line has more than {COMMAND_LINE_BYTES_MAX} bytes"));
        }
        Some(section) => text(image, place, section).ok_or("its command line cannot be read")?,
    };
    Ok(UnifiedKernelImage { linux: piece(linux, ".linux"), initrds: initrds.collect(), command_line })
}

/// What the image is called and sorted by: its os-release says that.
pub(crate) fn release(image: &Image<'_>, place: &Place) -> EntryText {
    let sections = sections(image, place).unwrap_or_default();
    let release = find(&sections, ".osrel").filter(|section| section.length <= RELEASE_BYTES_MAX);
    let release = release.and_then(|section| text(image, place, section)).unwrap_or_default();
    let value = |names: &[&str]| {
        let of = |name: &&str| {
            let line = release.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='))?;
            Some(line.trim_matches(['"', '\'']).to_owned()).filter(|value| !value.is_empty())
        };
        names.iter().find_map(of).unwrap_or_default()
    };
    EntryText {
        title: value(&["PRETTY_NAME", "NAME"]),
        version: value(&["IMAGE_VERSION", "VERSION", "VERSION_ID", "BUILD_ID"]),
        sort_key: value(&["IMAGE_ID", "ID"]),
        ..EntryText::default()
    }
}

fn text(image: &Image<'_>, place: &Place, section: &Section) -> Option<String> {
    let bytes = image.bytes(place, section.offset, usize::try_from(section.length).ok()?)?;
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

fn find<'sections>(sections: &'sections [Section], name: &str) -> Option<&'sections Section> {
    let is_called = |section: &&Section| {
        let end = section.name.iter().position(|&byte| byte == 0).unwrap_or(section.name.len());
        &section.name[..end] == name.as_bytes()
    };
    sections.iter().find(is_called)
}

/// The sections that all profiles have, each within the file.
fn sections(image: &Image<'_>, place: &Place) -> Option<Vec<Section>> {
    let size = image.size(place)?;
    let start = image.bytes(place, 0, 64).filter(|start| start.starts_with(b"MZ"))?;
    let header = u64::from(le32(&start, 60)?);
    let coff = image.bytes(place, header, 24).filter(|coff| coff.starts_with(b"PE\0\0"))?;
    let (count, optional) = (usize::from(le16(&coff, 6)?).min(SECTIONS_MAX), u64::from(le16(&coff, 20)?));
    let table = image.bytes(place, header + 24 + optional, count * SECTION_BYTES)?;
    let section = |entry: &[u8]| {
        let (virtual_bytes, raw_bytes) = (le32(entry, 8)?, le32(entry, 16)?);
        let (offset, length) = (u64::from(le32(entry, 20)?), u64::from(virtual_bytes.min(raw_bytes)));
        let is_within = offset.checked_add(length).is_some_and(|end| end <= size);
        is_within.then_some(Section { name: entry.first_chunk().copied()?, offset, length })
    };
    let all: Option<Vec<_>> = table.chunks_exact(SECTION_BYTES).map(section).collect();
    let mut all = all?;
    let profile = all.iter().position(|section| section.name == *b".profile").unwrap_or(all.len());
    all.truncate(profile);
    Some(all)
}

fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
