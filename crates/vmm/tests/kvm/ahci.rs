//! Disks behind AHCI, driven by a stock kernel's own driver.

use crate::rig::Rig;
use blockyard_block::{AllowedDirectories, Disk, FileDisk, FileOptions, Qcow2CreateOptions, Qcow2Disk, read_bytes};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const DISK_BYTES: u64 = 64 * MIB;
/// Where the file system does not reach: what is copied, and of it what is given back.
const COPIED: Range<u64> = 40 * MIB..64 * MIB;
const DISCARDED: Range<u64> = 48 * MIB..56 * MIB;

/// Debian's own kernel for PCs, two ports, one of them of a qcow2 image: blocks are copied from one to the other and
/// given back, and an ext4 file system is made and filled, which has nothing wrong afterwards.
#[test]
fn a_stock_kernel_uses_two_disks_through_ahci() {
    let Some(mut rig) = Rig::generic() else { return };
    rig.vcpus = 2;
    rig.take_along("/sbin/mke2fs");
    let directory = tempfile::tempdir().unwrap();
    let [raw, image] = ["disk.img", "disk.qcow2"].map(|name| directory.path().join(name));
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(&raw).unwrap();
    file.set_len(DISK_BYTES).unwrap();
    let pattern: Vec<_> = COPIED.map(|at| (at / 4096 * 7 + at) as u8 | 1).collect();
    file.write_all_at(&pattern, COPIED.start).unwrap();
    Qcow2Disk::create(&image, &Qcow2CreateOptions::new(COPIED.end - COPIED.start)).unwrap();
    let copy = Qcow2Disk::open(&image, &FileOptions::default(), &AllowedDirectories::none()).unwrap();
    let copy: Arc<dyn Disk> = Arc::new(copy);
    let disk = FileDisk::from_file(file.try_clone().unwrap(), &FileOptions::default()).unwrap();
    rig.ahci_disks = vec![Arc::new(disk), Arc::clone(&copy)];

    let printed = rig.boot_to_power_off(&script());
    for expected in ["depth: 32 32", "model: Blockyard disk", "the copy is the same", "so is the file", "PCI-MSI"] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    for unwanted in ["exception", "failed command", "hard resetting", "rror"] {
        assert!(!printed.contains(unwanted), "{unwanted}: {printed}");
    }
    assert!(read_bytes(&*copy, 0..COPIED.end - COPIED.start).unwrap() == pattern);
    let mut left = vec![0xff; pattern.len()];
    file.read_exact_at(&mut left, COPIED.start).unwrap();
    let mut expected = pattern;
    expected[(DISCARDED.start - COPIED.start) as usize..(DISCARDED.end - COPIED.start) as usize].fill(0);
    assert!(left == expected, "not just what was discarded has changed");
    let check = Command::new("/sbin/e2fsck").arg("-fn").arg(&raw).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
}

/// The kernel may find the second port's disk first: they are told apart by their ports.
fn script() -> String {
    format!(
        "disk() {{ basename /sys/devices/pci*/*/ata$1/host*/target*/*/block/*; }}\n\
         one=/dev/$(disk 1) two=/dev/$(disk 2)\n\
         echo depth: $(cat /sys/block/sd?/device/queue_depth)\n\
         echo model: $(cat /sys/block/$(disk 1)/device/model)\n\
         dd if=$one of=$two bs=1M skip={} conv=fsync\n\
         blkdiscard -o {} -l {} $one\n\
         tail -c {} $two > /tmp/copy && cmp $two /tmp/copy && echo the copy is the same\n\
         /sbin/mke2fs -q -t ext4 $one 32M\n\
         mount -t ext4 $one /mnt && dd if=/dev/urandom of=/mnt/random bs=64k count=256 conv=fsync\n\
         md5sum /mnt/random > /tmp/sum\n\
         umount /mnt && mount -t ext4 $one /mnt && md5sum -c /tmp/sum && umount /mnt && echo so is the file\n\
         grep -i ahci /proc/interrupts\n\
         dmesg | grep -E 'ata[0-9]|sd '",
        COPIED.start / MIB,
        DISCARDED.start,
        DISCARDED.end - DISCARDED.start,
        COPIED.end - COPIED.start,
    )
}
