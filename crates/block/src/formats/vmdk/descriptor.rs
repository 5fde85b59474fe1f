//! The text of a VMDK: VMware's "Virtual Disk Format 5.0", section "The Descriptor File".

use super::SECTOR_BYTES;

/// Longest descriptor: VMware's own tools keep embedded ones within 20 sectors; a twoGbMaxExtentFlat disk of 2 TiB has
/// 60 KiB.
pub(super) const DESCRIPTOR_MAX_BYTES: usize = 256 << 10;

/// Most extents: 2 TiB in pieces of 2 GiB.
pub(super) const EXTENTS_MAX: usize = 1024;

/// Most bytes of a disk: what a signed offset holds, less what rounding may add.
const DISK_MAX_BYTES: u64 = (1 << 62) - 1;

/// What is said of a disk that depends on no other.
const NO_PARENT: u32 = u32::MAX;

/// What a descriptor says, as far as flat disks go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// Numbers of its contents and of its parent's, and what VMware calls the type; as far as they are said.
    pub(super) cid: u32,
    pub(super) parent_cid: u32,
    pub(super) create_type: String,
    /// In the order in which they make up the disk; none is empty, and there is at least one.
    pub(super) extents: Vec<ExtentLine>,
}

/// One extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExtentLine {
    pub(super) access: ExtentAccess,
    pub(super) length_bytes: u64,
    /// FLAT, VMFS or ZERO.
    pub(super) kind: &'static str,
    pub(super) storage: Storage,
}

/// What may be done with an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExtentAccess {
    ReadWrite,
    ReadOnly,
    None,
}

/// Where an extent's bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Storage {
    /// In a file or device, from an offset on.
    Flat { name: String, offset_bytes: u64 },
    /// Nowhere: they are zeros.
    Zero,
}

impl Descriptor {
    /// Parses the whole text. The error goes on after the image's path.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.starts_with(b"KDMV") || bytes.starts_with(b"COWD") {
            return Err("is a sparse VMDK, and only flat ones are supported: convert it with `qemu-img convert`".into());
        }
        if bytes.len() > DESCRIPTOR_MAX_BYTES {
            return Err(format!("is no VMDK descriptor: those have at most {DESCRIPTOR_MAX_BYTES} bytes"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| "is no VMDK descriptor: it is not text")?;
        // Some writers pad the text with NULs to whole sectors.
        let text = text.trim_end_matches('\0');
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        if !lines.next().is_some_and(|line| line.eq_ignore_ascii_case("# Disk DescriptorFile")) {
            return Err("is no VMDK descriptor: it does not begin with `# Disk DescriptorFile`".into());
        }
        let (mut cid, mut parent_cid, mut create_type) = (0, NO_PARENT, String::new());
        let mut extents = Vec::new();
        let mut disk_bytes = 0_u64;
        for line in lines {
            if let Some((key, value)) = key_and_value(line) {
                let number = || u32::from_str_radix(value, 16).unwrap_or(0);
                match key.as_str() {
                    "cid" => cid = number(),
                    "parentcid" => parent_cid = number(),
                    "createtype" => create_type = shown(value),
                    _ => {}
                }
            }
            if let Some(extent) = line_of_extent(line)? {
                disk_bytes = disk_bytes
                    .checked_add(extent.length_bytes)
                    .filter(|&bytes| bytes <= DISK_MAX_BYTES)
                    .ok_or("is a VMDK of an absurd size")?;
                extents.push(extent);
            }
            if extents.len() > EXTENTS_MAX {
                return Err(format!("is a VMDK of more than {EXTENTS_MAX} extents"));
            }
        }
        if extents.is_empty() {
            return Err("is a VMDK without any extent".into());
        }
        Ok(Self { cid, parent_cid, create_type, extents })
    }
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
    // VMFS is what VMware calls a flat extent on its own file system.
    let Some(&kind) = ["FLAT", "VMFS", "ZERO"].iter().find(|known| **known == kind) else {
        let kind = shown(kind);
        return Err(format!("has an extent of the kind `{kind}`: only FLAT, VMFS and ZERO are supported"));
    };
    let storage = if kind == "ZERO" { Storage::Zero } else { flat(rest.trim_start()).ok_or_else(bad)? };
    Ok(Some(ExtentLine { access, length_bytes, kind, storage }))
}

/// `"NAME" [OFFSET [MORE]]`; raw disks of VMware say which partition and device follows, which we need not know.
fn flat(rest: &str) -> Option<Storage> {
    let (name, rest) = rest.strip_prefix('"')?.split_once('"')?;
    let offset_bytes = match rest.split_whitespace().next() {
        Some(sectors) => bytes_of_sectors(sectors)?,
        None => 0,
    };
    (!name.is_empty()).then(|| Storage::Flat { name: name.to_owned(), offset_bytes })
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
        "parentcid" if !value.eq_ignore_ascii_case("ffffffff") => {
            Err("is a VMDK that depends on a parent, which is not supported".into())
        }
        "encoding" if !matches!(value.to_ascii_lowercase().as_str(), "utf-8" | "us-ascii" | "windows-1252") => {
            Err(format!("is a VMDK in the encoding {}: save it as UTF-8", shown(value)))
        }
        _ => Ok(()),
    }
}

/// As much of hostile text as a message takes.
fn shown(text: &str) -> String {
    text.chars().take(60).flat_map(char::escape_debug).collect()
}
