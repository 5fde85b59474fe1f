//! A container that gives little: io_uring refused, /dev/shm small and noexec, not root, no way to become more. And poorer ones.

mod support;

use rustix::fs::{AtFlags, Mode, OFlags, chmodat, mkdirat};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use support::{Yard, backend, blockyard, run, same};

/// What a container refuses.
const REFUSED: [libc::c_long; 4] =
    [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_unshare, libc::SYS_mount];

/// System calls that fail as a kernel makes them fail that does not have them, or does not want to.
fn refusing(rules: Vec<(libc::c_long, Vec<SeccompRule>)>, errno: libc::c_int) -> BpfProgram {
    let architecture = std::env::consts::ARCH.try_into().unwrap();
    let refuse = SeccompAction::Errno(errno as u32);
    let filter = SeccompFilter::new(rules.into_iter().collect(), SeccompAction::Allow, refuse, architecture);
    filter.unwrap().try_into().unwrap()
}

/// Runs a command in such a container. Takes root, as setting one up does.
fn poor(command: Command) -> Command {
    poorer(command, vec![refused(&REFUSED)], None)
}

fn refused(calls: &[libc::c_long]) -> BpfProgram {
    refusing(calls.iter().map(|call| (*call, Vec::new())).collect(), libc::EPERM)
}

/// Where temporary files go.
#[derive(Clone)]
enum Temporary {
    /// To a directory where nothing can be executed.
    Noexec(CString),
    /// To overlayfs, as containers have it: the directory that is to hold its layers, and the options that name them.
    Overlay { layers: CString, merged: CString, options: CString },
}

impl Temporary {
    /// Below `directory`, which is empty.
    fn overlay(directory: &Path) -> Self {
        let below = |name: &str| directory.join(name).display().to_string();
        let options = format!("lowerdir={},upperdir={},workdir={}", below("lower"), below("upper"), below("work"));
        let c_string = |text: String| CString::new(text).unwrap();
        let layers = c_string(directory.display().to_string());
        Self::Overlay { layers, merged: c_string(below("merged")), options: c_string(options) }
    }

    fn mount(&self) -> io::Result<()> {
        match self {
            Self::Noexec(directory) => {
                let flags = MountFlags::NOEXEC | MountFlags::NOSUID | MountFlags::NODEV;
                mount("none", directory.as_c_str(), "tmpfs", flags, c"size=64m,mode=1777")?;
            }
            Self::Overlay { layers, merged, options } => {
                mount("none", layers.as_c_str(), "tmpfs", MountFlags::empty(), c"mode=0755")?;
                let layers = rustix::fs::open(layers.as_c_str(), OFlags::DIRECTORY, Mode::empty())?;
                for name in [c"lower", c"upper", c"work", c"merged"] {
                    mkdirat(&layers, name, Mode::RWXU | Mode::RWXG | Mode::RWXO)?;
                    chmodat(&layers, name, Mode::RWXU | Mode::RWXG | Mode::RWXO, AtFlags::empty())?;
                }
                mount("none", merged.as_c_str(), "overlay", MountFlags::empty(), Some(options.as_c_str()))?;
            }
        }
        Ok(())
    }
}

/// The same with other filters, and with another place for temporary files.
fn poorer(mut command: Command, filters: Vec<BpfProgram>, temporary: Option<Temporary>) -> Command {
    let enter = move || -> io::Result<()> {
        // SAFETY: this process is about to become the command; nothing shares its file system state.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS)? };
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        let flags = MountFlags::NOEXEC | MountFlags::NOSUID | MountFlags::NODEV;
        mount("none", "/dev/shm", "tmpfs", flags, c"size=64m,mode=1777")?;
        temporary.iter().try_for_each(Temporary::mount)?;
        let (user, group) = (65534, 65534);
        // SAFETY: plain system calls; the process has one thread.
        let changed =
            unsafe { libc::setgroups(0, std::ptr::null()) == 0 && libc::setgid(group) == 0 && libc::setuid(user) == 0 };
        if !changed {
            return Err(io::Error::last_os_error());
        }
        let apply = |program: &BpfProgram| seccompiler::apply_filter(program);
        filters.iter().try_for_each(apply).map_err(|_| io::ErrorKind::Other.into())
    };
    // SAFETY: the closure makes system calls only.
    unsafe { command.pre_exec(enter) };
    command
}

#[test]
fn a_copy_needs_nothing_that_a_poor_container_lacks() {
    if backend() == "kvm" || !rustix::process::geteuid().is_root() {
        eprintln!("setting up a poor container takes root, and it has no /dev/kvm: not tried");
        return;
    }
    let yard = Yard::new();
    fs::set_permissions(yard.path("."), fs::Permissions::from_mode(0o777)).unwrap();
    let (input, output) = (yard.random("input", (20 << 20) + 77, 1), yard.path("output"));
    // `uring` is what is refused, and threads take over.
    for engine in ["sync", "threads", "uring"] {
        let mut command = blockyard();
        command.args(["copy", "--backend", "user", "--engine", engine, "--detect-zeroes"]).arg(&input).arg(&output);
        let outcome = run(&mut poor(command)).succeeded();
        assert!(outcome.stdout.contains("(user)"), "{outcome:#?}");
        assert!(same(&input, &output));
        fs::remove_file(&output).unwrap();
    }
    let mut doctor = blockyard();
    doctor.args(["doctor", "--json"]);
    let json = run(&mut poor(doctor)).succeeded().json();
    assert_eq!(json["io_uring"]["usable"], false);
    assert_eq!(json["backends"][1]["usable"], true);
}

