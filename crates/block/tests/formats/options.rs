//! Every sort of image that qemu-img makes, changed by us and by QEMU in turns, against a vector of bytes.

use crate::rig::{Random, Rig, check_clean, open_allowed, pattern, qemu_img, qemu_io, text};
use blockyard_block::{
    FileOptions, Operation, Preallocation, Qcow2Backing, Qcow2CreateOptions, Qcow2Disk, Qcow2Features,
};
use std::path::Path;

const MIB: u64 = 1 << 20;
/// No whole number of clusters, so that the last one is cut off.
const DISK_BYTES: usize = (4 << 20) + (37 << 9);
const ROUNDS: usize = 4;
const STEPS: usize = 24;

/// How an image is made.
#[derive(Clone, Copy, Debug, Default)]
struct Sort {
    options: &'static str,
    /// `-c` of convert: the image begins with compressed clusters.
    is_compressed: bool,
    /// What is behind it: options of a qcow2 image, or `raw`.
    backing: Option<&'static str>,
    has_snapshots: bool,
}

const PLAIN: Sort = Sort { options: "", is_compressed: false, backing: None, has_snapshots: false };

const SORTS: [Sort; 25] = [
    Sort { options: "cluster_size=512", ..PLAIN },
    Sort { options: "cluster_size=2M", ..PLAIN },
    Sort { options: "compat=0.10,cluster_size=4k", ..PLAIN },
    Sort { options: "compat=0.10", backing: Some("raw"), ..PLAIN },
    Sort { options: "refcount_bits=1,cluster_size=512", ..PLAIN },
    Sort { options: "refcount_bits=2", ..PLAIN },
    Sort { options: "refcount_bits=8,cluster_size=1k", is_compressed: true, ..PLAIN },
    Sort { options: "refcount_bits=64,cluster_size=512", ..PLAIN },
    Sort { options: "refcount_bits=32", has_snapshots: true, ..PLAIN },
    Sort { options: "lazy_refcounts=on", ..PLAIN },
    Sort { options: "preallocation=metadata", ..PLAIN },
    Sort { options: "cluster_size=4k", backing: Some("cluster_size=64k"), ..PLAIN },
    Sort { options: "", backing: Some("cluster_size=4k"), has_snapshots: true, ..PLAIN },
    Sort { options: "", is_compressed: true, ..PLAIN },
    Sort { options: "compression_type=zstd", is_compressed: true, ..PLAIN },
    Sort { options: "compression_type=zstd,cluster_size=2M", is_compressed: true, ..PLAIN },
    Sort { options: "compression_type=zstd,cluster_size=4k", is_compressed: true, has_snapshots: true, ..PLAIN },
    Sort { options: "extended_l2=on", ..PLAIN },
    Sort { options: "extended_l2=on,cluster_size=16k", has_snapshots: true, ..PLAIN },
    Sort { options: "extended_l2=on,cluster_size=2M", backing: Some("raw"), ..PLAIN },
    Sort { options: "extended_l2=on", backing: Some("extended_l2=on,cluster_size=16k"), has_snapshots: true, ..PLAIN },
    Sort { options: "extended_l2=on,compression_type=zstd", is_compressed: true, ..PLAIN },
    Sort { options: "data_file=data", ..PLAIN },
    Sort { options: "data_file=data,data_file_raw=on", ..PLAIN },
    Sort { options: "data_file=data,extended_l2=on", ..PLAIN },
];

struct Twin {
    directory: tempfile::TempDir,
    sort: Sort,
    contents: Vec<u8>,
    random: Random,
    /// What the image held when a snapshot was made of it.
    snapshots: Vec<Vec<u8>>,
}

impl Twin {
    fn new(sort: Sort, seed: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let this = Self { directory, sort, contents: Vec::new(), random: Random::new(seed), snapshots: Vec::new() };
        this.begin(seed)
    }

    fn path(&self, name: &str) -> String {
        text(&self.directory.path().canonicalize().unwrap().join(name)).to_owned()
    }

    fn begin(mut self, seed: u64) -> Self {
        let (image, raw) = (self.path("image"), self.path("raw"));
        // Some of it is zeros, some can be compressed, some cannot.
        let mut contents = vec![0; DISK_BYTES];
        contents[1 << 20..2 << 20].copy_from_slice(&b"some text of 16 ".repeat(1 << 16));
        contents[2 << 20..][..700 << 10].copy_from_slice(&pattern(700 << 10, seed));
        let options = match self.sort.options.contains("data_file=data") {
            true => self.sort.options.replace("data_file=data", &format!("data_file={}", self.path("data"))),
            false => self.sort.options.to_owned(),
        };
        let mut with_options = vec!["-f", "qcow2"];
        if !options.is_empty() {
            with_options.extend(["-o", &options]);
        }
        let size = DISK_BYTES.to_string();
        match self.sort.backing {
            _ if self.sort.is_compressed => {
                std::fs::write(&raw, &contents).unwrap();
                with_options[0] = "-O";
                qemu_img(&[&["convert", "-c", "-f", "raw"], &with_options[..], &[&raw, &image]].concat());
                self.contents = contents;
            }
            None => {
                qemu_img(&[&["create", "-q"], &with_options[..], &[&image, &size]].concat());
                self.contents = vec![0; DISK_BYTES];
            }
            Some(behind) => {
                let base = self.path("base");
                // It is shorter than what is on it.
                contents.truncate(3 << 20);
                std::fs::write(&raw, &contents).unwrap();
                let format = if behind == "raw" {
                    std::fs::copy(&raw, &base).unwrap();
                    "raw"
                } else {
                    qemu_img(&["convert", "-f", "raw", "-O", "qcow2", "-o", behind, &raw, &base]);
                    "qcow2"
                };
                let backing = ["-b", &base, "-F", format, &image, &size];
                qemu_img(&[&["create", "-q"], &with_options[..], &backing].concat());
                contents.resize(DISK_BYTES, 0);
                self.contents = contents;
            }
        }
        self
    }

