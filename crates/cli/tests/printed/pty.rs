//! A command on a terminal of a given width.

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};

/// What a command that runs on a terminal has written there so far, to its end.
pub(crate) struct Terminal {
    pub(crate) child: Child,
    reader: JoinHandle<String>,
}

impl Terminal {
    /// Starts a command whose stdout and stderr are a terminal with so many columns.
    pub(crate) fn start(command: &mut Command, columns: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        tcsetwinsize(&master, Winsize { ws_col: columns, ws_row: 50, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let terminal = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let twin = terminal.try_clone().unwrap();
        command.stdin(Stdio::null()).stdout(twin).stderr(terminal);
        command.env("TERM", "xterm").env_remove("COLUMNS").env_remove("NO_COLOR");
        let child = command.spawn().unwrap();
        // Its ends of the terminal; ours is the other one.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut master = File::from(master);
        let reader = thread::spawn(move || {
            let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
            // An error (EIO) says that nobody has the terminal any more.
            while let Ok(count @ 1..) = master.read(&mut piece) {
                bytes.extend_from_slice(&piece[..count]);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Self { child, reader }
    }

    /// Waits for its end: what it has written.
    pub(crate) fn finish(mut self) -> String {
        self.child.wait().unwrap();
        self.reader.join().unwrap()
    }
}

/// The lines of what was written: what moves the cursor, chooses colours or clears is left out, and begins another line
/// where it goes to another place.
pub(crate) fn lines(written: &str) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    let mut letters = written.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' if letters.peek() == Some(&'[') => {
                letters.next();
                let last = letters.find(|letter| ('@'..='~').contains(letter));
                if matches!(last, Some('A'..='H' | 'f')) {
                    lines.push(std::mem::take(&mut line));
                }
            }
            '\n' | '\r' => lines.push(std::mem::take(&mut line)),
            _ => line.push(letter),
        }
    }
    lines.push(line);
    lines.retain(|line| !line.is_empty());
    lines
}

/// No line is wider than the terminal.
#[track_caller]
pub(crate) fn fits(written: &str, columns: u16, what: &str) {
    for line in lines(written) {
        assert!(line.chars().count() <= columns.into(), "{what} at {columns} columns: {line:?} of {written:?}");
    }
}
