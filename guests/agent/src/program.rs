//! Executing programs, and keeping what they say within bounds.

use crate::interruption;
use blockyard_protocol::appliance::ProgramEnd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

/// Bytes that are kept of what a program says first, and of what it says last, on each of its outputs: all four fit a
/// frame.
const HEAD_BYTES: usize = 8 << 10;
const TAIL_BYTES: usize = 16 << 10;

/// How long a program may take to put things in order when it is not wanted any more: e2fsck and LVM do.
const GRACE: Timespec = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };

/// Starts a program whose three streams are ours. It leads a group of processes.
pub(crate) fn start(command: &mut Command) -> io::Result<Child> {
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

/// Gives `stdin` to a program that [`start`] started, and waits for its end. When the host does not want it any more,
/// it is ended.
pub(crate) fn finish(mut child: Child, stdin: Vec<u8>) -> io::Result<ProgramEnd> {
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let small = || thread::Builder::new().stack_size(64 << 10);
    let writer = small().spawn(move || {
        // It need not take what it is given.
        let _ = input.map(|mut input| input.write_all(&stdin));
    })?;
    let out_reader = small().spawn(move || output.map_or_else(|| Ok(Said::default()), Said::read))?;
    let err_reader = small().spawn(move || errors.map_or_else(|| Ok(Said::default()), Said::read))?;
    let status = wait(&mut child);
    let output = out_reader.join().unwrap_or_else(|_| Ok(Said::default()))?;
    let errors = err_reader.join().unwrap_or_else(|_| Ok(Said::default()))?;
    let _ = writer.join();
    let status = status?;
    Ok(ProgramEnd {
        status: status.code().unwrap_or_default().unsigned_abs(),
        signal: status.signal().unwrap_or_default().unsigned_abs(),
        left_out: output.left_out + errors.left_out,
        output: output.into_bytes(),
        errors: errors.into_bytes(),
        ..ProgramEnd::default()
    })
}

/// Waits for a program's end, and brings it about if the host does not want it any more.
fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    let group = Pid::from_child(child);
    let running = pidfd_open(group, PidfdFlags::empty())?;
    if interruption::wait(running.as_fd()).is_err() {
        // They may all be gone already.
        let _ = kill_process_group(group, Signal::TERM);
        let _ = poll(&mut [PollFd::new(&running, PollFlags::IN)], Some(&GRACE));
        let _ = kill_process_group(group, Signal::KILL);
    }
    child.wait()
}

/// What a program has said on one of its outputs.
#[derive(Default)]
struct Said {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: u64,
}

impl Said {
    fn read(mut output: impl Read) -> io::Result<Self> {
        let mut said = Self::default();
        let mut buffer = vec![0; 4096];
        loop {
            match output.read(&mut buffer) {
                Ok(0) => return Ok(said),
                Ok(bytes) => said.add(&buffer[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(HEAD_BYTES - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        let excess = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..excess);
        self.left_out += excess as u64;
    }

    fn into_bytes(self) -> Vec<u8> {
        let mut bytes = self.head;
        if self.left_out > 0 {
            bytes.extend_from_slice(b"\n[...]\n");
        }
        bytes.extend(self.tail);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_words_are_kept() {
        let spoken: Vec<u8> = (0..100_000u32).map(|number| number as u8).collect();
        let said = Said::read(&spoken[..]).unwrap();
        assert_eq!(said.left_out as usize, spoken.len() - HEAD_BYTES - TAIL_BYTES);
        let bytes = said.into_bytes();
        assert_eq!(bytes[..HEAD_BYTES], spoken[..HEAD_BYTES]);
        assert_eq!(bytes[bytes.len() - TAIL_BYTES..], spoken[spoken.len() - TAIL_BYTES..]);
        let little = Said::read(&spoken[..10_000]).unwrap();
        assert_eq!((little.left_out, &little.into_bytes()[..]), (0, &spoken[..10_000]));
    }

    #[test]
    fn a_program_gets_its_input_and_says_how_it_ended() {
        let cat = start(&mut Command::new("cat")).unwrap();
        let end = finish(cat, vec![b'x'; 9000]).unwrap();
        assert_eq!((end.status, end.signal, end.output.len(), end.left_out), (0, 0, 9000, 0));
        // Somebody who ends without reading is nobody's failure.
        let deaf = start(&mut Command::new("false")).unwrap();
        assert_eq!(finish(deaf, vec![b'x'; 1 << 20]).unwrap().status, 1);
    }
}
