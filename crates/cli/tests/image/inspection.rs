//! What `inspect` says of an image, and how roots and what belongs to them are found.

use crate::rig::{Rig, failure};
use crate::workshop::{Workshop, disk};
use blockyard_appliance::tools::{BTRFS, MKFS_BTRFS};
use blockyard_protocol::appliance::{Mount, MountPoint, Operation};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What Debian and its packages leave of themselves.
fn debian(root: &Path) {
    for directory in ["etc", "usr/lib", "usr/bin", "var/lib/dpkg"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    let release = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\nVERSION_ID=\"12\"\n";
    fs::write(root.join("usr/lib/os-release"), release).unwrap();
    std::os::unix::fs::symlink("../usr/lib/os-release", root.join("etc/os-release")).unwrap();
    // Absolute links lead to the image's own files.
    std::os::unix::fs::symlink("/usr/bin", root.join("bin")).unwrap();
    fs::copy("/bin/sh", root.join("usr/bin/sh")).unwrap();
    fs::write(root.join("etc/debian_version"), "12.5\n").unwrap();
    fs::write(root.join("etc/hostname"), "box\n").unwrap();
    let status = "Package: bash\nStatus: install ok installed\nVersion: 1:5.2.15-2+b8\nArchitecture: amd64\n\n\
                  Package: gone\nStatus: deinstall ok config-files\nVersion: 1\nArchitecture: all\n";
    fs::write(root.join("var/lib/dpkg/status"), status).unwrap();
}

#[test]
fn an_operating_system_is_described_with_virt_inspectors_names() {
    let rig = Rig::new(16, |root| {
        debian(root);
        fs::write(root.join("etc/fstab"), "/dev/sda1 / ext4\nPARTLABEL=elsewhere /srv ext4\n").unwrap();
    });
    let json: Value = serde_json::from_str(&rig.run("inspect", &["--json"])).unwrap();
    let system = &json["operatingsystems"][0];
    for (name, wanted) in [
        ("root", "/dev/vda"),
        ("name", "linux"),
        ("distro", "debian"),
        ("product_name", "Debian GNU/Linux 12 (bookworm)"),
        ("arch", "x86_64"),
        ("hostname", "box"),
        ("package_format", "deb"),
        ("package_management", "apt"),
        ("osinfo", "debian12"),
    ] {
        assert_eq!(system[name], wanted, "{name}: {json:#}");
    }
    assert_eq!((&system["major_version"], &system["minor_version"]), (&12.into(), &5.into()));
    assert_eq!(system["mountpoints"][0]["mountpoint"], "/");
    assert_eq!(system["filesystems"][0]["type"], "ext4");
    assert!(system["notes"][0].as_str().unwrap().contains("PARTLABEL=elsewhere on /srv"), "{json:#}");
    let packages = serde_json::json!([
        { "name": "bash", "epoch": 1, "version": "5.2.15", "release": "2+b8", "arch": "amd64" }
    ]);
    assert_eq!(system["applications"], packages);
    let table = rig.run("inspect", &["--packages"]);
    assert!(table.contains("Packages of /dev/vda:") && table.contains("1:5.2.15-2+b8"), "{table}");
    let table = rig.run("inspect", &[]);
    assert!(!table.contains("5.2.15"), "{table}");
    assert!(table.contains("Debian GNU/Linux 12 (bookworm)") && table.contains("deb (apt)"), "{table}");
    let output = rig.command("ls", &["--inspect", "/etc/hostname"]).output().unwrap();
    assert_eq!(output.stdout, b"/etc/hostname\n");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("operating system: Debian") && said.contains("/dev/vda mounted on /"), "{said}");
    assert!(said.contains("/etc/fstab wants PARTLABEL=elsewhere on /srv"), "{said}");
}

#[test]
fn an_image_without_an_operating_system_is_none() {
    let rig = Rig::empty(16);
    let table = rig.run("inspect", &[]);
    assert!(table.contains("No operating system was found") && table.contains("/dev/vda"), "{table}");
    let json: Value = serde_json::from_str(&rig.run("inspect", &["--json"])).unwrap();
    assert_eq!(json["operatingsystems"].as_array().unwrap().len(), 0);
    assert!(failure(rig.command("inspect", &["-m", "sda7"]).output().unwrap()).contains("there is no sda7"));
}

/// A btrfs whose root is the subvolume `@`, with /home in `@home`, as openSUSE and Ubuntu have it.
#[test]
fn a_root_in_a_subvolume_is_found_with_what_its_fstab_mounts() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("disk.img");
    disk(&image, 128);
    let mut workshop = Workshop::new(&[&image]);
    workshop.run(&MKFS_BTRFS, &["-q", "-U", "11111111-2222-3333-4444-555555555555", "/dev/vda"]);
    let top = MountPoint { device: "vda".into(), directory: b"/".to_vec(), ..MountPoint::default() };
    workshop.call(Operation::Mount(Mount { read_only: false, synchronous: false, disks: 1, points: vec![top] }));
    for name in ["@", "@home", "old"] {
        workshop.run(&BTRFS, &["subvolume", "create", &format!("/image/{name}")]);
    }
    workshop.call(Operation::Unmount);
    drop(workshop);

    let blockyard = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_blockyard"));
        let output = command.arg("image").args(arguments).current_dir(directory.path()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    for root in ["etc", "home", "usr"] {
        fs::create_dir(directory.path().join(root)).unwrap();
    }
    let fstab = "UUID=11111111-2222-3333-4444-555555555555 / btrfs subvol=@\n\
                 UUID=11111111-2222-3333-4444-555555555555 /home btrfs subvol=/@home\n";
    fs::write(directory.path().join("etc/fstab"), fstab).unwrap();
    fs::write(directory.path().join("letter"), "from home\n").unwrap();
    blockyard(&["put", "disk.img", "-m", "sda:/:subvol=@", "etc", "home", "usr", "/"]);
    blockyard(&["put", "disk.img", "-m", "btrfsvol:/dev/sda/@home", "letter", "/"]);
    assert_eq!(blockyard(&["cat", "disk.img", "/home/letter"]), "from home\n");
    let json: Value = serde_json::from_str(&blockyard(&["inspect", "--json", "disk.img"])).unwrap();
    let system = &json["operatingsystems"][0];
    assert_eq!(system["root"], "btrfsvol:/dev/vda/@", "{json:#}");
    assert_eq!(system["mountpoints"][1]["mountpoint"], "/home", "{json:#}");
    crate::rig::tool("btrfs", "btrfs-progs", ["check", image.to_str().unwrap()]);
}
