//! What the image's boot loader would boot: kernel, initrds and command line.
//!
//! Which that is, is decided by [`blockyard_boot_entries`]; here are the file systems that it looks at: those that are
//! mounted, each from its own root as a boot loader sees it, and the EFI system partitions that the image's fstab does
//! not mount.

use crate::block_devices;
use crate::directory_walk::write_record;
use crate::failures::{Failures, refusal};
use crate::mount_options::{MountOptions, load_driver};
use crate::mounts::{Mounted, Mounts};
use crate::tree::Tree;
use blockyard_boot_entries::{Entry, FileSystems, Loader, Piece, Place, Volume, find as find_entry};
use blockyard_protocol::appliance::{
    BootData, BootEntry, BootLoader, FRAME_BYTES_MAX, Failure, FindBootFiles, INITRD_BYTES_MAX, KERNEL_BYTES_MAX,
    Record,
};
use blockyard_protocol::volume_name::disk_name;
use rustix::fs::OFlags;
use rustix::mount::{UnmountFlags, unmount};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// File systems that are looked at.
const VOLUMES_MAX: usize = 32;
/// Those of them that are mounted for that.
const MOUNTS_MAX: usize = 4;
/// Where.
const PLACE: &str = "/boot-volumes";
/// Names of a directory that are looked at.
const NAMES_MAX: usize = 4096;
/// Bytes that go into a record: what else is in it takes little.
const PIECE_BYTES: usize = 48 << 10;
/// What each initrd begins on a multiple of (Linux, Documentation/driver-api/early-userspace/buffer-format.rst).
const INITRD_ALIGNMENT: u64 = 4;

/// Writes records to `sink`: the entry, and what its files hold if that is wanted.
pub(crate) fn find(
    request: &FindBootFiles,
    mounts: &Mounts,
    sink: &mut dyn Write,
    failures: &mut Failures,
) -> io::Result<()> {
    let sent = mounts.outside(|| {
        let trees = Trees::open(request.disks, &mounts.mounted);
        let entry = find_entry(&trees).map_err(|problem| refusal(problem.to_string())).and_then(within_bounds);
        entry.map(|entry| trees.send(&entry, request.content, sink))
    });
    match sent.flatten() {
        Ok(sent) => sent,
        Err(problem) => {
            failures.add(problem);
            Ok(())
        }
    }
}

/// The entry, unless its files are too long to be what they should be.
fn within_bounds(entry: Entry) -> Result<Entry, Failure> {
    let too_long = |names: &str, bytes: u64, most: u64| {
        let mebibytes = most >> 20;
        Err(refusal(format!("{names} has {bytes} bytes, and more than {mebibytes} MiB are not taken")))
    };
    let initrd_bytes = initrd_bytes(&entry.initrds);
    match entry.kernel.length {
        bytes if bytes > KERNEL_BYTES_MAX => too_long(&entry.kernel.name, bytes, KERNEL_BYTES_MAX),
        _ if initrd_bytes > INITRD_BYTES_MAX => {
            too_long(&names(&entry.initrds).join(", "), initrd_bytes, INITRD_BYTES_MAX)
        }
        _ => Ok(entry),
    }
}

/// All of them, each but the last with what makes the next begin where it should.
fn initrd_bytes(initrds: &[Piece]) -> u64 {
    initrds.iter().fold(0, |sum: u64, piece| padded(sum).saturating_add(piece.length))
}

fn padded(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(INITRD_ALIGNMENT).unwrap_or(u64::MAX)
}

fn names(pieces: &[Piece]) -> Vec<String> {
    pieces.iter().map(|piece| piece.name.clone()).collect()
}

/// File systems, each with its own root.
struct Trees {
    volumes: Vec<Volume>,
    trees: Vec<Tree>,
    /// What was mounted for this.
    own: Vec<PathBuf>,
}

impl Trees {
    /// What is mounted, and EFI system partitions that are not.
    fn open(disks: u32, mounted: &[Mounted]) -> Self {
        let known = block_devices::volumes(disks);
        let mut all = Self { volumes: Vec::new(), trees: Vec::new(), own: Vec::new() };
        for mounted in mounted.iter().take(VOLUMES_MAX) {
            let directory = String::from_utf8_lossy(&mounted.point.directory).into_owned();
            if let Some(volume) = known.iter().find(|volume| volume.node == mounted.node) {
                let subvolume = mounted.point.device.strip_prefix(&format!("btrfsvol:/dev/{}/", volume.name));
                let subvolume = subvolume.map(|name| name.trim_matches('/').to_owned());
                all.add(Volume { subvolume, directory: Some(directory), ..described(volume, disks) }, &mounted.target);
            }
        }
        let is_mounted = |volume: &block_devices::Volume| mounted.iter().any(|mounted| mounted.node == volume.node);
        let others = known.iter().filter(|volume| volume.content.kind == Some("vfat") && !is_mounted(volume));
        for volume in others.take(MOUNTS_MAX) {
            if let Some(place) = mount_for_a_look(volume) {
                all.add(described(volume, disks), &place);
                all.own.push(place);
            }
        }
        all
    }

    fn add(&mut self, volume: Volume, root: &Path) {
        if let Ok(tree) = Tree::open(root) {
            self.volumes.push(volume);
            self.trees.push(tree);
        }
    }

