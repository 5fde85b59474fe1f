//! Tables for people: aligned on a terminal, and Markdown at the same time.

use blockyard_block::printable;
use std::ops::Range;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Rows under a heading. The first column is text, left-aligned; the others are right-aligned. What is in a cell
/// commands no terminal.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

/// Fewest columns of a terminal for what is in a cell.
const CELL_MIN: usize = 3;
/// Columns of a terminal that a table has besides what is in its cells: one at the end, and so many for each cell.
const FRAME: usize = 1;
const CELL_FRAME: usize = 3;

impl Table {
    /// A table with these headings.
    pub fn new(headings: &[&str]) -> Self {
        let mut table = Self::default();
        table.row(headings.iter().map(ToString::to_string).collect());
        table
    }

    /// Adds a row; cells that are missing stay empty.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| printable(cell)).collect());
    }

    /// The table as Markdown that reads well unrendered.
    pub fn render(&self) -> String {
        self.render_within(None) + "\n"
    }

    /// As [`Table::render`], no wider than so many columns of a terminal, if they are not too few for any table, and
    /// without the last newline. What does not fit goes below: columns that do not, with the first one again, and what
    /// of a cell does not.
    pub fn render_within(&self, columns: Option<usize>) -> String {
        let count = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widest = |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max();
        let mut widths: Vec<usize> = (0..count).map(|column| widest(column).unwrap_or(0).max(CELL_MIN)).collect();
        let limit = columns.unwrap_or(usize::MAX);
        if widths.iter().map(|width| width + CELL_FRAME).sum::<usize>() + FRAME <= limit {
            return self.band(&widths, 1..count);
        }
        let room = limit.saturating_sub(FRAME);
        if let Some((first, others)) = widths.split_first_mut() {
            // Half of the room is enough for what says which row it is.
            let most = if others.is_empty() { room } else { room / 2 };
            *first = (*first).min(most.saturating_sub(CELL_FRAME)).max(CELL_MIN);
            let left = room.saturating_sub(*first + 2 * CELL_FRAME).max(CELL_MIN);
            others.iter_mut().for_each(|width| *width = (*width).min(left));
        }
        let (mut bands, mut start) = (Vec::new(), 1);
        while start < count || bands.is_empty() {
            let mut used = widths.first().map_or(0, |first| first + CELL_FRAME);
            let fits = widths.get(start..).unwrap_or_default().iter().take_while(|width| {
                used += *width + CELL_FRAME;
                used <= room
            });
            let end = start + fits.count().max(1);
            bands.push(self.band(&widths, start..end.min(count)));
            start = end;
        }
        bands.join("\n\n")
    }

    /// The first column, and these.
    fn band(&self, widths: &[usize], others: Range<usize>) -> String {
        let shown: Vec<usize> = (0..widths.len().min(1)).chain(others).collect();
        let mut lines = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            let cell = |column: usize| row.get(column).map_or("", String::as_str);
            let cells: Vec<_> = shown.iter().map(|&column| wrapped(cell(column), widths[column])).collect();
            for line in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
                let mut text = String::new();
                for (&column, cell) in shown.iter().zip(&cells) {
                    let value = cell.get(line).copied().unwrap_or_default();
                    let blanks = " ".repeat(widths[column].saturating_sub(value.width()));
                    text += &if column == 0 { format!("| {value}{blanks} ") } else { format!("| {blanks}{value} ") };
                }
                lines.push(text + "|");
            }
            if index == 0 {
                let dashes = shown.iter().map(|&column| (column, "-".repeat(widths[column])));
                let rule = |(column, dashes): (usize, String)| match column {
                    0 => format!("| {dashes} "),
                    _ => format!("| {}: ", &dashes[1..]),
                };
                lines.push(dashes.map(rule).collect::<String>() + "|");
            }
        }
        lines.join("\n")
    }
}

/// A text in pieces that are no wider than so many columns.
fn wrapped(text: &str, columns: usize) -> Vec<&str> {
    let (mut pieces, mut start, mut used) = (Vec::new(), 0, 0);
    for (at, letter) in text.char_indices() {
        let width = letter.width().unwrap_or(0);
        if used + width > columns && at > start {
            pieces.push(&text[start..at]);
            (start, used) = (at, 0);
        }
        used += width;
    }
    pieces.push(&text[start..]);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligns_columns() {
        let mut table = Table::new(&["what", "seconds"]);
        table.row(vec!["cp".into(), "0.25".into()]);
        table.row(vec!["a longer name".into()]);
        assert_eq!(
            table.render(),
            "| what          | seconds |\n\
             | ------------- | ------: |\n\
             | cp            |    0.25 |\n\
             | a longer name |         |\n"
        );
    }

    #[test]
    fn no_table_is_wider_than_the_terminal() {
        let mut table = Table::new(&["client", "IOPS", "MiB/s", "read p50", "p99"]);
        table.row(vec!["/run/user/1000/very-long-name.sock".into(), "123456".into(), "4567.8".into(), "123 µs".into()]);
        table.row(vec!["名前名前名前名前名前".into(), "1".into(), String::new(), "9".repeat(70)]);
        for columns in 16..140 {
            let text = table.render_within(Some(columns));
            assert!(text.lines().all(|line| line.width() <= columns), "{columns}:\n{text}");
            let letters = |text: &str| text.chars().filter(char::is_ascii_digit).count();
            assert!(letters(&text) >= letters(&table.render()), "{columns}:\n{text}");
        }
        let mut small = Table::new(&["n", "start", "end"]);
        small.row(vec!["1".into(), "1048576".into(), "2097152".into()]);
        assert_eq!(small.render_within(Some(29)) + "\n", small.render());
        let banded = "| n   |   start |\n| --- | ------: |\n| 1   | 1048576 |\n\n| n   |     end |\n| --- | ------: |\n| 1   | 2097152 |";
        assert_eq!(small.render_within(Some(20)), banded);
    }

    #[test]
    fn cells_command_no_terminal() {
        let mut table = Table::new(&["name"]);
        table.row(vec!["a\u{1b}[2J\nb".into()]);
        assert!(table.render().contains("a\u{fffd}[2J\u{fffd}b"), "{}", table.render());
    }
}
