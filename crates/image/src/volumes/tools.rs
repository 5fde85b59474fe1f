//! What this machine's tools say, which the guest runs.

use crate::error::{Result, refuse};
use crate::guest::OpenImage;
use blockyard_appliance::tools::{Tool, ToolCall, ToolEnd};
use blockyard_block::{Remedy, printable};

/// Lines of what a tool complains about that a sentence takes.
const COMPLAINTS: usize = 3;

impl OpenImage {
    /// Runs a tool that must succeed; what it wrote to its standard output.
    ///
    /// # Errors
    /// As [`OpenImage::run_tool`], and with what it says when it fails.
    pub fn run_tool_well(&mut self, tool: &'static Tool, call: ToolCall) -> Result<String> {
        let end = self.run_tool(tool, call)?;
        match end.status {
            Some(0) => Ok(text(&end.output)),
            _ => refuse!("{}", complaint(tool, &end)),
        }
    }
}

/// What a tool that failed says is wrong.
pub fn complaint(tool: &Tool, end: &ToolEnd) -> String {
    let (errors, output) = (text(&end.errors), text(&end.output));
    let said = if errors.trim().is_empty() { &output } else { &errors };
    let last = reason(said);
    match (end.status, last.is_empty()) {
        (Some(status), true) => format!("{} failed with exit status {status}", tool.program),
        (Some(_), false) => format!("{} says: {last}", tool.program),
        (None, _) => {
            format!("{} was ended by a signal (out of memory? {})", tool.program, Remedy::MoreMemory)
        }
    }
}

/// The last lines, where the reason is; some say how they are used behind it.
fn reason(said: &str) -> String {
    let is_usage = |line: &str| line.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("usage:"));
    let lines: Vec<_> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let end = lines.iter().position(|line| is_usage(line)).filter(|&at| at > 0).unwrap_or(lines.len());
    lines[end.saturating_sub(COMPLAINTS)..end].join(" · ")
}

/// Columns from one tab stop to the next.
const TAB_COLUMNS: usize = 8;

/// A line with spaces for tabs, as far as a terminal's stops are.
fn without_tabs(line: &str) -> String {
    let mut parts = line.split('\t');
    let mut spaced = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let columns = spaced.chars().count();
        spaced.extend(std::iter::repeat_n(' ', TAB_COLUMNS - columns % TAB_COLUMNS));
        spaced.push_str(part);
    }
    spaced
}

/// What dosfstools say where there are no tables of conversion, which they then have themselves.
const NOTHING_WRONG: [&str; 2] = ["Cannot initialize conversion ", "Using internal CP850 "];

/// What came out of the guest as text that cannot command a terminal.
pub fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    // Progress is written over itself.
    let lines = text.lines().map(|line| line.rsplit('\r').next().unwrap_or_default());
    let told = lines.filter(|line| !NOTHING_WRONG.iter().any(|start| line.starts_with(start)));
    told.map(|line| printable(&without_tabs(line)) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_tools_stay_readable_and_harmless() {
        assert_eq!(text(b"label:\tx\x1b[2J\n\ta\n1%\r100%\n"), "label:  x\u{fffd}[2J\n        a\n100%\n");
        assert_eq!(without_tabs("größer\t|12345678\t|"), "größer  |12345678       |");
    }

    #[test]
    fn the_reason_comes_before_how_a_tool_is_used() {
        let usage =
            "Filesystem must be larger than 300MB.\nUsage: mkfs.xfs\n/* blocksize */\t[-b size=num]\n a\n b\n c\n";
        assert_eq!(reason(usage), "Filesystem must be larger than 300MB.");
        assert_eq!(reason("a\n\nb\nc\nd\n"), "b · c · d");
        assert_eq!(reason("usage: x\ny\n"), "usage: x · y");
    }
}
