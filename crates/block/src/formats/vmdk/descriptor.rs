//! The text of a VMDK: VMware's "Virtual Disk Format 5.0", section "The Descriptor File".

use super::SECTOR_BYTES;
use crate::formats::file_format::{DESCRIPTOR_LINES, begins_with_line};
use crate::printable;

/// Longest descriptor: VMware's own tools keep embedded ones within 20 sectors; a twoGbMaxExtentFlat disk of 2 TiB has
/// 60 KiB.
pub(in crate::formats) const DESCRIPTOR_MAX_BYTES: usize = 256 << 10;

/// Most extents: 2 TiB in pieces of 2 GiB.
pub(in crate::formats) const EXTENTS_MAX: usize = 1024;

/// What extents are called. VMFS is a flat one on VMware's own file system.
const KINDS: [&str; 6] = ["FLAT", "VMFS", "ZERO", "SPARSE", "VMFSSPARSE", "SESPARSE"];

/// Most bytes of a disk: what a signed offset holds, less what rounding may add.
const DISK_MAX_BYTES: u64 = (1 << 62) - 1;

/// What is said of a disk that depends on no other.
pub(in crate::formats) const NO_PARENT: u32 = u32::MAX;

/// What a descriptor says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::formats) struct Descriptor {
    /// Numbers of its contents and of its parent's, and what VMware calls the type; as far as they are said.
    pub(in crate::formats) cid: u32,
    /// Where the former is said, if it is once, and in how many digits.
    pub(in crate::formats) cid_at: Option<(u64, u32)>,
    pub(in crate::formats) parent_cid: u32,
    /// Where that is said, too.
    pub(in crate::formats) parent_cid_at: Option<(u64, u32)>,
    pub(in crate::formats) create_type: String,
    /// What it calls the disk that it depends on.
    pub(in crate::formats) parent: Option<String>,
    /// In the order in which they make up the disk; none is empty.
    pub(in crate::formats) extents: Vec<ExtentLine>,
    /// What of a text within a file of grains other programs may take for more than is taken of it here: a line.
    pub(in crate::formats) oddity: Option<String>,
}

/// One extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::formats) struct ExtentLine {
    pub(in crate::formats) access: ExtentAccess,
    pub(in crate::formats) length_bytes: u64,
    /// One of [`KINDS`].
    pub(in crate::formats) kind: &'static str,
    pub(in crate::formats) storage: Storage,
}

/// What may be done with an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::formats) enum ExtentAccess {
    ReadWrite,
    ReadOnly,
    None,
}

/// Where an extent's bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::formats) enum Storage {
    /// In a file or device, from an offset on.
    Flat { name: String, offset_bytes: u64 },
    /// In the grains of a file that has a header of its own.
    Grains { name: String },
    /// Nowhere: they are zeros.
    Zero,
}

impl ExtentLine {
    /// Whether its bytes may be changed.
    pub(in crate::formats) fn is_writable(&self) -> bool {
        self.access == ExtentAccess::ReadWrite && self.storage != Storage::Zero
    }
}

