//! Disks of every format behind every bus: ext4 that was made outside, written by a stock kernel, and read outside.

use crate::lab_guest::LabGuest;
use crate::on_kvm;
use crate::server::Server;
use crate::support::{Yard, blockyard, random_bytes, run};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: u64 = 1 << 20;
const FILE_SYSTEM_BYTES: u64 = 8 * MIB;
const GIVEN_BYTES: usize = 700_001;
/// Where the partition begins, of an image that has one.
const PARTITION: u64 = MIB;

/// How a disk lies on the host.
#[derive(Clone, Copy, Debug)]
enum Format {
    Raw,
    Qcow2,
    FlatVmdk,
    Partition,
    Session,
}

/// A disk of the guest's.
struct GuestDisk {
    name: String,
    format: Format,
    bus: &'static str,
    /// Its specification's last keys.
    keys: &'static str,
}

impl GuestDisk {
    fn new(bus: &'static str, format: Format, keys: &'static str) -> Self {
        Self { name: format!("{bus}-{format:?}"), format, bus, keys }
    }

    fn path(&self, yard: &Yard, ending: &str) -> PathBuf {
        yard.path(&format!("{}{ending}", self.name))
    }

    /// Makes it of the file system `seed`, and its server if it has one.
    fn make(&self, yard: &Yard, seed: &Path) -> Option<Server> {
        let raw = self.path(yard, ".img");
        match self.format {
            Format::Raw => _ = fs::copy(seed, raw).unwrap(),
            Format::Qcow2 => convert(seed, "qcow2", &self.path(yard, ".qcow2")),
            Format::FlatVmdk => {
                fs::copy(seed, raw).unwrap();
                let extent = format!("RW {} FLAT \"{}.img\" 0", FILE_SYSTEM_BYTES / 512, self.name);
                let descriptor = format!(
                    "# Disk DescriptorFile\nversion=1\nCID=fffffffe\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\n{extent}\n"
                );
                fs::write(self.path(yard, ".vmdk"), descriptor).unwrap();
            }
            Format::Partition => fs::write(raw, partitioned(&fs::read(seed).unwrap())).unwrap(),
            Format::Session => {
                fs::copy(seed, &raw).unwrap();
                let socket = self.path(yard, ".sock");
                return Some(Server::start(&["--socket".as_ref(), socket.as_ref(), raw.as_ref()], &socket));
            }
        }
        None
    }

    /// As a table of the configuration's.
    fn table(&self, yard: &Yard) -> String {
        let path = |ending: &str| self.path(yard, ending).display().to_string();
        let name = match self.format {
            Format::Raw => path(".img"),
            Format::Qcow2 => path(".qcow2"),
            Format::FlatVmdk => path(".vmdk"),
            Format::Partition => path(".img,partition=1"),
            Format::Session => format!("session:{}", path(".sock")),
        };
        format!("[[disk]]\nname = \"{name}{}\"\nbus = \"{}\"\n", self.keys, self.bus)
    }

    /// A raw image of its file system.
    fn file_system(&self, yard: &Yard) -> PathBuf {
        let raw = self.path(yard, ".img");
        match self.format {
            Format::Raw | Format::FlatVmdk | Format::Session => {}
            Format::Qcow2 => convert(&self.path(yard, ".qcow2"), "raw", &raw),
            Format::Partition => {
                let image = fs::read(&raw).unwrap();
                fs::write(&raw, &image[PARTITION as usize..][..FILE_SYSTEM_BYTES as usize]).unwrap();
            }
        }
        raw
    }
}

fn convert(from: &Path, format: &str, to: &Path) {
    run(blockyard().args(["image", "convert", "-O", format]).args([from, to])).succeeded();
}

/// A disk whose MBR has one partition, with this in it.
fn partitioned(content: &[u8]) -> Vec<u8> {
    let mut disk = vec![0; PARTITION as usize];
    let sectors = |bytes: u64| u32::try_from(bytes / 512).unwrap().to_le_bytes();
    disk[446 + 4] = 0x83;
    disk[446 + 8..446 + 12].copy_from_slice(&sectors(PARTITION));
    disk[446 + 12..446 + 16].copy_from_slice(&sectors(content.len() as u64));
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk.extend(content);
    disk
}

