//! Commands that are started with signals ignored, as by nohup(1), or by a shell for what runs in its background.

use super::*;
use crate::support::wait_until_it_catches;
use rustix::process::{Pid, Signal, kill_process};
use std::process::Stdio;

/// Signals of a set in a process's status, by number from 1 on.
fn set(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap()
}

#[test]
fn signals_that_were_ignored_end_nothing() {
    let yard = Yard::new();
    yard.random("disk.img", MIB / 8, 35);
    let hang_up_and_interrupt = 1 << (libc::SIGHUP - 1) | 1 << (libc::SIGINT - 1);
    for line in [
        "image convert disk.img,latency=200ms out.qcow2",
        "copy disk.img,latency=200ms out.img",
        "serve disk.img --socket disk.sock",
        "bench disk disk.img --runtime 2",
    ] {
        let script = format!("trap '' HUP INT; exec {} {line}", env!("CARGO_BIN_EXE_blockyard"));
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir(yard.path("")).stdin(Stdio::null());
        let child = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until_it_catches(child.id(), libc::SIGTERM);
        assert_eq!(set(child.id(), "SigIgn:") & hang_up_and_interrupt, hang_up_and_interrupt, "{line}");
        for signal in [Signal::HUP, Signal::INT] {
            kill_process(Pid::from_child(&child), signal).unwrap();
        }
        if line.starts_with("serve") {
            kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        }
        support::finish(child).succeeded();
    }
    for out in ["out.qcow2", "out.img"] {
        run(blockyard().current_dir(yard.path("")).args(["image", "compare", "disk.img", out])).succeeded();
    }
}
