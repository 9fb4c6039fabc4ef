//! A table in Markdown that also reads well on a terminal: columns padded, figures to the right.

use std::fmt;

/// A table under construction.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings; the first column is text, the others hold figures.
    pub(crate) fn new<I: Into<String>>(headings: impl IntoIterator<Item = I>) -> Table {
        Table { rows: vec![headings.into_iter().map(Into::into).collect()] }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// True while it has only headings.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.first().map_or(0, Vec::len);
        let text = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
        let width = |column: usize| {
            let widths = self.rows.iter().map(|row| text(row, column).chars().count());
            widths.max().unwrap_or(0).max(3)
        };
        for (number, row) in self.rows.iter().enumerate() {
            for column in 0..columns {
                let (cell, width) = (text(row, column), width(column));
                if column == 0 {
                    write!(f, "| {cell:<width$} ")?;
                } else {
                    write!(f, "| {cell:>width$} ")?;
                }
            }
            writeln!(f, "|")?;
            if number == 0 {
                for column in 0..columns {
                    let line = "-".repeat(width(column) + 1);
                    f.write_str(&if column == 0 { format!("|{line}-") } else { format!("|{line}:") })?;
                }
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["what", "n"]);
        assert!(table.is_empty());
        table.row(vec!["a".into(), "12345".into()]);
        let expected = "| what |     n |\n|------|------:|\n| a    | 12345 |\n";
        assert_eq!(table.to_string(), expected);
    }
}
