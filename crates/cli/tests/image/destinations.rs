//! What new files are like, and what they take the place of.

use crate::rig::noise;
use crate::root::is_root;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};

/// Runs a line of sh in a directory, `$b` being the program.
fn sh(directory: &Path, wrapped_in: &[&str], line: &str) -> Output {
    let words = [wrapped_in, &["sh", "-ec", line]].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("b", env!("CARGO_BIN_EXE_blockyard")).current_dir(directory).output().unwrap()
}

fn good(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_new_image_is_for_nobody_that_its_source_is_not_for() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("src.img"), noise(1 << 20)).unwrap();
    for (source, made) in [(0o600, 0o600), (0o640, 0o640), (0o666, 0o644), (0o444, 0o444)] {
        let mode = |name: &str| fs::metadata(directory.path().join(name)).unwrap().mode() & 0o7777;
        fs::set_permissions(directory.path().join("src.img"), fs::Permissions::from_mode(source)).unwrap();
        // An overlay holds nothing of what it shows; what is behind it may be for fewer people than it.
        let line = "umask 022; rm -f new* top.qcow2; $b copy src.img new.img; $b image convert -q src.img new.raw,format=raw; \
                    $b image convert -q -O qcow2 src.img new.qcow2; $b image convert -q -O qcow2 -c src.img new.c.qcow2; \
                    $b image convert -q -O qcow2 -o preallocation=metadata src.img new.p.qcow2; \
                    $b image create -q -f qcow2 -b src.img -F raw top.qcow2; chmod 666 top.qcow2; \
                    $b image convert -q --allow-dir . top.qcow2 new.top.img; \
                    $b copy src.img,overlay=new.overlay.qcow2 /dev/null 2>/dev/null || true; test -e new.overlay.qcow2";
        good(&sh(directory.path(), &["env"], line));
        for name in
            ["new.img", "new.raw", "new.qcow2", "new.c.qcow2", "new.p.qcow2", "new.top.img", "new.overlay.qcow2"]
        {
            assert_eq!(mode(name), made, "{name} of {source:o}");
        }
    }
}

/// A container's file is one, and one that `serve --fuse` serves.
#[test]
fn a_mount_point_is_seen_before_the_work_and_written_in_place_on_demand() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let content = noise(1 << 20);
    fs::write(directory.path().join("src.img"), &content).unwrap();
    fs::write(directory.path().join("below"), vec![1; 2 << 20]).unwrap();
    fs::write(directory.path().join("above.img"), "").unwrap();
    let line = "mount --bind below above.img; \
                for work in 'copy src.img above.img' 'image convert src.img above.img'; do ! $b $work 2> err; \
                grep -q 'above.img is a mount point, and no other file can take its place' err; \
                grep -q 'write into it as it is, with -n' err; done; \
                ! $b image create above.img 1M 2> err; grep -q 'is a mount point' err; ! grep -q -e -n err; \
                cmp -n 1048576 below /dev/zero 2>/dev/null && exit 1; test $(stat -c %s below) = 2097152; \
                $b copy -n src.img above.img; cmp -n 1048576 src.img below; test $(stat -c %s below) = 2097152; \
                head -c 2097152 /dev/zero > below; $b image convert -q -n src.img above.img; cmp -n 1048576 src.img below; \
                ! $b copy -n src.img nothing.img 2> err; grep -q 'there is no nothing.img' err";
    good(&sh(directory.path(), &["unshare", "--mount"], line));
    let names = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(names, 4, "and the errors' file");
}
