//! What a process has asked of a disk that is slow on purpose, when the process is to end: nothing is held back then,
//! so that whoever waits for it can end, too.

use crate::SecondSignal;
use std::sync::OnceLock;
use std::time::Duration;

/// How soon a layer that holds something back hears of a signal.
const LOOK: Duration = Duration::from_millis(100);

/// How long a signal is known before that: whoever watches the work has ended it by then, and asks for no more.
const GRACE: Duration = Duration::from_secs(1);

/// Those of this process.
static SIGNALS: OnceLock<SecondSignal> = OnceLock::new();

/// From a second after the first of these signals on, until it is forgotten, no layer of this process holds anything
/// back. Of several calls, the first counts.
pub fn hold_nothing_back_after(signals: &SecondSignal) {
    SIGNALS.get_or_init(|| signals.clone());
}

/// Whether that is so now.
pub(super) fn nothing_is_held_back() -> bool {
    SIGNALS.get().is_some_and(|signals| signals.came_before(GRACE))
}

/// How long to wait at most before that is asked again, of a wait of so long.
pub(super) fn until_next_look(wait: Duration) -> Duration {
    if SIGNALS.get().is_some() { wait.min(LOOK) } else { wait }
}
