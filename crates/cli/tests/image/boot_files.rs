//! What an image boots, as its own loader says it.

use crate::rig::{Rig, failure, tool};
use crate::workshop::{Workshop, disk};
use blockyard_appliance::tools::MKE2FS;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

fn write(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

#[test]
fn grubs_default_entry_is_copied_out_with_its_initrds_as_one() {
    let rig = Rig::new(16, |root| {
        write(root, "etc/os-release", "ID=debian\n");
        let configuration = "set default=\"1>0\"\nmenuentry first { linux /gone; }\nsubmenu more {\n  menuentry 'Linux 6.1' {\n    \
                             search --fs-uuid --set=root 11111111-2222-3333-4444-555555555555\n    \
                             linux /boot/link root=/dev/sda1 ro\n    initrd /boot/ucode /boot/initrd.img\n  }\n}\n";
        write(root, "boot/grub/grub.cfg", configuration);
        // A link that leads out of the image leads nowhere else than in it.
        std::os::unix::fs::symlink("/../../../boot/vmlinuz-6.1", root.join("boot/link")).unwrap();
        write(root, "boot/vmlinuz-6.1", "the kernel");
        write(root, "boot/ucode", "ucode");
        write(root, "boot/initrd.img", "initrd");
    });
    tool("tune2fs", "e2fsprogs", ["-U", "11111111-2222-3333-4444-555555555555", rig.image.to_str().unwrap()]);
    let output = rig.path("out");
    fs::create_dir(&output).unwrap();
    let said = rig.run("boot-files", &["--json", "-o", output.to_str().unwrap()]);
    let json: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&json["loader"], &json["title"], &json["line"]), (&"grub".into(), &"more>Linux 6.1".into(), &4.into()));
    assert_eq!(json["command_line"], "BOOT_IMAGE=/boot/link root=/dev/sda1 ro");
    assert!(json["notes"][0].as_str().unwrap().contains("root=UUID=11111111"), "{json:#}");
    assert_eq!(fs::read(output.join("kernel")).unwrap(), b"the kernel");
    // The second begins on a multiple of four bytes.
    assert_eq!(fs::read(output.join("initrd")).unwrap(), b"ucode\0\0\0initrd");
    let mode = |name: &str| fs::metadata(output.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("initrd"), 0o600);
    // A file that is there keeps its mode; a new one is for nobody that the image is not for.
    fs::set_permissions(&rig.image, fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_file(output.join("kernel")).unwrap();
    rig.run("boot-files", &["-o", output.to_str().unwrap()]);
    assert_eq!(mode("kernel"), 0o600);
    rig.run("put", &["/dev/null", "/boot/vmlinuz-6.1"]);
    rig.run("rm", &["/boot/initrd.img"]);
    let said = rig.fail("boot-files", &[]);
    assert!(said.contains("/boot/grub/grub.cfg, line 7: the image has no file /boot/initrd.img"), "{said}");
    assert!(said.contains("--kernel"), "{said}");
}

/// systemd-boot on an EFI system partition that no fstab mounts; the root is a logical volume.
#[test]
fn entries_on_an_efi_system_partition_are_found_beside_a_logical_root() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("0.img");
    disk(&image, 112);
    fs::write(directory.path().join("table"), "label: gpt\nstart=2048, size=81920, type=U\nstart=86016\n").unwrap();
    let table = fs::File::open(directory.path().join("table")).unwrap();
    assert!(Command::new("/usr/sbin/sfdisk").arg("--quiet").arg(&image).stdin(table).status().unwrap().success());
    let blockyard = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_blockyard"));
        command.arg("image").args(arguments).current_dir(directory.path()).output().unwrap()
    };
    let done = |arguments: &[&str]| {
        let output = blockyard(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let mut workshop = Workshop::new(&[&image]);
    workshop.lvm(&["pvcreate", "/dev/vda2"]);
    workshop.lvm(&["vgcreate", "vg", "/dev/vda2"]);
    workshop.lvm(&["lvcreate", "-Wn", "-Zn", "-L", "32M", "-n", "root", "vg"]);
    workshop.run(&MKE2FS, &["-q", "-t", "ext4", "/dev/vg/root"]);
    workshop.lvm(&["vgchange", "-an", "vg"]);
    drop(workshop);
    done(&["mkfs", "0.img", "vda1", "vfat"]);
    let root = directory.path();
    write(root, "etc/os-release", "ID=arch\n");
    write(root, "boot/vmlinuz-linux", "kernel");
    write(root, "boot/initramfs-linux.img", "initrd");
    write(root, "loader/loader.conf", "default arch-*\n");
    let entry = "title Arch\nlinux /vmlinuz-linux\ninitrd /initramfs.img\noptions root=/dev/mapper/vg-root rw\n";
    write(root, "loader/entries/arch-lts.conf", entry);
    write(root, "initramfs.img", "initrd");
    done(&["put", "0.img", "-m", "vg/root", "etc", "boot", "/"]);
    let plain = done(&["boot-files", "0.img"]);
    assert!(
        plain.contains("the newest kernel, /boot/vmlinuz-linux") && plain.contains("root=/dev/mapper/vg-root ro"),
        "{plain}"
    );
    done(&["put", "0.img", "-m", "vda1", "loader", "initramfs.img", "boot/vmlinuz-linux", "/"]);
    let found = done(&["boot-files", "0.img"]);
    assert!(found.contains("systemd-boot's entry \"Arch\" (vda1:/loader/entries/arch-lts.conf)"), "{found}");
    assert!(found.contains("vda1:/initramfs.img") && found.contains("root=/dev/mapper/vg-root rw"), "{found}");
    done(&["rm", "0.img", "-m", "vda1", "-r", "/loader", "/vmlinuz-linux"]);
    done(&["rm", "0.img", "/boot/vmlinuz-linux"]);
    let said = failure(blockyard(&["boot-files", "0.img"]));
    assert!(said.contains("no kernel was found in the image") && said.contains("--kernel"), "{said}");
}
