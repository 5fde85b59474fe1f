//! The shell's commands as commands of `image`, words in the wrong place, and exit statuses.

use crate::rig::{Rig, failure_with};
use crate::shell::with_busybox;
use std::fs;

#[test]
fn the_shells_commands_are_commands_of_image() {
    let rig = Rig::empty(16);
    rig.run("mkdir-p", &["/a/b"]);
    rig.run("write", &["/a/b/text", "one\n"]);
    rig.run("write-append", &["/a/b/text", "two\n"]);
    assert_eq!(rig.run("cat", &["/a/b/text"]), "one\ntwo\n");
    fs::write(rig.path("host"), "from the host").unwrap();
    rig.run("upload", &["host", "/a/up"]);
    rig.run("download", &["/a/up", "down"]);
    assert_eq!(fs::read_to_string(rig.path("down")).unwrap(), "from the host");
    rig.check();
    let before = fs::read(&rig.image).unwrap();
    assert_eq!(rig.run("filesize", &["/a/up"]), "13\n");
    assert_eq!(rig.run("wc-l", &["/a/b/text"]).trim(), "2");
    assert_eq!(rig.run("vfs-type", &["/dev/sda"]), "ext4\n");
    assert_eq!(rig.run("exists", &["/nothing"]), "false\n");
    assert!(before == fs::read(&rig.image).unwrap(), "looking has changed the image");
    rig.run("rm-rf", &["/a"]);
    assert_eq!(rig.run("exists", &["/a"]), "false\n");
    let usage = rig.command("write", &["/a"]).output().unwrap();
    let said = failure_with(2, usage);
    assert!(said.contains("`blockyard image write IMAGE PATH CONTENT`"), "{said}");
}

#[test]
fn an_image_in_the_wrong_place_is_told() {
    let rig = Rig::empty(16);
    let before = fs::read(&rig.image).unwrap();
    fs::write(rig.path("notes.txt"), "notes\n".repeat(1000)).unwrap();
    for words in [
        &["put", "notes.txt", "disk.img", "/"][..],
        &["tar-in", "notes.txt", "disk.img"],
        &["upload", "notes.txt", "disk.img", "/x"],
    ] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_blockyard"))
            .arg("image")
            .args(words)
            .current_dir(rig.directory.path())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains("IMAGE comes first"), "{words:?}: {said}");
        assert!(said.contains("disk.img looks more like one than notes.txt"), "{words:?}: {said}");
    }
    assert!(before == fs::read(&rig.image).unwrap());
    assert_eq!(fs::read(rig.path("notes.txt")).unwrap().len(), 6000);
}

#[test]
fn a_program_that_cannot_be_executed_ends_as_in_a_shell() {
    let rig = with_busybox();
    let run = |program: &str| rig.command("run", &[program]).output().unwrap();
    let said = failure_with(127, run("/bin/nosuch"));
    assert!(said.contains("/bin/nosuch: cannot execute: No such file or directory"), "{said}");
    failure_with(127, run("nosuch"));
    rig.run("write", &["/text", "no program\n"]);
    failure_with(126, run("/text"));
    failure_with(126, run("/bin"));
}
