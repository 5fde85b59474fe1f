//! The lab's machine: a QEMU that translates, with a console that this process reads.

use anyhow::{Context, bail};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// The line after which the console is the tests' own.
pub(super) const BEGIN: &str = "BLOCKYARD-LAB-BEGIN";
/// Begins the last line; the exit code follows.
pub(super) const END: &str = "BLOCKYARD-LAB-END ";

/// From power-on to power-off.
const TIMEOUT: Duration = Duration::from_secs(1200);
/// No test takes as long without a word: longer than the tests themselves wait for a guest.
const SILENCE_MAX: Duration = Duration::from_secs(400);
const NUDGE_INTERVAL: Duration = Duration::from_secs(1);
/// Lines shown of a console that ended early.
const TAIL_LINES: usize = 40;

/// Boots the kernel with the initramfs, has `print` print what its tests print, and returns their exit code.
///
/// # Errors
/// When QEMU does not start, or the guest ends without a word, or not at all.
pub(super) fn run(kernel: &Path, initramfs: &Path, print: &dyn Fn(&str)) -> anyhow::Result<u8> {
    let mut qemu =
        Qemu(qemu(kernel, initramfs).spawn().context("cannot start qemu-system-x86_64: run `cargo xtask setup`")?);
    nudge(&mut qemu.0)?;
    let lines = console(&mut qemu.0)?;
    let complaints = complaints(&mut qemu.0)?;
    let deadline = Instant::now() + TIMEOUT;
    let mut tail = VecDeque::new();
    let mut begun = false;
    loop {
        let line = match lines.recv_timeout(SILENCE_MAX.min(deadline.saturating_duration_since(Instant::now()))) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => {
                let complaints = complaints.iter().collect::<Vec<_>>().join("; ");
                bail!("the lab ended before its tests did {complaints}{}", shown(&tail))
            }
            Err(RecvTimeoutError::Timeout) => {
                let (silence, all) = (SILENCE_MAX.as_secs(), TIMEOUT.as_secs());
                bail!("the lab said nothing for {silence} s, or took longer than {all} s{}", shown(&tail))
            }
        };
        // Anywhere in the line: an unfinished one of a test's may stand before it.
        if let Some((before, code)) = line.split_once(END) {
            print(before);
            return code.trim().parse().with_context(|| format!("the lab's exit code is {code:?}"));
        }
        if begun {
            print(&line);
        }
        begun |= line.ends_with(BEGIN);
        if tail.len() == TAIL_LINES {
            tail.pop_front();
        }
        tail.push_back(line);
    }
}

/// One processor only. With two, QEMU 7.2 now and then goes on executing a breakpoint that Linux puts into its own code
/// for a moment on the other one, as it does in the scheduler whenever the first VM comes or the last one goes: then a
/// processor takes #BP for ever with interrupts off, and the lab stands still. Two processors were no faster.
fn qemu(kernel: &Path, initramfs: &Path) -> Command {
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args(["-accel", "tcg", "-cpu", "EPYC,+svm,+npt,+nrip-save", "-m", "2048", "-smp", "1"])
        .args(["-nographic", "-no-reboot", "-nic", "none"])
        .args(["-append", "console=ttyS0 rdinit=/init quiet panic=-1"])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initramfs)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Types an empty line now and then. QEMU 7.2 sometimes forgets a timer while its processor is halted, four times in
/// some two hundred machines whose guests had fio at their disks: the lab then slept until an interrupt came from
/// elsewhere, and that is one. Nobody there reads the console.
fn nudge(qemu: &mut Child) -> anyhow::Result<()> {
    let mut console = qemu.stdin.take().context("QEMU has no input")?;
    thread::spawn(move || {
        // Until it is gone.
        while console.write_all(b"\n").is_ok() {
            thread::sleep(NUDGE_INTERVAL);
        }
    });
    Ok(())
}

/// The lines of the console, as they come.
fn console(qemu: &mut Child) -> anyhow::Result<Receiver<String>> {
    let output = qemu.stdout.take().context("QEMU has no output")?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    Ok(receiver)
}

/// What QEMU says of itself, except that its processor lacks things an EPYC has.
fn complaints(qemu: &mut Child) -> anyhow::Result<Receiver<String>> {
    let errors = qemu.stderr.take().context("QEMU has no stderr")?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(errors).lines().map_while(Result::ok) {
            if !line.contains("TCG doesn't support requested feature") {
                eprintln!("{line}");
                // Nobody may listen any more.
                let _ = sender.send(line);
            }
        }
    });
    Ok(receiver)
}

/// A QEMU that does not outlive its scope, however that is left.
struct Qemu(Child);

impl Drop for Qemu {
    fn drop(&mut self) {
        // It has powered off, or is of no more use. Neither call fails in a way that matters.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Prints a line of a machine's.
pub(super) fn print_line(line: &str) {
    if !line.is_empty() {
        println!("{line}");
        let _ = std::io::stdout().flush();
    }
}

fn shown(tail: &VecDeque<String>) -> String {
    let lines: Vec<_> = tail.iter().map(|line| format!("\n  | {line}")).collect();
    format!("; its console's last lines:{}", lines.concat())
}
