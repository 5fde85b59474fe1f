//! The images' disks, their partitions, and what the kernel has made of those: arrays, logical volumes, what was
//! encrypted.

use crate::content::{self, Content, LUKS};
use crate::failures::refusal;
use crate::mount_options::load_driver;
use crate::partition_table::{PartitionNames, Table};
use crate::sysfs::{SYSFS, names_in, number_in, sector_bytes, size_bytes};
use blockyard_protocol::appliance::{self, Failure};
use blockyard_protocol::volume_name::{DISKS_MAX, disk_name, kernel_name};
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};
use std::collections::BTreeSet;
use std::fs::{self, File};

/// A partition, a disk without any, or what was made of some.
#[derive(Clone, Debug, Default)]
pub(crate) struct Volume {
    /// Without /dev/: the kernel's name, or what people call it where the kernel only counts.
    pub(crate) name: String,
    /// The kernel's name.
    pub(crate) node: String,
    /// What else it is called, without /dev/.
    pub(crate) aliases: Vec<String>,
    /// Bytes.
    pub(crate) size: u64,
    pub(crate) content: Content,
    pub(crate) partition: PartitionNames,
    /// The kernel's names of what it is made of.
    pub(crate) made_of: Vec<String>,
    /// Something else is made of it.
    pub(crate) used: bool,
    /// How many of the disks of its file system are not there (Btrfs).
    pub(crate) missing: u32,
}

impl Volume {
    fn new(name: String, node: String, partition: PartitionNames) -> Self {
        let size = size_bytes(&node);
        let content = content::identify(&node, size);
        let made_of = names_in(&format!("{SYSFS}/{node}/slaves"));
        let used = !names_in(&format!("{SYSFS}/{node}/holders")).is_empty();
        Self { name, node, aliases: Vec::new(), size, content, partition, made_of, used, missing: 0 }
    }

    /// A device that is no part of the image's disks, with a name for people.
    pub(crate) fn of_node(name: String, node: String) -> Self {
        Self::new(name, node, PartitionNames::default())
    }

    /// Whether it has files that this kernel may be able to read.
    pub(crate) fn is_mountable(&self) -> bool {
        self.why_not().is_none()
    }

    /// Why it has none.
    pub(crate) fn why_not(&self) -> Option<&'static str> {
        self.content.why_not().or(self.used.then_some("is part of something else"))
    }

    /// Whether it waits for being opened, or for being put together with others.
    pub(crate) fn is_closed(&self) -> bool {
        self.content.is_layer() && !self.used
    }

    fn is_called(&self, name: &str) -> bool {
        [&self.name, &self.node].into_iter().chain(&self.aliases).any(|own| own == name)
    }
}

impl From<&Volume> for appliance::Volume {
    fn from(volume: &Volume) -> Self {
        Self {
            device: volume.name.clone(),
            r#type: volume.content.kind.unwrap_or_default().to_owned(),
            uuid: volume.content.uuid.clone(),
            label: volume.content.label.clone(),
            size: volume.size,
            key_memory_bytes: volume.content.key_memory_bytes,
            used: volume.used,
            raid_level: volume.content.array.level,
            raid_disks: volume.content.array.disks,
            directory: Vec::new(),
        }
    }
}

/// The volumes of the first `disks` disks, in order, and what was made of them.
pub(crate) fn volumes(disks: u32) -> Vec<Volume> {
    let mut volumes: Vec<_> = (0..disks.min(DISKS_MAX)).flat_map(|disk| volumes_of(&disk_name(disk))).collect();
    let assembled = names_in("/sys/block");
    volumes.extend(in_order("md", &assembled).flat_map(|array| volumes_of(array)));
    volumes.extend(in_order("dm-", &assembled).filter_map(|node| mapped(node)));
    let btrfs = volumes.iter().filter(|volume| volume.content.kind == Some("btrfs"));
    if btrfs.clone().nth(1).is_some() {
        // A module has to be there to be told.
        load_driver("btrfs");
        btrfs.for_each(|volume| tell_btrfs(&volume.node));
    }
    count_missing(&mut volumes);
    volumes
}

