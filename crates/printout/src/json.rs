//! Messages as JSON: one object in each line.
//!
//! ```text
//! {"type": "printf", "data": "text\n"}                also time, cat, join, syscall
//! {"type": "value", "data": 5}
//! {"type": "map", "data": {"@a": {"1,x": 5}}}         also stats, hist, tseries
//! {"type":"lost_events", "count":3}                   also attached_probes
//! ```
//!
//! The form is that of bpftrace 0.24, which writes no space between the elements of a list, and the
//! two counts without `data`. Numbers that a floating-point number cannot hold are strings there,
//! since many readers of JSON would change them. In three cases 0.24 writes what cannot be meant or
//! read, and this does not: bytes above 127 stand as UTF-8, what is not UTF-8 as U+FFFD; strings in
//! keys keep their spaces, as in 0.17; the times of a time series are strings, and its elements are
//! separated.

use jiff::tz::TimeZone;

use crate::datum::{Datum, append};
use crate::graph;
use crate::table::{Cell, Row, Table, TableKind};
use crate::world::Location;

/// A message of text.
pub(crate) fn message(kind: &str, text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    append(&mut out, format_args!("{{\"type\": \"{kind}\", \"data\": "));
    string(text, &mut out);
    out.extend_from_slice(b"}\n");
    out
}

/// A count.
pub(crate) fn count(kind: &str, count: u64) -> Vec<u8> {
    format!("{{\"type\":\"{kind}\", \"count\":{count}}}\n").into()
}

/// An error or a warning that the script printed.
pub(crate) fn told(kind: &str, text: &[u8], location: &Location) -> Vec<u8> {
    let mut out = format!("{{\"type\": \"{kind}\", \"msg\": ").into_bytes();
    string(text, &mut out);
    out.extend_from_slice(b", \"filename\": ");
    string(location.file.as_bytes(), &mut out);
    append(&mut out, format_args!(", \"line\": {}, \"col\": {}}}\n", location.line, location.column));
    out
}

/// A value.
pub(crate) fn value(cell: &Cell, zone: &TimeZone) -> Vec<u8> {
    let mut out = b"{\"type\": \"value\", \"data\": ".to_vec();
    write_cell(cell, zone, &mut out);
    out.extend_from_slice(b"}\n");
    out
}

/// A map.
pub(crate) fn table(table: &Table, zone: &TimeZone) -> Vec<u8> {
    let kind = match table.kind {
        // As 0.24 looks at the first value, what has none is a map.
        _ if table.rows.is_empty() && table.kind != TableKind::Stats => "map",
        TableKind::Map => "map",
        TableKind::Stats => "stats",
        TableKind::Histogram => "hist",
        TableKind::Series => "tseries",
    };
    let mut out = Vec::new();
    append(&mut out, format_args!("{{\"type\": \"{kind}\", \"data\": {{"));
    string(table.name.as_bytes(), &mut out);
    out.extend_from_slice(b": ");
    match (&table.rows[..], table.keyed) {
        ([Row { cell, .. }, ..], false) => write_cell(cell, zone, &mut out),
        (rows, _) => {
            out.push(b'{');
            for (index, Row { key, cell }) in rows.iter().enumerate() {
                out.extend_from_slice(if index == 0 { b"" } else { b", " });
                let mut text = Vec::new();
                key.iter().for_each(|key| key.write_key(",", &mut text));
                string(&text, &mut out);
                out.extend_from_slice(b": ");
                write_cell(cell, zone, &mut out);
            }
            out.push(b'}');
        }
    }
    out.extend_from_slice(b"}}\n");
    out
}

fn write_cell(cell: &Cell, zone: &TimeZone, out: &mut Vec<u8>) {
    match cell {
        Cell::Plain(value) | Cell::Number { shown: value, .. } => datum(value, out),
        Cell::Stats { count, shown_average, total, .. } => {
            object(&[("count", count), ("average", shown_average), ("total", total)], out);
        }
        Cell::Histogram { histogram, .. } => {
            array(&histogram.buckets, out, |bucket, out| {
                let fields = bucket.fields();
                let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value)).collect();
                object(&fields, out);
            });
        }
        Cell::Series(series) => array(&series.points, out, |point, out| {
            out.extend_from_slice(b"{\"interval_start\":");
            string(&graph::time(point.time, "%Y-%m-%dT%H:%M:%S", 9, zone), out);
            out.extend_from_slice(b",\"value\":");
            datum(&point.value.map_or(Datum::Null, Datum::integer), out);
            out.push(b'}');
        }),
    }
}

