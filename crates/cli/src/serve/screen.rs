//! What people see while a disk is served: messages, and on a terminal what each client does.

use super::{signals, view};
use anyhow::{Context, Result};
use blockyard_block::EventFd;
use blockyard_command_line::terminal;
use blockyard_serve::{Look, Notice, Notices, Operator};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// What this process has to say on stderr.
static NOTICES: Notices = Notices::new();

/// Looks at a server's clients once there is a server.
static LOOK: OnceLock<Look> = OnceLock::new();

/// Somebody wants to know how long requests took.
static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// How long the end of a process waits for who reads what it has said.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// How often the live view is drawn.
const REDRAW: Duration = Duration::from_secs(1);

/// Says it, once it is known.
fn print_if_asked() {
    if let Some(look) = LOOK.get()
        && IS_ASKED.swap(false, Ordering::SeqCst)
    {
        NOTICES.print(view::histograms(&look()).trim_end());
    }
}

/// Stderr, for as long as this process serves.
pub struct Screen {
    /// Whether to show what clients do.
    stats: bool,
    live: Option<ProgressBar>,
}

impl Screen {
    /// With a live view if `stats` is asked for and stderr is a terminal. A process has one.
    pub fn new(stats: bool) -> Self {
        let live = (stats && io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_style(ProgressStyle::with_template("{msg}").expect("the template is right"));
            bar
        });
        Self { stats, live }
    }

    /// Waits for a moment until all is written that was said. Whether it is.
    pub fn flush() -> bool {
        NOTICES.flush(LAST_WORDS)
    }
}

impl Operator for Screen {
    fn notices(&self) -> &'static Notices {
        &NOTICES
    }

    /// Writes messages, above the live view, and obeys signals.
    fn begin(&self, stop: Arc<EventFd>) -> Result<()> {
        let above = self.live.clone();
        let write = |notice: &Notice| match notice {
            Notice::Said(what) => terminal::say(what),
            Notice::Printed(text) => terminal::tell(text),
        };
        let write = move |notice: &Notice| match &above {
            Some(live) => live.suspend(|| write(notice)),
            None => write(notice),
        };
        NOTICES.start(write).context("starting a thread for messages")?;
        signals::obey(stop, || {
            IS_ASKED.store(true, Ordering::SeqCst);
            print_if_asked();
        })
    }

    /// Draws what `look` says if there is a live view; with `stats` and no terminal, prints it instead.
    fn watch(&self, look: Look) -> Result<()> {
        // It is set here and nowhere else.
        let _ = LOOK.set(Arc::clone(&look));
        // Somebody may have asked as soon as the disk was said to be there.
        print_if_asked();
        if !self.stats {
            return Ok(());
        }
        let live = self.live.clone();
        let draw = move || {
            let mut earlier = look();
            loop {
                thread::sleep(REDRAW);
                let now = look();
                let text = view::screen(&now, &earlier, terminal::error_columns());
                match &live {
                    Some(live) => live.set_message(text),
                    None if !now.clients.is_empty() => NOTICES.print(&text),
                    None => {}
                }
                earlier = now;
            }
        };
        thread::Builder::new()
            .name("screen".into())
            .spawn(draw)
            .map(drop)
            .context("starting a thread for the live view")
    }
}