/// Finds out how many disks of each Btrfs are not there: each that is says how many there are.
fn count_missing(volumes: &mut [Volume]) {
    let is_btrfs = |volume: &&Volume| volume.content.kind == Some("btrfs");
    let there: Vec<_> = volumes.iter().filter(is_btrfs).map(|volume| volume.content.uuid.clone()).collect();
    for volume in volumes.iter_mut().filter(|volume| is_btrfs(&&**volume)) {
        let its = there.iter().filter(|uuid| **uuid == volume.content.uuid).count();
        volume.missing = volume.content.array.disks.saturating_sub(u32::try_from(its).unwrap_or(u32::MAX));
    }
}

/// Has Btrfs look at a device: it finds the others of a file system on several only so.
fn tell_btrfs(node: &str) {
    const SCAN_DEVICE: Opcode = opcode::write::<BtrfsDevice>(0x94, 4);
    let path = format!("/dev/{node}");
    let mut device = BtrfsDevice { number: 0, path: [0; 4088] };
    device.path[..path.len()].copy_from_slice(path.as_bytes());
    // SAFETY: BTRFS_IOC_SCAN_DEV reads a `struct btrfs_ioctl_vol_args`, which `BtrfsDevice` is laid out as.
    let setter = unsafe { Setter::<SCAN_DEVICE, BtrfsDevice>::new(device) };
    // Without, mounting says what is missing.
    // SAFETY: as above.
    let _ = File::open("/dev/btrfs-control").map(|control| unsafe { ioctl(&control, setter) });
}

/// `struct btrfs_ioctl_vol_args` (Linux, include/uapi/linux/btrfs.h).
#[repr(C)]
struct BtrfsDevice {
    number: i64,
    path: [u8; 4088],
}

/// Those names that are `prefix` and a number, by number.
fn in_order<'names>(prefix: &str, names: &'names [String]) -> impl Iterator<Item = &'names String> {
    let number = |name: &str| name.strip_prefix(prefix)?.parse::<u32>().ok();
    let mut numbered: Vec<_> = names.iter().filter_map(|name| Some((number(name)?, name))).collect();
    numbered.sort();
    numbered.into_iter().map(|(_, name)| name)
}

/// A disk's partitions, or itself.
fn volumes_of(disk: &str) -> Vec<Volume> {
    let size = size_bytes(disk);
    if size == 0 {
        // An array that does not run.
        return Vec::new();
    }
    let names = names_in(&format!("/sys/block/{disk}"));
    let separated = format!("{disk}p");
    let prefix = if disk.ends_with(|last: char| last.is_ascii_digit()) { separated.as_str() } else { disk };
    let partitions: Vec<_> = in_order(prefix, &names).collect();
    let aliases = array_names(disk);
    let whole = || Volume::of_node(disk.to_owned(), disk.to_owned());
    if partitions.is_empty() || content::is_mirrored_disk(disk, size) {
        return vec![Volume { aliases, ..whole() }];
    }
    let table = Table::read(disk, sector_bytes(disk));
    if matches!(table, Table::Unsaid) {
        let whole = whole();
        if whole.content.kind.is_some() {
            return vec![Volume { aliases, ..whole }];
        }
    }
    let partitions = match table {
        Table::Guid(_) => partitions,
        _ => without_repeats(partitions, place),
    };
    let volume = |name: &String| {
        let suffix = name.strip_prefix(prefix).unwrap_or_default();
        let names = table.names(suffix.parse().unwrap_or_default());
        let aliases = aliases.iter().map(|alias| format!("{alias}p{suffix}")).collect();
        Volume { aliases, ..Volume::new(name.clone(), name.clone(), names) }
    };
    partitions.into_iter().map(volume).collect()
}

/// Linux goes on where a chain of logical partitions comes back to where it was, up to the last number that it has.
/// Those that lie where one before them does are left out.
fn without_repeats<P: Ord>(names: Vec<&String>, place: impl Fn(&str) -> P) -> Vec<&String> {
    let mut seen = BTreeSet::new();
    names.into_iter().filter(|name| seen.insert(place(name))).collect()
}

/// Where a partition begins on its disk, and its size.
fn place(partition: &str) -> (u64, u64) {
    (number_in(&format!("{SYSFS}/{partition}/start")), size_bytes(partition))
}