    /// A regular file.
    fn open_file(&self, place: &Place) -> Option<File> {
        // A fifo would make us wait.
        let tree = self.trees.get(place.volume)?;
        let file = File::from(tree.file(&place.path, OFlags::RDONLY | OFlags::NONBLOCK).ok()?);
        file.metadata().ok()?.is_file().then_some(file)
    }

    fn send(&self, entry: &Entry, content: bool, sink: &mut dyn Write) -> io::Result<()> {
        let mut frame = vec![0; FRAME_BYTES_MAX];
        write_record(&Record::BootEntry(told(entry)), &mut frame, sink)?;
        if !content {
            return Ok(());
        }
        self.send_piece(&entry.kernel, false, &mut frame, sink)?;
        let mut sent = 0;
        for piece in &entry.initrds {
            let gap = (padded(sent) - sent) as usize;
            let zeros = BootData { is_initrd: true, bytes: vec![0; gap] };
            write_record(&Record::BootData(zeros), &mut frame, sink)?;
            self.send_piece(piece, true, &mut frame, sink)?;
            sent = padded(sent) + piece.length;
        }
        Ok(())
    }

    fn send_piece(&self, piece: &Piece, is_initrd: bool, frame: &mut [u8], sink: &mut dyn Write) -> io::Result<()> {
        let gone = || io::Error::other(format!("{} is not there any more", piece.name));
        let file = self.open_file(&piece.place).ok_or_else(gone)?;
        let (mut at, end) = (piece.offset, piece.offset.saturating_add(piece.length));
        while at < end {
            let mut bytes = vec![0; (end - at).min(PIECE_BYTES as u64) as usize];
            file.read_exact_at(&mut bytes, at)
                .map_err(|error| io::Error::new(error.kind(), format!("cannot read {}: {error}", piece.name)))?;
            at += bytes.len() as u64;
            write_record(&Record::BootData(BootData { is_initrd, bytes }), frame, sink)?;
        }
        Ok(())
    }
}

impl FileSystems for Trees {
    fn volumes(&self) -> &[Volume] {
        &self.volumes
    }

    fn size(&self, place: &Place) -> Option<u64> {
        Some(self.open_file(place)?.metadata().ok()?.len())
    }

    fn read(&self, place: &Place, offset: u64, bytes_max: usize) -> Option<Vec<u8>> {
        let file = self.open_file(place)?;
        let left = file.metadata().ok()?.len().saturating_sub(offset);
        let mut bytes = vec![0; bytes_max.min(usize::try_from(left).unwrap_or(usize::MAX))];
        file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }

    fn is_directory(&self, place: &Place) -> bool {
        let tree = self.trees.get(place.volume);
        tree.is_some_and(|tree| tree.file(&place.path, OFlags::PATH | OFlags::DIRECTORY).is_ok())
    }

    fn names(&self, place: &Place) -> Vec<String> {
        let open = || self.trees.get(place.volume)?.file(&place.path, OFlags::RDONLY | OFlags::DIRECTORY).ok();
        let Some(directory) = open() else { return Vec::new() };
        let entries = fs::read_dir(format!("/proc/self/fd/{}", directory.as_raw_fd())).into_iter().flatten();
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).take(NAMES_MAX).collect()
    }
}

impl Drop for Trees {
    fn drop(&mut self) {
        self.trees.clear();
        for place in &self.own {
            // What cannot be unmounted was not written to.
            let _ = unmount(place, UnmountFlags::NOFOLLOW);
        }
    }
}

fn mount_for_a_look(volume: &block_devices::Volume) -> Option<PathBuf> {
    let place = Path::new(PLACE).join(&volume.node);
    fs::create_dir_all(&place).ok()?;
    let kind = volume.content.driver();
    load_driver(kind);
    MountOptions::new(true, false).mount(&volume.node, &place, kind).ok()?;
    Some(place)
}

/// What a boot loader knows of a volume.
fn described(volume: &block_devices::Volume, disks: u32) -> Volume {
    let place = (0..disks).find_map(|disk| {
        let partition = volume.node.strip_prefix(&disk_name(disk))?;
        if partition.is_empty() { Some((disk, None)) } else { Some((disk, Some(partition.parse().ok()?))) }
    });
    Volume {
        name: volume.name.clone(),
        kind: volume.content.kind.unwrap_or_default().to_owned(),
        uuid: volume.content.uuid.clone(),
        label: volume.content.label.clone(),
        partition_uuid: volume.partition.uuid.clone(),
        directory: None,
        subvolume: None,
        disk: place.map(|(disk, _)| disk),
        partition: place.and_then(|(_, partition)| partition),
        // An MBR's are shorter.
        is_gpt: volume.partition.uuid.len() == GUID_LETTERS,
    }
}

/// Of a UUID as people write it.
const GUID_LETTERS: usize = 36;

fn told(entry: &Entry) -> BootEntry {
    let loader = match entry.loader {
        Loader::SystemdBoot => BootLoader::SystemdBoot,
        Loader::BootLoaderSpecification => BootLoader::BootLoaderSpecification,
        Loader::Grub => BootLoader::Grub,
        Loader::Extlinux => BootLoader::Extlinux,
        Loader::NewestKernel => BootLoader::None,
    };
    BootEntry {
        loader,
        file: entry.file.clone(),
        line: entry.line,
        title: entry.title.clone(),
        kernel: entry.kernel.name.clone(),
        kernel_bytes: entry.kernel.length,
        initrds: names(&entry.initrds),
        initrd_bytes: initrd_bytes(&entry.initrds),
        command_line: entry.command_line.clone(),
        notes: entry.notes.clone(),
    }
}
