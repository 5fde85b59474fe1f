//! A system that takes over from the appliance, and how it ends.
//!
//! There is no test harness: the guest's kernel is this program.

use blockyard_block::{FileDisk, FileOptions};
use blockyard_image::{
    ConsoleSize, Ending, ImageDisk, ImageOptions, Nobody, OpenImage, Resources, System, SystemOptions, guest,
};
use blockyard_linux_guest::make_root;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const KERNEL: &str = "become-kernel";
/// Longest that a test waits for a guest.
const PATIENCE: Duration = Duration::from_secs(180);

fn main() -> ExitCode {
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if arguments.first().is_some_and(|first| first == KERNEL) {
        return become_kernel(&arguments.split_off(1));
    }
    let wanted = arguments.first().and_then(|name| name.to_str()).unwrap_or_default();
    let name = "a_system_takes_over_and_ends";
    if name.contains(wanted) {
        a_system_takes_over_and_ends();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

fn become_kernel(arguments: &[OsString]) -> ExitCode {
    match guest::become_kernel(arguments, KERNEL) {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("{}", error.in_one_line());
            ExitCode::FAILURE
        }
    }
}

/// What a guest has said on its console.
#[derive(Default)]
struct Screen {
    text: Mutex<Vec<u8>>,
    changed: Condvar,
}

impl Screen {
    fn add(&self, bytes: &[u8]) {
        self.text.lock().unwrap().extend_from_slice(bytes);
        self.changed.notify_all();
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().unwrap()).into_owned()
    }
}

/// A running system, and who sits before it.
struct Seat {
    system: System,
    screen: Arc<Screen>,
    /// What was read of the screen.
    read: usize,
}

impl Seat {
    fn boot(image: &Path, append: &str) -> blockyard_image::Result<Self> {
        let screen = Arc::new(Screen::default());
        let console = Arc::clone(&screen);
        let system = SystemOptions {
            append: append.to_owned(),
            console: Arc::new(move |bytes| console.add(bytes)),
            seccomp: false,
            devices: Vec::new(),
            module_share: None,
            console_size: ConsoleSize { rows: 50, columns: 132 },
        };
        let image = opened(image, Some(system))?;
        Ok(Self { system: image.hand_over(&[])?, screen, read: 0 })
    }

    /// Waits until the screen says `text` after what was read.
    fn sees(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = self.screen.text.lock().unwrap();
        loop {
            let rest = String::from_utf8_lossy(&seen[self.read..]).into_owned();
            if let Some(at) = rest.find(text) {
                self.read += at + text.len();
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no {text:?} in {rest}");
            seen = self.screen.changed.wait_timeout(seen, left).unwrap().0;
        }
    }

    fn types(&self, text: &str) {
        self.system.keyboard().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// How it ended, and all that it said.
    fn ends(mut self) -> (Ending, String) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(ending) = self.system.wait(Duration::from_millis(100)).unwrap() {
                return (ending, self.screen.text());
            }
            assert!(Instant::now() < deadline, "it goes on: {}", self.screen.text());
        }
    }
}

fn opened(image: &Path, system: Option<SystemOptions>) -> blockyard_image::Result<OpenImage> {
    let disk = FileDisk::open(image, &FileOptions::default()).unwrap();
    let disk = ImageDisk { disk: Arc::new(disk), name: "the image".into() };
    let resources = Resources::find(KERNEL).expect("it comes with the package user-mode-linux");
    let options = ImageOptions::new(vec![disk]).memory_bytes(512 << 20);
    let options = match system {
        Some(system) => options.system(system),
        None => options,
    };
    options.boot(resources, Arc::new(Nobody))
}

fn run(program: &str, arguments: &[&Path]) {
    let status = Command::new(program).args(arguments).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").status();
    assert!(status.unwrap_or_else(|error| panic!("{program}: {error}")).success(), "{program} {arguments:?}");
}

/// An ext4 image of so many MiB with what is in `root`.
fn image_of(root: &Path, mebibytes: u64) -> PathBuf {
    let image = root.with_extension("img");
    File::create(&image).unwrap().set_len(mebibytes << 20).unwrap();
    run("mke2fs", &["-q".as_ref(), "-t".as_ref(), "ext4".as_ref(), "-d".as_ref(), root, &image]);
    image
}

/// An image whose init is a script that busybox executes.
fn busybox_image(directory: &Path, script: &str) -> PathBuf {
    let root = directory.join("root");
    make_root(&root, script).unwrap();
    image_of(&root, 64)
}

fn a_system_takes_over_and_ends() {
    let directory = tempfile::tempdir().unwrap();
    let script = "
        echo I am $$ of $(grep -c /dev/vd /proc/mounts) disk, $(ls /sys/block | grep -c vd) in all
        echo root $(stat -c %i /proc/2/root/) is $(stat -c %i /), $(stty size)
        case $(cat /proc/cmdline) in
            *end=panic*) echo c > /proc/sysrq-trigger;;
            *end=exit*) exit 0;;
            *end=reboot*) reboot -f;;
        esac
        read line
        echo you said $line > /said
        cat /said
        mount -o remount,ro /
        poweroff -f";
    let image = busybox_image(directory.path(), script);

    let mut seat = Seat::boot(&image, "").unwrap();
    seat.sees("I am 1 of 1 disk, 1 in all");
    seat.sees("root 2 is 2, 50 132");
    seat.types("hello\n");
    seat.sees("you said hello");
    assert_eq!(seat.ends().0, Ending::PoweredOff);
    run("e2fsck", &["-fn".as_ref(), &image]);

    assert_eq!(Seat::boot(&image, "end=reboot").unwrap().ends().0, Ending::Reboots);
    for (end, expected) in [("exit", "Attempted to kill init"), ("panic", "sysrq triggered crash")] {
        let (ending, said) = Seat::boot(&image, &format!("end={end}")).unwrap().ends();
        assert!(matches!(&ending, Ending::Died(why) if why.contains(expected)), "{ending:?}: {said}");
    }
    for (append, expected) in
        [("init=/sbin/missing", "no /sbin/missing that can be executed"), ("root=/dev/vdb", "there is no /dev/vdb")]
    {
        let error = Seat::boot(&image, append).err().unwrap().in_one_line();
        assert!(error.contains(expected), "{error}");
    }
}
