//! Real Linux kernels mount what `blockyard serve` serves: QEMU's guest and User-Mode Linux make a file system, write,
//! verify, and e2fsck finds it clean afterwards. A server that is killed under QEMU is started again, and nobody
//! notices.

mod server;

use blockyard_linux_guest::{DebianKernel, Guest, UserModeLinux, kernel_directory, write_initramfs};
use server::Server;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const IMAGE_BYTES: u64 = 96 << 20;
const TIMEOUT: Duration = Duration::from_secs(180);

/// Makes a file system on /dev/vda, fills half of it, and says what it wrote.
const FILL: &str = "\
mke2fs -F -L blockyard /dev/vda >/dev/null 2>&1 || mkfs.ext2 -F /dev/vda
mount -t ext4 /dev/vda /mnt || mount -t ext2 /dev/vda /mnt
echo READY
dd if=/dev/urandom of=/mnt/file bs=64k count=640 2>/dev/null
cp /mnt/file /mnt/copy
sync
echo 3 > /proc/sys/vm/drop_caches
cmp /mnt/file /mnt/copy && echo SAME
echo SUM $(sha256sum < /mnt/file)
umount /mnt && echo DONE
";

fn image(directory: &Path) -> PathBuf {
    let image = directory.join("disk.img");
    File::create(&image).unwrap().set_len(IMAGE_BYTES).unwrap();
    image
}

/// The file that the guest wrote is on the image, whole, and the file system is clean.
fn check(image: &Path, transcript: &str) {
    assert!(transcript.contains("SAME") && transcript.contains("DONE"), "{transcript}");
    let sum = transcript.lines().find_map(|line| line.trim().strip_prefix("SUM ")).unwrap();
    let fsck = Command::new("e2fsck").args(["-f", "-n"]).arg(image).output().unwrap();
    assert!(fsck.status.success(), "{}", String::from_utf8_lossy(&fsck.stdout));
    let file = image.with_extension("file");
    let dump = Command::new("debugfs").args(["-R", &format!("dump /file {}", file.display())]).arg(image).output();
    assert!(dump.unwrap().status.success());
    let output = Command::new("sha256sum").stdin(File::open(file).unwrap()).output().unwrap();
    let expected = String::from_utf8_lossy(&output.stdout);
    assert_eq!(sum.split_whitespace().next(), expected.split_whitespace().next());
}

fn target_directory() -> PathBuf {
    let binary = Path::new(env!("CARGO_BIN_EXE_blockyard"));
    binary.ancestors().find(|path| kernel_directory(*path).exists()).map(Path::to_owned).unwrap_or_else(|| {
        panic!("there is no kernel to boot in QEMU: run `cargo xtask setup`");
    })
}

/// QEMU's emulated machine with the disk of `socket`.
fn qemu(directory: &Path, socket: &Path, script: &str) -> Guest {
    let kernel = DebianKernel::find(&kernel_directory(target_directory()), &["virtio_pci", "virtio_blk"]).unwrap();
    let modules: Vec<_> = kernel.modules.iter().map(|module| (module.name.as_str(), &module.content[..])).collect();
    let initramfs = directory.join("qemu.cpio");
    write_initramfs(&initramfs, &modules, script).unwrap();
    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.args(["-accel", "tcg", "-m", "256", "-smp", "1", "-nographic", "-no-reboot", "-nic", "none"])
        .args(["-machine", "q35,memory-backend=memory"])
        .args(["-object", "memory-backend-memfd,id=memory,size=256M,share=on"])
        .args(["-chardev", &format!("socket,id=disk,path={},reconnect=1", socket.display())])
        .args(["-device", "vhost-user-blk-pci,chardev=disk,num-queues=1"])
        .args(["-append", "console=ttyS0 rdinit=/init quiet panic=-1"])
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(&initramfs);
    Guest::start(qemu, TIMEOUT).unwrap()
}

/// User-Mode Linux with the disk of `socket`.
fn user_mode_linux(directory: &Path, socket: &Path, script: &str) -> Guest {
    UserModeLinux::find().unwrap().boot(256, directory, socket, script, TIMEOUT).unwrap()
}

#[test]
fn user_mode_linux_makes_a_file_system_on_a_served_image() {
    let directory = tempfile::tempdir().unwrap();
    let image = image(directory.path());
    let socket = directory.path().join("disk.sock");
    let server = Server::start(&[image.as_os_str(), "--socket".as_ref(), socket.as_os_str()], &socket);
    let transcript = user_mode_linux(directory.path(), &socket, FILL).finish().unwrap();
    server.stop();
    check(&image, &transcript);
    assert!(!socket.exists(), "a server removes its socket");
}

#[test]
fn user_mode_linux_makes_a_file_system_on_a_served_qcow2() {
    let directory = tempfile::tempdir().unwrap();
    let (image, raw) = (directory.path().join("disk.qcow2"), directory.path().join("disk.img"));
    qemu_img(&["create", "-q", "-f", "qcow2", image.to_str().unwrap(), &IMAGE_BYTES.to_string()]);
    let socket = directory.path().join("disk.sock");
    let server = Server::start(&[image.as_os_str(), "--socket".as_ref(), socket.as_os_str()], &socket);
    let transcript = user_mode_linux(directory.path(), &socket, FILL).finish().unwrap();
    server.stop();
    qemu_img(&["check", "-q", image.to_str().unwrap()]);
    qemu_img(&["convert", "-O", "raw", image.to_str().unwrap(), raw.to_str().unwrap()]);
    check(&raw, &transcript);
}

#[test]
fn qemu_makes_a_file_system_on_a_served_image() {
    let directory = tempfile::tempdir().unwrap();
    let image = image(directory.path());
    let socket = directory.path().join("disk.sock");
    let server = Server::start(&[image.as_os_str(), "--socket".as_ref(), socket.as_os_str()], &socket);
    let transcript = qemu(directory.path(), &socket, FILL).finish().unwrap();
    server.stop();
    check(&image, &transcript);
}

#[test]
fn qemu_goes_on_with_a_server_that_was_killed_and_started_again() {
    let directory = tempfile::tempdir().unwrap();
    let image = image(directory.path());
    let socket = directory.path().join("disk.sock");
    let arguments = [image.as_os_str(), "--socket".as_ref(), socket.as_os_str()];
    let mut server = Server::start(&arguments, &socket);
    let mut guest = qemu(directory.path(), &socket, FILL);
    guest.wait_for("READY").unwrap();
    for pause_ms in [700, 300, 1500] {
        std::thread::sleep(Duration::from_millis(pause_ms));
        server.kill();
        server = Server::start(&arguments, &socket);
    }
    guest.wait_for("DONE").unwrap();
    let transcript = guest.finish().unwrap();
    server.stop();
    check(&image, &transcript);
}

fn qemu_img(arguments: &[&str]) {
    let status = Command::new("qemu-img").args(arguments).stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "qemu-img {arguments:?}");
}
