//! A guest's console while it builds: kept in a file, and looked through for what its step says.

use std::fs::File;
use std::io::{Read, Write};
use std::time::Instant;

/// Begins what the step says.
const WORD: &str = "BLOCKYARD-KBUILD ";
/// No line that the step says is as long.
const LINE_BYTES_MAX: usize = 1 << 12;
/// Of a console that says more, the first so much is kept.
const LOG_BYTES_MAX: usize = 16 << 20;

/// What the step says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Said {
    /// The build begins, at this time of the guest's clock.
    Begins(f64),
    /// It has ended.
    Ends(f64),
    /// It has not, because of this.
    Failed(String),
}

/// What the step says in a line of the console, which may have something else before it.
pub(super) fn said(line: &str) -> Option<Said> {
    let (_, text) = line.split_once(WORD)?;
    let seconds = |text: &str| text.trim().parse().ok().filter(|seconds: &f64| seconds.is_finite());
    if let Some(time) = text.strip_prefix("begin ") {
        return seconds(time).map(Said::Begins);
    }
    if let Some(time) = text.strip_prefix("end ") {
        return seconds(time).map(Said::Ends);
    }
    text.strip_prefix("failed: ").map(|why| Said::Failed(why.trim().to_owned()))
}

/// Reads the console to its end. `tell` hears what the step says, and when it came.
pub(super) fn read(mut console: impl Read, mut log: File, mut tell: impl FnMut(Said, Instant)) {
    let (mut line, mut kept, mut piece) = (Vec::new(), 0, [0; 4096]);
    loop {
        let count = match console.read(&mut piece) {
            Ok(count) if count > 0 => count,
            _ => return,
        };
        let now = Instant::now();
        let room = count.min(LOG_BYTES_MAX - kept);
        // A log that cannot be written is no reason to end a build that can be measured.
        let _ = log.write_all(&piece[..room]);
        kept += room;
        for &byte in &piece[..count] {
            if byte != b'\n' {
                if line.len() < LINE_BYTES_MAX {
                    line.push(byte);
                }
                continue;
            }
            if let Some(said) = said(&String::from_utf8_lossy(&line)) {
                tell(said, now);
            }
            line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_step_says_is_found_wherever_it_stands() {
        assert_eq!(said("[ 1.0] x BLOCKYARD-KBUILD begin 12.34\r"), Some(Said::Begins(12.34)));
        assert_eq!(said("BLOCKYARD-KBUILD end 15"), Some(Said::Ends(15.0)));
        assert_eq!(said("BLOCKYARD-KBUILD failed: no gcc\r"), Some(Said::Failed("no gcc".into())));
        for line in ["", "begin 1", "BLOCKYARD-KBUILD begin", "BLOCKYARD-KBUILD end inf", "BLOCKYARD-KBUILD end -"] {
            assert_eq!(said(line), None, "{line}");
        }
    }

    #[test]
    fn a_console_that_is_flooded_is_kept_as_far_as_there_is_room() {
        let log = tempfile::tempfile().unwrap();
        let line = [b'x'; 1 << 16];
        let console = std::iter::repeat_n(&line[..], 300)
            .fold(Box::new(&b""[..]) as Box<dyn Read>, |before, line| Box::new(before.chain(line)));
        let mut heard = Vec::new();
        let end = &b"\nBLOCKYARD-KBUILD end 1\n"[..];
        read(console.chain(end), log.try_clone().unwrap(), |said, _| heard.push(said));
        assert_eq!(heard, [Said::Ends(1.0)]);
        assert_eq!(log.metadata().unwrap().len(), LOG_BYTES_MAX as u64);
    }
}
