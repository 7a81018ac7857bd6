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

//!
//! Of a map that is of times, a reader may show these with units ([`Durations`]), which bpftrace
//! does not.

use jiff::tz::TimeZone;

use crate::datum::{Datum, append};
use crate::graph;
use crate::table::{Cell, Row, Table};
use crate::unit::{Durations, Unit};

/// A map.
pub(crate) fn table(table: &Table, zone: &TimeZone, durations: Option<Durations>) -> Vec<u8> {
    let mut out = Vec::new();
    let unit = durations.and_then(|shown| Unit::of(&table.name, shown));
    for Row { key, cell } in &table.rows {
        out.extend_from_slice(table.name.as_bytes());
        if let Some(key) = key {
            out.push(b'[');
            key.write_key(", ", &mut out);
            out.push(b']');
        }
        let several_lines = matches!(cell, Cell::Histogram { .. } | Cell::Series(_));
        out.extend_from_slice(if several_lines { b":\n" } else { b": " });
        write_cell(cell, zone, unit, &mut out);
        out.push(b'\n');
    }
    out
}

/// A value in lines of its own.
pub(crate) fn value(cell: &Cell, zone: &TimeZone) -> Vec<u8> {
    let mut out = Vec::new();
    write_cell(cell, zone, None, &mut out);
    out.push(b'\n');
    out
}

fn write_cell(cell: &Cell, zone: &TimeZone, unit: Option<Unit>, out: &mut Vec<u8>) {
    match cell {
        Cell::Plain(value) => value.write(out),
        Cell::Number { shown, .. } => amount(shown, unit, out),
        Cell::Stats { count, shown_average, total, .. } => {
            append(out, format_args!("count "));
            count.write(out);
            for (name, value) in [(", average ", shown_average), (", total ", total)] {
                append(out, format_args!("{name}"));
                amount(value, unit, out);
            }
        }
        Cell::Histogram { histogram, .. } => {
            histogram.write(unit, out);
            unit.into_iter().for_each(|unit| histogram.write_percentiles(unit, out));
        }
        Cell::Series(series) => graph::write(series, zone, out),
    }
}

/// A number, with its unit if it has one.
fn amount(value: &Datum, unit: Option<Unit>, out: &mut Vec<u8>) {
    let number = match value {
        Datum::Signed(number) => Some((*number).into()),
        Datum::Unsigned(number) => Some((*number).into()),
        _ => None,
    };
    match number.and_then(|number: i128| unit?.text(number)) {
        Some(text) => append(out, format_args!("{text}")),
        None => value.write(out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Histogram;
    use crate::table::TableKind;

    fn shown(name: &str, cell: Cell) -> String {
        let rows = vec![Row { key: Some(Datum::text("f")), cell }];
        let table_of = Table { name: name.to_owned(), keyed: true, kind: TableKind::Map, rows };
        let text = table(&table_of, &TimeZone::UTC, Some(|nanoseconds| format!("{nanoseconds} NS")));
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn maps_of_times_have_units_and_others_have_not() {
        let number = |exact| Cell::Number { exact, shown: Datum::integer(exact) };
        assert_eq!(shown("@waited_ns", number(7)), "@waited_ns[f]: 7 NS\n");
        assert_eq!(shown("@us", number(7)), "@us[f]: 7000 NS\n");
        assert_eq!(shown("@us", number(-7)), "@us[f]: -7\n");
        for name in ["@n", "@bonus", "@runs", "@ns_of"] {
            assert_eq!(shown(name, number(7)), format!("{name}[f]: 7\n"));
        }
        let stats = Cell::Stats {
            count: Datum::Signed(2),
            average: 3,
            shown_average: Datum::Signed(3),
            total: Datum::Signed(6),
        };
        assert_eq!(shown("@ns", stats), "@ns[f]: count 2, average 3 NS, total 6 NS\n");
        let histogram = Histogram::of_powers(&[0, 0, 0, 2, 1], 0, 1);
        let lines = shown("@ns", Cell::Histogram { total: 3, histogram });
        assert!(lines.ends_with("|\np50 < 4 NS, p90 < 8 NS, p99 < 8 NS\n\n"), "{lines}");
        assert!(lines.starts_with("@ns[f]:\n[2 NS, 4 NS)               2 |@@@@@@@@"), "{lines}");
    }
}
