//! A terminal whose keys are the guest's.

use rustix::io;
use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

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
        // What has been typed and not read was for the guest, not for the shell that comes next. A terminal that is
        // gone needs nothing.
        let _ = tcsetattr(stdin(), OptionalActions::Flush, &self.before);
    }
}
