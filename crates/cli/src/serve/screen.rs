//! What people see while a disk is served: messages, and on a terminal what each client does.

use super::view::Look;
use crate::terminal;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

/// Where messages go; cheap to clone.
#[derive(Clone, Default)]
pub struct Screen {
    live: Option<ProgressBar>,
}

/// How often the live view is drawn.
const REDRAW: Duration = Duration::from_secs(1);

impl Screen {
    /// With a live view if `stats` is asked for and stderr is a terminal.
    pub fn new(stats: bool) -> Self {
        let live = (stats && io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_style(ProgressStyle::with_template("{msg}").expect("the template is right"));
            bar
        });
        Self { live }
    }

    /// Tells people something, above the live view.
    pub fn tell(&self, what: &str) {
        match &self.live {
            Some(live) => live.suspend(|| terminal::say(what)),
            None => terminal::say(what),
        }
    }

    /// Draws what `view` says, from now on, if there is a live view; with `stats` and no terminal, prints it instead.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn follow(&self, stats: bool, view: Look) -> io::Result<()> {
        if !stats {
            return Ok(());
        }
        let live = self.live.clone();
        let draw = move || {
            let mut earlier = view();
            loop {
                thread::sleep(REDRAW);
                let now = view();
                let text = now.screen(&earlier, terminal::error_columns());
                match &live {
                    Some(live) => live.set_message(text),
                    None if !now.clients.is_empty() => terminal::tell(&text),
                    None => {}
                }
                earlier = now;
            }
        };
        thread::Builder::new().name("screen".into()).spawn(draw).map(drop)
    }
}
