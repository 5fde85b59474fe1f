//! The process that the kernel runs in, and what it is shut into before the kernel is executed.
//!
//! User-Mode Linux is executed by a program of ours, which first gives up what the kernel does not need, as only a
//! process without other threads can: [`run`] is that program's `main`, in two stages. The outer one makes namespaces,
//! where this user may: processes, network, IPC, host name, mounts. The inner one, first of its processes, is given the
//! kernel, open, and gets a root directory with nothing but the C library, its disks' sockets and memory to run in;
//! then Landlock where the host has it; then the system calls that the kernel needs, of which those that it needs to
//! start are taken away before it looks at a disk ([`blockyard_confinement::program_filter`]); then it starts the
//! kernel. Where namespaces are not to be had, there is one stage. What it has become it says over the serial line,
//! before the kernel has it ([`Confined`]).
//!
//! It dies with whoever started it, by the parent-death signal, and with it all of its processes: those of a namespace
//! end with its first. Where there are no namespaces, its process group keeps them together, and a guard beside it, a
//! process that does nothing else, kills that when the command or the kernel's first process has ended.

use crate::confined::{Confined, LineStart, LineWord, receive_program};
use crate::error::Cause;
use crate::kernel::Kernel;
use crate::kvm_process;
use crate::system::ConsoleSize;
use blockyard_block::wait_ready;
use blockyard_confinement::landlock_abi;
use blockyard_confinement::program_filter::{
    Executes, InReach, OpenedProgram, filter_guard, filter_program, fix_addresses, keep_standard_descriptors_only,
    make_mounts_read_only,
};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::Mode;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change, mount_remount, unmount,
};
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Resource, Rlimit, Signal, getegid, geteuid, getpid, getppid, getrlimit,
    kill_process_group, pidfd_open, pivot_root, set_dumpable_behavior, set_parent_process_death_signal, setrlimit,
    setsid, umask,
};
use rustix::stdio::{stdin, stdout};
use rustix::thread::{
    CapabilitySet, CapabilitySets, CpuSet, clear_ambient_capability_set, remove_capability_from_bounding_set,
    sched_getcpu, sched_setaffinity, set_capabilities, set_name, set_no_new_privs,
};
use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio, exit};

/// What the guest has besides its memory, in files.
const TEMPORARY_SLACK_BYTES: u64 = 64 << 20;
/// How much longer the file of its memory is where its program and its heap are at random addresses (Linux,
/// arch/x86/kernel/process.c, arch_randomize_brk): it has no contents there.
const GAP_BYTES_MAX: u64 = 1 << 30;
/// What each of its processes may have for itself: data, heap and stack of its kernel's program, which takes half of
/// that.
const PRIVATE_BYTES_MAX: u64 = 24 << 20;
/// What a virtual machine's process may have for itself: the kernel and the initramfs until they are in the guest's
/// memory, and threads' stacks.
const VIRTUAL_MACHINE_BYTES_MAX: u64 = 128 << 20;
/// Descriptors that each of its processes may have: disks have three, and of newer kernels a guest's process has one.
const DESCRIPTORS_MAX: u64 = 1024;
/// The first version of Landlock that keeps signals in.
const LANDLOCK_OF_SIGNALS: u32 = 6;
/// Where a program of this machine finds its libraries, its loader among them.
const LIBRARIES: [&str; 4] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64"];
/// Where the loader looks first, if it is there (ld.so(8)): without it, it asks some thirty directories for each
/// library, and while the kernel starts each question is a conversation with whoever answers for the seal.
const LIBRARY_CACHE: &str = "/etc/ld.so.cache";

/// The name of what a kernel is started with ([`blockyard_linux_guest::PRELOAD`]) in the current directory.
pub(crate) const PRELOAD_NAME: &str = "preload.so";
/// What kernels are started with besides, if it is there, that go on executing ([`Executes::Descriptors`]): since Linux
/// 6.16 they end threads of their own when they end, for which libc looks for this library (pthread_cancel(3)), and
/// nothing is found any more when the seal holds.
const THREADS_LIBRARY: &str = "libgcc_s.so.1";

/// Says how large the kernel's consoles are ([`blockyard_linux_guest::PRELOAD`]), if somebody knows.
const CONSOLE_SIZE: &str = "BLOCKYARD_CONSOLE_SIZE";

