//! What people see while a disk is served: messages, and on a terminal what each client does.

use super::notices::{Notice, Notices};
use super::view::Look;
use blockyard_command_line::terminal;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

/// What this process has to say on stderr.
static NOTICES: Notices = Notices::new();

/// How long the end of a process waits for who reads what it has said.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// Where messages go; cheap to clone. Nobody waits for who reads them.
#[derive(Clone)]
pub struct Screen {
    live: Option<ProgressBar>,
}

/// How often the live view is drawn.
const REDRAW: Duration = Duration::from_secs(1);

impl Screen {
    /// With a live view if `stats` is asked for and stderr is a terminal. A process has one.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn new(stats: bool) -> io::Result<Self> {
        let live = (stats && io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_style(ProgressStyle::with_template("{msg}").expect("the template is right"));
            bar
        });
        let above = live.clone();
        let write = |notice: &Notice| match notice {
            Notice::Said(what) => terminal::say(what),
            Notice::Printed(text) => terminal::tell(text),
        };
        NOTICES.start(move |notice| match &above {
            Some(live) => live.suspend(|| write(notice)),
            None => write(notice),
        })?;
        Ok(Self { live })
    }

    /// Tells people something, above the live view.
    pub fn tell(&self, what: &str) {
        NOTICES.tell(Notice::Said(what.to_owned()));
    }

    /// Tells people of what may happen as often as clients like: all that has to do with `topic` in not more lines than
    /// people read.
    pub fn tell_on(&self, topic: &str, what: &str) {
        NOTICES.tell_on(topic, what);
    }

    /// Prints a text that was asked for, above the live view.
    pub fn print(&self, text: &str) {
        NOTICES.tell(Notice::Printed(text.to_owned()));
    }

    /// Waits for a moment until all is written that was said. Whether it is.
    pub fn flush() -> bool {
        NOTICES.flush(LAST_WORDS)
    }

    /// Draws what `view` says, from now on, if there is a live view; with `stats` and no terminal, prints it instead.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn follow(&self, stats: bool, view: Look) -> io::Result<()> {
        if !stats {
            return Ok(());
        }
        let screen = self.clone();
        let draw = move || {
            let mut earlier = view();
            loop {
                thread::sleep(REDRAW);
                let now = view();
                let text = now.screen(&earlier, terminal::error_columns());
                match &screen.live {
                    Some(live) => live.set_message(text),
                    None if !now.clients.is_empty() => screen.print(&text),
                    None => {}
                }
                earlier = now;
            }
        };
        thread::Builder::new().name("screen".into()).spawn(draw).map(drop)
    }
}
