//! User-Mode Linux, a real kernel's driver, on a disk of ours: mounts, writes, syncs; the host finds it all and in good
//! order.

use blockyard_block::{FileDisk, FileOptions};
use blockyard_linux_guest::UserModeLinux;
use blockyard_session::server::{EndReason, Export, Listener, Server, ServerOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::{self, File};
use std::num::NonZeroU32;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);
const SCRIPT: &str = "\
mount -t ext4 /dev/vda /mnt && echo mounted
cat /mnt/greeting
dd if=/dev/zero bs=1M count=8 2>/dev/null | tr '\\0' 'y' > /mnt/bulk
echo 'written by the guest' > /mnt/answer
sync
umount /mnt && echo unmounted
";

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program} ({error}): it is in Debian's e2fsprogs"));
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn file_system(directory: &Path) -> String {
    let (image, root) = (directory.join("disk.img"), directory.join("root"));
    fs::create_dir(&root).unwrap();
    fs::write(root.join("greeting"), "from the host\n").unwrap();
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let (image, root) = (image.to_str().unwrap().to_owned(), root.to_str().unwrap());
    run("mkfs.ext4", &["-q", "-d", root, &image]);
    image
}

fn accept(listener: &Listener) -> UnixStream {
    let timeout = Timespec::try_from(TIMEOUT).unwrap();
    poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&timeout)).unwrap();
    listener.accept().unwrap().expect("UML connects").into_inner()
}

#[test]
fn a_guest_mounts_and_writes_and_the_host_finds_it() {
    let directory = tempfile::tempdir().unwrap();
    let image = file_system(directory.path());
    let socket = directory.path().join("disk.sock");
    let listener = Listener::bind(&socket, &[]).unwrap();
    let server = Server::start(&ServerOptions::default()).unwrap();
    let disk = Arc::new(FileDisk::open(Path::new(&image), &FileOptions::default()).unwrap());
    let export = Export { name: "uml".into(), disk, queues: 1, weight: NonZeroU32::MIN, is_alone: false };

    let guest = UserModeLinux::find().unwrap().boot(128, directory.path(), &socket, SCRIPT, TIMEOUT).unwrap();
    let session = server.attach(accept(&listener), export).unwrap();
    let said = guest.finish().unwrap_or_else(|error| panic!("{error}\n{:?}", session.end_reason()));
    for expected in ["mounted", "from the host", "unmounted"] {
        assert!(said.contains(expected), "no \"{expected}\" in\n{said}\n{:?}", session.end_reason());
    }
    assert_eq!(session.wait(), &EndReason::Disconnected);
    let counts = session.statistics().counts;
    assert!(counts.bytes_written >= 8 << 20 && counts.flushes > 0 && counts.errors == 0, "{counts:?}");

    run("e2fsck", &["-fn", &image]);
    assert_eq!(run("debugfs", &["-R", "cat /answer", &image]), "written by the guest\n");
    let bulk = directory.path().join("bulk");
    run("debugfs", &["-R", &format!("dump /bulk {}", bulk.display()), &image]);
    let bulk = fs::read(bulk).unwrap();
    assert!(bulk.len() == 8 << 20 && bulk.iter().all(|&byte| byte == b'y'));
}