/// Says to a process that it was started to call [`run`], with what it was started as. The kernel does not have it.
const STARTED_AS: &str = "BLOCKYARD_STARTED_AS_KERNEL";

/// What [`run`] is told, as its arguments: stage, process that started it, bytes of the guest's memory, what becomes of
/// the kernel, the kernel, the kernel's arguments.
#[derive(Debug)]
pub struct KernelArguments {
    stage: Stage,
    parent: u32,
    pub(crate) memory_bytes: u64,
    becomes: Becomes,
    pub(crate) kernel: PathBuf,
    pub(crate) arguments: Vec<OsString>,
}

/// What becomes of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Becomes {
    /// It is a program, which the process executes.
    Program(Executes),
    /// The process becomes a virtual machine on KVM that boots it.
    VirtualMachine,
}

impl Becomes {
    const WORDS: [(Self, &str); 3] = [
        (Self::Program(Executes::Nothing), "program"),
        (Self::Program(Executes::Descriptors), "executing-program"),
        (Self::VirtualMachine, "virtual-machine"),
    ];

    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(this, _)| *this == self).map_or("", |(_, word)| word)
    }

    fn parse(word: &OsStr) -> Option<Self> {
        Self::WORDS.iter().find(|(_, this)| word == *this).map(|(becomes, _)| *becomes)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Outer,
    Inner,
}

/// The program that this is.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// What [`run`] is told, with the number of a process group, to guard that.
const GUARD: &str = "guard";

impl KernelArguments {
    /// For the outer stage.
    pub(crate) fn outer(memory_bytes: u64, kernel: &Kernel, arguments: Vec<OsString>) -> Self {
        let becomes = kernel.executes().map_or(Becomes::VirtualMachine, Becomes::Program);
        let (parent, kernel) = (std::process::id(), kernel.file.clone());
        Self { stage: Stage::Outer, parent, memory_bytes, becomes, kernel, arguments }
    }

    /// As arguments of a program.
    pub(crate) fn to_arguments(&self) -> Vec<OsString> {
        let stage = if self.stage == Stage::Outer { "outer" } else { "inner" };
        let mut all: Vec<OsString> =
            vec![stage.into(), self.parent.to_string().into(), self.memory_bytes.to_string().into()];
        all.push(self.becomes.word().into());
        all.push(self.kernel.clone().into());
        all.extend(self.arguments.iter().cloned());
        all
    }

    fn parse(arguments: &[OsString]) -> Option<Self> {
        let [stage, parent, memory_bytes, becomes, kernel, arguments @ ..] = arguments else { return None };
        let number = |text: &OsStr| text.to_str()?.parse::<u64>().ok();
        Some(Self {
            stage: if stage == "outer" { Stage::Outer } else { Stage::Inner },
            parent: u32::try_from(number(parent)?).ok()?,
            memory_bytes: number(memory_bytes)?,
            becomes: Becomes::parse(becomes)?,
            kernel: kernel.into(),
            arguments: arguments.to_vec(),
        })
    }
}

/// Becomes the kernel, shut in. To be called first thing in a process of its own, without other threads, with what
/// `KernelArguments::to_arguments` gave; `again` are the program's own arguments that lead here.
///
/// # Errors
/// When it cannot: whoever started this finds the sentence in the kernel's log.
pub fn run(arguments: &[OsString], again: &[&str]) -> io::Result<Infallible> {
    let not_for_people = || io::Error::other("not for people");
    if let [what, group] = arguments
        && what == GUARD
    {
        let group = group.to_str().and_then(|group| Pid::from_raw(group.parse::<u32>().ok()?.try_into().ok()?));
        // As the target of a signal, the group of the first process would be all processes.
        return guard(group.filter(|group| !group.is_init()).ok_or_else(not_for_people)?);
    }
    let arguments = KernelArguments::parse(arguments).ok_or_else(not_for_people)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    match arguments.stage {
        Stage::Outer => outer(arguments, again),
        Stage::Inner => inner(&arguments, true),
    }
}

