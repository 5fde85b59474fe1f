//! Whether a stranger's image can be given to programs that know less than it says: what of it could make them open
//! other files, take it for something else, or fail.
//!
//! At least as strict as `format_inspector` of Python's oslo.utils, which OpenStack goes by; docs/qemu-img.md says
//! where it is stricter.

use super::info::{ImageInfo, Look, Partitions};
use crate::error::{Context, Result};
use blockyard_block::{FileFormat, OpenedFile, Qcow2Info, printable, size};
use std::os::unix::fs::FileExt;

/// A reason not to trust an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Danger {
    /// What it is about, for programs.
    pub kind: &'static str,
    /// A sentence without its subject, which is the image.
    pub reason: String,
}

/// More than anybody has: tables for it can take what memory there is.
const DISK_MAX_BYTES: u64 = 64 << 40;

/// Types of VMDKs that are one file.
const VMDK_TYPES: [&str; 2] = ["monolithicSparse", "streamOptimized"];

/// What of the image's own file is dangerous: to be asked before it is opened as a disk.
///
/// # Errors
/// When it cannot be read.
pub fn dangers_of_file(look: &Look) -> Result<Vec<Danger>> {
    let Some(file) = look.file() else { return Ok(Vec::new()) };
    let signs = FileFormat::signs_of(file.file()).context("cannot read the file's first bytes")?;
    let mut found = Vec::new();
    if signs.len() > 1 {
        found.push(danger("formats", format!("is more than one thing at once: {}", signs.join(", "))));
    }
    // An OVA is a tar that is called so.
    let is = |named: &FileFormat| signs.contains(&named.name) || named.word == "ova" && signs.contains(&"tar");
    if let Some(named) = FileFormat::of_name(file.path()).filter(|named| !is(named)) {
        found.push(danger("name", format!("is {} by its name, and not by its contents", named.name)));
    }
    if let Some(said) = look.said_format() {
        // Who believes the contents is told nothing of that.
        let seen = FileFormat::of_file(file.file()).context("cannot read the file")?.flatten();
        let is_said = |seen: &&FileFormat| said == seen.word || said == "ova" && seen.word == "tar";
        if let Some(seen) = seen.filter(|seen| !is_said(seen)) {
            found.push(danger("name", format!("is said to be {said}, and is {} by its contents", seen.name)));
        }
    }
    if signs.contains(&"a LUKS volume") {
        found.push(danger("encrypted", "is encrypted: nobody can say what it holds"));
    }
    // What is no whole header, opening it says.
    if look.is_qcow2() {
        if let Ok(Some(at)) = Qcow2Info::shared_table(file) {
            found.push(danger("corrupt", format!("is damaged: the L2 table at {at} stands for two parts of its disk")));
        }
        if let Ok(Some(damage)) = Qcow2Info::damage_in(file) {
            found.push(danger("corrupt", printable(&damage).to_string()));
        }
    }
    if signs.contains(&"a boot sector") {
        found.extend(partition_records(file)?.map(|reason| danger("boot-sector", reason)));
    }
    Ok(found)
}

/// What of its header is, and why other commands refuse it.
pub fn dangers_of_image(info: &ImageInfo) -> Vec<Danger> {
    let mut found = Vec::new();
    let named = |name: &str| printable(name).to_string();
    if let Some(qcow2) = &info.qcow2 {
        if let Some(name) = &qcow2.backing_name {
            found.push(danger("backing-file", format!("is based on another file, {}", named(name))));
        }
        if let Some(name) = &qcow2.data_file {
            found.push(danger("data-file", format!("has its data in another file, {}", named(name))));
        }
        if qcow2.encryption.is_some() {
            found.push(danger("encrypted", "is encrypted: nobody can say what it holds"));
        }
        if qcow2.has_extended_l2 {
            found.push(danger("features", "has extended L2 entries, which other programs may not know"));
        }
        if qcow2.is_corrupt {
            found.push(danger("corrupt", "says that it is damaged"));
        }
    }
    if let Some(vmdk) = &info.vmdk {
        if vmdk.depends_on_another() {
            let name = vmdk.parent.as_deref().unwrap_or("without a name");
            found.push(danger("backing-file", format!("is based on another file, {}", named(name))));
        }
        if let Some(name) = vmdk.extents.iter().find_map(|extent| extent.name.as_deref()) {
            found.push(danger("data-file", format!("has its data in another file, {}", named(name))));
        }
        if !VMDK_TYPES.iter().any(|known| known.eq_ignore_ascii_case(&vmdk.create_type)) {
            let is = if vmdk.create_type.is_empty() { "no type".to_owned() } else { named(&vmdk.create_type) };
            found
                .push(danger("subformat", format!("is a VMDK of {is}, and {} are one file", VMDK_TYPES.join(" and "))));
        }
        if let Some(oddity) = &vmdk.oddity {
            found
                .push(danger("descriptor", format!("may be more to other programs: its descriptor {}", named(oddity))));
        }
    }
    if let Some(name) = info.block_map.as_ref().and_then(|info| info.parent.as_deref()) {
        found.push(danger("backing-file", format!("is based on another file, {}", named(name))));
    }
    if matches!(info.format, "qed" | "qcow") {
        found.push(danger("subformat", format!("is in the format {}, which nobody should need any more", info.format)));
    }
    if let Some(bytes) = info.virtual_bytes.filter(|&bytes| bytes > DISK_MAX_BYTES) {
        let (size, most) = (size::human(bytes), size::human(DISK_MAX_BYTES));
        found.push(danger("size", format!("claims a disk of {size}, more than {most}")));
    }
    match &info.partitions {
        Partitions::Unusable(why) => {
            found.push(danger("unusable", format!("is refused by other commands: {}", named(why))))
        }
        Partitions::Unknown(why) => {
            found.push(danger("unknown", format!("has contents that cannot be looked at: {}", named(why))));
        }
        Partitions::Table(_) => {}
    }
    found
}

fn danger(kind: &'static str, reason: impl Into<String>) -> Danger {
    Danger { kind, reason: reason.into() }
}

/// What is strange in the four partition records of a file's first sector.
fn partition_records(file: &OpenedFile) -> Result<Option<String>> {
    const PROTECTIVE: u8 = 0xee;
    let mut sector = [0; 512];
    file.file().read_exact_at(&mut sector, 0).context("cannot read the first sector")?;
    let records = sector[446..510].as_chunks::<16>().0;
    let used: Vec<_> = (1..).zip(records).filter(|(_, record)| record[4] != 0).collect();
    if let Some((number, _)) = (1..).zip(records).find(|(_, record)| record[0] & 0x7f != 0) {
        return Ok(Some(format!("has a partition record {number} that is neither active nor inactive")));
    }
    let protective = used.iter().filter(|(_, record)| record[4] == PROTECTIVE);
    for (_, record) in protective.clone() {
        if record[1..4] != [0, 2, 0] || record[8..12] != [1, 0, 0, 0] {
            return Ok(Some("has a protective partition that does not begin with the second sector".to_owned()));
        }
    }
    Ok(match (used.as_slice(), protective.count()) {
        ([], _) => Some("has a boot sector without partitions".to_owned()),
        ([(1, _)], _) | (_, 0) => None,
        _ => Some("has partitions beside the protective one".to_owned()),
    })
}
