//! User-Mode Linux, a real kernel's driver, on a disk of ours: mounts, writes, syncs; the host finds it all and in good order.

#[path = "../../../xtask/src/cpio.rs"]
mod cpio;

use blockyard_block::{FileDisk, FileOptions};
use blockyard_session::server::{EndReason, Export, Listener, Server, ServerOptions};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::{self, File};
use std::num::NonZeroU32;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(60);
const INIT: &str = "#!/bin/busybox sh
/bin/busybox insmod /virtio_blk.ko
/bin/busybox mount -t proc proc /proc
major=$(/bin/busybox awk '$2 == \"virtblk\" { print $1 }' /proc/devices)
/bin/busybox mknod /dev/vda b $major 0
/bin/busybox mount -t ext4 /dev/vda /mnt && echo mounted
/bin/busybox cat /mnt/greeting
/bin/busybox dd if=/dev/zero bs=1M count=8 2>/dev/null | /bin/busybox tr '\\0' 'y' > /mnt/bulk
echo 'written by the guest' > /mnt/answer
/bin/busybox sync
/bin/busybox umount /mnt && echo unmounted
/bin/busybox poweroff -f
";

/// UML and the processes it makes: gone when this is dropped, whatever happened.
struct Uml(Child);

impl Drop for Uml {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.0.id() as i32) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

fn run(program: &str, package: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program} ({error}): it is in Debian's {package}"));
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn read(path: &Path, package: &str) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{} ({error}): it is in Debian's {package}", path.display()))
}

fn module() -> PathBuf {
    let modules = fs::read_dir("/usr/lib/uml/modules").expect("User-Mode Linux is in Debian's user-mode-linux");
    modules.flatten().next().unwrap().path().join("kernel/drivers/block/virtio_blk.ko")
}

fn initramfs(path: &Path) {
    let mut archive = cpio::Archive::new(File::create(path).unwrap());
    archive.character_device(Path::new("/dev/console"), 5, 1).unwrap();
    archive.character_device(Path::new("/dev/zero"), 1, 5).unwrap();
    archive.directory(Path::new("/proc")).unwrap();
    archive.directory(Path::new("/mnt")).unwrap();
    archive.file(Path::new("/bin/busybox"), &read(Path::new("/bin/busybox"), "busybox-static")).unwrap();
    archive.file(Path::new("/virtio_blk.ko"), &read(&module(), "user-mode-linux")).unwrap();
    archive.file(Path::new("/init"), INIT.as_bytes()).unwrap();
    archive.finish().unwrap();
}

fn file_system(directory: &Path) -> String {
    let (image, greeting) = (directory.join("disk.img"), directory.join("root"));
    fs::create_dir(&greeting).unwrap();
    fs::write(greeting.join("greeting"), "from the host\n").unwrap();
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let (image, greeting) = (image.to_str().unwrap().to_owned(), greeting.to_str().unwrap());
    run("mkfs.ext4", "e2fsprogs", &["-q", "-d", greeting, &image]);
    image
}

fn boot(directory: &Path, socket: &Path) -> Uml {
    let initramfs = directory.join("initramfs.cpio");
    self::initramfs(&initramfs);
    let mut command = Command::new("linux.uml");
    command
        .arg("mem=128M")
        .arg(format!("initrd={}", initramfs.display()))
        .args(["rdinit=/init", "con=null", "con0=fd:0,fd:1", "quiet", "cryptomgr.notests"])
        .arg("initcall_blacklist=raid6_select_algo,calibrate_xor_blocks")
        .arg(format!("virtio_uml.device={}:2", socket.display()))
        .env("HOME", directory)
        .stdin(Stdio::null())
        .stdout(File::create(directory.join("console")).unwrap())
        .stderr(File::create(directory.join("errors")).unwrap())
        .process_group(0);
    Uml(command.spawn().expect("linux.uml is in Debian's user-mode-linux"))
}

fn accept(listener: &Listener) -> std::os::unix::net::UnixStream {
    let timeout = rustix::event::Timespec::try_from(TIMEOUT).unwrap();
    poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&timeout)).unwrap();
    listener.accept().unwrap().expect("UML connects")
}

#[test]
fn a_guest_mounts_and_writes_and_the_host_finds_it() {
    let directory = tempfile::tempdir().unwrap();
    let image = file_system(directory.path());
    let socket = directory.path().join("disk.sock");
    let listener = Listener::bind(&socket, &[]).unwrap();
    let server = Server::start(&ServerOptions::default()).unwrap();
    let disk = Arc::new(FileDisk::open(Path::new(&image), &FileOptions::default()).unwrap());
    let export = Export { name: "uml".into(), disk, queues: 1, weight: NonZeroU32::MIN };

    let mut uml = boot(directory.path(), &socket);
    let session = server.attach(accept(&listener), export).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    let console = || fs::read_to_string(directory.path().join("console")).unwrap();
    while uml.0.try_wait().unwrap().is_none() {
        let errors = || fs::read_to_string(directory.path().join("errors")).unwrap();
        assert!(Instant::now() < deadline, "UML hangs: {}\n{}\n{:?}", console(), errors(), session.end_reason());
        std::thread::sleep(Duration::from_millis(10));
    }
    let said = console();
    for expected in ["mounted", "from the host", "unmounted"] {
        assert!(said.contains(expected), "no \"{expected}\" in\n{said}\n{:?}", session.end_reason());
    }
    assert_eq!(session.wait(), &EndReason::Disconnected);
    let counts = session.statistics().counts;
    assert!(counts.bytes_written >= 8 << 20 && counts.flushes > 0 && counts.errors == 0, "{counts:?}");

    run("e2fsck", "e2fsprogs", &["-fn", &image]);
    assert_eq!(run("debugfs", "e2fsprogs", &["-R", "cat /answer", &image]), "written by the guest\n");
    let bulk = directory.path().join("bulk");
    run("debugfs", "e2fsprogs", &["-R", &format!("dump /bulk {}", bulk.display()), &image]);
    let bulk = fs::read(bulk).unwrap();
    assert!(bulk.len() == 8 << 20 && bulk.iter().all(|&byte| byte == b'y'));
}
