//! `blockyard run` on User-Mode Linux: systems out of images, with the terminal's place taken by pipes.

mod support;

use blockyard_linux_guest::{debian_root, make_root, write_initramfs};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use support::{Outcome, Yard, blockyard, children, finish, is_alive, run, terminal, wait_until};

/// `blockyard run` there, with `image` and not much memory.
fn on_uml(image: &Path) -> Command {
    let mut command = blockyard();
    command.args(["run", "--backend", "uml", "--memory", "256M", "--append", "quiet"]).arg(image).stdin(Stdio::piped());
    command
}

/// An image whose only file system has a system of busybox with this script as its init.
fn busybox(yard: &Yard, script: &str) -> PathBuf {
    let root = yard.path("root");
    make_root(&root, script).unwrap();
    image_of(yard, &root)
}

/// An image whose only file system has what is in a directory.
fn image_of(yard: &Yard, root: &Path) -> PathBuf {
    let image = yard.path("disk.img");
    File::create(&image).unwrap().set_len(32 << 20).unwrap();
    tool("mke2fs", &["-q".as_ref(), "-t".as_ref(), "ext4".as_ref(), "-d".as_ref(), root, &image]);
    image
}

fn tool(program: &str, arguments: &[&Path]) {
    let status = Command::new(program).args(arguments).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").status();
    assert!(status.unwrap_or_else(|error| panic!("{program} ({error}): e2fsprogs has it")).success());
}

/// Somebody before a guest's console.
struct Seat {
    child: Child,
    /// What it sits before, unless that is the child's standard input and output.
    terminal: Option<File>,
    /// What was not looked at yet.
    said: Vec<u8>,
}

impl Seat {
    fn take(mut command: Command) -> Self {
        Self { child: command.spawn().unwrap(), terminal: None, said: Vec::new() }
    }

