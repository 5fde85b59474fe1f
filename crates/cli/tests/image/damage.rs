//! Images that are damaged, or none: a sentence, exit status 1, and nothing else.

use crate::rig::{Rig, noise};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;

fn damaged(rig: &Rig, at: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(&rig.image).unwrap().write_all_at(bytes, at).unwrap();
}

#[test]
fn what_is_no_image_is_said() {
    let rig = Rig::empty(16);
    fs::write(&rig.image, noise(100_000)).unwrap();
    assert!(rig.fail("ls", &[]).contains("no partitions, and its disk has no file system that is known"));
    File::create(&rig.image).unwrap();
    assert!(rig.fail("ls", &[]).starts_with("blockyard: "));
    fs::remove_file(&rig.image).unwrap();
    assert!(rig.fail("ls", &[]).contains("disk.img"));
}

#[test]
fn a_damaged_superblock_is_told_in_the_kernels_words() {
    let rig = Rig::empty(16);
    // Blocks per group, which cannot be zero.
    damaged(&rig, 1024 + 0x20, &[0; 4]);
    let said = rig.fail("ls", &[]);
    assert!(said.contains("cannot mount the ext4 file system") && said.contains("fsck"), "{said}");
    assert!(said.contains("kernel says") && said.contains("EXT4-fs"), "{said}");
}

#[test]
fn an_image_that_was_cut_short_is_told() {
    let rig = Rig::empty(16);
    OpenOptions::new().write(true).open(&rig.image).unwrap().set_len(8 << 20).unwrap();
    let said = rig.fail("ls", &[]);
    assert!(said.contains("cannot mount the ext4 file system"), "{said}");
}

#[test]
fn noise_in_a_file_system_hangs_and_crashes_nobody() {
    for seed in 0..3u64 {
        let rig = Rig::new(16, |root| {
            fs::create_dir_all(root.join("a/b/c")).unwrap();
            (0..50).for_each(|number| fs::write(root.join(format!("a/b/f{number}")), noise(5000)).unwrap());
        });
        let bytes = noise(64 << 10);
        // Not the superblock: behind it, among descriptors, bitmaps, inodes and directories.
        for hit in 0..40u64 {
            let at = 4096 + (seed * 7919 + hit * 104_729) % (2 << 20);
            damaged(&rig, at, &bytes[(hit as usize * 64)..][..64]);
        }
        let output = rig.command("ls", &["-l", "-R", "/"]).output().unwrap();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{seed}: {output:?}");
        fs::write(rig.path("in"), noise(100_000)).unwrap();
        let output = rig.command("put", &["in", "/a/b/new"]).output().unwrap();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{seed}: {output:?}");
    }
}