impl Descriptor {
    /// Parses the whole text of a file. The error goes on after the image's path.
    pub(in crate::formats) fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > DESCRIPTOR_MAX_BYTES {
            return Err(format!("is no VMDK descriptor: those have at most {DESCRIPTOR_MAX_BYTES} bytes"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| "is no VMDK descriptor: it is not text")?;
        // Some writers pad the text with NULs to whole sectors. QEMU ends a text that became shorter by some bytes with
        // one, as where a number has fewer digits, and leaves these.
        let whole = text.trim_end_matches('\0');
        let text = whole.split_once('\0').filter(|(_, rest)| rest.len() < 8).map_or(whole, |(text, _)| text);
        if !DESCRIPTOR_LINES.iter().any(|line| begins_with_line(text.as_bytes(), line)) {
            return Err("is no VMDK descriptor: it does not begin with `# Disk DescriptorFile`".into());
        }
        let mut read = Self::with_places(bytes);
        let mut disk_bytes = 0_u64;
        for line in lines_of(text) {
            read.set(line)?;
            if let Some(extent) = line_of_extent(line)? {
                disk_bytes = disk_bytes
                    .checked_add(extent.length_bytes)
                    .filter(|&bytes| bytes <= DISK_MAX_BYTES)
                    .ok_or("is a VMDK of an absurd size")?;
                read.extents.push(extent);
            }
            if read.extents.len() > EXTENTS_MAX {
                return Err(format!("is a VMDK of more than {EXTENTS_MAX} extents"));
            }
        }
        if read.extents.is_empty() {
            return Err("is a VMDK without any extent".into());
        }
        read.checked()
    }

    /// Of the text within a file of grains, only what is behind the image matters: the extent is the file itself.
    pub(in crate::formats) fn parse_embedded(bytes: &[u8]) -> Result<Self, String> {
        let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        let mut read = Self::with_places(text);
        let mut has_extent = false;
        for line in lines_of(&String::from_utf8_lossy(text)) {
            read.set(line)?;
            let is_extent = ["RW ", "RDONLY ", "NOACCESS "].iter().any(|access| line.starts_with(access));
            has_extent |= is_extent;
            let is_setting = line.split_once('=').is_some_and(|(key, _)| !key.trim_end().contains(' '));
            let is_known = line.starts_with('#') || is_setting || is_extent && !line.contains('/');
            if !is_known {
                read.oddity.get_or_insert_with(|| format!("has the line `{}`", shown(line)));
            }
        }
        if !has_extent {
            read.oddity.get_or_insert_with(|| "names no extent".to_owned());
        }
        read.checked()
    }

    /// Nothing, but where its numbers are said.
    fn with_places(text: &[u8]) -> Self {
        Self { cid_at: number_at(text, b"cid"), parent_cid_at: number_at(text, b"parentcid"), ..Self::default() }
    }

    /// The same of a text that begins at an offset of a file.
    pub(in crate::formats) fn from(self, offset: u64) -> Self {
        let from = |place: Option<(u64, u32)>| place.and_then(|(at, digits)| Some((at.checked_add(offset)?, digits)));
        Self { cid_at: from(self.cid_at), parent_cid_at: from(self.parent_cid_at), ..self }
    }

    pub(in crate::formats) fn depends_on_another(&self) -> bool {
        self.parent_cid != NO_PARENT
    }

    /// Takes what a line says, if it is a setting.
    fn set(&mut self, line: &str) -> Result<(), String> {
        let Some((key, value)) = key_and_value(line) else { return Ok(()) };
        let number = || u32::from_str_radix(value, 16);
        match key.as_str() {
            "cid" => self.cid = number().unwrap_or(0),
            "parentcid" => {
                let bad = |_| format!("has a parentCID that is no number: `{}`", shown(value));
                self.parent_cid = number().map_err(bad)?;
            }
            "createtype" => self.create_type = shown(value),
            "parentfilenamehint" => self.parent = Some(value.to_owned()).filter(|name| !name.is_empty()),
            _ => {}
        }
        Ok(())
    }

    fn checked(self) -> Result<Self, String> {
        match self.depends_on_another() && self.parent.is_none() {
            true => Err("is a VMDK that depends on a parent, and does not say which (parentFileNameHint)".into()),
            false => Ok(self),
        }
    }
}

impl Default for Descriptor {
    fn default() -> Self {
        Self {
            cid: 0,
            cid_at: None,
            parent_cid: NO_PARENT,
            parent_cid_at: None,
            create_type: String::new(),
            parent: None,
            extents: Vec::new(),
            oddity: None,
        }
    }
}

/// Where the digits of the only number of a name begin, and how many there are: QEMU writes no zeros in front of them.
fn number_at(text: &[u8], name: &[u8]) -> Option<(u64, u32)> {
    let mut at = 0;
    let mut found = None;
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let key_bytes = line.iter().position(|&byte| byte == b'=').unwrap_or(0);
        if line.get(..key_bytes).is_some_and(|key| key.trim_ascii().eq_ignore_ascii_case(name)) {
            let rest = line.get(key_bytes + 1..).unwrap_or_default();
            let digits = rest.trim_ascii_end();
            if found.is_some() || !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
            found = Some(((at + key_bytes + 1) as u64, digits.len() as u32));
        }
        at += line.len();
    }
    found
}

