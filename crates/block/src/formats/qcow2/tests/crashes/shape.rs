//! The images whose crashes are looked at: each is based on another image, and has data of its own here and there.

use super::super::super::{Qcow2Backing, Qcow2CreateOptions, Qcow2Disk, Qcow2Features};
use super::super::output_of;
use super::contents;
use crate::{AllowedDirectories, FileOptions, write_bytes};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) const SECTOR_BYTES: u64 = 512;
const CLUSTERS: u64 = 16;

/// Labels of what is there from the start.
const BASE: u32 = 1;
const OTHER: u32 = 2;
const OWN: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) cluster_bytes: u32,
    pub(super) has_data_file: bool,
    /// As QEMU leaves it after a crash: marked dirty, with refcounts that are behind.
    pub(super) is_lazy: bool,
}

impl Shape {
    /// Clusters of 512 bytes, and the smallest that have parts.
    pub(super) fn all() -> Vec<Self> {
        let mut shapes = Vec::new();
        for cluster_bytes in [512, 16384] {
            for (has_data_file, is_lazy) in [(false, false), (false, true), (true, false), (true, true)] {
                shapes.push(Self { cluster_bytes, has_data_file, is_lazy });
            }
        }
        shapes
    }

    pub(super) fn sectors_per_cluster(self) -> u64 {
        u64::from(self.cluster_bytes) / SECTOR_BYTES
    }

    pub(super) fn sectors(self) -> u64 {
        CLUSTERS * self.sectors_per_cluster()
    }

    /// By how many sectors the disk grows: with small clusters, so far that its L1 table moves.
    pub(super) fn growth(self) -> u64 {
        if self.cluster_bytes == 512 { 61 } else { 11 * self.sectors_per_cluster() / 2 }
    }

    /// Makes the files.
    pub(super) fn make(self, files: &Files) {
        // Of another shape; a process that was just forked may still have it locked.
        files.all().iter().for_each(|path| _ = fs::remove_file(path));
        let options = Qcow2CreateOptions {
            cluster_bytes: self.cluster_bytes,
            features: Qcow2Features { has_extended_l2: self.cluster_bytes >= 16384, ..Qcow2Features::default() },
            ..Qcow2CreateOptions::new(self.sectors() * SECTOR_BYTES)
        };
        for (path, label, clusters) in [(files.base(), BASE, [0..6, 9..11]), (files.other(), OTHER, [3..9, 12..16])] {
            Qcow2Disk::create(path, &options).unwrap();
            clusters.into_iter().for_each(|clusters| self.write(path, label, clusters));
        }
        if self.has_data_file {
            self.make_with_data_file(files);
        } else {
            let features = Qcow2Features { has_lazy_refcounts: self.is_lazy, ..options.features };
            let backing = Some(Qcow2Backing { name: "base.qcow2".into(), format: "qcow2".into() });
            Qcow2Disk::create(files.image(), &Qcow2CreateOptions { backing, features, ..options }).unwrap();
        }
        [2..5, 12..13].into_iter().for_each(|clusters| self.write(files.image(), OWN, clusters));
        if self.is_lazy {
            fall_behind(files.image());
        }
    }

    fn make_with_data_file(self, files: &Files) {
        let options = format!(
            "cluster_size={},extended_l2={},lazy_refcounts={},data_file=image.data",
            self.cluster_bytes,
            if self.cluster_bytes >= 16384 { "on" } else { "off" },
            if self.is_lazy { "on" } else { "off" },
        );
        let mut create = Command::new("qemu-img");
        create.current_dir(&files.directory).args(["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", "base.qcow2"]);
        create.args(["-o", &options]).arg(files.image());
        assert!(output_of(&mut create).status.success(), "{create:?}");
    }

    fn write(self, path: &Path, label: u32, clusters: Range<u64>) {
        let disk = Qcow2Disk::open(path, &FileOptions::default(), &allowed(path)).unwrap();
        let sectors = clusters.start * self.sectors_per_cluster()..clusters.end * self.sectors_per_cluster();
        let bytes: Vec<u8> = sectors.clone().flat_map(|sector| contents(label, sector)).collect();
        write_bytes(&disk, sectors.start * SECTOR_BYTES, &bytes).unwrap();
    }

    /// What each sector shows then.
    pub(super) fn labels(self) -> Vec<u32> {
        let label = |cluster| match cluster {
            2..5 | 12 => OWN,
            0..6 | 9 | 10 => BASE,
            _ => 0,
        };
        (0..self.sectors()).map(|sector| label(sector / self.sectors_per_cluster())).collect()
    }
}

/// Takes the last two refcounts away, and marks the image dirty.
fn fall_behind(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let number = |bytes: &[u8], at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let block = number(&bytes, number(&bytes, 48));
    let counted: Vec<_> = (0..64).filter(|at| bytes[block + at * 2 + 1] != 0).collect();
    counted.iter().rev().take(2).for_each(|at| bytes[block + at * 2 + 1] = 0);
    bytes[79] |= 1;
    fs::write(path, bytes).unwrap();
}

pub(super) fn allowed(path: &Path) -> AllowedDirectories {
    AllowedDirectories::new(&[path.parent().unwrap()]).unwrap()
}

/// The files of an image and of those that it is, or will be, based on.
pub(super) struct Files {
    directory: PathBuf,
    /// The image, the two, and its data file if it has one.
    paths: Vec<PathBuf>,
}

impl Files {
    /// Which of them are those.
    pub(super) const BEHIND: Range<usize> = 1..3;

    pub(super) fn in_directory(directory: &Path, shape: Shape) -> Self {
        let names = ["image.qcow2", "base.qcow2", "other.qcow2", "image.data"];
        let names = &names[..if shape.has_data_file { 4 } else { 3 }];
        Self { directory: directory.to_owned(), paths: names.iter().map(|name| directory.join(name)).collect() }
    }

    pub(super) fn image(&self) -> &Path {
        &self.paths[0]
    }

    pub(super) fn base(&self) -> &Path {
        &self.paths[1]
    }

    pub(super) fn other(&self) -> &Path {
        &self.paths[2]
    }

    pub(super) fn all(&self) -> Vec<&Path> {
        self.paths.iter().map(PathBuf::as_path).collect()
    }
}