/// A kernel without Landlock.
fn without_landlock() -> BpfProgram {
    let calls = [libc::SYS_landlock_create_ruleset, libc::SYS_landlock_add_rule, libc::SYS_landlock_restrict_self];
    refusing(calls.map(|system_call| (system_call, Vec::new())).into(), libc::ENOSYS)
}

/// A kernel that asks nobody about system calls.
fn without_questions() -> BpfProgram {
    let flag = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let asks = SeccompCondition::new(1, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag).unwrap();
    refusing(vec![(libc::SYS_seccomp, vec![SeccompRule::new(vec![asks]).unwrap()])], libc::EINVAL)
}

/// A directory for a user who is not root, with the program, and with a place where nothing can be executed for temporary files.
struct PoorYard {
    yard: Yard,
    filters: fn() -> Vec<BpfProgram>,
}

impl PoorYard {
    fn new(filters: fn() -> Vec<BpfProgram>) -> Self {
        let yard = Yard::new();
        fs::set_permissions(yard.path("."), fs::Permissions::from_mode(0o777)).unwrap();
        // Were it written here, another thread's fork could hold it open for writing while it is executed.
        let mut copy = Command::new("cp");
        copy.args(["--preserve=mode", env!("CARGO_BIN_EXE_blockyard")]).arg(yard.path("blockyard"));
        assert!(copy.status().unwrap().success());
        fs::create_dir(yard.path("noexec")).unwrap();
        Self { yard, filters }
    }

    fn image(&self, arguments: &[&str]) -> support::Outcome {
        let noexec = self.yard.path("noexec");
        let mounted = CString::new(noexec.as_os_str().as_encoded_bytes()).unwrap();
        self.image_with(arguments, &noexec, Temporary::Noexec(mounted))
    }

    fn image_with(&self, arguments: &[&str], directory: &Path, temporary: Temporary) -> support::Outcome {
        let mut command = Command::new(self.yard.path("blockyard"));
        command.arg("image").args(arguments).current_dir(self.yard.path(".")).env("TMPDIR", directory);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        run(&mut poorer(command, (self.filters)(), Some(temporary))).succeeded()
    }

    /// An image with a file system, and nothing said on stderr.
    fn make_image(&self) {
        assert_eq!(self.image(&["create", "disk.img", "48M"]).stderr, "");
        let mut mke2fs = Command::new("/usr/sbin/mke2fs");
        assert!(mke2fs.args(["-q", "-t", "ext4"]).arg(self.yard.path("disk.img")).status().unwrap().success());
    }
}

#[test]
fn images_need_nothing_that_a_poor_container_lacks() {
    if backend() == "kvm" || !rustix::process::geteuid().is_root() {
        eprintln!("setting up a poor container takes root: not tried");
        return;
    }
    let poor = PoorYard::new(|| vec![without_landlock(), refused(&REFUSED)]);
    let (input, output) = (poor.yard.random("input", (3 << 20) + 77, 1), poor.yard.path("output"));
    poor.make_image();
    let image = |arguments: &[&str]| {
        let outcome = poor.image(arguments);
        assert_eq!(outcome.stderr, "", "{arguments:?}");
        outcome.stdout
    };
    image(&["put", "disk.img", "input", "/file"]);
    assert_eq!(image(&["ls", "disk.img", "/"]), "file\nlost+found\n");
    image(&["get", "disk.img", "/file", "output"]);
    assert!(same(&input, &output));
    image(&["convert", "disk.img", "disk.qcow2"]);
    assert!(image(&["compare", "disk.img", "disk.qcow2"]).contains("identical"));
    let names = ["blockyard", "disk.img", "disk.qcow2", "input", "noexec", "output"];
    assert_eq!(poor.yard.names(), names.map(String::from).into());
}

/// As /tmp is in containers: the guest's memory is a file there, which the server of its disks maps.
#[test]
fn the_guest_s_memory_may_lie_on_overlayfs() {
    if backend() == "kvm" || !rustix::process::geteuid().is_root() {
        eprintln!("setting up a poor container takes root: not tried");
        return;
    }
    let poor = PoorYard::new(|| vec![without_landlock(), refused(&REFUSED)]);
    poor.make_image();
    let layers = poor.yard.path("layers");
    fs::create_dir(&layers).unwrap();
    let outcome = poor.image_with(&["ls", "disk.img", "/"], &layers.join("merged"), Temporary::overlay(&layers));
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("lost+found\n", ""));
}

#[test]
fn an_appliance_that_nothing_shuts_in_is_warned_of() {
    if backend() == "kvm" || !rustix::process::geteuid().is_root() {
        eprintln!("setting up a poor container takes root: not tried");
        return;
    }
    let has_landlock = blockyard_session::confinement::landlock_abi().is_ok();
    for (filters, warned) in [
        ((|| vec![without_questions(), refused(&REFUSED)]) as fn() -> Vec<BpfProgram>, !has_landlock),
        (|| vec![without_questions(), without_landlock(), refused(&REFUSED)], true),
        // Namespaces in which nothing can be mounted, as some distributions have them.
        (|| vec![without_questions(), without_landlock(), refused(&[libc::SYS_mount])], true),
    ] {
        let poor = PoorYard::new(filters);
        poor.make_image();
        let said = poor.image(&["ls", "disk.img", "/"]).stderr;
        assert_eq!(said.contains("warning: this machine has neither namespaces nor Landlock"), warned, "{said}");
        assert_eq!(said.is_empty(), !warned, "{said}");
    }
}
