//! Maps and values as text.
//!
//! Differences between bpftrace's releases, in which 0.24 is followed:
//!
//! | | 0.17 | 0.24 |
//! |---|---|---|
//! | the line above a histogram | `@h: ` with a space | `@h:` |
//! | a map without entries | an empty line | nothing |
//! | behind averages and statistics | an empty line | nothing |
//! | between stacks, symbols and addresses as values | nothing | a line end, as elsewhere |
//!
//! Statistics are `count 1, average 2, total 2`: so 0.17 prints them, and so 0.24 documents them,
//! though its source would write `{ .count = 1, .average = 2, .total = 2 }`. A linear histogram of
//! step 1 has the interval `[0, 1)` for the same reason, not `[0]`.

use jiff::tz::TimeZone;

use crate::datum::append;
use crate::graph;
use crate::table::{Cell, Row, Table};

/// A map.
pub(crate) fn table(table: &Table, zone: &TimeZone) -> Vec<u8> {
    let mut out = Vec::new();
    for Row { key, cell } in &table.rows {
        out.extend_from_slice(table.name.as_bytes());
        if let Some(key) = key {
            out.push(b'[');
            key.write_key(", ", &mut out);
            out.push(b']');
        }
        let several_lines = matches!(cell, Cell::Histogram { .. } | Cell::Series(_));
        out.extend_from_slice(if several_lines { b":\n" } else { b": " });
        write_cell(cell, zone, &mut out);
        out.push(b'\n');
    }
    out
}

/// A value in lines of its own.
pub(crate) fn value(cell: &Cell, zone: &TimeZone) -> Vec<u8> {
    let mut out = Vec::new();
    write_cell(cell, zone, &mut out);
    out.push(b'\n');
    out
}

fn write_cell(cell: &Cell, zone: &TimeZone, out: &mut Vec<u8>) {
    match cell {
        Cell::Plain(value) | Cell::Number { shown: value, .. } => value.write(out),
        Cell::Stats { count, shown_average, total, .. } => {
            for (name, value) in [("count ", count), (", average ", shown_average), (", total ", total)] {
                append(out, format_args!("{name}"));
                value.write(out);
            }
        }
        Cell::Histogram { histogram, .. } => histogram.write(out),
        Cell::Series(series) => graph::write(series, zone, out),
    }
}
