//! However it ends, nothing of the appliance is left, and the image is one that can be repaired.

use crate::rig::{Rig, failure, failure_with, is_in_lab, noise};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.split(' ').nth(1)?.parse().ok()
}

fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap().starts_with('Z'))
}

/// All processes below `root`.
pub(crate) fn descendants(root: u32) -> Vec<u32> {
    let all: Vec<u32> =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    let mut found = vec![root];
    loop {
        let more: Vec<_> = all
            .iter()
            .copied()
            .filter(|pid| !found.contains(pid) && parent_of(*pid).is_some_and(|parent| found.contains(&parent)))
            .collect();
        if more.is_empty() {
            found.retain(|pid| *pid != root);
            return found;
        }
        found.extend(more);
    }
}

/// Whether a process is the appliance's kernel, or the virtual machine that it runs in.
pub(crate) fn is_kernel(pid: u32) -> bool {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let is_machine = |link: fs::DirEntry| fs::read_link(link.path()).is_ok_and(|to| to.ends_with("anon_inode:kvm-vm"));
    let is_program =
        |line: Vec<u8>| line.split(|byte| *byte == 0).next().is_some_and(|name| name.ends_with(b"linux.uml"));
    links.into_iter().any(is_machine) || fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(is_program)
}

/// `put -`, in the middle of its stream: the file that it fills is there, since most of what it was given has been
/// read.
pub(crate) fn in_mid_copy(rig: &Rig) -> (Child, Vec<u32>) {
    try_in_mid_copy(rig, &[]).unwrap()
}

/// The same, or what the command said that has ended before.
#[allow(clippy::zombie_processes, reason = "each test waits for it")]
fn try_in_mid_copy(rig: &Rig, options: &[&str]) -> Result<(Child, Vec<u32>), String> {
    let mut arguments = options.to_vec();
    arguments.extend(["-", "/file"]);
    let mut child = rig.command("put", &arguments).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let ended = |child: Child| String::from_utf8_lossy(&child.wait_with_output().unwrap().stderr).into_owned();
    if child.stdin.as_mut().unwrap().write_all(&noise(6 << 20)).is_err() {
        return Err(ended(child));
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        let processes = descendants(child.id());
        if processes.iter().any(|pid| is_kernel(*pid)) {
            return Ok((child, processes));
        }
        if child.try_wait().unwrap().is_some() {
            return Err(ended(child));
        }
        assert!(Instant::now() < deadline, "the appliance does not start");
        sleep(Duration::from_millis(10));
    }
}

pub(crate) fn all_gone(processes: &[u32]) {
    let deadline = Instant::now() + PATIENCE;
    while processes.iter().any(|pid| is_alive(*pid)) {
        assert!(Instant::now() < deadline, "still there: {processes:?}");
        sleep(Duration::from_millis(10));
    }
}

/// e2fsck has nothing left to do once it has repaired.
fn can_be_repaired(rig: &Rig) {
    let repaired = Command::new("/usr/sbin/e2fsck").arg("-fy").arg(&rig.image).output().unwrap();
    assert!(matches!(repaired.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&repaired.stdout));
    rig.check();
}

#[test]
fn ctrl_c_ends_it_at_once() {
    let rig = Rig::empty(64);
    let (child, processes) = in_mid_copy(&rig);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let begin = Instant::now();
    let said = failure_with(130, child.wait_with_output().unwrap());
    assert!(begin.elapsed() < PATIENCE);
    assert!(said.contains("ended by Ctrl-C (SIGINT)"), "{said}");
    all_gone(&processes);
    can_be_repaired(&rig);
}

#[test]
fn a_killed_command_takes_its_appliance_along() {
    let rig = Rig::empty(64);
    let (mut child, processes) = in_mid_copy(&rig);
    child.kill().unwrap();
    child.wait().unwrap();
    all_gone(&processes);
    can_be_repaired(&rig);
}

