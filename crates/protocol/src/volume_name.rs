//! What people, and the files of an image, call its disks and partitions: by other drivers' names as well as by the
//! appliance's.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;

/// Disks that have names of one letter, but for the two transfer disks.
pub const DISKS_MAX: u32 = 24;

/// Drivers that give disks letters: the appliance's first.
const LETTERED: [&str; 4] = ["vd", "sd", "hd", "xvd"];

/// The appliance's name of its disk number `disk`.
pub fn disk_name(disk: u32) -> String {
    format!("vd{}", char::from(b'a' + (disk % 26) as u8))
}

/// The disk's number, and its partition's if it has one, of a name such as vdb or /dev/sda1; `None` for others, such as
/// /dev/hdd/root, which is a logical volume.
pub fn lettered(name: &str) -> Option<(u32, &str)> {
    let short = name.strip_prefix("/dev/").unwrap_or(name);
    let lettered = LETTERED.iter().find_map(|driver| short.strip_prefix(driver))?;
    let letter = lettered.bytes().next().filter(u8::is_ascii_lowercase)?;
    let partition = &lettered[1..];
    let is_number = partition.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| (u32::from(letter - b'a'), partition))
}

/// The appliance's name, without /dev/, of what somebody calls `name`: /dev/sda1, hda1, xvda1, nvme0n1p1, mmcblk0p1 and
/// 1 are vda1. Others are as they are.
pub fn kernel_name(name: &str) -> String {
    let short = name.strip_prefix("/dev/").unwrap_or(name);
    if !short.is_empty() && short.bytes().all(|byte| byte.is_ascii_digit()) {
        return format!("vda{short}");
    }
    let numbered = || numbered(short).filter(|(disk, _)| *disk < DISKS_MAX);
    match lettered(short).or_else(numbered) {
        Some((disk, partition)) => disk_name(disk) + partition,
        None => short.to_owned(),
    }
}

/// The same of a name such as nvme0n1p2 or mmcblk0p2, whose partition comes behind a p.
fn numbered(name: &str) -> Option<(u32, &str)> {
    let (disk, rest) = match (name.strip_prefix("nvme"), name.strip_prefix("mmcblk")) {
        (Some(rest), _) => rest.split_once("n1")?,
        (_, Some(rest)) => rest.split_at(rest.find('p').unwrap_or(rest.len())),
        _ => return None,
    };
    let partition = if rest.is_empty() { "" } else { rest.strip_prefix('p')? };
    Some((disk.parse().ok()?, partition))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_and_partitions_have_several_names() {
        for name in ["/dev/vda1", "/dev/sda1", "/dev/hda1", "/dev/xvda1", "/dev/nvme0n1p1", "mmcblk0p1", "sda1", "1"] {
            assert_eq!(kernel_name(name), "vda1");
        }
        for name in ["/dev/sdb", "nvme1n1", "mmcblk1"] {
            assert_eq!(kernel_name(name), "vdb");
        }
        for name in
            ["nvme", "nvme99n1", "mmcblk", "nvme0n1x", "md0", "vg/lv", "sd", "vdä", "SDA", "hdd/root", "sdata", ""]
        {
            assert_eq!(kernel_name(name), name);
        }
    }

    #[test]
    fn a_letter_is_a_disk() {
        assert_eq!(lettered("/dev/sdc12"), Some((2, "12")));
        assert_eq!(lettered("xvda"), Some((0, "")));
        assert_eq!((lettered("1"), lettered("nvme0n1"), lettered("hdd/a"), lettered("vd")), (None, None, None, None));
    }
}
