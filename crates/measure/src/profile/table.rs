//! A table in columns, for the terminal: names to the left, numbers to the right.

use std::io::{self, Write};

use crate::report::Table;

/// How wide the remark below a table is.
const WIDTH: usize = 100;

/// Writes the caption, the table and its remark.
pub(crate) fn write(out: &mut dyn Write, table: &Table) -> io::Result<()> {
    writeln!(out, "{}", table.caption)?;
    let mut widths: Vec<usize> = Vec::new();
    for row in std::iter::once(&table.columns).chain(&table.rows) {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for row in std::iter::once(&table.columns).chain(&table.rows) {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            match at {
                0 => line.push_str(&format!("{cell:width$}")),
                _ => line.push_str(&format!("  {cell:>width$}")),
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    let mut line = String::new();
    for word in table.remark.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(out, "{line}")?;
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if line.is_empty() { Ok(()) } else { writeln!(out, "{line}") }
}