/// What mdadm calls an array: links in /dev/md.
fn array_names(disk: &str) -> Vec<String> {
    let links = names_in("/dev/md").into_iter().map(|name| format!("md/{name}"));
    let leads_here = |name: &String| {
        fs::read_link(format!("/dev/{name}")).is_ok_and(|target| target.file_name() == Some(disk.as_ref()))
    };
    links.filter(leads_here).collect()
}

/// A device of the device mapper's, unless it is LVM's own business.
fn mapped(node: &str) -> Option<Volume> {
    let attribute = |name: &str| {
        let text = fs::read_to_string(format!("/sys/block/{node}/dm/{name}")).unwrap_or_default();
        text.trim_end().to_owned()
    };
    let (name, uuid) = (attribute("name"), attribute("uuid"));
    let mapper = format!("mapper/{name}");
    let volume = |name: String, aliases| {
        let volume = Volume::new(name, node.to_owned(), PartitionNames::default());
        (volume.size > 0).then_some(Volume { aliases, ..volume })
    };
    match uuid.strip_prefix("LVM-") {
        // A suffix marks what a volume is made of (lvm2, lib/activate/dev_manager.c, build_dm_uuid).
        Some(ids) if ids.len() > 64 => None,
        Some(_) => volume(logical_volume_name(&name)?, vec![mapper]),
        None => volume(mapper, Vec::new()),
    }
}

/// VG/LV out of the device mapper's VG-LV, where a - in a name is two.
fn logical_volume_name(name: &str) -> Option<String> {
    let bytes = name.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'-', Some(b'-')) => at += 2,
            (b'-', _) => {
                let plain = |part: &str| part.replace("--", "-");
                return Some(format!("{}/{}", plain(&name[..at]), plain(&name[at + 1..])));
            }
            _ => at += 1,
        }
    }
    None
}

/// The volume that somebody calls `name`, for one who says that it is there.
pub(crate) fn find<'volumes>(volumes: &'volumes [Volume], name: &str) -> Result<&'volumes Volume, Failure> {
    let opened = |volume: &&Volume| {
        // What was encrypted stands for what it was encrypted in.
        let inner = volumes.iter().find(|other| other.made_of.contains(&volume.node));
        inner.filter(|_| volume.content.kind == Some(LUKS))
    };
    let found = lookup(volumes, name).map(|volume| opened(&volume).unwrap_or(volume));
    found.ok_or_else(|| {
        let partitions = partitions_of(volumes, name);
        if !partitions.is_empty() {
            let partitions = partitions.join(", ");
            return refusal(format!("{name} has partitions, and what it holds is in those: name one of {partitions}"));
        }
        let names: Vec<_> = volumes.iter().map(|volume| volume.name.as_str()).collect();
        let closed = volumes.iter().filter(|volume| volume.is_closed());
        let closed: Vec<_> =
            closed.map(|volume| format!("; {} {}", volume.name, volume.why_not().unwrap_or_default())).collect();
        refusal(format!("there is no {name}: the image has {}{}", names.join(", "), closed.concat()))
    })
}

/// The partitions of the disk that somebody calls `name`.
fn partitions_of<'volumes>(volumes: &'volumes [Volume], name: &str) -> Vec<&'volumes str> {
    let disk = kernel_name(name);
    let is_its = |volume: &&Volume| {
        let number = volume.node.strip_prefix(&disk).filter(|_| !disk.is_empty());
        let number = number.map(|rest| rest.strip_prefix('p').unwrap_or(rest));
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    volumes.iter().filter(is_its).map(|volume| volume.name.as_str()).collect()
}

