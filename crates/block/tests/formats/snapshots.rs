//! Snapshots inside of images, made, applied and removed by us and by qemu-img in turns.

use crate::rig::{Random, Rig, check_clean, open_allowed, pattern, qemu_img, read_only, text};
use blockyard_block::{
    AllowedDirectories, FileOptions, ImageError, OpenedFile, Operation, Preallocation, Qcow2Amendment, Qcow2Disk,
};
use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};

const DISK_BYTES: usize = (3 << 20) + 512;
const STEPS: usize = 24;

struct Twin {
    directory: tempfile::TempDir,
    options: &'static str,
    contents: Vec<u8>,
    random: Random,
    /// By name: what the disk held.
    snapshots: Vec<(String, Vec<u8>)>,
    made: usize,
}

fn to_change(path: &Path) -> OpenedFile {
    let image = OpenedFile::open(path, false).unwrap();
    image.lock(&FileOptions::default()).unwrap();
    image
}

fn resize(path: &Path, size_bytes: u64) -> Result<(), ImageError> {
    Qcow2Disk::resize(&to_change(path), size_bytes, Preallocation::Off, &AllowedDirectories::none())
}

impl Twin {
    fn image(&self) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join("image")
    }

    fn new(options: &'static str, is_compressed: bool, seed: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut contents = vec![0; DISK_BYTES];
        contents[700 << 10..][..1 << 20].copy_from_slice(&b"some text of 16 ".repeat(1 << 16));
        let raw = directory.path().join("raw");
        std::fs::write(&raw, &contents).unwrap();
        let random = Random::new(seed);
        let this = Self { directory, options, contents, random, snapshots: Vec::new(), made: 0 };
        let (raw, image) = (text(&raw).to_owned(), this.image());
        let mut arguments = vec!["convert", "-f", "raw", "-O", "qcow2", "-o", options];
        if is_compressed {
            arguments.push("-c");
        }
        qemu_img(&[&arguments[..], &[&raw, text(&image)]].concat());
        this
    }

    fn write(&mut self) {
        let mut rig = Rig::new(open_allowed(&self.image(), &FileOptions::default()));
        for _ in 0..6 {
            let sectors = self.contents.len() as u64 / 512;
            let start = self.random.below(sectors);
            let length = (1 + self.random.below(300)).min(sectors - start) as usize * 512;
            let range = start as usize * 512..start as usize * 512 + length;
            if self.random.below(4) == 0 {
                let zeroes = Operation::WriteZeroes { length_bytes: length as u64, may_unmap: true };
                rig.perform(zeroes, start * 512, &[]).unwrap();
                self.contents[range].fill(0);
            } else {
                let bytes = pattern(length, self.random.next());
                rig.write(start * 512, &bytes);
                self.contents[range].copy_from_slice(&bytes);
            }
        }
    }

    fn step(&mut self) {
        let (image, by_us, nothing) = (self.image(), self.random.below(2) == 0, AllowedDirectories::none());
        let which = self.random.below(self.snapshots.len().max(1) as u64) as usize;
        match (self.random.below(6), self.snapshots.get(which).cloned()) {
            (0, _) if self.snapshots.len() < 5 => {
                let name = format!("made {}", self.made);
                self.made += 1;
                match by_us {
                    true => Qcow2Disk::make_snapshot(&to_change(&image), &name, &nothing).unwrap(),
                    false => drop(qemu_img(&["snapshot", "-c", &name, text(&image)])),
                }
                self.snapshots.push((name, self.contents.clone()));
            }
            (1, Some((name, contents))) => {
                match by_us {
                    true => Qcow2Disk::apply_snapshot(&to_change(&image), &name, &nothing).unwrap(),
                    false => drop(qemu_img(&["snapshot", "-a", &name, text(&image)])),
                }
                self.contents = contents;
            }
            (2, Some((name, _))) => {
                match by_us {
                    true => Qcow2Disk::remove_snapshot(&to_change(&image), &name, &nothing).unwrap(),
                    false => drop(qemu_img(&["snapshot", "-d", &name, text(&image)])),
                }
                self.snapshots.remove(which);
            }
            (3, _) if !self.options.contains("compat=0.10") => {
                let size_bytes = (1 << 20) + 512 * self.random.below(DISK_BYTES as u64 / 512);
                match by_us {
                    true => resize(&image, size_bytes).unwrap(),
                    false => drop(qemu_img(&["resize", "-q", "--shrink", text(&image), &size_bytes.to_string()])),
                }
                self.contents.resize(size_bytes as usize, 0);
            }
            _ => self.write(),
        }
    }

    fn is_whole(&self) {
        let (image, options) = (self.image(), self.options);
        check_clean(text(&image));
        assert!(Rig::new(open_allowed(&image, &read_only())).read_all() == self.contents, "{options}");
        let listed = Qcow2Disk::snapshots(&OpenedFile::open(&image, true).unwrap()).unwrap();
        let names: Vec<_> = listed.iter().map(|snapshot| &snapshot.name).collect();
        assert_eq!(names, self.snapshots.iter().map(|(name, _)| name).collect::<Vec<_>>());
        for (snapshot, (name, contents)) in listed.iter().zip(&self.snapshots) {
            for which in [name, &snapshot.id] {
                let file = File::open(&image).unwrap();
                let nothing = AllowedDirectories::none();
                let disk = Qcow2Disk::open_snapshot_in(file, &image, which, &read_only(), &nothing).unwrap();
                assert!(Rig::new(disk).read_all() == *contents, "{options}, {which}");
            }
        }
    }

    fn is_what_qemu_finds(&self) {
        let raw = self.image().with_file_name("raw");
        for (name, contents) in &self.snapshots {
            let which = format!("snapshot.name={name}");
            qemu_img(&["convert", "-l", &which, "-f", "qcow2", "-O", "raw", text(&self.image()), text(&raw)]);
            // For QEMU a snapshot that is read has the size that the disk has now.
            let found = std::fs::read(&raw).unwrap();
            let both = found.len().min(contents.len());
            assert!(found[..both] == contents[..both], "{}, {name}", self.options);
        }
    }
}

