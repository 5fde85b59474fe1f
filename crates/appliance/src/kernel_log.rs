//! What the guest's kernel says on its console.

use crate::system::ConsoleTaker;
use blockyard_block::printable;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::{io, thread};

/// Lines that are kept, and bytes of each.
const LINES_MAX: usize = 256;
const LINE_BYTES_MAX: u64 = 400;
/// What of a console is passed on at once.
const PIECE_BYTES: usize = 4096;
/// Lines that an error shows; of one that has no complaints.
const SHOWN: usize = 4;
const LAST_WORDS: usize = 2;

/// What a kernel says when it has done all and leaves (Linux, kernel/reboot.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Farewell {
    /// It wants to begin anew.
    Restarts,
    /// It is to be switched off, or halts.
    Stops,
}

impl Farewell {
    const WORDS: [(&str, Self); 3] = [
        ("reboot: Restarting system", Self::Restarts),
        ("reboot: Power down", Self::Stops),
        ("reboot: System halted", Self::Stops),
    ];
}

/// The last lines of the console. The guest can say what it likes: it is text that cannot command a terminal.
#[derive(Clone, Debug, Default)]
pub(crate) struct KernelLog {
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl KernelLog {
    /// Follows a console until it is closed, and passes its lines on to `twin` too.
    pub(crate) fn follow(
        console: impl Read + Send + 'static,
        mut twin: Option<Box<dyn Write + Send>>,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let log = Self::default();
        let own = log.clone();
        let thread = thread::Builder::new().name("kernel log".into()).spawn(move || {
            let mut console = BufReader::new(console);
            while let Some(line) = next_line(&mut console) {
                // Nobody may be there to read it.
                let _ = twin.as_mut().map(|twin| writeln!(twin, "{line}"));
                own.keep(line);
            }
        })?;
        Ok((log, thread))
    }

    /// Follows a console until it is closed, and has `taker` take what comes, byte for byte.
    pub(crate) fn tap(
        mut console: impl Read + Send + 'static,
        taker: ConsoleTaker,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let log = Self::default();
        let own = log.clone();
        let thread = thread::Builder::new().name("console".into()).spawn(move || {
            let (mut piece, mut line) = ([0; PIECE_BYTES], Vec::new());
            while let Ok(count @ 1..) = console.read(&mut piece) {
                taker(&piece[..count]);
                own.keep_lines(&piece[..count], &mut line);
            }
        })?;
        Ok((log, thread))
    }

    /// Whether a line has that in it.
    pub(crate) fn says(&self, text: &str) -> bool {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|line| line.contains(text))
    }

    /// Keeps the lines that end in `piece`, of which `line` has the beginning.
    fn keep_lines(&self, piece: &[u8], line: &mut Vec<u8>) {
        for &byte in piece {
            if byte != b'\n' {
                line.push(byte);
            }
            if byte == b'\n' || line.len() as u64 == LINE_BYTES_MAX {
                self.keep(printable(String::from_utf8_lossy(line).trim_end_matches('\r')));
                line.clear();
            }
        }
    }

    fn keep(&self, line: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// Forgets what was said while it booted: half of it is complaints about nothing.
    pub(crate) fn forget(&self) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// What was said last, whoever said it: the program's loader, or User-Mode Linux before there is a kernel, which
    /// have no form of their own. What went well is not told.
    pub(crate) fn last_words(&self) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let telling = |line: &&String| !line.trim().is_empty() && !line.ends_with("OK") && !line.ends_with(" - 0");
        let mut words: Vec<_> = lines.iter().filter(telling).map(|line| line.trim().to_owned()).collect();
        words.split_off(words.len().saturating_sub(LAST_WORDS))
    }

    /// Its farewell, if it has said one and has not panicked. Whatever a guest writes there to be taken for one, it
    /// could as well do.
    pub(crate) fn farewell(&self) -> Option<Farewell> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let said: Vec<_> = lines.iter().filter_map(|line| complaint(line)).collect();
        if said.iter().any(|line| line.starts_with("Kernel panic")) {
            return None;
        }
        let meant = |line: &String| Farewell::WORDS.iter().find(|(words, _)| line.starts_with(words));
        said.iter().rev().find_map(meant).map(|(_, farewell)| *farewell)
    }

    /// The last few complaints: the console has nothing but errors of the kernel's, and words of User-Mode Linux, which
    /// have no time in front, nor a name.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let mut complaints: Vec<_> = lines.iter().filter_map(|line| complaint(line)).collect();
        complaints.dedup();
        // What follows is where it was: addresses, mostly.
        if let Some(panic) = complaints.iter().position(|line| line.starts_with("Kernel panic")) {
            complaints.truncate(panic + 1);
            return complaints.split_off(panic.saturating_sub(1));
        }
        complaints.split_off(complaints.len().saturating_sub(SHOWN))
    }
}

