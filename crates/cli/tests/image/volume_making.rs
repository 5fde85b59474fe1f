//! Logical volumes, arrays and encrypted volumes that scripts make: everybody's tools find them as they were made.

use crate::rig::{Rig, is_in_lab, key_file, tool};
use crate::shell::{Terminal, good, script};
use crate::workshop::{Workshop, disk};
use blockyard_appliance::tools::{E2FSCK, LVM, MDADM};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

/// A directory with disks of so many megabytes: 0.img, 1.img and so on.
fn disks(megabytes: &[u64]) -> Rig {
    let rig = Rig::empty(8);
    for (index, &size) in megabytes.iter().enumerate() {
        disk(&rig.path(&format!("{index}.img")), size);
    }
    rig
}

fn image(rig: &Rig, arguments: &[&str]) -> String {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_blockyard"));
    let output = command.arg("image").args(arguments).current_dir(rig.directory.path()).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_script_makes_and_changes_logical_volumes() {
    let rig = disks(&[40, 40, 8]);
    let said = good(
        &rig,
        &[],
        "add 0.img\nadd 1.img\nlvs\npvcreate /dev/sda\npvcreate /dev/sdb\nvgcreate vg '/dev/sda /dev/sdb'\nlvcreate root vg 20\n\
         lvcreate-free my-data vg 100\npvs\nvgs\nlvs\nis-lv /dev/vg/root\nmkfs ext4 /dev/vg/root\nmount /dev/vg/root /\n\
         write /f content\nmounts\n-part-init /dev/sda gpt\n-lvremove /dev/vg/root\n-vgcreate -x /dev/sdb\nadd 2.img\ncat /f\nvfs-type /dev/sda\n\
         list-filesystems\numount /dev/mapper/vg-root\nlvremove /dev/vg/my-data\nlvresize /dev/vg/root 40\ne2fsck-f /dev/vg/root\n\
         resize2fs /dev/vg/root\nlvrename /dev/vg/root new\nvg-activate-all false\nvg-activate-all true\n",
    );
    let expected = "/dev/sda\n/dev/sdb\nvg\n/dev/vg/root\n/dev/vg/my-data\ntrue\n/dev/vg/root\ncontentLVM2_member\n\
                    /dev/sdc: unknown\n/dev/vg/my-data: unknown\n/dev/vg/root: ext4\n";
    let mut lines: Vec<_> = said.lines().filter(|line| expected.lines().any(|known| known == *line)).collect();
    let mut wanted: Vec<_> = expected.lines().collect();
    lines.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(lines, wanted, "{said}");
    assert_eq!(image(&rig, &["cat", "0.img", "--add", "1.img", "/f"]), "content");
    assert!(tool("blkid", "util-linux", ["-p".as_ref(), rig.path("0.img").as_os_str()]).contains("LVM2_member"));
    let paths = [rig.path("0.img"), rig.path("1.img")];
    let mut workshop = Workshop::new(&[&paths[0], &paths[1]]);
    let found = workshop.lvm(&["lvs", "--noheadings", "--units", "m", "--nosuffix", "--options", "lv_name,lv_size"]);
    assert_eq!(found.split_whitespace().collect::<Vec<_>>(), ["new", "40.00"], "{}", LVM.program);
    workshop.lvm(&["vgchange", "-ay", "vg"]);
    workshop.run(&E2FSCK, &["-fn", "/dev/vg/new"]);
}

#[test]
fn a_script_makes_an_array() {
    let rig = disks(&[20, 20, 8]);
    let said = good(
        &rig,
        &[],
        "add 0.img\nadd 1.img\nmd-create mirror '/dev/sda /dev/sdb' level:raid1\nlist-md-devices\nmkfs ext4 /dev/md/mirror\n\
         mount /dev/md/mirror /\nwrite /f content\nadd 2.img\ncat /f\nmd-detail /dev/md/mirror\nvfs-type /dev/sdb\n",
    );
    assert!(said.contains("/dev/md1") && said.contains("contentlevel: raid1\ndevices: 2\n"), "{said}");
    assert!(said.ends_with("linux_raid_member\n"), "{said}");
    assert_eq!(image(&rig, &["cat", "0.img", "--add", "1.img", "/f"]), "content");
    // It reads past the page cache, which files in memory have not until Linux 6.6.
    if !is_in_lab() {
        let examined = tool("mdadm", "mdadm", ["--examine".as_ref(), rig.path("1.img").as_os_str()]);
        let found = examined.contains("Raid Level : raid1") && examined.contains("Name : mirror");
        assert!(found, "{} {examined}", MDADM.program);
    }
    good(&rig, &[], "add 0.img\nadd 1.img\nmd-stop /dev/md/mirror\nzero /dev/sda\nzero /dev/sdb\n");
    let said = script(&rig, &["-a", "0.img"], "md-stop /dev/md/mirror\n");
    assert_eq!(said.status.code(), Some(1));
}

#[test]
fn an_encrypted_volume_is_made_with_a_passphrase_that_is_typed() {
    let rig = disks(&[40, 8]);
    key_file(&rig.path("key"), "hush\n");
    key_file(&rig.path("wrong"), "rush\n");
    fs::write(rig.path("shared"), "hush\n").unwrap();
    fs::set_permissions(rig.path("shared"), Permissions::from_mode(0o644)).unwrap();
    let mut terminal = Terminal::open(&rig, &["-a", "0.img"]);
    terminal.wait_for("blockyard> ");
    for (again, ends) in [("rush", "not the same"), ("hush", "\x1b[?2004h")] {
        terminal.type_in("luks-format /dev/sda 0 itertime:50\r");
        terminal.wait_for("New passphrase for /dev/sda: ");
        terminal.type_in("hush\n");
        terminal.wait_for("The same again: ");
        terminal.type_in(&format!("{again}\n"));
        terminal.wait_for(ends);
        terminal.wait_for("blockyard> ");
    }
    terminal.leave();
    assert!(!terminal.all.contains("hush"), "{}", terminal.all);
    assert!(!fs::read_to_string(rig.path("state/blockyard/shell_history")).unwrap().contains("hush"));
    let dump = tool("cryptsetup", "cryptsetup-bin", ["luksDump".as_ref(), rig.path("0.img").as_os_str()]);
    assert!(dump.contains("Version:       \t2"), "{dump}");

    let said = good(
        &rig,
        &["-a", "0.img"],
        "cryptsetup-open /dev/sda secret keyfile:key\nlist-dm-devices\n\
         mkfs ext4 /dev/mapper/secret\nmount /dev/mapper/secret /\nwrite /f content\nadd-ro 1.img\ncat /f\numount-all\n\
         cryptsetup-close /dev/mapper/secret\n-cryptsetup-close secret\nlist-dm-devices\n",
    );
    assert_eq!(said, "/dev/mapper/secret\ncontent");
    assert_eq!(image(&rig, &["cat", "0.img", "--key-file", "key", "/f"]), "content");
    for (line, problem) in [
        ("cryptsetup-open /dev/sda x keyfile:wrong", "the key does not open it"),
        ("cryptsetup-open /dev/sda x keyfile:shared", "is for other users, too (its mode is 0644)"),
        ("cryptsetup-open /dev/sdb x keyfile:key", "is not encrypted"),
        ("cryptsetup-open /dev/sda ../x keyfile:key", "is no name"),
    ] {
        let output = script(&rig, &["-a", "0.img", "-a", "1.img"], &format!("{line}\n"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains(problem), "{line}: {said}");
    }
}
