//! A directory of the host's in User-Mode Linux: its kernel's own virtiofs driver mounts what our process serves.

use blockyard_linux_guest::{Device, UserModeLinux};
use blockyard_share::{ServingOptions, Share, ShareProcess};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(120);

/// A directory that is shared, beside one that is not.
struct Rig {
    directory: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("shared")).unwrap();
        fs::write(directory.path().join("outside"), "secret\n").unwrap();
        Self { directory }
    }

    fn shared(&self) -> PathBuf {
        self.directory.path().join("shared")
    }

    /// What the guest says that runs `script` with the directory mounted at /mnt.
    fn run(&self, read_only: bool, script: &str) -> String {
        let script =
            format!("mount -t virtiofs work /mnt && echo MOUNTED\ncd /mnt\n{script}\ncd /\numount /mnt && echo DONE\n");
        let (mut guest, process) = self.boot(read_only, &script);
        guest.wait_for("DONE").unwrap();
        let transcript = guest.finish().unwrap();
        drop(process);
        println!("{transcript}");
        transcript
    }

    fn boot(&self, read_only: bool, script: &str) -> (blockyard_linux_guest::Guest, ShareProcess) {
        let socket = self.directory.path().join("share.sock");
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let share = Share { directory: self.shared(), tag: "work".parse().unwrap(), read_only };
        let process = start(&share, listener.into());
        let uml = UserModeLinux::find().unwrap();
        let devices = [(Device::Share, &*socket)];
        (uml.boot_with(128, self.directory.path(), &devices, script, TIMEOUT).unwrap(), process)
    }
}

fn start(share: &Share, socket: OwnedFd) -> ShareProcess {
    let launcher = (PathBuf::from(env!("CARGO_BIN_EXE_blockyard")), vec!["serve-share"]);
    let options = ServingOptions { queues: 1, poll: Duration::ZERO };
    ShareProcess::start(&launcher, share, options, socket).unwrap()
}

#[test]
fn a_guest_reads_and_writes_what_is_shared() {
    let rig = Rig::new();
    let shared = rig.shared();
    fs::write(shared.join("greeting"), "from the host\n").unwrap();
    let transcript = rig.run(
        false,
        "
cat greeting
echo 'from the guest' > answer
echo more >> answer
mkdir -p a/b && mv answer a/b/renamed && ln a/b/renamed hard && ln -s b/renamed a/soft
cat a/soft
stat -c 'LINKS %h' hard
dd if=/dev/urandom of=bulk bs=64k count=100 2>/dev/null
echo SUM $(sha256sum < bulk)
echo 3 > /proc/sys/vm/drop_caches
echo SUM $(sha256sum < bulk)
truncate -s 1000 bulk
chmod 4751 hard && stat -c 'MODE %a' hard
rm greeting && rmdir a/b || echo NOTEMPTY
mkdir many && cd many && for i in $(seq 2000); do : > entry$i; done && cd .. && echo ENTRIES $(ls many | wc -l)
mkdir bin && cp /bin/busybox bin && bin/busybox echo MAPPED
df /mnt | grep -q work && echo DF
",
    );
    assert!(transcript.contains("MOUNTED") && transcript.contains("from the host"), "{transcript}");
    assert!(transcript.contains("from the guest") && transcript.contains("LINKS 2"), "{transcript}");
    assert!(transcript.contains("NOTEMPTY") && transcript.contains("DF"), "{transcript}");
    assert!(transcript.contains("ENTRIES 2000") && transcript.contains("MAPPED"), "{transcript}");
    let sums: Vec<_> = transcript.lines().filter(|line| line.starts_with("SUM")).collect();
    assert_eq!(sums.len(), 2);
    assert_eq!(sums[0], sums[1]);
    assert!(transcript.contains("MODE 751"), "{transcript}");
    assert_eq!(fs::read_to_string(shared.join("a/b/renamed")).unwrap(), "from the guest\nmore\n");
    assert_eq!(fs::read_link(shared.join("a/soft")).unwrap(), Path::new("b/renamed"));
    assert_eq!(fs::metadata(shared.join("hard")).unwrap().permissions().mode() & 0o7777, 0o751);
    assert_eq!(fs::metadata(shared.join("bulk")).unwrap().len(), 1000);
    assert!(!shared.join("greeting").exists());
    assert_eq!(fs::read_dir(shared.join("many")).unwrap().count(), 2000);
}

#[test]
fn a_guest_changes_nothing_that_is_for_reading_and_waits_for_no_fifo() {
    let rig = Rig::new();
    let shared = rig.shared();
    fs::write(shared.join("file"), "text\n").unwrap();
    mknodat(CWD, shared.join("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    symlink("../outside", shared.join("out")).unwrap();
    symlink("/proc/1/root", shared.join("magic")).unwrap();
    let transcript = rig.run(
        true,
        "
cat file
for try in 'touch new' 'rm file' 'mkdir d' 'mv file other' 'ln file other' 'ln -s file other' 'chmod 600 file' \
    'touch -d 2001-01-01 file' 'truncate -s 0 file' 'dd if=/dev/zero of=file'; do
    $try 2>&1 | grep -q 'Read-only file system' && echo REFUSED
done
stat -c 'KIND %F' fifo
cat out ../outside 2>/dev/null || echo NOT THERE
readlink magic
",
    );
    assert_eq!(transcript.matches("REFUSED").count(), 10, "{transcript}");
    assert!(transcript.contains("KIND fifo") && transcript.contains("NOT THERE"), "{transcript}");
    assert!(transcript.contains("/proc/1/root") && !transcript.contains("secret"), "{transcript}");
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 4);
    assert_eq!(fs::read_to_string(shared.join("file")).unwrap(), "text\n");
}

/// While the guest walks, a directory of the host's becomes a link that leads out, and is one again.
#[test]
fn a_guest_is_not_led_out_by_what_changes_under_it() {
    let rig = Rig::new();
    let shared = rig.shared();
    fs::create_dir(shared.join("swap")).unwrap();
    fs::write(shared.join("swap/outside"), "inside\n").unwrap();
    symlink("..", shared.join("link")).unwrap();
    let script = "
mount -t virtiofs work /mnt && echo MOUNTED
for i in $(seq 500); do for name in swap link; do read line < /mnt/$name/outside && echo $line; done; done 2>/dev/null
echo RACED
umount /mnt; echo DONE
";
    let (mut guest, _process) = rig.boot(false, script);
    guest.wait_for("MOUNTED").unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let transcript = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let (one, other) = (shared.join("swap"), shared.join("link"));
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let raced = guest.wait_for("RACED");
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        raced.unwrap();
        guest.finish().unwrap()
    });
    assert!(transcript.contains("inside") && !transcript.contains("secret"), "{transcript}");
}

#[test]
fn what_cannot_be_shared_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    for (path, said) in [
        (directory.path().join("none"), "No such file or directory"),
        (file, "Not a directory"),
        ("/proc/sys".into(), "the kernel's own affairs"),
    ] {
        let (socket, _client) = std::os::unix::net::UnixStream::pair().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_blockyard"))
            .arg("serve-share")
            .args([path.as_os_str(), "work".as_ref(), "1".as_ref(), "0".as_ref()])
            .stdin(OwnedFd::from(socket))
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && output.stdout.is_empty() && error.contains(said), "{error}");
    }
}