/// A file system with a file `given`.
fn make_ext4(yard: &Yard, given: &[u8]) -> PathBuf {
    let (tree, image) = (yard.path("tree"), yard.path("seed.img"));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("given"), given).unwrap();
    File::create(&image).unwrap().set_len(FILE_SYSTEM_BYTES).unwrap();
    let mut command = Command::new("/sbin/mke2fs");
    finishes(command.args(["-q", "-F", "-t", "ext4", "-d"]).args([&tree, &image]));
    image
}

/// What a file of an ext4 file system holds, which has nothing wrong.
fn read_ext4(image: &Path, files: &[&str]) -> Vec<Vec<u8>> {
    finishes(Command::new("/sbin/e2fsck").arg("-fn").arg(image));
    let read = |name: &&str| {
        let mut command = Command::new("/sbin/debugfs");
        command.args(["-R", &format!("cat {name}")]).arg(image).output().unwrap().stdout
    };
    files.iter().map(read).collect()
}

#[track_caller]
pub(crate) fn finishes(command: &mut Command) {
    let output = command.output().unwrap();
    let said = || [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{command:?}: {}", said());
}

/// Every disk is written, and read when nothing of it is cached, before a reboot, and verified after it. `TROUBLE` is
/// what must not happen.
const SCRIPT: &str = r#"again=
for path in /sys/block/vd? /sys/block/sd?; do
    disk=${path##*/}
    case $(readlink $path) in */ata*) bus=ahci;; */pci*) bus=virtio;; *) bus=virtio-mmio;; esac
    mkdir /mnt/$disk
    mount -t ext4 /dev/$disk /mnt/$disk || echo TROUBLE: $disk on $bus
    if [ ! -e /mnt/$disk/copy ]; then
        cp /mnt/$disk/given /mnt/$disk/copy
        echo $disk >/mnt/$disk/name
        again=yes
    fi
    echo USED on $bus