/// The volume that somebody calls `name`: UUID=, LABEL=, PARTUUID=, PARTLABEL=, the names in /dev/disk, /dev/vda1,
/// /dev/sda1, /dev/hda1, /dev/nvme0n1p1, the same without /dev/, 1 for the first disk's, vg/lv, mapper/vg-lv, md/name.
pub(crate) fn lookup<'volumes>(volumes: &'volumes [Volume], name: &str) -> Option<&'volumes Volume> {
    let (tag, value) = match name.split_once('=').filter(|_| !name.starts_with('/')) {
        Some((tag, value)) => (tag, value.trim_matches('"').to_owned()),
        None => match name.strip_prefix("/dev/disk/by-").and_then(|rest| rest.split_once('/')) {
            Some((tag, value)) => (tag, unescaped(value)),
            None => return by_path(volumes, name),
        },
    };
    if value.is_empty() {
        return None;
    }
    let matching = |matches: &dyn Fn(&Volume) -> bool| {
        // A mirror's parts say the same as itself.
        volumes.iter().filter(|volume| matches(volume)).min_by_key(|volume| volume.used)
    };
    match tag {
        "UUID" | "uuid" => matching(&|volume| volume.content.uuid.eq_ignore_ascii_case(&value)),
        "LABEL" | "label" => matching(&|volume| volume.content.label == value),
        "PARTUUID" | "partuuid" => matching(&|volume| volume.partition.uuid.eq_ignore_ascii_case(&value)),
        "PARTLABEL" | "partlabel" => matching(&|volume| volume.partition.label == value),
        // Names of hardware that is elsewhere: what counts is the partition, if there is one disk.
        "id" | "path" => {
            let number = value.rsplit_once("-part").and_then(|(_, number)| number.parse::<u32>().ok())?;
            let only = !volumes.iter().any(|volume| volume.node.starts_with("vdb"));
            only.then(|| by_path(volumes, &format!("vda{number}")))?
        }
        _ => None,
    }
}

fn by_path<'volumes>(volumes: &'volumes [Volume], name: &str) -> Option<&'volumes Volume> {
    let name = kernel_name(name);
    volumes.iter().find(|volume| volume.is_called(&name))
}

/// In names below /dev/disk, udev writes odd bytes as \x20.
fn unescaped(name: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = name;
    while let Some((before, after)) = rest.split_once("\\x") {
        bytes.extend_from_slice(before.as_bytes());
        match after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.extend_from_slice(b"\\x");
                rest = after;
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_found_by_what_they_hold_and_where_they_lie() {
        let partition = |name: &str, uuid: &str, label: &str, used| Volume {
            name: name.into(),
            node: name.into(),
            content: Content { kind: Some("ext4"), uuid: uuid.into(), label: label.into(), ..Content::default() },
            partition: PartitionNames { uuid: format!("part-{name}"), label: format!("the {name}") },
            used,
            ..Volume::default()
        };
        let mut volumes = vec![partition("vda1", "AA", "", true), partition("vda2", "bb", "my home", false)];
        volumes.push(Volume { aliases: vec!["mapper/vg-root".into()], ..partition("vg/root", "aa", "r", false) });
        let name = |wanted: &str| lookup(&volumes, wanted).map(|volume| volume.name.as_str());
        for wanted in
            ["UUID=aa", "UUID=\"AA\"", "/dev/disk/by-uuid/aa", "/dev/mapper/vg-root", "/dev/vg/root", "LABEL=r"]
        {
            assert_eq!(name(wanted), Some("vg/root"), "{wanted}");
        }
        for wanted in [
            "LABEL=\"my home\"",
            "/dev/disk/by-label/my\\x20home",
            "PARTUUID=PART-vda2",
            "PARTLABEL=the vda2",
            "/dev/disk/by-partlabel/the\\x20vda2",
            "/dev/disk/by-id/ata-X-part2",
            "/dev/sda2",
        ] {
            assert_eq!(name(wanted), Some("vda2"), "{wanted}");
        }
        for wanted in ["LABEL=", "UUID=cc", "ID=aa", "/dev/disk/by-id/ata-X", "/dev/vg", ""] {
            assert_eq!(name(wanted), None, "{wanted}");
        }
    }

    #[test]
    fn a_circle_of_logical_partitions_is_gone_round_once() {
        let names: Vec<String> = ["vda1", "vda5", "vda6", "vda7", "vda8", "vda9"].map(String::from).into();
        let place = |name: &str| match name {
            "vda1" => (1, 9),
            odd if odd.ends_with(['5', '7', '9']) => (2, 3),
            _ => (6, 3),
        };
        assert_eq!(without_repeats(names.iter().collect(), place), ["vda1", "vda5", "vda6"]);
    }

    #[test]
    fn logical_volumes_have_their_groups_name() {
        assert_eq!(logical_volume_name("vg-root").as_deref(), Some("vg/root"));
        assert_eq!(logical_volume_name("my--vg-a--b").as_deref(), Some("my-vg/a-b"));
        assert_eq!(logical_volume_name("none"), None);
        assert_eq!(unescaped("a\\x20b\\xzz\\x2"), "a b\\xzz\\x2");
    }
}
