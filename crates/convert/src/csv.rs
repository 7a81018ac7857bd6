//! Writes comma-separated values as in RFC 4180.
//!
//! The crate csv needs each field whole before it writes it; here most are written in place, and
//! the crate could replace only [`cell`].

use std::io::{self, Write};

use trace::Items;
use trace::template::Value;

use crate::columns::{Columns, Scalar};
use crate::event::{Event, Form};
use crate::facts::TraceFacts;
use crate::template_set::TemplateSet;
use crate::text::{Clock, decimal, hex, hexadecimal};
use crate::value::{json_fields, json_value};

/// Buffered bytes that trigger a write.
const FULL: usize = 1 << 16;

/// The columns of every table.
const COLUMNS: [&str; 17] = [
    "number", "time", "iso", "cpu", "pid", "tid", "uid", "comm", "module", "probe", "symbol", "major",
    "minor", "ip", "sp", "data", "event",
];

/// Writes each record as a row.
///
/// The first row has the column names. Rows end in CR LF; a field with a comma, quote or line break
/// is quoted, with quotes in it doubled. Texts are made plain, and cannot be taken for spreadsheet
/// formulas. A column is empty if the header item was not asked for, or the record's template has
/// no such field. The last column, `fields`, has the values as JSON if the table has no columns for
/// them.
#[derive(Debug)]
pub struct Csv<W: Write> {
    out: W,
    rows: Vec<u8>,
    clock: Clock,
    columns: Columns,
    /// Range in `values` of each column's value, for one record.
    cells: Vec<(usize, usize)>,
    values: Vec<u8>,
    text: Vec<u8>,
}

impl<W: Write> Csv<W> {
    /// Writes to `out`, in large pieces; the header row comes first.
    ///
    /// # Errors
    /// Writing fails.
    pub fn new(out: W, known: &TraceFacts, sheet: &TemplateSet) -> io::Result<Csv<W>> {
        let mut taken = COLUMNS.to_vec();
        taken.push("fields");
        let columns = Columns::new(known, sheet, &taken);
        let mut rows = Vec::with_capacity(2 * FULL);
        rows.extend_from_slice(COLUMNS.join(",").as_bytes());
        for column in &columns.columns {
            rows.push(b',');
            text_cell(&column.name, &mut rows);
        }
        rows.extend_from_slice(b",fields\r\n");
        Ok(Csv {
            out,
            rows,
            clock: Clock::default(),
            cells: vec![(0, 0); columns.columns.len()],
            columns,
            values: Vec::new(),
            text: Vec::new(),
        })
    }

    /// Appends the columns of a record's values.
    fn values(&mut self, event: &Event<'_>) {
        let (cells, values, text) = (&mut self.cells, &mut self.values, &mut self.text);
        let mut rest = None;
        if let Some(template) = event.template {
            values.clear();
            cells.fill((0, 0));
            match self.columns.of(event.place.program, template) {
                Some(places) => {
                    let fields = template.fields().iter().zip(template.values(event.record));
                    for (&place, (field, value)) in places.iter().zip(fields) {
                        let start = values.len();
                        text.clear();
                        shown(
                            &value,
                            Scalar::of(&field.kind),
                            || {
                                let mut out = Vec::new();
                                json_value(&value, &field.kind, &mut out);
                                out
                            },
                            text,
                        );
                        match value {
                            Value::Text(_) | Value::Names(_) => {
                                text_cell(&String::from_utf8_lossy(text), values)
                            }
                            _ => cell(text, values),
                        }
                        cells[place] = (start, values.len());
                    }
                }
                None => rest = Some(template),
            }
        } else if !cells.is_empty() {
            cells.fill((0, 0));
        }
        for &(start, end) in &*cells {
            self.rows.push(b',');
            self.rows.extend_from_slice(&self.values[start..end]);
        }
        self.rows.push(b',');
        if let Some(template) = rest {
            self.text.clear();
            json_fields(template, event.record, &mut self.text);
            cell(&self.text, &mut self.rows);
        }
    }
}

/// Appends a value as plain text; nothing if it is missing.
fn shown(value: &Value<'_>, holds: Scalar, json: impl FnOnce() -> Vec<u8>, out: &mut Vec<u8>) {
    match value {
        Value::Unsigned(number) if holds == Scalar::Hexadecimal => hexadecimal(*number, out),
        Value::Unsigned(number) => decimal(*number, out),
        Value::Signed(number) => decimal(*number, out),
        // Unlike JSON, a table can show infinity and NaN.
        Value::Float(number) if !number.is_finite() => out.extend_from_slice(number.to_string().as_bytes()),
        Value::Float(number) => crate::text::float(*number, out),
        Value::Text(text) => out.extend_from_slice(String::from_utf8_lossy(text).as_bytes()),
        Value::Names(names) => out.extend_from_slice(names.as_bytes()),
        Value::Bytes(bytes) => hex(bytes, out),
        Value::List(_) | Value::Struct(_) => out.extend_from_slice(&json()),
        Value::Fault(_) | Value::Missing => {}
    }
}

/// Appends foreign text as a field. Invisible and control characters are escaped; a text that a
/// spreadsheet would take for a formula gets an apostrophe, which makes it text.
fn text_cell(text: &str, out: &mut Vec<u8>) {
    let shown = printable::text(text);
    match shown.starts_with(['=', '+', '-', '@']) {
        true => cell(format!("'{shown}").as_bytes(), out),
        false => cell(shown.as_bytes(), out),
    }
}

/// Appends a field, quoted if necessary.
fn cell(text: &[u8], out: &mut Vec<u8>) {
    if !text.iter().any(|byte| matches!(byte, b',' | b'"' | b'\r' | b'\n')) {
        out.extend_from_slice(text);
        return;
    }
    out.push(b'"');
    for &byte in text {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}

impl<W: Write> Form for Csv<W> {
    fn record(&mut self, event: &Event<'_>) -> io::Result<()> {
        let (record, place, out) = (event.record, event.place, &mut self.rows);
        let items = place.items;
        decimal(event.number, out);
        out.push(b',');
        if items.contains(Items::TSC) {
            decimal(record.time, out);
            out.push(b',');
            self.clock.show(record.time, out);
        } else {
            out.push(b',');
        }
        let numbers = [
            (Items::CPU, record.cpu),
            (Items::PID, record.pid),
            (Items::NONE, record.tid),
            (Items::UID, record.uid),
        ];
        for (item, number) in numbers {
            out.push(b',');
            if items.contains(item) {
                decimal(number, out);
            }
        }
        for text in [&record.name, &place.module, &place.point, &place.symbol] {
            out.push(b',');
            text_cell(text, out);
        }
        out.push(b',');
        decimal(record.major, out);
        out.push(b',');
        decimal(record.minor, out);
        for (item, address) in [(Items::EIP, record.eip), (Items::ESP, record.esp)] {
            out.push(b',');
            if items.contains(item) {
                hexadecimal(address, out);
            }
        }
        out.push(b',');
        hex(&record.data, out);
        out.push(b',');
        if let Some(template) = event.template {
            text_cell(&template.description, out);
        }
        self.values(event);
        self.rows.extend_from_slice(b"\r\n");
        if self.rows.len() >= FULL {
            self.out.write_all(&self.rows)?;
            self.rows.clear();
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<Vec<String>> {
        self.out.write_all(&self.rows)?;
        self.rows.clear();
        self.out.flush()?;
        Ok(Vec::new())
    }
}