    /// A range of sectors; often of whole clusters.
    fn range(&mut self) -> (u64, usize) {
        let sectors = DISK_BYTES as u64 / 512;
        let unit = [1, 8, 128][self.random.below(3) as usize];
        let start = self.random.below(sectors) / unit * unit;
        let most = [8, 64, 1000][self.random.below(3) as usize];
        let length = (1 + self.random.below(most)).next_multiple_of(unit);
        (start * 512, (length.min(sectors - start) * 512) as usize)
    }

    fn change_here(&mut self) {
        let mut rig = Rig::new(open_allowed(Path::new(&self.path("image")), &FileOptions::default()));
        for _ in 0..STEPS {
            let (offset, length) = self.range();
            let length_bytes = length as u64;
            let range = offset as usize..offset as usize + length;
            match self.random.below(8) {
                0 => {
                    let may_unmap = self.random.below(2) == 0;
                    rig.perform(Operation::WriteZeroes { length_bytes, may_unmap }, offset, &[]).unwrap();
                    self.contents[range].fill(0);
                }
                1 => {
                    rig.perform(Operation::Discard { length_bytes }, offset, &[]).unwrap();
                    let found = rig.read(offset, length);
                    let old = &self.contents[range.clone()];
                    assert!(found.iter().zip(old).all(|(&now, &before)| now == before || now == 0), "{:?}", self.sort);
                    self.contents[range].copy_from_slice(&found);
                }
                2 => assert!(rig.read(offset, length) == self.contents[range], "{:?} at {offset}", self.sort),
                _ => {
                    let bytes = pattern(length, self.random.next());
                    rig.write(offset, &bytes);
                    self.contents[range].copy_from_slice(&bytes);
                }
            }
        }
        assert!(rig.read_all() == self.contents, "{:?}", self.sort);
    }

    fn change_with_qemu(&mut self) {
        let image = self.path("image");
        let mut commands = Vec::new();
        for _ in 0..8 {
            let (offset, length) = self.range();
            let range = offset as usize..offset as usize + length;
            let value = 1 + self.random.below(200) as u8;
            // QEMU zeroes the image alone, and leaves what a raw data file holds.
            let first = if self.sort.options.contains("data_file_raw") { 2 } else { 0 };
            match first + self.random.below(4 - first) {
                0 => {
                    commands.push(format!("write -z {offset} {length}"));
                    self.contents[range].fill(0);
                }
                1 => {
                    commands.push(format!("write -z -u {offset} {length}"));
                    self.contents[range].fill(0);
                }
                _ => {
                    commands.push(format!("write -P {value} {offset} {length}"));
                    self.contents[range].fill(value);
                }
            }
        }
        let commands: Vec<_> = commands.iter().map(String::as_str).collect();
        qemu_io(&image, "qcow2", &commands);
    }

    fn is_what_qemu_finds(&self) {
        let (image, raw) = (self.path("image"), self.path("raw"));
        check_clean(&image);
        std::fs::write(&raw, &self.contents).unwrap();
        qemu_img(&["compare", "-f", "raw", "-F", "qcow2", &raw, &image]);
        if self.sort.options.contains("data_file_raw") {
            let data = std::fs::read(self.path("data")).unwrap();
            let differs = data.iter().zip(&self.contents).position(|(one, other)| one != other);
            // QEMU makes it of whole clusters.
            assert!(differs.is_none() && data.len() >= DISK_BYTES, "{:?} at {differs:?}", self.sort);
        }
        for (number, contents) in self.snapshots.iter().enumerate() {
            let name = format!("snapshot.name=s{number}");
            qemu_img(&["convert", "-l", &name, "-f", "qcow2", "-O", "raw", &image, &raw]);
            assert!(std::fs::read(&raw).unwrap() == *contents, "{:?}, snapshot {number}", self.sort);
        }
    }

    fn live(mut self) {
        for round in 0..ROUNDS {
            self.change_here();
            self.is_what_qemu_finds();
            self.change_with_qemu();
            if self.sort.has_snapshots && round < 2 {
                qemu_img(&["snapshot", "-c", &format!("s{round}"), &self.path("image")]);
                self.snapshots.push(self.contents.clone());
            }
        }
        let mut rig = Rig::new(open_allowed(Path::new(&self.path("image")), &FileOptions::default()));
        assert!(rig.read_all() == self.contents, "{:?}", self.sort);
    }
}