    /// The same before a terminal of that size.
    fn before_terminal(mut command: Command, rows: u16, columns: u16) -> Self {
        let (ours, terminal) = terminal();
        tcsetwinsize(&ours, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        command.stdin(terminal.try_clone().unwrap()).stdout(terminal);
        Self { terminal: Some(ours), ..Self::take(command) }
    }

    /// Waits until the console says `text`; what it said up to there.
    fn sees(&mut self, text: &str) -> String {
        let stdout: &mut dyn Read = match &mut self.terminal {
            Some(terminal) => terminal,
            None => self.child.stdout.as_mut().unwrap(),
        };
        loop {
            if let Some(at) = self.said.windows(text.len()).position(|window| window == text.as_bytes()) {
                let rest = self.said.split_off(at + text.len());
                return String::from_utf8_lossy(&std::mem::replace(&mut self.said, rest)).into_owned();
            }
            let mut piece = [0; 4096];
            // Of a terminal that nobody has any more, nothing can be read.
            let count = stdout.read(&mut piece).unwrap_or(0);
            if count == 0 {
                let mut errors = String::new();
                self.child.stderr.as_mut().unwrap().read_to_string(&mut errors).unwrap();
                panic!("no {text:?} in {} ({errors})", String::from_utf8_lossy(&self.said));
            }
            self.said.extend(&piece[..count]);
        }
    }

    fn types(&mut self, text: &str) {
        let stdin: &mut dyn Write = match &mut self.terminal {
            Some(terminal) => terminal,
            None => self.child.stdin.as_mut().unwrap(),
        };
        stdin.write_all(text.as_bytes()).unwrap();
    }

    fn ends(self) -> Outcome {
        finish(self.child)
    }
}

#[test]
fn a_system_reboots_hears_and_powers_off() {
    let yard = Yard::new();
    let image = busybox(
        &yard,
        "[ -e /before ] || { touch /before; sync; echo first; reboot -f; }
         echo second, modules of $(ls /lib/modules), devices told to $(cat /proc/sys/kernel/hotplug)nobody
         read line; echo heard $line
         poweroff -f",
    );
    let before = fs::read(&image).unwrap();
    let mut command = on_uml(&image);
    command.args(["--snapshot", "--stats", "--json"]);
    let mut seat = Seat::take(command);
    seat.sees("first");
    seat.sees("second, modules of , devices told to nobody");
    seat.types("a word\n");
    seat.sees("heard a word");
    let outcome = seat.ends().succeeded();
    let report: serde_json::Value = serde_json::from_str(outcome.stderr.lines().last().unwrap()).unwrap();
    assert_eq!((&report["backend"], &report["reboots"]), (&"uml".into(), &1.into()));
    assert!(report["disks"][0]["reads"].as_u64().unwrap() > 0);
    assert!(fs::read(&image).unwrap() == before, "--snapshot drops what was written");
    run(on_uml(&image).args(["--snapshot", "--no-reboot"])).succeeded();
}

#[test]
fn what_the_host_fails_at_is_told_when_the_guest_has_ended() {
    let yard = Yard::new();
    let image = busybox(
        &yard,
        "[ -e /before ] && poweroff -f
         dd if=/dev/zero of=/dev/vdb bs=4k count=1 conv=fsync || touch /before
         sync; reboot -f",
    );
    let failing = yard.path("other.img");
    File::create(&failing).unwrap().set_len(1 << 20).unwrap();
    let disk = format!("{},snapshot,faults=write-error:1", failing.display());
    let outcome = run(on_uml(&image).args(["--snapshot", "--stats", "--json", "--disk", &disk])).succeeded();
    let (note, report) = outcome.stderr.trim_end().rsplit_once('\n').unwrap();
    let why = "Input/output error (os error 5)";
    let expected = format!("{disk}: a request of the guest's failed: {why}");
    assert!(note.ends_with(&expected) && note.matches("failed").count() == 1, "{note}");
    let report: serde_json::Value = serde_json::from_str(report).unwrap();
    assert_eq!((&report["reboots"], &report["disks"][0]["first_error"]), (&1.into(), &serde_json::Value::Null));
    assert_eq!(report["disks"][1]["first_error"], why);
}

#[test]
fn a_system_that_does_nothing_but_reboot_is_left() {
    let yard = Yard::new();
    let image = busybox(&yard, "echo again; reboot -f");
    let mut seat = Seat::before_terminal(on_uml(&image), 24, 80);
    (0..3).for_each(|_| _ = seat.sees("again"));
    seat.types("\x01x");
    // It says more than the terminal has room for.
    let mut terminal = seat.terminal.take().unwrap();
    let reader = std::thread::spawn(move || _ = std::io::copy(&mut terminal, &mut std::io::sink()));
    seat.ends().succeeded();
    reader.join().unwrap();
}

/// What was looked at when the machine began is what it begins anew with.
#[test]
fn a_kernel_whose_name_another_program_takes_boots_again() {
    let yard = Yard::new();
    let image =
        busybox(&yard, "[ -e /before ] || { touch /before; sync; echo first; read go; reboot -f; }; poweroff -f");
    let (kernel, other) = (yard.path("linux.uml"), yard.path("other"));
    fs::copy("/usr/bin/linux.uml", &kernel).unwrap();
    fs::copy("/bin/true", &other).unwrap();
    let mut command = on_uml(&image);
    command.args(["--kernel"]).arg(&kernel).args(["--stats", "--json"]);
    let mut seat = Seat::take(command);
    seat.sees("first");
    fs::rename(other, kernel).unwrap();
    seat.types("go\n");
    assert!(seat.ends().succeeded().stderr.contains("\"reboots\":1"));
}

#[test]
fn directories_are_shared_with_a_system() {
    let yard = Yard::new();
    // A directory's name is no word of ours.
    for name in ["start", "notes"] {
        fs::create_dir(yard.path(name)).unwrap();
        fs::write(yard.path(name).join("greeting"), format!("{name} of the host\n")).unwrap();
    }
    let image = busybox(
        &yard,
        "mkdir -p /a /b; mount -t virtiofs work /a; mount -t virtiofs -o ro notes /b
         cat /a/greeting /b/greeting
         echo of the guest >/a/answer
         echo no >/b/answer || echo notes stay as they are
         umount /a; poweroff -f",
    );
    let mut command = on_uml(&image);
    command.current_dir(yard.path("")).args(["--share", "start:work", "--share", "notes:notes,ro"]);
    let outcome = run(&mut command).succeeded();
    for expected in ["start of the host", "notes of the host", "notes stay as they are"] {
        assert!(outcome.stdout.contains(expected), "{expected}: {outcome:#?}");
    }
    assert_eq!(fs::read_to_string(yard.path("start").join("answer")).unwrap(), "of the guest\n");
    assert!(!yard.path("notes").join("answer").exists());
    let share = |name: &str, more: &str| format!("{}:{name}{more}", yard.path(name).display());
    run(on_uml(&image).args(["--share", &share("missing", "")])).failed(1, &["cannot share", "missing"]);
    fs::remove_file(yard.path("start").join("answer")).unwrap();
    // Who is root in a user namespace alone: it has no groups to give up, nor anybody else to become.
    let mut below = Command::new("unshare");
    below.current_dir(yard.path("")).args(["--user", "--map-root-user"]);
    below.arg(command.get_program()).args(command.get_args());
    below.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let outcome = run(&mut below).succeeded();
    assert!(outcome.stdout.contains("start of the host"), "{outcome:#?}");
    assert_eq!(fs::read_to_string(yard.path("start").join("answer")).unwrap(), "of the guest\n");
}

/// It loads one itself, as busybox has no tables of the kind that it finds.
const LOOKS_AT_MODULES: &str = "cd /lib/modules; echo has $(ls); cd $(uname -r)
     insmod kernel/fs/overlayfs/overlay.ko && echo loaded $(grep -c '^overlay ' /proc/modules)
     cat mark; echo devices told to $(cat /proc/sys/kernel/hotplug)
     touch new || echo stays; touch ../beside && echo written beside; sync; poweroff -f";

#[test]
fn a_system_finds_its_kernels_modules_beside_its_own() {
    let yard = Yard::new();
    let release = fs::read_dir("/usr/lib/uml/modules").expect("they come with the package user-mode-linux");
    let release = release.last().unwrap().unwrap().file_name().into_string().unwrap();
    let root = yard.path("root");
    make_root(&root, LOOKS_AT_MODULES).unwrap();
    fs::create_dir_all(root.join("lib/modules/5.own")).unwrap();
    let said = run(&mut on_uml(&image_of(&yard, &root))).succeeded().stdout;
    assert!(said.contains("has 5.own\r") && !said.contains("loaded"), "nobody would load them: {said}");
    fs::write(root.join("sbin/modprobe"), "").unwrap();
    // What the kernel executes, too, where it is there.
    fs::write(root.join("sbin/hotplug"), "").unwrap();
    let image = image_of(&yard, &root);
    let said = run(on_uml(&image).args(["--append", "quiet ro"])).succeeded().stdout;
    assert!(said.contains(&format!("has {release}\r")) && said.contains("loaded 1"), "{said}");
    assert!(said.contains("stays") && !said.contains("written beside"), "{said}");
    assert!(said.contains("devices told to /sbin/hotplug\r"), "{said}");
    for _ in 0..2 {
        let said = run(&mut on_uml(&image)).succeeded().stdout;
        let all = format!("has 5.own {release}");
        assert!(said.contains(&all) && said.contains("loaded 1"), "{all}: {said}");
        assert!(said.contains("stays") && said.contains("written beside"), "{said}");
        run(blockyard().args(["image", "rm", "/lib/modules/beside"]).arg(&image));
    }
    fs::create_dir(root.join("lib/modules").join(&release)).unwrap();
    for (name, content) in [("modules.dep", ""), ("mark", "the image's own\n")] {
        fs::write(root.join("lib/modules").join(&release).join(name), content).unwrap();
    }
    let said = run(&mut on_uml(&image_of(&yard, &root))).succeeded().stdout;
    assert!(said.contains("the image's own") && !said.contains("loaded"), "{said}");
}

#[test]
fn an_initrd_boots_on_the_kernel_that_is_named() {
    let yard = Yard::new();
    let modules = fs::read_dir("/usr/lib/uml/modules").expect("they come with the package user-mode-linux");
    let driver = modules.last().unwrap().unwrap().path().join("kernel/drivers/block/virtio_blk.ko");
    let initrd = yard.path("test.cpio");
    write_initramfs(
        &initrd,
        &[("virtio_blk.ko", &fs::read(driver).unwrap())],
        "ls -d /sys/block/vd*; head -c 4 /dev/vda; echo; cat /proc/cmdline",
    )
    .unwrap();
    fs::write(yard.path("disk.img"), [&b"disk"[..], &[0; 4092]].concat()).unwrap();
    let mut command = on_uml(&yard.path("disk.img"));
    command.args(["--kernel", "/usr/bin/linux.uml", "--initrd"]).arg(&initrd).args(["--append", "quiet my.word=1"]);
    let said = run(&mut command).succeeded().stdout;
    assert!(said.contains("disk\r\n") && said.contains("my.word=1") && said.contains("/sys/block/vda\r\n"), "{said}");
    let mut alone = blockyard();
    alone
        .args(["run", "--backend", "uml", "--kernel", "/usr/bin/linux.uml", "--append", "alone=1", "--initrd"])
        .arg(&initrd);
    let said = run(&mut alone).succeeded().stdout;
    assert!(said.contains("alone=1") && !said.contains("/sys/block/vda\r\n"), "{said}");
}

#[test]
fn a_guest_that_dies_or_hangs_is_told_of() {
    let yard = Yard::new();
    let image =
        busybox(&yard, "case $(cat /proc/cmdline) in *crash*) exit 3;; esac; echo up; while :; do sleep 1000; done");
    run(on_uml(&image).args(["--append", "quiet crash"])).failed(1, &["the guest's kernel has died", "kill init"]);
    // Mostly before its first instruction.
    run(on_uml(&image).args(["--timeout", "0.1"]))
        .failed(1, &["the machine was stopped after 0.1 s, as --timeout says"]);
    let mut seat = Seat::take(on_uml(&image));
    seat.sees("up");
    kill_process(Pid::from_raw(seat.child.id() as i32).unwrap(), Signal::TERM).unwrap();
    seat.ends().failed(143, &["SIGTERM"]);
    let mut seat = Seat::take(on_uml(&image));
    seat.sees("up");
    let is_kernel = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap().starts_with(b"/usr/bin/linux.uml\0");
    // Without namespaces of its own, it is the command's child itself.
    let mut kernel = children(seat.child.id())[0];
    while !is_kernel(kernel) {
        kernel = children(kernel)[0];
    }
    kill_process(Pid::from_raw(kernel as i32).unwrap(), Signal::KILL).unwrap();
    seat.ends().failed(1, &["the guest's kernel has died: its process ended with"]);
    run(on_uml(&image).args(["--ends-with", "1"])).failed(1, &["process 1, which has started this one, has ended"]);
}

#[test]
fn a_machine_ends_with_whoever_started_it() {
    let yard = Yard::new();
    let machine = on_uml(&busybox(&yard, "echo up; while :; do sleep 1000; done"));
    let mut starter = Command::new("/bin/sh");
    starter.args(["-c", "\"$@\" --ends-with $$ & wait", "sh"]).arg(machine.get_program()).args(machine.get_args());
    starter.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut seat = Seat::take(starter);
    seat.sees("up");
    let machine = children(seat.child.id())[0];
    seat.child.kill().unwrap();
    wait_until("the machine has ended", || !is_alive(machine));
    // It has the console and stderr, too.
    assert!(seat.ends().stderr.contains("SIGTERM"));
}

/// SIGQUIT kills, and the shell behind has a terminal that shows what is typed all the same.
#[test]
fn a_machine_that_quits_gives_the_terminal_back() {
    let yard = Yard::new();
    let image = busybox(&yard, "echo up; while :; do sleep 1000; done");
    let (_seat, terminal) = terminal();
    let before = tcgetattr(&terminal).unwrap();
    let mut command = on_uml(&image);
    command.stdin(terminal.try_clone().unwrap());
    let mut seat = Seat::take(command);
    seat.sees("up");
    assert!(!tcgetattr(&terminal).unwrap().local_modes.contains(LocalModes::ECHO));
    kill_process(Pid::from_raw(seat.child.id() as i32).unwrap(), Signal::QUIT).unwrap();
    assert_eq!(seat.child.wait().unwrap().signal(), Some(Signal::QUIT.as_raw()));
    let after = tcgetattr(&terminal).unwrap();
    assert_eq!((after.local_modes, after.input_modes), (before.local_modes, before.input_modes));
}

#[test]
fn what_user_mode_linux_has_not_is_refused() {
    let yard = Yard::new();
    fs::write(yard.path("empty.img"), [0; 4096]).unwrap();
    fs::write(yard.path("vmlinuz"), "no kernel").unwrap();
    fs::write(yard.path("bzImage"), [&[0; 0x202], &b"HdrS"[..], &[0; 0x100]].concat()).unwrap();
    let for_machines = "the kernel bzImage is one for machines (a bzImage), and User-Mode Linux is a program: boot it with --backend kvm,";
    fs::write(yard.path("large.cpio"), [&b"070701"[..], &vec![0; 140 << 20]].concat()).unwrap();
    let (letters, many) = ("x".repeat(5000), ["--disk", "mem:1M"].repeat(40));
    for (words, expected) in [
        (&["--cpus", "2"][..], "one processor"),
        (&["--bus", "virtio-mmio"], "--bus"),
        (&["--place", "shared"], "--place"),
        (&["--memory", "16M"], "64 MiB"),
        (&["--memory", "1000T"], "a guest cannot have 1000.00 TiB of memory where there are"),
        (&["--append", &letters], "the command line has 5000 bytes, and User-Mode Linux takes 2047"),
        (&many, "room for 32 disks and shares, not 41"),
        (&["--kernel", "/usr/bin/linux.uml", "--initrd", "large.cpio"], "large.cpio has 140.00 MiB, and beside"),
        (&["--share", "/etc:blockyard.modules"], "is taken"),
    ] {
        run(on_uml(&yard.path("empty.img")).args(words).current_dir(yard.path(""))).failed(2, &[expected]);
    }
    for (words, expected) in [
        (&["--kernel", "/bin/true"][..], "no User-Mode Linux"),
        (&["--kernel", "vmlinuz"], "no User-Mode Linux"),
        (&["--kernel", "bzImage"], for_machines),
        (&["--kernel", "missing"], "missing cannot be used"),
        (&["--kernel", "/usr/bin/linux.uml", "--initrd", "missing"], "cannot read the initrd missing"),
        (&["--kernel", "/usr/bin/linux.uml", "--initrd", "vmlinuz"], "vmlinuz: the initrd is none: Linux takes cpio"),
        (&[], "no partitions"),
    ] {
        run(on_uml(&yard.path("empty.img")).args(words).current_dir(yard.path(""))).failed(1, &[expected]);
    }
    run(on_uml(&yard.path("empty.img")).env("BLOCKYARD_UML", yard.path("bzImage")))
        .failed(1, &["a kernel for machines (a bzImage): BLOCKYARD_APPLIANCE_KERNEL takes those"]);
}

/// `blockyard image` with these words.
fn image(words: &[&str], paths: &[&Path]) {
    run(blockyard().arg("image").args(words).args(paths)).succeeded();
}

/// An image of a volume group with what is in `archive` as its root, and /home beside it.
fn volume_group(yard: &Yard, name: &str, root_mebibytes: u32, archive: &Path) -> PathBuf {
    let (disk, script, fstab) = (yard.path(name), yard.path("script"), yard.path("fstab"));
    image(
        &["create", "--table", "gpt", "--part", "16M,fs=ext4,label=boot", "--part", "rest,type=lvm"],
        &[&disk, "900M".as_ref()],
    );
    let lines = format!(
        "pvcreate /dev/sda2\nvgcreate yard /dev/sda2\nlvcreate root yard {root_mebibytes}\nlvcreate home yard 32\n\
         mkfs ext4 /dev/yard/root\nmkfs ext4 /dev/yard/home\n"
    );
    fs::write(&script, lines).unwrap();
    fs::write(&fstab, "/dev/mapper/yard-root / ext4 defaults 0 1\n/dev/yard/home /home ext4 defaults 0 2\n").unwrap();
    image(&["script"], &[&script, "-a".as_ref(), &disk]);
    image(&["tar-in", "-m", "yard/root"], &[&disk, archive]);
    image(&["put", "-m", "yard/root"], &[&disk, &fstab, "/etc/".as_ref()]);
    disk
}

#[test]
fn roots_in_volume_groups_and_btrfs_are_found() {
    let yard = Yard::new();
    let (root, archive, btrfs) = (yard.path("root"), yard.path("root.tar"), yard.path("btrfs.img"));
    make_root(&root, "grep ' / ' /proc/mounts | tail -n 1; mount -o remount,ro /; poweroff -f").unwrap();
    tool("tar", &["-C".as_ref(), &root, "-cf".as_ref(), &archive, ".".as_ref()]);
    image(&["create", "--fs", "btrfs"], &[&btrfs, "200M".as_ref()]);
    image(&["tar-in"], &[&btrfs, &archive]);
    let group = volume_group(&yard, "group.img", 64, &archive);
    for (disk, append, expected) in [
        (&btrfs, "quiet", "/dev/vda / btrfs rw"),
        (&btrfs, "quiet ro rootflags=compress=zstd", "/ btrfs ro,relatime,compress=zstd"),
        (&group, "quiet root=/dev/yard/root", "/ ext4 rw"),
        (&group, "quiet root=/dev/mapper/yard-root rootflags=nobarrier", "nobarrier"),
    ] {
        let said = run(on_uml(disk).args(["--append", append])).succeeded().stdout;
        assert!(said.contains(expected), "{append}: {said}");
    }
}

/// What Debian's installer makes by default: a volume group in LUKS. The same key opens it after a reboot.
#[test]
fn a_root_in_an_encrypted_volume_group_opens_with_its_key() {
    let yard = Yard::new();
    let (root, archive, disk) = (yard.path("root"), yard.path("root.tar"), yard.path("crypt.img"));
    let script = "[ -e /before ] || { touch /before; sync; mount -o remount,ro /; reboot -f; }
         grep ' / ' /proc/mounts | tail -n 1; ls /dev/mapper; mount -o remount,ro /; poweroff -f";
    make_root(&root, script).unwrap();
    tool("tar", &["-C".as_ref(), &root, "-cf".as_ref(), &archive, ".".as_ref()]);
    let (key, words) = (yard.path("key"), yard.path("script"));
    fs::write(&key, "a pass phrase\n").unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    image(&["create", "--table", "gpt", "--part", "rest,type=luks"], &[&disk, "96M".as_ref()]);
    let lines = format!(
        "luks-format /dev/sda1 0 keyfile:{key} itertime:10\ncryptsetup-open /dev/sda1 crypt keyfile:{key}\n\
         pvcreate /dev/mapper/crypt\nvgcreate yard-vg /dev/mapper/crypt\nlvcreate root yard-vg 48\n\
         mkfs ext4 /dev/yard-vg/root\nmount /dev/yard-vg/root /\ntar-in {archive} /\n",
        key = key.display(),
        archive = archive.display()
    );
    fs::write(&words, lines).unwrap();
    image(&["script"], &[&words, "-a".as_ref(), &disk]);
    run(&mut on_uml(&disk)).failed(1, &["vda1 is encrypted (LUKS): give its key with --key-file or --key"]);
    // Nobody writes into the pipe that it is read from.
    let waiting = run(on_uml(&disk).args(["--key-file", "/proc/self/fd/0", "--timeout", "0.5"]));
    waiting.failed(1, &["the machine was stopped after 0.5 s, as --timeout says"]);
    for more in [&[][..], &["--print-config"]] {
        let outcome = run(on_uml(&disk).args(["--key", "vda1:key:hush"]).args(more));
        let outcome = outcome.failed(2, &["others see a command's arguments"]);
        assert!(!(outcome.stdout + &outcome.stderr).contains("hush"));
    }
    let mut command = on_uml(&disk);
    command.args(["--memory", "1536M", "--key"]);
    let said = run(command.arg(format!("sda1:file:{}", key.display()))).succeeded().stdout;
    assert!(said.contains("/ ext4 rw") && said.contains("yard--vg-root"), "{said}");
}

#[test]
fn a_root_on_a_mirror_comes_up_with_both_of_its_disks_and_with_one() {
    let yard = Yard::new();
    let (root, archive, words) = (yard.path("root"), yard.path("root.tar"), yard.path("script"));
    make_root(&root, "grep ' / ' /proc/mounts | tail -n 1; cat /proc/mdstat; mount -o remount,ro /; poweroff -f")
        .unwrap();
    tool("tar", &["-C".as_ref(), &root, "-cf".as_ref(), &archive, ".".as_ref()]);
    let [one, other] = ["0.img", "1.img"].map(|name| yard.path(name));
    for disk in [&one, &other] {
        File::create(disk).unwrap().set_len(48 << 20).unwrap();
    }
    fs::write(&words, "md-create root \"/dev/sda /dev/sdb\"\nmkfs ext4 /dev/md127\n").unwrap();
    image(&["script"], &[&words, "-a".as_ref(), &one, "-a".as_ref(), &other]);
    image(&["tar-in", "--add"], &[&other, &one, &archive]);
    let said = run(on_uml(&one).arg("--disk").arg(&other)).succeeded().stdout;
    assert!(said.contains("/dev/md127 / ext4 rw") && said.contains("[UU]"), "{said}");
    let outcome = run(on_uml(&one).arg("--snapshot")).succeeded();
    let lack = "1 of the 2 disks of the RAID root are missing: name them with --disk";
    assert!(outcome.stdout.contains("[U_]") && outcome.stderr.contains(lack), "{outcome:#?}");
}

#[test]
fn a_snapshot_without_a_place_says_what_names_one() {
    let yard = Yard::new();
    let image = yard.random("disk.img", 1 << 20, 7);
    let said = "no place for a snapshot's changes (TMPDIR names one): cannot make a temporary file in /nonexistent";
    run(on_uml(&image).arg("--snapshot").env("TMPDIR", "/nonexistent")).failed(1, &[said]);
}

#[test]
fn what_is_no_root_is_told_in_words_of_this_command() {
    let yard = Yard::new();
    let disk = yard.path("data.img");
    image(&["create", "--table", "gpt", "--part", "16M,fs=ext4", "--part", "rest,fs=ext4"], &[&disk, "48M".as_ref()]);
    run(&mut on_uml(&disk)).failed(1, &["none of vda1, vda2 looks like a root file system: choose one with root="]);
}

/// A Debian as an archive.
fn debian() -> PathBuf {
    let binary = Path::new(env!("CARGO_BIN_EXE_blockyard"));
    let archive = binary.ancestors().map(debian_root).find(|archive| archive.exists());
    archive.expect("there is no Debian to boot: run `cargo xtask setup`")
}

/// Logs in, runs `command`, sees what is expected, and switches it off.
fn is_used(disk: &Path, command: &str, expected: &[&str]) {
    // The console is opened anew for each login.
    let mut seat = Seat::before_terminal(on_uml(disk), 33, 123);
    seat.sees("yard login: ");
    seat.types("root\n");
    seat.sees("root@yard:~# ");
    seat.types("stty size\n");
    seat.sees("33 123");
    seat.types(command);
    seat.types("\n");
    expected.iter().for_each(|expected| _ = seat.sees(expected));
    seat.types("poweroff\n");
    seat.ends().succeeded();
    image(&["fsck"], &[disk]);
}

#[test]
fn a_debian_comes_up_to_its_login_prompt() {
    let yard = Yard::new();
    let disk = yard.path("debian.qcow2");
    image(&["create", "--table", "gpt", "--part", "rest,fs=ext4"], &[&disk, "800M".as_ref()]);
    image(&["tar-in"], &[&disk, &debian()]);
    let load = "modprobe -a overlay nf_tables; echo modules: $(grep -cE '^(overlay|nf_tables) ' /proc/modules)";
    let command = format!("systemctl is-system-running; findmnt -no SOURCE /; {load}");
    is_used(&disk, &command, &["running", "/dev/vda1", "modules: 2"]);
}

/// Its udev has to know of the volumes that were open before it began, or it waits for /home in vain.
#[test]
fn a_debian_on_a_volume_group_mounts_its_other_volumes() {
    let yard = Yard::new();
    let disk = volume_group(&yard, "debian.qcow2", 760, &debian());
    is_used(&disk, "findmnt -no SOURCE /home; vgs --noheadings", &["/dev/mapper/yard-home", "yard   1   2"]);
}