fn lines_of(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty())
}

/// The extent that a line describes; `None` for a line that describes none.
fn line_of_extent(line: &str) -> Result<Option<ExtentLine>, String> {
    if line.starts_with('#') {
        return Ok(None);
    }
    let (access, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let access = match access {
        "RW" => ExtentAccess::ReadWrite,
        "RDONLY" => ExtentAccess::ReadOnly,
        "NOACCESS" => ExtentAccess::None,
        _ => return setting(line).map(|()| None),
    };
    let bad = || format!("has an extent that cannot be understood: `{}`", shown(line));
    let (sectors, rest) = rest.trim_start().split_once(char::is_whitespace).ok_or_else(bad)?;
    let length_bytes = bytes_of_sectors(sectors).filter(|&bytes| bytes > 0).ok_or_else(bad)?;
    let rest = rest.trim_start();
    let (kind, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let Some(&kind) = KINDS.iter().find(|known| **known == kind) else {
        let (kind, (last, others)) = (shown(kind), KINDS.split_last().unwrap_or((&"", &[])));
        return Err(format!("has an extent of the kind `{kind}`: only {} and {last} are supported", others.join(", ")));
    };
    let storage = match kind {
        "ZERO" => Storage::Zero,
        "FLAT" | "VMFS" => flat(rest.trim_start()).ok_or_else(bad)?,
        _ => Storage::Grains { name: quoted(rest.trim_start()).ok_or_else(bad)?.0.to_owned() },
    };
    Ok(Some(ExtentLine { access, length_bytes, kind, storage }))
}

/// `"NAME" [OFFSET [MORE]]`; raw disks of VMware say which partition and device follows, which we need not know.
fn flat(rest: &str) -> Option<Storage> {
    let (name, rest) = quoted(rest)?;
    let offset_bytes = match rest.split_whitespace().next() {
        Some(sectors) => bytes_of_sectors(sectors)?,
        None => 0,
    };
    Some(Storage::Flat { name: name.to_owned(), offset_bytes })
}

/// A name between quotation marks, and what follows.
fn quoted(rest: &str) -> Option<(&str, &str)> {
    rest.strip_prefix('"')?.split_once('"').filter(|(name, _)| !name.is_empty())
}

fn bytes_of_sectors(sectors: &str) -> Option<u64> {
    let digits = sectors.bytes().all(|byte| byte.is_ascii_digit());
    let sectors: u64 = digits.then(|| sectors.parse().ok())??;
    sectors.checked_mul(SECTOR_BYTES).filter(|&bytes| bytes <= DISK_MAX_BYTES)
}

fn key_and_value(line: &str) -> Option<(String, &str)> {
    let (key, value) = line.split_once('=')?;
    Some((key.trim().to_ascii_lowercase(), value.trim().trim_matches('"')))
}

/// `KEY = VALUE`. Of the keys, those that change what the extents mean are checked.
fn setting(line: &str) -> Result<(), String> {
    let Some((key, value)) = key_and_value(line) else {
        return Err(format!("has a line that cannot be understood: `{}`", shown(line)));
    };
    match key.as_str() {
        "version" if !matches!(value, "1" | "2" | "3") => {
            Err(format!("is a VMDK of version {}, and only 1 to 3 are supported", shown(value)))
        }
        "encoding" if !matches!(value.to_ascii_lowercase().as_str(), "utf-8" | "us-ascii" | "windows-1252") => {
            Err(format!("is a VMDK in the encoding {}: save it as UTF-8", shown(value)))
        }
        _ => Ok(()),
    }
}

/// As much of hostile text as a message takes.
fn shown(text: &str) -> String {
    printable(&text.chars().take(60).collect::<String>())
}