/// Without namespaces, whose first process takes the others along: a program that computes for ever is a process of its
/// own on the host, and so is what else the kernel has.
#[test]
fn a_command_that_ends_takes_all_along_without_namespaces_too() {
    let rig = Rig::new(32, |root| {
        fs::create_dir(root.join("dev")).unwrap();
        fs::copy("/bin/busybox", root.join("busybox")).expect("it is in Debian's busybox-static");
    });
    for signals in [&[Signal::KILL][..], &[Signal::TERM, Signal::INT, Signal::TERM], &[Signal::INT, Signal::INT]] {
        let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_blockyard")]);
        command.args(["image", "run"]).arg(&rig.image).args(["/busybox", "sh", "-c", "echo runs; while :; do :; done"]);
        command.current_dir(rig.directory.path()).env("TMPDIR", rig.directory.path());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = [0; 5];
        child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        assert_eq!(&said, b"runs\n");
        let processes = descendants(child.id());
        let kernels = processes.iter().filter(|pid| is_kernel(**pid)).count();
        // Newer kernels execute a program of their own for the guest's processes. A virtual machine has none.
        assert!(
            kernels > 0 && (is_in_lab() || processes.len() > kernels && processes.len() > 2),
            "its kernel, a process of its guest, and their guard: {processes:?}"
        );
        for &signal in signals {
            kill_process(Pid::from_child(&child), signal).unwrap();
            sleep(Duration::from_millis(20));
        }
        assert!(!child.wait().unwrap().success());
        all_gone(&processes);
    }
}

#[test]
fn a_killed_kernel_is_noticed_at_once() {
    let rig = Rig::empty(64);
    let (child, processes) = in_mid_copy(&rig);
    let kernel = processes.iter().copied().find(|pid| is_kernel(*pid)).unwrap();
    let begin = Instant::now();
    kill_process(Pid::from_raw(kernel as i32).unwrap(), Signal::KILL).unwrap();
    let said = failure(child.wait_with_output().unwrap());
    assert!(begin.elapsed() < PATIENCE);
    assert!(said.contains("the appliance has"), "{said}");
    all_gone(&processes);
    can_be_repaired(&rig);
}

/// Tries something with a timeout of so many seconds; where a machine that stands still for a while makes that pass
/// before its time, with more.
fn with_timeout(attempt: impl Fn(u64) -> Result<(), String>) {
    let failed = |seconds| attempt(seconds).inspect_err(|said| eprintln!("with {seconds} s: {said}")).is_err();
    assert!(![5, 20, 80].into_iter().all(failed), "no time is enough");
}

#[test]
fn a_kernel_that_hangs_is_given_up() {
    with_timeout(|seconds| {
        let rig = Rig::empty(64);
        let (mut child, processes) = try_in_mid_copy(&rig, &["--timeout", &seconds.to_string()])?;
        for pid in processes.iter().copied().filter(|pid| is_kernel(*pid)) {
            let stopped = kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::STOP);
            stopped.map_err(|error| format!("{pid} is not there any more: {error}"))?;
        }
        // While stdin gives nothing, the appliance is not to blame.
        child.stdin.as_mut().unwrap().write_all(&noise(6 << 20)).unwrap_or_default();
        drop(child.stdin.take());
        let said = failure(child.wait_with_output().unwrap());
        assert!(said.contains(&format!("no progress for {seconds} s (--timeout)")), "{said}");
        all_gone(&processes);
        Ok(())
    });
}

#[test]
fn a_slow_stdin_is_no_fault_of_the_appliance() {
    with_timeout(|seconds| {
        let rig = Rig::empty(64);
        let (mut child, _) = try_in_mid_copy(&rig, &["--timeout", &seconds.to_string()])?;
        sleep(Duration::from_secs(seconds + 3));
        let _ = child.stdin.as_mut().unwrap().write_all(b"end");
        let output = child.wait_with_output().unwrap();
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        assert!(rig.run("stat", &["/file"]).contains(&format!("Size: {}", (6 << 20) + 3)));
        rig.check();
        Ok(())
    });
}
