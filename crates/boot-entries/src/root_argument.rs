//! What the kernel is told of its root file system.

use crate::files::Volume;

/// What disks are called that a machine with virtio disks does not have.
const OTHER_DISKS: [&str; 5] = ["/dev/sd", "/dev/hd", "/dev/xvd", "/dev/nvme", "/dev/mmcblk"];

/// What is worth knowing of the root that `command_line` names: that it is a disk of another machine.
pub(crate) fn note(command_line: &str, root: Option<&Volume>) -> Option<String> {
    // The last one counts.
    let named = command_line.split(' ').filter_map(|word| word.strip_prefix("root=")).next_back()?;
    if !OTHER_DISKS.iter().any(|disk| named.starts_with(disk)) {
        return None;
    }
    let better = root.map(|root| of(root, true)).filter(|better| !better.is_empty());
    let better = better.map_or_else(String::new, |better| format!("; {better} would find it on any"));
    Some(format!("the kernel is told root={named}, which no machine has whose disks are virtio{better}"))
}

/// The argument that finds a root file system: by an initrd, or by the kernel alone.
pub(crate) fn of(root: &Volume, has_initrd: bool) -> String {
    let is_logical = root.name.contains('/');
    match (is_logical, has_initrd) {
        // An initrd makes it only if it is asked for by its name.
        (true, true) => format!("root=/dev/mapper/{}", mapper_name(&root.name)),
        (false, true) if !root.uuid.is_empty() => format!("root=UUID={}", root.uuid),
        // Linux itself looks for partitions only.
        (false, _) if !root.partition_uuid.is_empty() => format!("root=PARTUUID={}", root.partition_uuid),
        (false, _) => format!("root=/dev/{}", root.name),
        (true, false) => String::new(),
    }
}

/// What the device mapper calls VG/LV.
pub(crate) fn mapper_name(name: &str) -> String {
    match name.strip_prefix("mapper/") {
        Some(name) => name.to_owned(),
        None => name.replace('-', "--").replacen('/', "-", 1),
    }
}