fn array<T>(elements: &[T], out: &mut Vec<u8>, write: impl Fn(&T, &mut Vec<u8>)) {
    out.push(b'[');
    for (index, element) in elements.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"" } else { b"," });
        write(element, out);
    }
    out.push(b']');
}

fn object(fields: &[(&str, &Datum)], out: &mut Vec<u8>) {
    out.push(b'{');
    for (index, (name, value)) in fields.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"" } else { b", " });
        string(name.as_bytes(), out);
        out.extend_from_slice(b": ");
        datum(value, out);
    }
    out.push(b'}');
}

fn datum(value: &Datum, out: &mut Vec<u8>) {
    match value {
        // JSON has no infinities, and nothing that is no number: they are strings.
        Datum::Float { .. } if value.as_float().is_some_and(|float| !float.is_finite()) => {
            string(&value.to_text(), out);
        }
        Datum::Null | Datum::Bool(_) | Datum::Float { .. } => value.write(out),
        Datum::Signed(number) => integer((*number).into(), out),
        Datum::Unsigned(number) => integer((*number).into(), out),
        Datum::Symbolic { number, .. } => integer((*number).into(), out),
        Datum::Text(text) => string(text, out),
        // C's characters are signed.
        Datum::Bytes(bytes) => {
            array(bytes, out, |byte, out| append(out, format_args!("{}", byte.cast_signed())));
        }
        Datum::Array(elements) | Datum::Tuple(elements) => array(elements, out, datum),
        Datum::Record(fields) => {
            let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value)).collect();
            object(&fields, out);
        }
    }
}

fn integer(number: i128, out: &mut Vec<u8>) {
    let quote = if number as f64 as i128 == number { "" } else { "\"" };
    append(out, format_args!("{quote}{number}{quote}"));
}

/// A string in quotes.
fn string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for character in String::from_utf8_lossy(text).chars() {
        match character {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            '\0'..='\x1f' => append(out, format_args!("\\u{:04x}", character as u32)),
            _ => append(out, format_args!("{character}")),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(value: &Datum) -> String {
        let mut out = Vec::new();
        datum(value, &mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn strings_are_escaped() {
        assert_eq!(
            shown(&Datum::text("a\u{1}\"\\\n\r\t\u{7f}é")),
            r#""a\u0001\"\\\n\r\t"#.to_owned() + "\u{7f}é\""
        );
        assert_eq!(shown(&Datum::text(b"\xff".to_vec())), "\"\u{fffd}\"");
    }

    #[test]
    fn numbers_that_would_change_are_strings() {
        assert_eq!(shown(&Datum::Signed(-5)), "-5");
        assert_eq!(shown(&Datum::Unsigned(1 << 60)), "1152921504606846976");
        assert_eq!(shown(&Datum::Unsigned(u64::MAX)), "\"18446744073709551615\"");
        assert_eq!(shown(&Datum::address(16)), "16");
    }

    #[test]
    fn parts_are_lists_and_objects() {
        let tuple = Datum::Tuple(vec![Datum::Signed(1), Datum::text("x"), Datum::Array(vec![Datum::Null])]);
        assert_eq!(shown(&tuple), r#"[1,"x",[null]]"#);
        let record = Datum::Record(vec![("m".into(), Datum::Bool(true)), ("n".into(), Datum::Signed(3))]);
        assert_eq!(shown(&record), r#"{"m": true, "n": 3}"#);
        assert_eq!(shown(&Datum::Bytes(vec![107, 255])), "[107,-1]");
    }

    #[test]
    fn messages_are_lines() {
        let location = Location { file: "a.bt".into(), line: 1, column: 9, end: 20 };
        let text = String::from_utf8(told("print_error", b"no", &location)).expect("ASCII");
        assert_eq!(
            text,
            "{\"type\": \"print_error\", \"msg\": \"no\", \"filename\": \"a.bt\", \"line\": 1, \"col\": 9}\n"
        );
        assert_eq!(count("lost_events", 3), b"{\"type\":\"lost_events\", \"count\":3}\n");
        assert_eq!(message("printf", b"a\n"), b"{\"type\": \"printf\", \"data\": \"a\\n\"}\n");
    }

    #[test]
    fn floating_point_numbers_are_numbers_if_json_has_them() {
        assert_eq!(shown(&Datum::float(1.5f64)), "1.5");
        assert_eq!(shown(&Datum::float(-0.25f32)), "-0.25");
        assert_eq!(shown(&Datum::float(1e300)).len(), 301);
        assert_eq!(shown(&Datum::float(f64::INFINITY)), "\"inf\"");
        assert_eq!(shown(&Datum::float(f32::NAN)), "\"NaN\"");
    }
}
