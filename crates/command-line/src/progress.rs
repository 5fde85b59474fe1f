//! A line on stderr that shows how far a command has come, if stderr is a terminal: never wider than that, however wide
//! it is just now.

use crate::terminal;
use blockyard_block::size;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Columns of a bar: no more, and none where not even that few are left.
const BAR_MAX: usize = 40;
const BAR_MIN: usize = 10;
/// Columns where nobody says how many there are.
const COLUMNS: usize = 80;

/// A line on stderr: a bar, and what is said beside it.
pub struct Line {
    bar: ProgressBar,
    said: Arc<Mutex<Said>>,
    started: Instant,
}

/// How much of the way is done, and what else there is to say, the most important first.
#[derive(Default)]
struct Said {
    part: f64,
    facts: Vec<String>,
}

impl Line {
    /// Nothing is done, and nothing is drawn yet.
    pub fn hidden() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let said = Arc::new(Mutex::new(Said::default()));
        let drawn = Arc::clone(&said);
        // Made anew each time it is drawn: a terminal's width may change.
        let write = move |_: &ProgressState, out: &mut dyn fmt::Write| {
            let said = drawn.lock().unwrap_or_else(PoisonError::into_inner);
            // There is nobody to tell.
            let _ = out.write_str(&line(columns(), said.part, &said.facts));
        };
        let style = ProgressStyle::with_template("{line}").expect("the template is right");
        bar.set_style(style.with_key("line", write));
        Self { bar, said, started: Instant::now() }
    }

    /// Draws it from now on, if stderr is a terminal.
    pub fn show(&self) {
        self.bar.set_draw_target(ProgressDrawTarget::stderr());
        self.bar.enable_steady_tick(Duration::from_millis(500));
    }

    /// So much of the way is done, and this is to be said, the most important first.
    pub fn set(&self, part: f64, facts: Vec<String>) {
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = Said { part, facts };
        self.bar.tick();
    }

    /// As [`Line::set`], for bytes, of which some are holes: those are part of the way, and not of the speed.
    pub fn set_bytes(&self, done_bytes: u64, length_bytes: u64, data_bytes: u64) {
        let elapsed = self.started.elapsed();
        let part = if length_bytes == 0 { 1.0 } else { done_bytes as f64 / length_bytes as f64 };
        let rate = data_bytes as f64 / elapsed.as_secs_f64().max(1e-3);
        let bytes = format!("{}/{}", size::human(done_bytes), size::human(length_bytes));
        self.set(part, vec![bytes, format!("{}/s", size::human(rate as u64)), left(part, elapsed)]);
    }

    /// As [`Line::set`], for things that are counted: so many are done, and this is next.
    pub fn set_count(&self, done: usize, count: usize, next: &str) {
        let part = if count == 0 { 0.0 } else { done as f64 / count as f64 };
        self.set(part, vec![format!("{done}/{count}"), left(part, self.started.elapsed()), next.to_owned()]);
    }

    /// Does something that writes on the terminal.
    pub fn suspend(&self, action: impl FnOnce()) {
        self.bar.suspend(action);
    }

    /// Nothing is shown any more.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.clear();
    }
}

/// How far a command has come in qemu-img's way, on stdout, for programs that read it there: from 0 on, further by 1 at
/// least each time, and a newline in the end. 100 is said when all is done, and not before.
pub struct Percents {
    said: Mutex<f64>,
}

impl Percents {
    /// Nothing is done. `None`: nobody is there but who sees a [`Line`].
    pub fn begin() -> Option<Self> {
        if io::stdout().is_terminal() && io::stderr().is_terminal() {
            return None;
        }
        Self::say(0.0);
        Some(Self { said: Mutex::new(0.0) })
    }

    /// So much is done.
    pub fn set(&self, done_bytes: u64, length_bytes: u64) {
        let percent = if length_bytes == 0 { 0.0 } else { done_bytes as f64 * 100.0 / length_bytes as f64 };
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        // What comes last may fail still.
        if percent >= *said + 1.0 && percent < ALMOST {
            *said = percent;
            Self::say(percent);
        }
    }

    /// All is done.
    pub fn end(self) {
        Self::say(100.0);
    }

    fn say(percent: f64) {
        let mut out = io::stdout().lock();
        // Nobody may be there to be told, and what is done goes on.
        let _ = write!(out, "    ({percent:.2}/100%)\r").and_then(|()| out.flush());
    }
}

impl Drop for Percents {
    fn drop(&mut self) {
        let _ = writeln!(io::stdout());
    }
}

/// From here on, percentages would be rounded to 100.
const ALMOST: f64 = 99.99;

