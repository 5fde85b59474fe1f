//! Disks that are slow because somebody said so.

use super::*;
use crate::support::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use std::process::Stdio;

/// What would take days ends when it is asked to.
#[test]
fn a_signal_ends_what_waits_for_a_slow_disk() {
    let yard = Yard::new();
    yard.random("disk.img", 4 * MIB, 36);
    for line in [
        "image convert -r 1 disk.img out.img",
        "image convert -c -O qcow2 disk.img,latency=3600s out.img",
        "image compare disk.img,iops=1,burst=0ms disk.img,latency=3600s",
        "image dd bs=1M if=disk.img,bps=1 of=out.img",
        "copy disk.img,bps=1 out.img",
        "bench disk disk.img,bps=1",
    ] {
        let mut command = blockyard();
        command.args(line.split(' ')).current_dir(yard.path("")).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let tasks = format!("/proc/{}/task", child.id());
        let has_threads = || fs::read_dir(&tasks).is_ok_and(|tasks| tasks.count() > 1);
        wait_until("the threads that wait", || has_threads() || child.try_wait().unwrap().is_some());
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let outcome = support::finish(child);
        // A second after the signal the disk is slow no more: what is little may be done where nobody has looked by
        // then.
        match outcome.code {
            Some(0) => _ = fs::remove_file(yard.path("out.img")),
            _ => drop(outcome.failed(143, &["SIGTERM"])),
        }
        assert!(!yard.path("out.img").exists(), "{line}");
    }
}