/// Says to what is started to call [`run`] that it is, for [`refuse_in_kernels`], and how large the consoles are.
pub(crate) fn mark(command: &mut Command, launcher: &(PathBuf, Vec<&'static str>), size: ConsoleSize) {
    command.env(STARTED_AS, started_as(launcher));
    match size {
        ConsoleSize { rows: 0, .. } | ConsoleSize { columns: 0, .. } => command.env_remove(CONSOLE_SIZE),
        ConsoleSize { rows, columns } => command.env(CONSOLE_SIZE, format!("{rows} {columns}")),
    };
}

/// In a process that was started to become a kernel, [`run`] never returns. So one that wants an appliance of its own
/// has not called it; it would start itself without end.
pub(crate) fn refuse_in_kernels() -> Result<(), Cause> {
    let Some(started_as) = std::env::var_os(STARTED_AS) else { return Ok(()) };
    // Whoever started it may have gone.
    let _ = LineWord::say_refuses();
    Err(Cause::NotKernel(started_as.to_string_lossy().into_owned()))
}

/// What a program is started as to become the kernel, in words.
pub(crate) fn started_as((program, arguments): &(PathBuf, Vec<&'static str>)) -> String {
    let program = if program == Path::new(OWN_PROGRAM) { "this program".into() } else { program.to_string_lossy() };
    match &arguments[..] {
        [] => format!("{program}, started"),
        _ => format!("{program}, started with {}", arguments.join(" ")),
    }
}

fn outer(arguments: KernelArguments, again: &[&str]) -> io::Result<Infallible> {
    // It may have died before the signal was set.
    if getppid().is_none_or(|parent| parent.as_raw_nonzero().get().unsigned_abs() != arguments.parent) {
        exit(1);
    }
    LineWord::say_becomes()?;
    // Of no terminal, and the first of a process group that nothing of it can leave.
    setsid()?;
    // Whoever started the command may have left it descriptors that are nothing to a guest.
    keep_standard_descriptors_only()?;
    set_no_new_privs(true)?;
    stay_on_one_cpu();
    let gap_bytes = if fix_addresses() { 0 } else { GAP_BYTES_MAX };
    bound_resources(&arguments, gap_bytes)?;
    if let Err(error) = make_namespaces() {
        // Only for those who read along.
        let _ = writeln!(io::stderr(), "no namespaces of its own for the appliance: {error}");
        // A virtual machine is one process, which makes no others.
        if arguments.becomes != Becomes::VirtualMachine {
            start_guard(arguments.parent, again)?;
        }
        return inner(&arguments, false);
    }
    let inner = KernelArguments { stage: Stage::Inner, parent: 0, ..arguments };
    let mut command = Command::new(OWN_PROGRAM);
    let status = command.args(again).args(inner.to_arguments()).status()?;
    exit(exit_code(status));
}

/// Starts the guard of this process's group, in a group of its own: no signal to the whole group reaches it, nor does
/// one to it alone, as that is none of the kernel's processes. It is of the same session, so that nobody else has the
/// group's number while it is there.
fn start_guard(command: u32, again: &[&str]) -> io::Result<()> {
    // It has not ended, or this process would have with it.
    let command = Pid::from_raw(command.cast_signed()).ok_or_else(|| io::Error::other("nobody has started this"))?;
    let watched = |pid| pidfd_open(pid, PidfdFlags::empty());
    let mut guard = Command::new(OWN_PROGRAM);
    guard.args(again).args([GUARD, &getpid().as_raw_nonzero().to_string()]).process_group(0);
    guard.stdin(Stdio::from(watched(command)?)).stdout(Stdio::from(watched(getpid())?));
    guard.spawn().map(drop)
}

/// Kills `group` when one of two processes has ended, which standard input and output stand for.
fn guard(group: Pid) -> io::Result<Infallible> {
    // Whoever ends all processes that are called as the command is means this one last.
    let _ = set_name(c"appliance-guard");
    drop_capabilities()?;
    // Without, it is as it was started: nothing that it does depends on anybody's word.
    let _ = filter_guard(group);
    let (command, kernel) = (stdin(), stdout());
    let watch = |process| PollFd::from_borrowed_fd(process, PollFlags::IN);
    // If it cannot wait, it does not let them go on without it.
    let waited = wait_ready(&mut [watch(command), watch(kernel)], None);
    let killed = kill_process_group(group, Signal::KILL);
    exit(i32::from(waited.is_err() || killed.is_err()))
}

/// The guest has one CPU, and each of its system calls is a few turns of talk between two of the host's processes:
/// where these run on different CPUs, every turn costs an interrupt from one to the other, and that is most of what a
/// system call costs.
fn stay_on_one_cpu() {
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    // Where it may not, it is slower.
    let _ = sched_setaffinity(None, &here);
}

/// Bounds what each of the guest's processes can take of the host; how many there are is for whoever answers its calls.
fn bound_resources(arguments: &KernelArguments, gap_bytes: u64) -> io::Result<()> {
    // A panic of the guest's must not leave its memory on the host's disk. A limit of zero keeps it out of files only:
    // a program that the system has for core dumps would be given it all the same, unless the limit is one byte (Linux,
    // fs/coredump.c).
    bound(Resource::Core, 1)?;
    // Whose limit is zero already cannot have another: then there is nothing to be given (core(5); execve(2) leaves it
    // so).
    let _ = fs::write("/proc/self/coredump_filter", "0");
    // Its memory is a file.
    let file_bytes = arguments.memory_bytes.saturating_add(gap_bytes);
    bound(Resource::Fsize, file_bytes.saturating_add(TEMPORARY_SLACK_BYTES))?;
    bound(
        Resource::Data,
        if arguments.becomes == Becomes::VirtualMachine { VIRTUAL_MACHINE_BYTES_MAX } else { PRIVATE_BYTES_MAX },
    )?;
    // A page of its memory may be in two places; and the tables for much more than that would take memory themselves.
    bound(Resource::As, file_bytes.saturating_mul(2).saturating_add(1 << 30))?;
    bound(Resource::Nofile, DESCRIPTORS_MAX)
}

fn bound(resource: Resource, maximum: u64) -> io::Result<()> {
    // A lower one stays.
    let maximum = getrlimit(resource).maximum.map_or(maximum, |present| present.min(maximum));
    Ok(setrlimit(resource, Rlimit { current: Some(maximum), maximum: Some(maximum) })?)
}

/// Tasks that a guest may have on the host: a process for each of its own, and a few. It has the memory for more, but
/// not for many more.
pub(crate) fn tasks_max(memory_bytes: u64) -> usize {
    usize::try_from(memory_bytes >> 21).unwrap_or(usize::MAX).saturating_add(128)
}

/// Without new privileges, nothing brings them back: not the execution of a program by root either.
pub(crate) fn drop_capabilities() -> io::Result<()> {
    // Whoever may not does not have them to lose.
    for capability in CapabilitySet::all().iter() {
        let _ = remove_capability_from_bounding_set(capability);
    }
    let _ = clear_ambient_capability_set();
    let none = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}

/// Namespaces of this process's own; the process namespace is that of the next process it starts.
fn make_namespaces() -> io::Result<()> {
    use rustix::thread::UnshareFlags as Flags;
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let flags = Flags::NEWUSER | Flags::NEWNS | Flags::NEWPID | Flags::NEWNET | Flags::NEWIPC | Flags::NEWUTS;
    #[allow(
        deprecated,
        reason = "its unsafe successor is for flags that share less between threads: there is one thread here"
    )]
    rustix::thread::unshare(flags)?;
    // user_namespaces(7): nobody but this user is there, as root, so that the inner stage keeps its rights when it is
    // executed.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))?;
    // The guest needs none, and each would give it capabilities to try on the host's kernel.
    let _ = fs::write("/proc/sys/user/max_user_namespaces", "0");
    Ok(())
}

