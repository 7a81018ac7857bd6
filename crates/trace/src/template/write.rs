//! Formats a record as text by a template.

use std::io::Write;

use super::control::Control;
use super::definition::Template;
use super::dump::dump;
use super::number::{float, integer, signed};
use super::walk::{Data, DataError, Visitor, walk};
use crate::digits::{decimal, graphic, hexadecimal, little_endian};
use crate::header::header;
use crate::{Items, Record};

/// The greatest text that repetitions may make of one record, in bytes; no more repetitions are
/// begun then. A record has at most 32 KiB, but a group may have a long text.
const MAX_TEXT: usize = 1 << 20;

/// How well a record's data fits its template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Formatted {
    /// Whether there is a template for the record. Otherwise its data is a dump.
    pub by_template: bool,
    /// Whether the data ended early or was cut short. The text says where.
    pub is_short: bool,
    /// How many bytes at the end of the data the template does not take. They are not shown.
    pub unused: usize,
}

impl Template {
    /// Appends the data of a record in this template's format, without a header or a final newline.
    pub fn format(&self, record: &Record, out: &mut Vec<u8>) -> Formatted {
        let mut data = Data::new(&record.data, record.word);
        let limit = out.len().saturating_add(MAX_TEXT);
        let mut writer = Writer { out, limit, is_short: false };
        let flow = walk(&self.items, &mut data, &mut writer);
        let is_cut = flow.is_break() && writer.is_full();
        if is_cut {
            writer.literal(b"<the text is cut here: it would be too long>");
        }
        Formatted { by_template: true, is_short: writer.is_short, unused: data.left() }
    }
}

/// Appends a record as text: its header with these items and the template's description, then its
/// data in the template's format, or as a dump without a template.
pub(crate) fn record(
    template: Option<&Template>,
    items: Items,
    record: &Record,
    out: &mut Vec<u8>,
) -> Formatted {
    header(items, record, out);
    if let Some(template) = template.filter(|template| !template.description.is_empty()) {
        out.extend_from_slice(b": ");
        out.extend_from_slice(template.description.as_bytes());
    }
    out.push(b'\n');
    let start = out.len();
    let formatted = match template {
        Some(template) => template.format(record, out),
        None => {
            dump(&record.data, out);
            Formatted::default()
        }
    };
    if out.len() > start {
        out.push(b'\n');
    }
    formatted
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// The length at which `out` is full.
    limit: usize,
    is_short: bool,
}

impl<'a> Visitor<'a> for Writer<'_> {
    fn literal(&mut self, text: &[u8]) {
        self.out.extend_from_slice(text);
    }

    fn value(&mut self, control: &Control, bytes: &'a [u8]) {
        match control {
            Control::Characters(_) => self.out.extend(bytes.iter().copied().map(graphic)),
            Control::Signed(_) => decimal(signed(bytes), self.out),
            Control::Unsigned(_) => decimal(integer(bytes), self.out),
            Control::Hexadecimal(_) => little_endian(bytes, self.out),
            Control::Names(_, mask) => mask.show(integer(bytes), self.out),
            Control::Float(_) => self.float(bytes),
            Control::Text => self.text(bytes),
            Control::Dump => dump(bytes, self.out),
            Control::Skip(_) => {}
        }
    }

    fn trouble(&mut self, trouble: DataError<'a>, _is_field: bool) {
        match trouble {
            DataError::Fault(address) => {
                self.literal(b"<fault at 0x");
                little_endian(address, self.out);
                self.literal(b">");
            }
            DataError::Selector(selector) => {
                self.literal(b"<invalid selector 0x");
                little_endian(selector, self.out);
                self.literal(b">");
            }
            DataError::Unknown { token, length } => {
                self.literal(b"<");
                self.count(length);
                self.literal(b" of an unknown kind 0x");
                hexadecimal(token.into(), 1, self.out);
                self.literal(b">");
            }
            DataError::Short { wanted, left } => {
                self.is_short = true;
                self.literal(b"<the data ends here: ");
                self.count(wanted);
                self.literal(b" wanted, ");
                decimal(left.len(), self.out);
                self.literal(if left.is_empty() { b" left" } else { b" left:" });
                // Only `c` and `i` want many bytes; the first few are enough.
                for byte in left.iter().take(64) {
                    self.out.push(b' ');
                    little_endian(&[*byte], self.out);
                }
                self.literal(if left.len() > 64 { b" ...>" } else { b">" });
            }
            DataError::Cut { announced, there } => {
                self.is_short = true;
                self.literal(b"<the data ends here: ");
                self.count(announced);
                self.literal(b" announced, ");
                decimal(there, self.out);
                self.literal(b" there>");
            }
        }
    }

    fn absent(&mut self, _fields: usize) {}

    fn begin_group(&mut self) {}

    fn end_group(&mut self, _fields: usize) {}

    fn begin_list(&mut self) {}

    fn end_list(&mut self, _fields: usize) {}

    fn is_full(&self) -> bool {
        self.out.len() >= self.limit
    }
}

impl Writer<'_> {
    fn count(&mut self, bytes: usize) {
        decimal(bytes, self.out);
        self.out.extend_from_slice(if bytes == 1 { b" byte" } else { b" bytes" });
    }

    /// Appends a text. Characters that are not plain (`printable`) and invalid bytes become
    /// periods.
    fn text(&mut self, bytes: &[u8]) {
        if bytes.iter().all(|byte| (0x20..0x7f).contains(byte)) {
            return self.out.extend_from_slice(bytes);
        }
        for chunk in bytes.utf8_chunks() {
            for character in chunk.valid().chars() {
                let shown = if printable::is_plain(character) { character } else { '.' };
                self.out.extend_from_slice(shown.encode_utf8(&mut [0; 4]).as_bytes());
            }
            self.out.extend(chunk.invalid().iter().map(|_| b'.'));
        }
    }

    /// Appends a number with as many digits as distinguish it from its neighbours; with an exponent
    /// instead of many zeros.
    fn float(&mut self, bytes: &[u8]) {
        let is_plain = |size: f64| size == 0.0 || !size.is_finite() || (1e-5..1e16).contains(&size);
        // Writing to a vector does not fail.
        let _ = match <[u8; 4]>::try_from(bytes).map(f32::from_le_bytes) {
            Ok(value) if is_plain(f64::from(value).abs()) => write!(self.out, "{value}"),
            Ok(value) => write!(self.out, "{value:e}"),
            Err(_) => match float(bytes) {
                value if is_plain(value.abs()) => write!(self.out, "{value}"),
                value => write!(self.out, "{value:e}"),
            },
        };
    }
}