#[test]
fn snapshots_are_qemus_and_ours() {
    for (seed, (options, is_compressed)) in (1..).zip([
        ("cluster_size=64k", false),
        ("cluster_size=512", false),
        ("cluster_size=4k,compression_type=zstd", true),
        ("compat=0.10,cluster_size=4k", true),
        ("extended_l2=on,cluster_size=16k", false),
        ("refcount_bits=64,cluster_size=1k", false),
    ]) {
        let mut twin = Twin::new(options, is_compressed, seed);
        for _ in 0..STEPS {
            twin.step();
            twin.is_whole();
        }
        twin.is_what_qemu_finds();
    }
}

#[test]
fn what_a_snapshot_cannot_be_is_said() {
    let twin = Twin::new("refcount_bits=1", false, 1);
    let (image, nothing) = (to_change(&twin.image()), AllowedDirectories::none());
    let said = |done: Result<(), blockyard_block::ImageError>| {
        let error = done.unwrap_err();
        format!("{error}: {}", error.source().map(ToString::to_string).unwrap_or_default())
    };
    let full = said(Qcow2Disk::make_snapshot(&image, "one", &nothing));
    assert!(full.contains("refcounts of 1 bits cannot be higher: convert it"), "{full}");
    assert!(said(Qcow2Disk::apply_snapshot(&image, "one", &nothing)).contains("has no snapshot \"one\""));
    assert!(said(Qcow2Disk::make_snapshot(&image, "", &nothing)).contains("1 to 1023 bytes"));
    drop(image);
    check_clean(text(&twin.image()));
    let twin = Twin::new("cluster_size=64k", false, 2);
    let image = to_change(&twin.image());
    Qcow2Disk::make_snapshot(&image, "one", &nothing).unwrap();
    assert!(said(Qcow2Disk::make_snapshot(&image, "one", &nothing)).contains("has a snapshot \"one\" already"));
    let file = File::open(twin.image()).unwrap();
    let writable = Qcow2Disk::open_snapshot_in(file, &twin.image(), "one", &FileOptions::default(), &nothing);
    assert!(writable.unwrap_err().to_string().contains("is only read"));
}

#[test]
fn a_disk_with_snapshots_that_do_not_say_their_size_keeps_its_own() {
    let twin = Twin::new("compat=0.10", false, 1);
    qemu_img(&["snapshot", "-c", "one", text(&twin.image())]);
    let said = resize(&twin.image(), 8 << 20).unwrap_err().to_string();
    assert!(said.contains("image amend -o compat=1.1"), "{said}");
    let amendment = Qcow2Amendment { version: Some(3), ..Qcow2Amendment::default() };
    amendment.apply(&to_change(&twin.image()), &AllowedDirectories::none()).unwrap();
    resize(&twin.image(), 8 << 20).unwrap();
    check_clean(text(&twin.image()));
}
