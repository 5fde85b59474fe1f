//! Logical volumes, arrays and encrypted volumes, made by the tools that everybody makes them with.

use crate::rig::{failure, key_file, noise, tool};
use crate::workshop::{Workshop, disk};
use blockyard_appliance::tools::{CRYPTSETUP, E2FSCK, MDADM, MKE2FS};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// Disks in a directory.
struct Disks {
    directory: TempDir,
}

impl Disks {
    /// Of so many megabytes each: 0.img, 1.img and so on.
    fn new(megabytes: &[u64]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for (index, &size) in megabytes.iter().enumerate() {
            disk(&directory.path().join(format!("{index}.img")), size);
        }
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn workshop(&self, names: &[&str]) -> Workshop {
        let paths: Vec<_> = names.iter().map(|name| self.path(name)).collect();
        Workshop::new(&paths.iter().map(PathBuf::as_path).collect::<Vec<_>>())
    }

    /// `blockyard image …`, run in the directory, without a terminal.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("setsid");
        command.arg("--wait").arg(env!("CARGO_BIN_EXE_blockyard")).arg("image").args(arguments);
        command.current_dir(self.directory.path()).stdin(Stdio::null());
        command
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs it and expects success; what it printed.
    fn run(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn fail(&self, arguments: &[&str]) -> String {
        failure(self.output(arguments))
    }

    /// Cuts a file system out of a disk; it is in good order. Where it is.
    fn cut(&self, name: &str, offset: u64, megabytes: u64) -> PathBuf {
        let mut bytes = vec![0; (megabytes << 20) as usize];
        fs::File::open(self.path(name)).unwrap().read_exact_at(&mut bytes, offset).unwrap();
        let path = self.path("cut");
        fs::write(&path, bytes).unwrap();
        tool("e2fsck", "e2fsprogs", ["-fn", path.to_str().unwrap()]);
        path
    }
}

/// What a file in a file system has, as debugfs finds it.
fn dumped(file_system: &Path, name: &str) -> Vec<u8> {
    let target = file_system.with_extension("dump");
    let request = format!("dump {name} {}", target.display());
    tool("debugfs", "e2fsprogs", ["-R", &request, file_system.to_str().unwrap()]);
    fs::read(target).unwrap()
}

#[test]
fn logical_volumes_are_found_filled_and_left_in_good_order() {
    let disks = Disks::new(&[64, 40]);
    let table = "label: gpt\nstart=2048, size=16384\nstart=20480, size=104448\n";
    let mut sfdisk = Command::new("/usr/sbin/sfdisk");
    fs::write(disks.path("table"), table).unwrap();
    let stdin = fs::File::open(disks.path("table")).unwrap();
    assert!(sfdisk.arg("--quiet").arg(disks.path("0.img")).stdin(stdin).status().unwrap().success());
    let mut workshop = disks.workshop(&["0.img", "1.img"]);
    workshop.run(&MKE2FS, &["-q", "-t", "ext4", "/dev/vda1"]);
    workshop.lvm(&["pvcreate", "/dev/vda2", "/dev/vdb"]);
    workshop.lvm(&["vgcreate", "sd-vg", "/dev/vda2", "/dev/vdb"]);
    for (name, physical) in [("root", "/dev/vda2"), ("home", "/dev/vdb")] {
        workshop.lvm(&["lvcreate", "-Wn", "-Zn", "-L", "32M", "-n", name, "sd-vg", physical]);
        workshop.run(&MKE2FS, &["-q", "-t", "ext4", &format!("/dev/sd-vg/{name}")]);
    }
    workshop.lvm(&["vgchange", "-an", "sd-vg"]);
    drop(workshop);

    fs::create_dir_all(disks.path("etc")).unwrap();
    fs::write(
        disks.path("etc/fstab"),
        "/dev/mapper/sd--vg-root / ext4\n/dev/mapper/sd--vg-home /home ext4\n/dev/sda1 /boot ext4\n",
    )
    .unwrap();
    disks.run(&["put", "0.img", "-m", "/dev/sd-vg/root", "etc", "/"]);
    disks.run(&["mkdir", "0.img", "-m", "/dev/mapper/sd--vg-root", "/home", "/boot", "/usr"]);
    let content = noise(3 << 20);
    fs::write(disks.path("in"), &content).unwrap();
    disks.run(&["put", "0.img", "--add", "1.img", "in", "/home"]);
    disks.run(&["put", "0.img", "in", "/usr"]);

    // Of the volumes in the order in which they were made, on disks that LVM leaves a megabyte of.
    let root = disks.cut("0.img", (20480 * 512) + (1 << 20), 32);
    assert!(dumped(&root, "/usr/in") == content);
    let home = disks.cut("1.img", 1 << 20, 32);
    assert!(dumped(&home, "/in") == content);

    let before = ["0.img", "1.img"].map(|name| fs::read(disks.path(name)).unwrap());
    let listed = disks.run(&["df", "0.img", "--add", "1.img"]);
    for wanted in ["sd-vg/root", "sd-vg/home", "vda1", "/home", "/boot"] {
        assert!(listed.contains(wanted), "{listed}");
    }
    let inspected = disks.run(&["inspect", "0.img", "--add", "1.img"]);
    assert!(inspected.contains("/dev/sd-vg/root") && inspected.contains("LVM2_member"), "{inspected}");
    let alone = disks.output(&["ls", "0.img", "/home"]);
    let said = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert!(alone.status.success() && said.contains("1 of the disks of the volume group sd-vg are missing"), "{said}");
    assert!(said.contains("/etc/fstab wants /dev/mapper/sd--vg-home on /home"), "{said}");
    assert!(before == ["0.img", "1.img"].map(|name| fs::read(disks.path(name)).unwrap()), "looking has written");
}

#[test]
fn a_file_system_is_made_checked_and_labelled_on_a_logical_volume_by_commands_of_their_own() {
    let disks = Disks::new(&[64]);
    let mut workshop = disks.workshop(&["0.img"]);
    workshop.lvm(&["pvcreate", "/dev/vda"]);
    workshop.lvm(&["vgcreate", "vg", "/dev/vda"]);
    workshop.lvm(&["lvcreate", "-Wn", "-Zn", "-L", "32M", "-n", "root", "vg"]);
    workshop.lvm(&["vgchange", "-an", "vg"]);
    drop(workshop);
    assert!(
        disks.fail(&["mkfs", "0.img", "vg/home", "ext4"]).contains("there is no vg/home: the image has vda, vg/root")
    );
    disks.run(&["mkfs", "0.img", "vg/root", "ext4"]);
    assert!(disks.fail(&["mkfs", "0.img", "vg/root", "ext4"]).contains("vg/root holds ext4"));
    disks.run(&["label", "0.img", "/dev/vg/root", "home"]);
    assert_eq!(disks.run(&["fsck", "0.img", "mapper/vg-root"]), "vg/root (ext4): clean\n");
    // LVM leaves a megabyte before the volume.
    let root = disks.cut("0.img", 1 << 20, 32);
    assert_eq!(tool("e2label", "e2fsprogs", [&root]), "home\n");
}

#[test]
fn arrays_run_with_all_their_disks_and_with_one_less() {
    let disks = Disks::new(&[24, 24, 20, 20, 20]);
    let mut workshop = disks.workshop(&["0.img", "1.img", "2.img", "3.img", "4.img"]);
    let create = ["--create", "--run", "--assume-clean", "--homehost=box"];
    let mirror = ["/dev/md0", "--level=1", "--metadata=1.0", "--raid-devices=2", "/dev/vda", "/dev/vdb"];
    workshop.run(&MDADM, &[&create[..], &mirror[..]].concat());
    let parity = ["/dev/md/data", "--level=5", "--raid-devices=3", "/dev/vdc", "/dev/vdd", "/dev/vde"];
    workshop.run(&MDADM, &[&create[..], &parity[..]].concat());
    workshop.run(&MKE2FS, &["-q", "-t", "ext4", "/dev/md0"]);
    workshop.run(&MKE2FS, &["-q", "-t", "ext4", "/dev/md/data"]);
    workshop.run(&MDADM, &["--stop", "/dev/md0", "/dev/md/data"]);
    drop(workshop);

    let content = noise(3 << 20);
    fs::write(disks.path("in"), &content).unwrap();
    disks.run(&["put", "0.img", "--add", "1.img", "in", "/"]);
    // Each half of a mirror with its superblock at the end is a file system.
    for half in ["0.img", "1.img"] {
        tool("e2fsck", "e2fsprogs", ["-fn", disks.path(half).to_str().unwrap()]);
        assert!(dumped(&disks.path(half), "/in") == content);
    }
    let three = ["--add", "3.img", "--add", "4.img"];
    disks.run(&[&["put", "2.img"], &three[..], &["-m", "/dev/md/data", "in", "/"]].concat());

    let before = [2, 4].map(|index| fs::read(disks.path(&format!("{index}.img"))).unwrap());
    let output = disks.output(&["get", "2.img", "--add", "4.img", "/in", "out"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("1 of the 3 disks of the RAID box:data are missing"), "{said}");
    assert!(fs::read(disks.path("out")).unwrap() == content);
    assert!(
        before == [2, 4].map(|index| fs::read(disks.path(&format!("{index}.img"))).unwrap()),
        "looking has written"
    );
    let said = disks.fail(&["ls", "3.img"]);
    assert!(said.contains("2 of the 3 disks of the RAID box:data are missing"), "{said}");
}

/// A disk with an encrypted volume, in it a volume group, in that a file system: its key is `hush`.
fn encrypted() -> Disks {
    let disks = Disks::new(&[64]);
    let mut workshop = disks.workshop(&["0.img"]);
    let quick =
        ["--pbkdf", "argon2id", "--pbkdf-memory", "32", "--pbkdf-force-iterations", "4", "--pbkdf-parallel", "1"];
    let format = ["luksFormat", "--batch-mode", "--type", "luks2", "--disable-locks", "--key-file", "-"];
    workshop.run_with_input(&CRYPTSETUP, &[&format[..], &quick[..], &["/dev/vda"]].concat(), "hush");
    let open = ["open", "--disable-locks", "--disable-keyring", "--key-file", "-", "/dev/vda", "made"];
    workshop.run_with_input(&CRYPTSETUP, &open, "hush");
    workshop.lvm(&["pvcreate", "/dev/mapper/made"]);
    workshop.lvm(&["vgcreate", "crypt", "/dev/mapper/made"]);
    workshop.lvm(&["lvcreate", "-Wn", "-Zn", "-L", "32M", "-n", "root", "crypt"]);
    workshop.run(&MKE2FS, &["-q", "-t", "ext4", "/dev/crypt/root"]);
    workshop.lvm(&["vgchange", "-an", "crypt"]);
    workshop.run(&CRYPTSETUP, &["close", "--disable-locks", "made"]);
    key_file(&disks.path("key"), "hush\n");
    key_file(&disks.path("wrong"), "rush\n");
    disks
}

#[test]
fn an_encrypted_volume_opens_with_its_key_alone() {
    let disks = encrypted();
    let content = noise(3 << 20);
    fs::write(disks.path("in"), &content).unwrap();
    disks.run(&["put", "0.img", "--key-file", "key", "in", "/"]);
    let before = fs::read(disks.path("0.img")).unwrap();
    disks.run(&["get", "0.img", "--key", "/dev/sda:file:key", "/in", "out"]);
    assert!(fs::read(disks.path("out")).unwrap() == content);

    let said = disks.fail(&["ls", "0.img", "--key-file", "wrong"]);
    assert!(said.contains("vda: no key that was given opens it"), "{said}");
    let said = disks.fail(&["ls", "0.img"]);
    assert!(said.contains("vda is encrypted (LUKS): give its key with --key-file"), "{said}");
    let usage = disks.output(&["ls", "0.img", "--key", "vda:key:hush"]);
    assert_eq!(usage.status.code(), Some(2));
    assert!(!String::from_utf8_lossy(&usage.stderr).contains("hush"));
    assert!(before == fs::read(disks.path("0.img")).unwrap(), "looking has written");
    assert!(!before.windows(64).any(|window| window == &content[..64]), "what was written is not encrypted");

    // Whoever opens it after us finds everything in good order.
    let mut workshop = disks.workshop(&["0.img"]);
    workshop.run_with_input(
        &CRYPTSETUP,
        &["open", "--disable-locks", "--disable-keyring", "--key-file", "-", "/dev/vda", "x"],
        "hush",
    );
    workshop.lvm(&["vgchange", "-ay", "crypt"]);
    workshop.run(&E2FSCK, &["-fn", "/dev/crypt/root"]);
}

/// What is typed at a terminal that script(1) makes.
#[test]
fn a_passphrase_is_asked_for_three_times_and_not_shown() {
    let disks = encrypted();
    let typed = |passphrases: &[&str]| {
        let command = format!("{} image ls 0.img /", env!("CARGO_BIN_EXE_blockyard"));
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--echo", "never", "--command", &command, "/dev/null"]);
        script.current_dir(disks.directory.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = script.spawn().unwrap_or_else(|error| panic!("script ({error}): it is in Debian's bsdutils"));
        let (mut keyboard, mut screen) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
        let (mut said, mut asked) = (Vec::new(), 0);
        let mut buffer = [0; 4096];
        while let Ok(bytes @ 1..) = screen.read(&mut buffer) {
            said.extend_from_slice(&buffer[..bytes]);
            let questions = String::from_utf8_lossy(&said).matches("): ").count();
            for passphrase in passphrases.get(asked..questions).into_iter().flatten() {
                keyboard.write_all(format!("{passphrase}\n").as_bytes()).unwrap();
            }
            asked = questions;
        }
        (script.wait().unwrap().code(), String::from_utf8_lossy(&said).into_owned())
    };
    let (status, said) = typed(&["rush", "hush"]);
    assert!(status == Some(0) && said.contains("Passphrase for vda") && said.contains("lost+found"), "{said}");
    assert!(said.contains("no key is available with this passphrase") && !said.contains("hush"), "{said}");
    let (status, said) = typed(&["a", "b", "c", "d"]);
    assert!(status == Some(1) && said.contains("the passphrase was wrong 3 times"), "{said}");
}
