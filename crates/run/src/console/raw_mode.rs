//! A terminal whose keys are the guest's.

use rustix::io;
use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcsetattr};

/// Stdin's terminal in raw mode, until this is dropped.
pub(super) struct RawMode {
    before: Termios,
}

impl RawMode {
    pub(super) fn enter() -> io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // What has been typed and not read was for the guest, not for the shell that comes next. Nothing waits for what
        // has been written, which a terminal that stands still never takes; and one that is gone needs nothing.
        let _ = tcflush(stdin(), QueueSelector::IFlush);
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}
