//! Small changes, as debugfs sees them.

use crate::rig::Rig;
use std::fs;

#[test]
fn files_are_made_moved_linked_changed_and_removed() {
    let rig = Rig::new(32, |root| {
        fs::create_dir(root.join("etc")).unwrap();
        fs::write(root.join("etc/passwd"), "root:x:0:0\nyan:x:1234:5678\n").unwrap();
        fs::write(root.join("etc/group"), "yard:x:4321:\n").unwrap();
        fs::write(root.join("a"), "a").unwrap();
        fs::write(root.join("b"), "b").unwrap();
    });
    rig.run("mkdir", &["-p", "--mode", "700", "/x/y/z"]);
    rig.run("mv", &["/a", "/b", "/x/y"]);
    rig.run("mv", &["/x/y/a", "/x/y/c"]);
    rig.run("ln", &["-s", "../b", "/x/y/z/link"]);
    rig.run("ln", &["/x/y/b", "/hard"]);
    rig.run("chmod", &["u=rwx,go=", "/x/y/c"]);
    rig.run("chmod", &["-R", "a+X", "/x"]);
    rig.run("chown", &["yan:yard", "/x/y/c"]);
    rig.run("rm", &["-f", "/x/y/b", "/not/there"]);
    rig.check();
    assert!(rig.debugfs("stat /x/y/z").contains("Mode:  0711"), "{}", rig.debugfs("stat /x/y/z"));
    let changed = rig.debugfs("stat /x/y/c");
    assert!(
        changed.contains("Mode:  0711") && changed.contains("User:  1234") && changed.contains("Group:  4321"),
        "{changed}"
    );
    assert!(rig.debugfs("stat /x/y/z/link").contains("Fast link dest: \"../b\""));
    assert_eq!(rig.debugfs("cat /hard"), "b");
    assert!(rig.debugfs("stat /hard").contains("Links: 1"));
    rig.run("rm", &["-r", "/x"]);
    rig.check();
    assert!(!rig.debugfs("ls -p /").contains("/x/"));
}

#[test]
fn failures_name_the_file_and_the_reason() {
    let rig = Rig::empty(32);
    assert_eq!(rig.fail("rm", &["/no"]), "blockyard: /no: cannot remove: No such file or directory\n");
    assert!(rig.fail("rm", &["/lost+found"]).contains("Is a directory"));
    assert!(rig.fail("rm", &["-r", "/"]).contains("it is the root directory"));
    assert!(rig.fail("mkdir", &["/a/b"]).contains("No such file or directory"));
    assert!(rig.fail("chown", &["nobody-here", "/"]).contains("the image has no user nobody-here"));
    let usage = rig.command("chmod", &["rubbish", "/"]).output().unwrap();
    assert_eq!(usage.status.code(), Some(2));
    let usage = rig.command("rm", &["--ro", "/x"]).output().unwrap();
    assert_eq!(usage.status.code(), Some(2));
    rig.check();
}
