//! A container that gives little: io_uring refused, /dev/shm small and noexec, not root, no way to become more.

mod support;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use support::{Yard, backend, blockyard, run, same};

/// Runs a command in such a container. Takes root, as setting one up does.
fn poor(mut command: Command) -> Command {
    let refused = [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_unshare, libc::SYS_mount];
    let rules = refused.map(|system_call| (system_call, Vec::new()));
    let architecture = std::env::consts::ARCH.try_into().unwrap();
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules.into_iter().collect(), SeccompAction::Allow, refuse, architecture).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    let enter = move || -> io::Result<()> {
        // SAFETY: this process is about to become the command; nothing shares its file system state.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS)? };
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        let flags = MountFlags::NOEXEC | MountFlags::NOSUID | MountFlags::NODEV;
        mount("none", "/dev/shm", "tmpfs", flags, c"size=64m,mode=1777")?;
        let (user, group) = (65534, 65534);
        // SAFETY: plain system calls; the process has one thread.
        let changed =
            unsafe { libc::setgroups(0, std::ptr::null()) == 0 && libc::setgid(group) == 0 && libc::setuid(user) == 0 };
        if !changed {
            return Err(io::Error::last_os_error());
        }
        seccompiler::apply_filter(&program).map_err(|_| io::ErrorKind::Other.into())
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