done
sync
echo 3 >/proc/sys/vm/drop_caches
for directory in /mnt/*; do
    cmp $directory/given $directory/copy || echo TROUBLE: $directory as it is read
    [ -n "$again" ] || cat $directory/name >$directory/again
done
grep -q '^100000000-17fffffff : System RAM' /proc/iomem || echo TROUBLE: no memory above 4 GiB
awk '/zone +Normal/ { above = 1 } above && /nr_zone_(in)?active_file/ { pages += $2 }
     END { if (pages < 1000) print "TROUBLE: pages there: " pages + 0 }' /proc/zoneinfo
umount /mnt/* || echo TROUBLE: they are busy
dmesg | grep -E 'exception|failed command|resetting link|I/O error|EXT4-fs error' && echo TROUBLE in the log
[ -z "$again" ] || reboot -f
"#;

#[test]
fn kvm_ext4_of_every_format_is_written_through_every_bus() {
    let Some(guest) = LabGuest::generic() else { return };
    let yard = Yard::new();
    let disks = [
        GuestDisk::new("virtio", Format::Qcow2, ",engine=uring"),
        GuestDisk::new("virtio", Format::FlatVmdk, ""),
        GuestDisk::new("virtio", Format::Partition, ",engine=sync"),
        GuestDisk::new("virtio", Format::Session, ""),
        GuestDisk::new("virtio-mmio", Format::Raw, ",engine=threads"),
        GuestDisk::new("ahci", Format::Qcow2, ",engine=sync"),
        GuestDisk::new("ahci", Format::FlatVmdk, ""),
        GuestDisk::new("ahci", Format::Partition, ",engine=threads"),
        GuestDisk::new("ahci", Format::Session, ""),
    ];
    let given = random_bytes(GIVEN_BYTES, 11);
    let seed = make_ext4(&yard, &given);
    let servers: Vec<_> = disks.iter().filter_map(|disk| disk.make(&yard, &seed)).collect();
    let tables: Vec<_> = disks.iter().map(|disk| disk.table(&yard)).collect();
    fs::write(yard.path("machine.toml"), tables.concat()).unwrap();
    guest.write_initrd(&yard.path("initrd"), SCRIPT);

    let mut command = on_kvm(&guest.kernel());
    command.arg("--initrd").arg(yard.path("initrd")).arg("--config").arg(yard.path("machine.toml"));
    command.args(["--memory", "5G", "--append", "quiet panic=-1", "--allow-dir"]);
    let outcome = run(command.arg(yard.path(""))).succeeded();
    assert!(!outcome.stdout.contains("TROUBLE"), "{outcome:#?}");
    // Once before the reboot, and once after it.
    for bus in ["virtio", "virtio-mmio", "ahci"] {
        let count = disks.iter().filter(|disk| disk.bus == bus).count();
        let used = outcome.stdout.lines().filter(|line| line.trim_end() == format!("USED on {bus}")).count();
        assert_eq!(used, 2 * count, "{bus}: {outcome:#?}");
    }
    drop(servers);

    let mut names = Vec::new();
    for disk in &disks {
        let files = read_ext4(&disk.file_system(&yard), &["copy", "name", "again"]);
        assert!(files[0] == given && files[1] == files[2], "{}", disk.name);
        names.push(String::from_utf8(files[1].clone()).unwrap());
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), disks.len(), "a disk was taken for another: {names:?}");
}

/// The 32-bit boot protocol, and addresses that need more than 32 bits in a kernel whose pointers have no more.
#[test]
fn kvm_a_kernel_of_32_bits_uses_disks_shares_and_all_memory() {
    let Some(guest) = LabGuest::of_32_bits() else { return };
    let yard = Yard::new();
    let given = random_bytes(GIVEN_BYTES, 12);
    let disks = [GuestDisk::new("virtio", Format::Raw, ""), GuestDisk::new("ahci", Format::Raw, "")];
    let seed = make_ext4(&yard, &given);
    let mut config = String::new();
    for disk in &disks {
        disk.make(&yard, &seed);
        config += &disk.table(&yard);
    }
    fs::write(yard.path("machine.toml"), config).unwrap();
    fs::create_dir(yard.path("shared")).unwrap();
    let script = "echo machine: $(uname -m), processors: $(nproc), memory: $(grep MemTotal /proc/meminfo)\n\
                  mkdir /shared; mount -t virtiofs shared /shared\n\
                  for disk in vda sda; do mount -t ext4 /dev/$disk /mnt && cp /mnt/given /mnt/copy\n\
                  cp /mnt/given /shared/$disk; umount /mnt && echo USED; done\n\
                  umount /shared && echo UNMOUNTED";
    guest.write_initrd(&yard.path("initrd"), script);
    let mut command = on_kvm(&guest.kernel());
    command.arg("--initrd").arg(yard.path("initrd")).arg("--config").arg(yard.path("machine.toml"));
    command.args(["--memory", "5G", "--cpus", "2", "--append", "quiet panic=-1", "--share"]);
    let outcome = run(command.arg(format!("{}:shared", yard.path("shared").display()))).succeeded();
    assert!(outcome.stdout.contains("machine: i686, processors: 2"), "{outcome:#?}");
    assert_eq!(outcome.stdout.matches("USED").count(), disks.len(), "{outcome:#?}");
    assert!(outcome.stdout.contains("UNMOUNTED"), "{outcome:#?}");
    let kilobytes = outcome.stdout.split("MemTotal:").nth(1).and_then(|rest| rest.split_whitespace().next());
    assert!(kilobytes.unwrap().parse::<u64>().unwrap() > 4 << 20, "{outcome:#?}");
    for (disk, name) in disks.iter().zip(["vda", "sda"]) {
        assert!(read_ext4(&disk.file_system(&yard), &["copy"])[0] == given, "{}", disk.name);
        assert!(fs::read(yard.path("shared").join(name)).unwrap() == given, "{name}");
    }
}
