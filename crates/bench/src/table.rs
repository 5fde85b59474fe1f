//! Tables for people: aligned on a terminal, and Markdown at the same time.

/// Rows under a heading. The first column is text, left-aligned; the others are right-aligned.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(ToString::to_string).collect()] }
    }

    /// Adds a row; cells that are missing stay empty.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table as Markdown that reads well unrendered.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |row: &[String], column: usize| row.get(column).cloned().unwrap_or_default();
        let width =
            |column: usize| self.rows.iter().map(|row| cell(row, column).chars().count()).max().unwrap_or(0).max(3);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            for (column, &width) in widths.iter().enumerate() {
                let value = cell(row, column);
                let padded = if column == 0 { format!("{value:<width$}") } else { format!("{value:>width$}") };
                text.push_str(&format!("| {padded} "));
            }
            text.push_str("|\n");
            if index == 0 {
                for (column, &width) in widths.iter().enumerate() {
                    let dashes = "-".repeat(width);
                    text.push_str(&if column == 0 { format!("| {dashes} ") } else { format!("| {}: ", &dashes[1..]) });
                }
                text.push_str("|\n");
            }
        }
        text
    }
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
}
