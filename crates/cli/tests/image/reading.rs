//! Looking into an image changes nothing, and shows what mke2fs put there.

use crate::rig::Rig;
use crate::root::is_root;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

fn fill(root: &Path) {
    fs::create_dir_all(root.join("etc/conf.d")).unwrap();
    fs::write(root.join("etc/hostname"), "yard\n").unwrap();
    fs::write(root.join("etc/passwd"), "root:x:0:0::/:/bin/sh\nyan:x:1000:1000::/:/bin/sh\n").unwrap();
    fs::write(root.join("etc/.hidden"), "").unwrap();
    fs::write(root.join("etc/conf.d/a.conf"), "a").unwrap();
    fs::write(root.join("big"), vec![7; 100_000]).unwrap();
    fs::hard_link(root.join("big"), root.join("twin")).unwrap();
    symlink("/etc/hostname", root.join("link")).unwrap();
    fs::set_permissions(root.join("etc/hostname"), fs::Permissions::from_mode(0o640)).unwrap();
}

#[test]
fn files_are_listed_read_found_and_measured() {
    if !is_root() {
        return;
    }
    let rig = Rig::new(32, fill);
    let before = fs::read(&rig.image).unwrap();
    assert_eq!(rig.run("ls", &[]), "big\netc\nlink\nlost+found\ntwin\n");
    assert_eq!(rig.run("ls", &["/etc", "big"]), "/etc:\nconf.d\nhostname\npasswd\n/big\n");
    assert_eq!(rig.run("ls", &["-R", "etc"]), "/etc:\nconf.d\nhostname\npasswd\n\n/etc/conf.d:\na.conf\n");
    let long = rig.run("ls", &["-l", "-a", "/etc"]);
    assert!(long.contains("-rw-r----- 1 root 0    5 "), "{long}");
    assert!(long.starts_with("total ") && long.contains(".hidden"), "{long}");
    assert!(rig.run("ls", &["-l", "/link"]).trim_end().ends_with("/link -> /etc/hostname"));
    assert_eq!(rig.run("cat", &["/link", "etc/conf.d/a.conf"]), "yard\na");
    assert_eq!(rig.run("find", &["/etc", "-type", "f", "-name", "*.conf"]), "/etc/conf.d/a.conf\n");
    assert_eq!(rig.run("du", &["-s", "/big", "/twin"]), "98\t/big\n0\t/twin\n");
    let stat = rig.run("stat", &["/etc/hostname"]);
    assert!(stat.contains("Size: 5") && stat.contains("(0640/-rw-r-----)"), "{stat}");
    let space = rig.run("df", &[]);
    assert!(space.contains("ext4") && space.contains("vda"), "{space}");
    // As everywhere, -h is for people; what helps is --help.
    let human = rig.run("ls", &["-lh", "/big"]);
    assert!(human.contains(" 98K "), "{human}");
    assert_eq!(rig.run("du", &["-sh", "/big"]), "98K\t/big\n");
    let space = rig.run("df", &["-h"]);
    assert!(space.contains('M') && !space.contains("Usage:"), "{space}");
    for command in ["ls", "df", "du"] {
        assert!(rig.run(command, &["--help"]).contains("Usage:"), "{command} --help");
    }
    assert!(before == fs::read(&rig.image).unwrap(), "reading has changed the image");
}

#[test]
fn what_is_not_there_is_said_and_the_rest_is_done() {
    let rig = Rig::new(32, fill);
    let output = rig.command("ls", &["/nothing", "/etc/conf.d"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "/etc/conf.d:\na.conf\n");
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "blockyard: /nothing: cannot access: No such file or directory\n"
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(rig.fail("cat", &["/etc"]).contains("Is a directory"));
}

#[test]
fn links_lead_nowhere_but_into_the_image() {
    let rig = Rig::new(32, |root| {
        symlink("/../../../../proc/self", root.join("up")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        symlink("/dev/vda", root.join("disk")).unwrap();
    });
    for path in ["/up/status", "/proc/version", "/../proc/version", "/disk", "/init", "/up/root/init"] {
        assert!(rig.fail("cat", &[path]).contains("No such file or directory"), "{path}");
    }
    assert!(rig.fail("cat", &["/loop"]).contains("Too many levels of symbolic links"));
}

/// A socket's path has room for about a hundred bytes: the appliance then goes where there is room.
#[test]
fn a_long_directory_for_temporary_files_is_no_obstacle() {
    let rig = Rig::empty(16);
    let long = rig.path(&"t".repeat(120));
    fs::create_dir(&long).unwrap();
    let output = rig.command("ls", &["/"]).env("TMPDIR", &long).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_dir(&long).unwrap().count(), 0);
}
