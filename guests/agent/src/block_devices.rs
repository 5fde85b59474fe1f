//! The images' disks, their partitions, and what is on them.

use crate::failures::refusal;
use blockyard_protocol::appliance::Failure;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// What a partition, or a disk without any, holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// As mount(8) has it; `None` when it is nothing we know.
    pub(crate) kind: Option<&'static str>,
    pub(crate) uuid: String,
    pub(crate) label: String,
}

/// A partition, or a disk without any.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    /// Without /dev/.
    pub(crate) name: String,
    pub(crate) content: Content,
}

/// Kinds that hold no files, with why not.
const NO_FILES: [(&str, &str); 5] = [
    ("swap", "is swap space"),
    ("crypto_LUKS", "is encrypted (LUKS)"),
    ("LVM2_member", "is part of an LVM volume group"),
    ("linux_raid_member", "is part of a RAID"),
    ("ntfs", "has an NTFS file system, which the appliance's kernel does not read"),
];

impl Volume {
    /// Whether it has files that this kernel may be able to read.
    pub(crate) fn is_mountable(&self) -> bool {
        self.why_not().is_none()
    }

    /// Why it has none.
    pub(crate) fn why_not(&self) -> Option<&'static str> {
        let Some(kind) = self.content.kind else { return Some("has no file system that is known") };
        NO_FILES.iter().find(|(name, _)| *name == kind).map(|&(_, why)| why)
    }
}

/// The volumes of the first `disks` disks, in order.
pub(crate) fn volumes(disks: u32) -> Vec<Volume> {
    (0..disks.min(24)).flat_map(|disk| volumes_of(&disk_name(disk))).collect()
}

/// The kernel's name of a disk.
fn disk_name(disk: u32) -> String {
    format!("vd{}", char::from(b'a' + disk as u8))
}

fn volumes_of(disk: &str) -> Vec<Volume> {
    let entries = fs::read_dir(format!("/sys/block/{disk}")).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let number = |name: &str| name.strip_prefix(disk)?.parse::<u32>().ok();
    let mut partitions: Vec<_> = names.filter_map(|name| Some((number(&name)?, name))).collect();
    partitions.sort();
    let whole = || vec![disk.to_owned()];
    let names = if partitions.is_empty() { whole() } else { partitions.into_iter().map(|(_, name)| name).collect() };
    names.into_iter().map(|name| Volume { content: identify(&name), name }).collect()
}

/// The volume that somebody calls `name`: /dev/vda1, /dev/sda1, /dev/hda1, the same without /dev/, or 1 for the first disk's.
pub(crate) fn find<'volumes>(volumes: &'volumes [Volume], name: &str) -> Result<&'volumes Volume, Failure> {
    let wanted = kernel_name(name);
    let found = volumes.iter().find(|volume| volume.name == wanted);
    found.ok_or_else(|| {
        let names: Vec<_> = volumes.iter().map(|volume| volume.name.as_str()).collect();
        refusal(format!("there is no {name}: the image has {}", names.join(", ")))
    })
}

/// The kernel's name of what somebody calls `name`.
pub(crate) fn kernel_name(name: &str) -> String {
    let short = name.strip_prefix("/dev/").unwrap_or(name);
    if !short.is_empty() && short.bytes().all(|byte| byte.is_ascii_digit()) {
        return format!("vda{short}");
    }
    match short.strip_prefix("sd").or_else(|| short.strip_prefix("hd")).or_else(|| short.strip_prefix("xvd")) {
        Some(rest) => format!("vd{rest}"),
        None => short.to_owned(),
    }
}

/// Looks for the magic numbers of what mount(8) could be asked to mount, or must not be.
fn identify(name: &str) -> Content {
    let Ok(device) = File::open(format!("/dev/{name}")) else { return Content::default() };
    let mut head = vec![0; 0x10000 + 4096];
    let mut filled = 0;
    while let Ok(bytes @ 1..) = device.read_at(&mut head[filled..], filled as u64) {
        filled += bytes;
    }
    head.truncate(filled);
    content_of(&head)
}