/// How long something takes for which nothing is shown.
const MOMENT: Duration = Duration::from_secs(1);

/// A line for what may take no longer than a moment: then nothing is drawn.
pub struct LateLine {
    line: Line,
    is_shown: Cell<bool>,
}

impl LateLine {
    /// Nothing is done: from now on time counts.
    pub fn new() -> Self {
        Self { line: Line::hidden(), is_shown: Cell::new(false) }
    }

    /// As [`Line::set_bytes`].
    pub fn set_bytes(&self, done_bytes: u64, length_bytes: u64, data_bytes: u64) {
        if self.line.started.elapsed() <= MOMENT {
            return;
        }
        if !self.is_shown.replace(true) {
            self.line.show();
        }
        self.line.set_bytes(done_bytes, length_bytes, data_bytes);
    }

    /// As [`Line::suspend`].
    pub fn suspend(&self, action: impl FnOnce()) {
        self.line.suspend(action);
    }

    /// As [`Line::clear`].
    pub fn clear(&self) {
        self.line.clear();
    }
}

impl Default for LateLine {
    fn default() -> Self {
        Self::new()
    }
}

/// A file on its way to somewhere, with a line that shows how much of it was read.
pub struct ReadFile {
    file: File,
    line: LateLine,
    done_bytes: u64,
    /// 0: nobody knows, of a pipe for instance, and nothing is shown.
    length_bytes: u64,
}

impl ReadFile {
    /// From its beginning on.
    pub fn new(file: File) -> Self {
        let length_bytes = file.metadata().map_or(0, |metadata| metadata.len());
        Self { file, line: LateLine::new(), done_bytes: 0, length_bytes }
    }
}

impl Read for ReadFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.done_bytes += count as u64;
        if self.length_bytes > 0 {
            self.line.set_bytes(self.done_bytes, self.length_bytes, self.done_bytes);
        }
        if count == 0 {
            self.line.clear();
        }
        Ok(count)
    }
}

/// How long the rest takes, at the speed so far.
fn left(part: f64, elapsed: Duration) -> String {
    match Duration::try_from_secs_f64(elapsed.as_secs_f64() * (1.0 - part) / part) {
        Ok(left) if part > 0.0 && left.as_secs() < 100 * 86400 => format!("{} left", time(left.as_secs())),
        _ => String::new(),
    }
}

/// Seconds for people: 5s, 2m03s, 1h02m.
fn time(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// Columns that a line may have: the last one stays free, or some terminals begin another line.
fn columns() -> usize {
    terminal::error_columns().unwrap_or(COLUMNS).saturating_sub(1)
}

/// A line of at most `columns` letters: how much of the way is done, as many of the facts as there is room for, the
/// first ones first, and a bar in front where there is room left for that.
fn line(columns: usize, part: f64, facts: &[String]) -> String {
    let part = part.clamp(0.0, 1.0);
    let mut text = format!("{:>3} %", (part * 100.0).floor());
    for fact in facts.iter().filter(|fact| !fact.is_empty()) {
        if text.chars().count() + 2 + fact.chars().count() <= columns {
            text = text + "  " + fact;
        }
    }
    let room = columns.saturating_sub(text.chars().count() + 1).min(BAR_MAX);
    if room < BAR_MIN {
        return text.chars().take(columns).collect();
    }
    let full = (part * room as f64) as usize;
    format!("{}{} {text}", "█".repeat(full), "░".repeat(room - full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_as_wide_as_the_terminal_at_most() {
        let facts = ["123.45 GiB/200.00 GiB", "123.45 MiB/s", "11h12m left"].map(str::to_owned);
        for columns in 0..200 {
            let text = line(columns, 0.617, &facts);
            assert!(text.chars().count() <= columns, "{columns}: {text:?}");
            assert!(columns < 5 || text.contains("61 %"), "{columns}: {text:?}");
        }
        assert_eq!(line(37, 0.5, &facts), " 50 %  123.45 GiB/200.00 GiB");
        assert_eq!(line(20, 0.5, &["1/2".to_owned()]), " 50 %  1/2");
        assert_eq!(line(21, 0.5, &["1/2".to_owned()]), "█████░░░░░  50 %  1/2");
        assert!(line(120, 1.0, &facts).contains("11h12m left"));
    }

    #[test]
    fn what_is_left_is_told_when_it_can_be_known() {
        assert_eq!(left(0.25, Duration::from_secs(10)), "30s left");
        assert_eq!(left(0.0, Duration::from_secs(10)), "");
        assert_eq!([59, 123, 3725].map(time), ["59s", "2m03s", "1h02m"]);
    }
}