/// The current directory has the sockets and the initramfs.
fn inner(arguments: &KernelArguments, isolated: bool) -> io::Result<Infallible> {
    // What it makes is for itself, and all of it, whoever started it.
    umask(Mode::RWXG | Mode::RWXO);
    match arguments.becomes {
        Becomes::Program(executes) => become_program(arguments, executes, isolated),
        Becomes::VirtualMachine => kvm_process::run(arguments, isolated),
    }
}

fn become_program(arguments: &KernelArguments, executes: Executes, isolated: bool) -> io::Result<Infallible> {
    let program = receive_program()?;
    let directory = std::env::current_dir()?;
    let rooted = isolated && has_private_root(arguments, &directory)?;
    let temporary = if rooted { PathBuf::from("/tmp") } else { directory };
    let landlock = restrict_files(files_of_program(&temporary), Some(program.as_fd()))?;
    let words: Vec<_> =
        [arguments.kernel.as_os_str()].into_iter().chain(arguments.arguments.iter().map(|word| &**word)).collect();
    let set = |name: &str, value: &OsStr| OsString::from_iter([name.as_ref(), "=".as_ref(), value]);
    let (temporary, libraries) = (temporary.as_os_str(), libraries(executes));
    let mut environment = vec![set("TMPDIR", temporary), set("HOME", temporary), set("LD_PRELOAD", libraries.as_ref())];
    environment.extend(std::env::var_os(CONSOLE_SIZE).map(|size| set(CONSOLE_SIZE, &size)));
    let program = OpenedProgram::new(program, &words, &environment)?;
    // The root directory took some.
    drop_capabilities()?;
    if isolated {
        // Else the guest, of the same user, could trace this process and outlive it.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    }
    let quiet = isolated || landlock_abi().is_ok_and(|abi| abi >= LANDLOCK_OF_SIGNALS);
    let in_reach = if quiet { InReach::OwnProcesses } else { InReach::OthersToo };
    let (filtered, listener) = match filter_program(executes, in_reach) {
        Ok(listener) => (true, listener),
        Err(error) => {
            let _ = writeln!(io::stderr(), "no filter of system calls for the appliance: {error}");
            (false, None)
        }
    };
    // Nothing that needs an answer before somebody has the listener.
    let confined = Confined { namespaces: rooted, landlock, filtered, quiet, sealed: false };
    LineStart { confined, listener }.send()?;
    if isolated {
        // The kernel ends itself with a signal when it panics, which the first process of a namespace does not hear.
        exit(exit_code(program.run()?));
    }
    Err(program.execute())
}

/// What a kernel is started with (ld.so(8), `LD_PRELOAD`), in the current directory, whose own name may have letters
/// that end a name there.
fn libraries(executes: Executes) -> String {
    match executes {
        Executes::Nothing => format!("./{PRELOAD_NAME}"),
        Executes::Descriptors => format!("./{PRELOAD_NAME}:{THREADS_LIBRARY}"),
    }
}

/// What a process that waited for another ends with: as shells have it, where that was ended by a signal. So a kernel
/// that panics, which ends itself with one, ends otherwise than one that is only done.
fn exit_code(status: ExitStatus) -> i32 {
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

/// Makes a root directory of its own, where this user may mount: namespaces alone do not say so, as distributions have
/// rules for those.
fn has_private_root(arguments: &KernelArguments, directory: &Path) -> io::Result<bool> {
    let Err(error) = private_root(arguments, directory) else { return Ok(true) };
    let _ = writeln!(io::stderr(), "no root directory of its own for the appliance: {error}");
    std::env::set_current_dir(directory)?;
    Ok(false)
}

/// A root directory with what the kernel needs: mounted over what was there, which is then let go of.
fn private_root(arguments: &KernelArguments, directory: &Path) -> io::Result<()> {
    let root = new_root(directory)?;
    let below = |path: &str| root.join(path.trim_start_matches('/'));
    for library in LIBRARIES.iter().filter(|library| Path::new(library).is_dir()) {
        fs::create_dir_all(below(library))?;
        mount_bind_recursive(*library, below(library))?;
        make_read_only(&below(library))?;
    }
    if Path::new(LIBRARY_CACHE).is_file() {
        let cache = below(LIBRARY_CACHE);
        fs::create_dir(below("etc"))?;
        File::create(&cache)?;
        mount_bind_recursive(LIBRARY_CACHE, &cache)?;
        make_read_only(&cache)?;
    }
    for name in ["tmp", "d"] {
        fs::create_dir(below(name))?;
    }
    let options = format!("mode=0700,size={}", arguments.memory_bytes.saturating_add(TEMPORARY_SLACK_BYTES));
    // The guest's memory is a file here, which it executes. In huge pages, as far as the host has any, it is touched
    // for the first time once in 512 pages rather than in each: a fifth of a boot.
    let mount_with = |more: &str| {
        let options = CString::new(format!("{options}{more}")).map_err(io::Error::other)?;
        Ok::<_, io::Error>(mount("tmp", below("tmp"), "tmpfs", ROOT_FLAGS, options.as_c_str())?)
    };
    mount_with(",huge=always").or_else(|_| mount_with(""))?;
    mount_bind_recursive(directory, below("d"))?;
    enter_root(&root)?;
    std::env::set_current_dir("/d")
}

const ROOT_FLAGS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// An empty root directory for this process, mounted below `directory`.
pub(crate) fn new_root(directory: &Path) -> io::Result<PathBuf> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let root = directory.join("root");
    mount("root", &root, "tmpfs", ROOT_FLAGS, c"mode=0700,size=1m")?;
    Ok(root)
}

/// Makes it the root directory, and lets go of what was.
pub(crate) fn enter_root(root: &Path) -> io::Result<()> {
    std::env::set_current_dir(root)?;
    pivot_root(".", ".")?;
    Ok(unmount(".", UnmountFlags::DETACH)?)
}

/// Where the guest is root on the host, file permissions would not keep it from writing there, nor to what is mounted
/// below.
fn make_read_only(mounted: &Path) -> io::Result<()> {
    let path = CString::new(mounted.as_os_str().as_bytes()).map_err(io::Error::other)?;
    if make_mounts_read_only(&path).is_ok() {
        return Ok(());
    }
    // Older kernels know only of one mount at a time, and mostly there is one.
    // When it was read is noted as it was before: that may not be changed in a user namespace (mount_namespaces(7)).
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    Ok(mount_remount(mounted, flags, c"")?)
}

/// The files that a kernel which is a program needs besides that.
fn files_of_program(temporary: &Path) -> impl Iterator<Item = (&Path, BitFlags<AccessFs>)> {
    let read = AccessFs::from_read(ABI::V7);
    let all = AccessFs::from_all(ABI::V7);
    let places = LIBRARIES.iter().chain([&LIBRARY_CACHE]).map(move |path| (Path::new(*path), read));
    let own = [Path::new("."), temporary].map(|path| (path, all));
    let odd = [("/proc", AccessFs::ReadFile.into()), ("/dev/null", AccessFs::ReadFile | AccessFs::WriteFile)];
    places.chain(own).chain(odd.map(|(path, access)| (Path::new(path), access)))
}

/// Takes every file but these, and the program that it becomes, from this process, as far as the host's kernel can;
/// whether it can at all.
pub(crate) fn restrict_files<'a>(
    files: impl Iterator<Item = (&'a Path, BitFlags<AccessFs>)>,
    program: Option<BorrowedFd<'_>>,
) -> io::Result<bool> {
    let executed = AccessFs::Execute | AccessFs::ReadFile;
    // What is not there need not be allowed.
    let rules = files.filter_map(|(path, access)| {
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(ABI::V7) };
        Some(Ok::<_, landlock::RulesetError>(PathBeneath::new(PathFd::new(path).ok()?, access)))
    });
    let restrict = || {
        Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(ABI::V7))?
            .handle_access(AccessNet::from_all(ABI::V7))?
            .scope(Scope::from_all(ABI::V7))?
            .create()?
            .add_rules(rules)?
            .add_rules(program.map(|program| Ok::<_, landlock::RulesetError>(PathBeneath::new(program, executed))))?
            .restrict_self()
    };
    let enforced = restrict().map(|status| status.ruleset != RulesetStatus::NotEnforced);
    enforced.map_err(|error| io::Error::other(format!("cannot confine the appliance: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockyard_linux_guest::PRELOAD;
    use tempfile::TempDir;

    /// The program of this source, in a directory where a kernel's own library is.
    fn built(source: &str) -> (TempDir, Command) {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(PRELOAD_NAME), PRELOAD).unwrap();
        let program = directory.path().join("program");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
        let built = Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(source).status();
        assert!(built.expect("cc comes with the package gcc").success());
        let mut command = Command::new(program);
        command.current_dir(directory.path());
        (directory, command)
    }

    fn said(command: &mut Command) -> String {
        String::from_utf8_lossy(&command.output().unwrap().stdout).trim().to_owned()
    }

    #[test]
    fn a_kernel_may_set_fewer_registers_than_the_processor_has() {
        let (_directory, mut program) = built("partial_registers.c");
        let without = said(&mut program);
        if without == "a processor without AVX" {
            return;
        }
        assert!(without.starts_with("cannot set them"), "{without}");
        assert_eq!(said(program.env("LD_PRELOAD", libraries(Executes::Nothing))), "set");
    }

    #[test]
    fn a_kernel_ends_its_threads_though_it_can_open_no_file() {
        let (_directory, mut program) = built("ends_threads.c");
        assert_eq!(said(&mut program), "", "libc looks for a library");
        assert_eq!(said(program.env("LD_PRELOAD", libraries(Executes::Descriptors))), "ended");
    }
}