/// How many lives each sort has, of different seeds; more by hand.
const LIVES: &str = "BLOCKYARD_TEST_LIVES";

#[test]
fn every_sort_of_image_is_changed_as_qemu_changes_it() {
    const { assert!(DISK_BYTES as u64 > 4 * MIB) };
    let lives = std::env::var(LIVES).map_or(1, |lives| lives.parse().unwrap());
    for (seed, sort) in (1..).zip(SORTS.into_iter().cycle().take(SORTS.len() * lives)) {
        println!("{seed}: {sort:?}");
        Twin::new(sort, seed).live();
    }
}

#[test]
fn every_sort_that_is_made_here_is_what_qemu_makes() {
    let plain = Qcow2Features::default();
    for (features, cluster_bytes, backed) in [
        (Qcow2Features { version: 2, ..plain }, 4096, true),
        (Qcow2Features { refcount_order: 0, ..plain }, 512, false),
        (Qcow2Features { refcount_order: 6, has_lazy_refcounts: true, ..plain }, 1024, true),
        (Qcow2Features { has_extended_l2: true, ..plain }, 16 << 10, true),
        (Qcow2Features { has_extended_l2: true, is_zstd: true, ..plain }, 2 << 20, false),
        (Qcow2Features { is_zstd: true, refcount_order: 5, ..plain }, 64 << 10, true),
    ] {
        for preallocation in [Preallocation::Off, Preallocation::Metadata, Preallocation::Falloc, Preallocation::Full] {
            if backed && preallocation != Preallocation::Off {
                continue;
            }
            let directory = tempfile::tempdir().unwrap();
            let path = |name: &str| directory.path().canonicalize().unwrap().join(name);
            let mut contents = if backed { pattern(1 << 20, 3) } else { Vec::new() };
            std::fs::write(path("base"), &contents).unwrap();
            contents.resize(DISK_BYTES, 0);
            let backing = backed.then(|| Qcow2Backing { name: "base".into(), format: "raw".into() });
            let new = Qcow2CreateOptions {
                features,
                cluster_bytes,
                preallocation,
                ..Qcow2CreateOptions::new(DISK_BYTES as u64)
            };
            let image = path("image");
            Qcow2Disk::create(&image, &Qcow2CreateOptions { backing, ..new }).unwrap();
            check_clean(text(&image));
            let said = qemu_img(&["info", "--output=json", text(&image)]);
            let said: serde_json::Value = serde_json::from_str(&said).unwrap();
            let data = &said["format-specific"]["data"];
            assert_eq!(
                (&said["cluster-size"], &data["refcount-bits"]),
                (&cluster_bytes.into(), &(1 << features.refcount_order).into())
            );
            if features.version == 3 {
                assert_eq!(data["extended-l2"], features.has_extended_l2);
                assert_eq!(data["lazy-refcounts"], features.has_lazy_refcounts);
                assert_eq!(data["compression-type"], if features.is_zstd { "zstd" } else { "zlib" });
            } else {
                assert_eq!(data["compat"], "0.10");
            }
            if preallocation != Preallocation::Off {
                let map = qemu_img(&["map", "--output=json", text(&image)]);
                assert!(!map.contains("\"present\": false"), "{features:?} {preallocation:?}: {map}");
            }
            let mut rig = Rig::new(open_allowed(&image, &FileOptions::default()));
            assert!(rig.read_all() == contents, "{features:?}");
            let bytes = pattern(300 << 10, 9);
            rig.write(900 << 10, &bytes);
            contents[900 << 10..][..bytes.len()].copy_from_slice(&bytes);
            drop(rig);
            check_clean(text(&image));
            std::fs::write(path("raw"), &contents).unwrap();
            qemu_img(&["compare", "-f", "raw", "-F", "qcow2", text(&path("raw")), text(&image)]);
        }
    }
}

#[test]
fn what_contradicts_itself_is_not_made() {
    let plain = Qcow2Features::default();
    let directory = tempfile::tempdir().unwrap();
    for (features, cluster_bytes, wanted) in [
        (Qcow2Features { version: 2, is_zstd: true, ..plain }, 65536, "version 2 (compat=0.10) has"),
        (Qcow2Features { version: 2, refcount_order: 3, ..plain }, 65536, "version 2 (compat=0.10) has"),
        (Qcow2Features { version: 4, ..plain }, 65536, "version 2 or 3"),
        (Qcow2Features { refcount_order: 7, ..plain }, 65536, "1 to 64 bits"),
        (Qcow2Features { has_extended_l2: true, ..plain }, 8192, "need clusters of 16 KiB"),
    ] {
        let options = Qcow2CreateOptions { features, cluster_bytes, ..Qcow2CreateOptions::new(MIB) };
        let image = directory.path().join("image");
        let error = Qcow2Disk::create(&image, &options).unwrap_err().to_string();
        assert!(error.contains(wanted) && !image.exists(), "{error}");
    }
}
