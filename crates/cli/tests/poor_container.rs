//! A container that gives little: io_uring refused, /dev/shm small and noexec, not root, no way to become more. And
//! poorer ones.

mod support;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, chmodat, mkdirat, mknodat};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::process::Resource;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
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

/// Makes the filters that a command gets.
type Filters = fn() -> Vec<BpfProgram>;

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
fn poorer(command: Command, filters: Vec<BpfProgram>, temporary: Option<Temporary>) -> Command {
    with_mounts(command, filters, move || temporary.iter().try_for_each(Temporary::mount))
}

/// The same with other mounts. `mounts` makes system calls only.
fn with_mounts(
    mut command: Command,
    filters: Vec<BpfProgram>,
    mounts: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) -> Command {
    let enter = move || -> io::Result<()> {
        // SAFETY: this process is about to become the command; nothing shares its file system state.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS)? };
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        let flags = MountFlags::NOEXEC | MountFlags::NOSUID | MountFlags::NODEV;
        mount("none", "/dev/shm", "tmpfs", flags, c"size=64m,mode=1777")?;
        mounts()?;
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
    // SAFETY: the closure makes system calls only, and so does `mounts`.
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

/// A directory for a user who is not root, with the program, and with a place where nothing can be executed for
/// temporary files.
struct PoorYard {
    yard: Yard,
    filters: Filters,
}

impl PoorYard {
    fn new(filters: Filters) -> Self {
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
    const NOTHING: &str = "warning: this machine has neither namespaces nor Landlock";
    if backend() == "kvm" || !rustix::process::geteuid().is_root() {
        eprintln!("setting up a poor container takes root: not tried");
        return;
    }
    let has_landlock = blockyard_confinement::landlock_abi().is_ok();
    let has_landlock_only = has_landlock.then_some("by Landlock, but can connect to the sockets of programs");
    for (filters, warning) in [
        ((|| vec![refused(&REFUSED)]) as Filters, None),
        (|| vec![without_questions(), refused(&REFUSED)], has_landlock_only.or(Some(NOTHING))),
        (|| vec![without_questions(), without_landlock(), refused(&REFUSED)], Some(NOTHING)),
        // Namespaces in which nothing can be mounted, as some distributions have them.
        (|| vec![without_questions(), without_landlock(), refused(&[libc::SYS_mount])], Some(NOTHING)),
    ] {
        let poor = PoorYard::new(filters);
        poor.make_image();
        let said = poor.image(&["ls", "disk.img", "/"]).stderr;
        assert_eq!(said.is_empty(), warning.is_none(), "{said}");
        assert!(said.contains(warning.unwrap_or_default()), "{said}");
    }
}

/// Somewhere in a directory of libraries.
const MOUNTED_LIBRARIES: &str = "/usr/lib/uml";

/// Runs a command as root, with filters, with a descriptor that somebody has forgotten, and with something mounted
/// among the libraries.
fn as_root(mut command: Command, filters: Vec<BpfProgram>) -> Command {
    let enter = move || {
        // SAFETY: this process is about to become the command; nothing shares its file system state.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS)? };
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        mount("none", MOUNTED_LIBRARIES, "tmpfs", MountFlags::empty(), c"mode=0755")?;
        // SAFETY: nothing has that number yet.
        unsafe { libc::dup2(0, 77) };
        let apply = |program: &BpfProgram| seccompiler::apply_filter(program);
        filters.iter().try_for_each(apply).map_err(|_| io::ErrorKind::Other.into())
    };
    // SAFETY: the closure makes system calls only.
    unsafe { command.pre_exec(enter) };
    command
}

/// Numbers in a line, in order.
fn numbers(line: &str) -> Vec<u64> {
    let words = line.split(|letter: char| !letter.is_ascii_hexdigit()).filter(|word| !word.is_empty());
    words.filter_map(|word| word.parse().ok()).collect()
}

/// A program that has taken over the kernel, or is none, takes of the host what docs/threat-model.md says and no more,
/// whoever started it and whatever walls there are.
#[test]
fn an_appliance_that_means_ill_gets_what_it_may_have() {
    if backend() == "kvm" || !rustix::process::geteuid().is_root() {
        eprintln!("this is about what root has: not tried");
        return;
    }
    let yard = Yard::new();
    fs::create_dir_all(yard.path("usr/bin")).unwrap();
    fs::create_dir_all(yard.path("usr/lib/uml")).unwrap();
    let kernel = yard.path("usr/bin/linux.uml");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/hostile_kernel.c");
    let abstract_socket = format!("blockyard-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&abstract_socket).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    let built = Command::new("cc")
        .arg(format!("-DABSTRACT_SOCKET=\"{abstract_socket}\""))
        .arg(format!("-DMOUNTED_LIBRARIES=\"{MOUNTED_LIBRARIES}\""))
        .args(["-O1", "-static", "-o"])
        .arg(&kernel)
        .arg(source)
        .status();
    assert!(built.expect("cc comes with the package gcc").success());
    let modules = yard.path("usr/lib/uml");
    assert!(Command::new("cp").args(["-a", "/usr/lib/uml/modules"]).arg(&modules).status().unwrap().success());
    fs::write(yard.path("disk.img"), vec![0; 1 << 20]).unwrap();
    let libraries = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", MOUNTED_LIBRARIES];
    let libraries = libraries.iter().filter(|path| Path::new(path).is_dir()).count() as u64;
    let landlock = blockyard_confinement::landlock_abi().unwrap_or(0);
    // Landlock keeps abstract sockets away since its sixth version.
    let (lacks_landlock, reaches_sockets) = (landlock == 0, landlock < 6);
    // Which walls there are; whether others' files and abstract sockets are in reach; MiB of the longest file.
    let walls: [(Filters, bool, bool, u64); 6] = [
        (Vec::new, false, false, 256 + 64),
        (|| vec![without_landlock()], false, false, 256 + 64),
        (|| vec![refused(&[libc::SYS_personality])], false, false, 256 + 1024 + 64),
        (|| vec![refused(&[libc::SYS_unshare])], lacks_landlock, reaches_sockets, 256 + 64),
        (|| vec![refused(&[libc::SYS_unshare]), without_landlock()], true, true, 256 + 64),
        (
            || vec![refused(&[libc::SYS_unshare, libc::SYS_personality])],
            lacks_landlock,
            reaches_sockets,
            256 + 1024 + 64,
        ),
    ];
    for (number, (filters, reaches_files, reaches_sockets, most_mib)) in walls.into_iter().enumerate() {
        let has_own_root = number < 3;
        let mut command = blockyard();
        command.args(["image", "ls", "--memory", "256"]).arg(yard.path("disk.img")).env("BLOCKYARD_UML", &kernel);
        let outcome = run(&mut as_root(command, filters())).failed(1, &["it has capabilities", "room for"]);
        let (_, line) = outcome.stderr.split_once("it has capabilities").unwrap();
        let [
            capabilities,
            inherited,
            foreign,
            kept,
            refused,
            shared,
            file_mib,
            private_mib,
            later_mib,
            descriptors,
            processes,
            mode,
            sockets,
            read_only,
            core_bytes,
            dumped,
            room_mib,
        ] = numbers(line)[..]
        else {
            panic!("{line}")
        };
        assert!(capabilities == 0 || capabilities == 99 && has_own_root, "{line}");
        assert_eq!((inherited, foreign), (0, u64::from(reaches_files)), "{line}");
        assert_eq!((kept, refused, shared), (1, 1, 0), "{line}");
        // What is written once in each MiB takes whole huge pages where the host has any, and so the room sooner.
        let least_mib = if has_own_root { 256 } else { most_mib - 64 };
        assert!((least_mib..=most_mib).contains(&file_mib), "{line}");
        assert!((8..=24).contains(&private_mib) && later_mib <= 24, "{line}");
        assert!(descriptors <= 1024 && (100..=256).contains(&processes), "{line}");
        assert_eq!((mode, sockets), (700, u64::from(reaches_sockets)), "{line}");
        assert_eq!(read_only, if has_own_root { libraries } else { 0 }, "{line}");
        // A limit of zero keeps core dumps out of files, but not from a program that the system has for them.
        let core_bytes_max = rustix::process::getrlimit(Resource::Core).maximum.map_or(1, |maximum| maximum.min(1));
        assert_eq!(core_bytes, core_bytes_max, "{line}");
        assert!(dumped == 0 || dumped == 99 && has_own_root, "{line}");
        // However long the file may be, it lies in a file system of its own.
        assert!(!has_own_root || room_mib == 256 + 64, "{line}");
    }
}

/// What a machine may lack: what refuses it, and the mounts that it has for it.
struct Lacking {
    filters: Filters,
    mounts: fn() -> io::Result<()>,
}

fn nothing() -> io::Result<()> {
    Ok(())
}

fn no_proc() -> io::Result<()> {
    Ok(mount("none", "/proc", "tmpfs", MountFlags::empty(), c"mode=0555")?)
}

/// As where only root may open it.
fn private_fuse_device() -> io::Result<()> {
    mount("none", "/mnt", "tmpfs", MountFlags::empty(), c"mode=0755")?;
    let (device, own) = (rustix::fs::makedev(10, 229), Mode::RUSR | Mode::WUSR);
    mknodat(CWD, c"/mnt/fuse", FileType::CharacterDevice, own, device)?;
    Ok(mount_bind(c"/mnt/fuse", c"/dev/fuse")?)
}

impl Lacking {
    /// Runs a command there, as a user who is not root.
    fn run(&self, yard: &PoorYard, arguments: &[&str]) -> support::Outcome {
        let mut command = Command::new(yard.yard.path("blockyard"));
        command.args(arguments).current_dir(yard.yard.path("."));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        run(&mut with_mounts(command, (self.filters)(), self.mounts))
    }

    /// What `doctor` says of something there.
    fn facility(&self, yard: &PoorYard, name: &str) -> serde_json::Value {
        let json = self.run(yard, &["doctor", "--json"]).json();
        let facilities = json["facilities"].as_array().unwrap();
        facilities.iter().find(|facility| facility["name"] == name).unwrap().clone()
    }
}

fn poor_yard_with_image() -> Option<PoorYard> {
    if backend() == "kvm" || !rustix::process::geteuid().is_root() {
        eprintln!("setting up a poor container takes root: not tried");
        return None;
    }
    let yard = PoorYard::new(Vec::new);
    yard.make_image();
    Some(yard)
}

/// What it lacks, each with what `doctor` and `image` say, and the remedy.
#[test]
fn doctor_says_what_image_says_where_no_appliance_starts() {
    let Some(yard) = poor_yard_with_image() else { return };
    let no_ptrace = Lacking { filters: || vec![refused(&[libc::SYS_ptrace])], mounts: nothing };
    let no_pidfd = Lacking { filters: || vec![refused(&[libc::SYS_pidfd_open])], mounts: nothing };
    let old =
        Lacking { filters: || vec![refusing(vec![(libc::SYS_pidfd_open, Vec::new())], libc::ENOSYS)], mounts: nothing };
    let no_proc = Lacking { filters: Vec::new, mounts: no_proc };
    for (lacking, reason, remedy) in [
        (no_ptrace, "ptrace", "it has to trace its own processes: a container whose seccomp profile allows ptrace"),
        (no_pidfd, "watching its process", "it needs pidfd_open: a newer kernel, or a container whose seccomp profile"),
        (old, "watching its process", "it needs pidfd_open: a newer kernel, or a container whose seccomp profile"),
        (no_proc, "No such file", "it needs /proc: mount -t proc proc /proc"),
    ] {
        let facility = lacking.facility(&yard, "uml");
        let image = lacking.run(&yard, &["image", "ls", "disk.img"]).failed(1, &[reason, remedy]);
        assert_eq!(facility["usable"], false, "{facility}");
        let (said, advised) = (facility["reason"].as_str().unwrap(), facility["remedy"].as_str().unwrap());
        assert!(said.contains(reason) && advised.contains(remedy), "{facility}");
        // Word for word, behind the program's name.
        let (_, said) = said.split_once(": ").unwrap();
        assert_eq!(image.stderr, format!("blockyard: {said}: {advised}\n"));
    }
}

#[test]
fn doctor_says_what_serve_says_where_fuse_is_root_s_alone() {
    let Some(yard) = poor_yard_with_image() else { return };
    let lacking = Lacking { filters: || vec![refused(&[libc::SYS_mount])], mounts: private_fuse_device };
    let facility = lacking.facility(&yard, "fuse");
    assert_eq!(facility["usable"], false, "{facility}");
    let served = lacking.run(&yard, &["serve", "--fuse", "mounted", "disk.img"]).failed(1, &["cannot open /dev/fuse"]);
    let remedy = facility["remedy"].as_str().unwrap();
    assert!(remedy.contains("chmod 666 /dev/fuse") && served.stderr.contains(remedy), "{facility} {served:?}");
}

#[test]
fn doctor_says_so_where_nobody_may_have_namespaces_and_image_goes_without() {
    let Some(yard) = poor_yard_with_image() else { return };
    let filters: Filters = || vec![refused(&[libc::SYS_unshare, libc::SYS_mount])];
    let lacking = Lacking { filters, mounts: nothing };
    let namespaces = lacking.facility(&yard, "user namespaces");
    assert_eq!(namespaces["usable"], false, "{namespaces}");
    assert!(
        namespaces["remedy"].as_str().unwrap().contains("seccomp profile allows unshare and mount"),
        "{namespaces}"
    );
    let uml = lacking.facility(&yard, "uml");
    let reason = uml["reason"].as_str().unwrap();
    assert!(uml["usable"] == true && reason.contains("the seal") && !reason.contains("namespaces"), "{uml}");
    let listed = lacking.run(&yard, &["image", "ls", "disk.img", "/"]).succeeded();
    assert_eq!((listed.stdout.as_str(), listed.stderr.as_str()), ("lost+found\n", ""));
}