/// A line without its time, if it is one that counts.
fn complaint(line: &str) -> Option<String> {
    // The agent's, and those of our own program that could not become the kernel.
    if line.starts_with("agent: ") {
        return Some(line.to_owned());
    }
    if let Some(said) = line.strip_prefix("blockyard: ") {
        return Some(said.to_owned());
    }
    // The level is there when it panics without a console.
    let line = match line.strip_prefix('<').and_then(|line| line.split_once('>')) {
        Some((level, line)) if level.parse::<u8>().is_ok_and(|level| level <= 3) => line,
        Some(_) => return None,
        None => line,
    };
    let (time, text) = line.strip_prefix('[')?.split_once("] ")?;
    time.trim().parse::<f64>().ok()?;
    Some(text.to_owned())
}

/// The next line, cut where it is too long; `None` at the end.
fn next_line(console: &mut impl BufRead) -> Option<String> {
    let mut bytes = Vec::new();
    let length = console.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    (length > 0).then(|| printable(text.trim_end_matches(['\r', '\n'])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_the_kernels_lines_without_their_times() {
        let console =
            "Checking that ptrace works...OK\n[    0.010000] EXT4-fs (vda): bad\u{1b}[2J\n[nonsense] x\nagent: no\n";
        let (log, thread) = KernelLog::follow(console.as_bytes(), None).unwrap();
        thread.join().unwrap();
        assert_eq!(log.complaints(), ["EXT4-fs (vda): bad\u{fffd}[2J", "agent: no"]);
    }

    #[test]
    fn what_was_said_last_is_told_whoever_said_it() {
        let console = "Checking that ptrace works...OK\n\n/kernel: libc.so.6: version `GLIBC_2.38' not found\n";
        let (log, thread) = KernelLog::follow(console.as_bytes(), None).unwrap();
        thread.join().unwrap();
        assert!(log.complaints().is_empty());
        assert_eq!(log.last_words(), ["/kernel: libc.so.6: version `GLIBC_2.38' not found"]);
    }

    #[test]
    fn a_panic_is_told_without_what_follows() {
        let console = "[ 1.0] EXT4-fs error: bad\n[ 1.1] Kernel panic - not syncing: forced\n[ 1.2] Call Trace:\n[ 1.3]  x+0x79\n";
        let (log, thread) = KernelLog::follow(console.as_bytes(), None).unwrap();
        thread.join().unwrap();
        assert_eq!(log.complaints(), ["EXT4-fs error: bad", "Kernel panic - not syncing: forced"]);
    }

    #[test]
    fn a_kernel_that_has_said_farewell_has_not_died() {
        let farewell = |console: &'static str| {
            let (log, thread) = KernelLog::follow(console.as_bytes(), None).unwrap();
            thread.join().unwrap();
            log.farewell()
        };
        let lost = "[ 0.1] EXT4-fs (vda): shut down requested (2)\n";
        assert_eq!(farewell("[ 0.1] reboot: Restarting system\r\n"), Some(Farewell::Restarts));
        assert_eq!(farewell(&*format!("[ 0.1] reboot: Power down\n{lost}").leak()), Some(Farewell::Stops));
        assert_eq!(farewell("[ 0.1] reboot: System halted\n"), Some(Farewell::Stops));
        assert_eq!(farewell("reboot: Restarting system\n"), None, "the kernel says when");
        assert_eq!(farewell("[ 0.1] reboot: Restarting system\n[ 0.2] Kernel panic - not syncing: x\n"), None);
        assert_eq!(farewell(lost), None);
    }

    #[test]
    fn a_console_is_passed_on_as_it_is_and_its_lines_are_kept() {
        let passed = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&passed);
        let console = [&b"[ 1.0] Kernel panic - not syncing: x\r\nlogin: \x1b["[..], &[b'y'; 1000]].concat();
        let taker: ConsoleTaker = Arc::new(move |bytes| taken.lock().unwrap().extend_from_slice(bytes));
        let (log, thread) = KernelLog::tap(io::Cursor::new(console.clone()), taker).unwrap();
        thread.join().unwrap();
        assert!(*passed.lock().unwrap() == console);
        assert_eq!(log.complaints(), ["Kernel panic - not syncing: x"]);
        let lines = log.lines.lock().unwrap();
        assert!(lines.len() == 3 && lines.iter().all(|line| line.chars().count() as u64 <= LINE_BYTES_MAX));
    }

    #[test]
    fn a_guest_cannot_make_us_keep_more_than_a_little() {
        let console = io::repeat(b'x').take(10 << 20);
        let mut lines = BufReader::new(console);
        assert_eq!(next_line(&mut lines).unwrap().len() as u64, LINE_BYTES_MAX);
    }
}