/// What begins with `head`.
fn content_of(head: &[u8]) -> Content {
    let at = |offset: usize, magic: &[u8]| head.get(offset..offset + magic.len()) == Some(magic);
    let field = |offset: usize, length: usize| head.get(offset..offset + length).unwrap_or_default();
    let text = |offset, length| {
        let bytes: &[u8] = field(offset, length);
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).trim_end().to_owned()
    };
    let content = |kind, uuid: &[u8], label| Content { kind: Some(kind), uuid: hexadecimal(uuid), label };
    if at(0, b"LUKS\xba\xbe") {
        return content("crypto_LUKS", &[], String::new());
    }
    if at(512, b"LABELONE") {
        return content("LVM2_member", &[], String::new());
    }
    if at(4096, &[0xfc, 0x4e, 0x2b, 0xa9]) {
        return content("linux_raid_member", &[], String::new());
    }
    if at(0, b"XFSB") {
        return content("xfs", field(32, 16), text(108, 12));
    }
    if at(0x438, &[0x53, 0xef]) {
        return content("ext4", field(0x468, 16), text(0x478, 16));
    }
    if at(0x10040, b"_BHRfS_M") {
        return content("btrfs", field(0x10020, 16), text(0x1012b, 256));
    }
    if at(0x8000, b"JFS1") {
        return content("jfs", field(0x8088, 16), text(0x8098, 16));
    }
    if at(0x8001, b"CD001") {
        return content("iso9660", &[], text(0x8028, 32));
    }
    if at(0, b"hsqs") {
        return content("squashfs", &[], String::new());
    }
    if at(4086, b"SWAPSPACE2") || at(4086, b"SWAP-SPACE") {
        return content("swap", field(0x40c, 16), text(0x41c, 16));
    }
    if at(3, b"NTFS    ") {
        return content("ntfs", &[], String::new());
    }
    // The serial number and the label are at other places in FAT32.
    for (kind_at, serial_at) in [(0x52, 0x43), (0x36, 0x27)] {
        if at(510, &[0x55, 0xaa]) && at(kind_at, b"FAT") {
            let serial: [u8; 4] = field(serial_at, 4).try_into().unwrap_or_default();
            let serial = u32::from_le_bytes(serial);
            let uuid = format!("{:04X}-{:04X}", serial >> 16, serial & 0xffff);
            return Content { kind: Some("vfat"), uuid, label: text(serial_at + 4, 11) };
        }
    }
    Content::default()
}

/// A UUID as people write it.
fn hexadecimal(uuid: &[u8]) -> String {
    let dash = |index: usize| if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
    uuid.iter().enumerate().map(|(index, byte)| format!("{}{byte:02x}", dash(index))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_several_names() {
        for name in ["/dev/vda1", "/dev/sda1", "/dev/hda1", "/dev/xvda1", "sda1", "vda1", "1"] {
            assert_eq!(kernel_name(name), "vda1");
        }
        assert_eq!(kernel_name("/dev/sdb"), "vdb");
    }

    #[test]
    fn file_systems_are_known_by_their_magic_numbers() {
        let mut head = vec![0; 0x11000];
        assert_eq!(content_of(&head), Content::default());
        assert_eq!(content_of(&[]), Content::default());
        head[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
        head[0x468..0x478].copy_from_slice(&std::array::from_fn::<u8, 16, _>(|index| index as u8));
        head[0x478..0x47c].copy_from_slice(b"root");
        let wanted =
            Content { kind: Some("ext4"), uuid: "00010203-0405-0607-0809-0a0b0c0d0e0f".into(), label: "root".into() };
        assert_eq!(content_of(&head), wanted);
        let mut fat = vec![0; 512];
        fat[510..].copy_from_slice(&[0x55, 0xaa]);
        fat[0x52..0x55].copy_from_slice(b"FAT");
        fat[0x43..0x47].copy_from_slice(&[0xef, 0xbe, 0xad, 0xde]);
        assert_eq!((content_of(&fat).kind, content_of(&fat).uuid.as_str()), (Some("vfat"), "DEAD-BEEF"));
    }
}
