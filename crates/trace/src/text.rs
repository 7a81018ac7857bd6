//! Writes a record as text: in the original's kernel log format, by a template, or as a line.
//!
//! In: a record, and how it is to be shown (`Text`). Out: its bytes, written to a block.
//!
//! ```text
//! DProbes(1,2) cpu=0 name=ls pid=4711 uid=0 cs=33 eip=00007f0012345678 ss=2b esp=00007ffc00001000 tsc=672f0a10:0003c1b2
//! DProbes(1,2)  0x00000000 : 10270000 00000000 61620a             : .'......ab.
//! ```
//!
//! The header items are in the order of the template in the paper, section 5. Each row shows up to
//! 16 bytes in groups of four, then the same bytes as characters. A record without logged bytes has
//! no row.
//!
//! This is the format of version 5.0. Earlier versions wrote the bytes in one line without offsets
//! and characters, as [`Form::Unformatted`] does:
//!
//! ```text
//! DProbes(1,2) cpu=0 pid=4711
//! DProbes(1,2)  10 27 00 00 00 00 00 00 61 62 0a
//! ```

use std::io::{self, Write};
use std::sync::Arc;

use crate::digits::HEXADECIMAL;
use crate::header;
use crate::header_cache::{self, HeaderCache, ROW};
use crate::line::{Line, LineProbe, LineView};
use crate::template::{self, Template, Templates};
use crate::{Items, Record};

/// Bytes in an unformatted line. The kernel log takes messages of about 1000 bytes at most.
const LINE: usize = 256;

/// How the logged bytes are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Rows of 16 bytes, with offsets and characters.
    #[default]
    Formatted,
    /// Plain hexadecimal, 256 bytes a line (`--unformatted-output` of dprobes(8)).
    Unformatted,
}

/// Writes records as text. It reuses one buffer, because there are millions of records.
#[derive(Clone, Debug, Default)]
pub struct Text {
    items: Option<Items>,
    form: Form,
    templates: Option<Templates>,
    line: Option<Line>,
    text: Vec<u8>,
    known: HeaderCache,
}

impl Text {
    /// A writer that shows these header items, and the logged bytes in this form.
    pub fn new(items: Items, form: Form) -> Text {
        Text {
            items: Some(items),
            form,
            templates: None,
            line: None,
            text: Vec::with_capacity(512),
            known: HeaderCache::default(),
        }
    }

    /// The same writer with templates. A record with a template shows the template's output instead
    /// of its bytes; any other record shows a dump of its bytes.
    #[must_use]
    pub fn with_templates(self, templates: Templates) -> Text {
        Text { templates: Some(templates), ..self }
    }

    /// The same writer with a line for each record that no template is for.
    #[must_use]
    pub fn with_lines(self, view: LineView) -> Text {
        Text { line: Some(Line::new(view)), ..self }
    }

    /// Sets whether lines are coloured, for a terminal.
    pub fn set_colour(&mut self, colour: bool) {
        self.line.iter_mut().for_each(|line| line.set_colour(colour));
    }

    /// Sets the head and the probes of the lines that follow.
    pub fn set_probes(&mut self, items: Items, probes: &Arc<[LineProbe]>) {
        self.line.iter_mut().for_each(|line| line.set_probes(items, probes));
    }

    /// Changes the header items for the following records.
    pub fn set_items(&mut self, items: Items) {
        self.items = Some(items);
    }

    /// The templates, if any, so that the caller can refresh them.
    pub fn templates(&mut self) -> Option<&mut Templates> {
        self.templates.as_mut()
    }

    /// Writes a record in one write.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&mut self, record: &Record, out: &mut dyn Write) -> io::Result<()> {
        self.text.clear();
        self.build(record);
        out.write_all(&self.text)
    }

    /// Writes a record in one write by `template`, or as a dump without one. The writer's own
    /// templates are not used.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_by(
        &mut self,
        template: Option<&Template>,
        record: &Record,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        self.text.clear();
        template::write_record(template, self.items.unwrap_or(Items::DEFAULT), record, &mut self.text);
        out.write_all(&self.text)
    }

    /// Appends a record to `text`.
    pub fn append(&mut self, record: &Record, text: &mut Vec<u8>) {
        // Builds the record in the caller's buffer.
        std::mem::swap(&mut self.text, text);
        self.build(record);
        std::mem::swap(&mut self.text, text);
    }

    fn build(&mut self, record: &Record) {
        let items = self.items.unwrap_or(Items::DEFAULT);
        let Text { templates, line, known, text, .. } = self;
        if let Some(templates) = templates {
            templates.format(items, record, text);
            return;
        }
        if let Some(line) = line {
            line.append(record, text);
            return;
        }
        known.codes(record, text);
        known.append_origin(record, items, text);
        header::rest(items, record, text);
        text.push(b'\n');
        match self.form {
            Form::Formatted => {
                for (bytes, offset) in record.data.chunks(ROW).zip((0..).step_by(ROW)) {
                    known.codes(record, text);
                    header_cache::row(offset, bytes, text);
                }
            }
            Form::Unformatted => record.data.chunks(LINE).for_each(|bytes| self.line(record, bytes)),
        }
    }

    /// Appends a line of unformatted bytes.
    fn line(&mut self, record: &Record, bytes: &[u8]) {
        self.known.codes(record, &mut self.text);
        self.text.push(b' ');
        for &byte in bytes {
            self.text.push(b' ');
            self.text.extend_from_slice(&HEXADECIMAL[usize::from(byte)]);
        }
        self.text.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(record: &Record, items: Items) -> String {
        text_in(Form::Formatted, record, items)
    }

    fn text_in(form: Form, record: &Record, items: Items) -> String {
        let mut out = Vec::new();
        Text::new(items, form).write(record, &mut out).expect("a vector takes everything");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_items_stand_in_the_templates_order_and_the_bytes_in_rows() {
        let record = Record {
            major: 1,
            minor: 2,
            cpu: 3,
            pid: 4711,
            tid: 4712,
            probe: 0,
            uid: 1000,
            cs: 0x33,
            eip: 0x7f00_1234_5678,
            ss: 0x2b,
            esp: 0x7ffc_0000_1000,
            time: 0x672f_0a10 * 1_000_000_000 + 0x3c1b2 * 1000,
            name: "a b\n".to_owned(),
            word: 8,
            data: b"0123456789abcdefg\x00\xff".to_vec(),
        };
        assert_eq!(
            text(&record, Items::ALL),
            "DProbes(1,2) cpu=3 name=a b\\x0a pid=4711 uid=1000 cs=33 eip=00007f0012345678 ss=2b \
             esp=00007ffc00001000 tsc=672f0a10:0003c1b2\n\
             DProbes(1,2)  0x00000000 : 30313233 34353637 38396162 63646566 : 0123456789abcdef\n\
             DProbes(1,2)  0x00000010 : 6700ff                              : g..\n"
        );
        assert_eq!(text(&Record::default(), Items::DEFAULT), "DProbes(0,0) cpu=0 pid=0\n");
    }

    #[test]
    fn a_short_word_has_short_addresses() {
        let record = Record { word: 4, eip: 0x8048000, ..Record::default() };
        assert_eq!(text(&record, Items::CSEIP), "DProbes(0,0) cs=0 eip=08048000\n");
    }

    #[test]
    fn unformatted_bytes_stand_in_a_line_as_long_as_the_kernel_takes() {
        let record = Record { major: 1, minor: 2, data: b"\x00\x0fa".to_vec(), ..Record::default() };
        let unformatted = |record: &Record| text_in(Form::Unformatted, record, Items::DEFAULT);
        assert_eq!(unformatted(&record), "DProbes(1,2) cpu=0 pid=0\nDProbes(1,2)  00 0f 61\n");
        assert_eq!(unformatted(&Record::default()), "DProbes(0,0) cpu=0 pid=0\n", "nothing logged, no line");
        let long = Record { major: 65535, minor: 65535, data: vec![0xff; 513], ..Record::default() };
        let text = unformatted(&long);
        let bytes: Vec<usize> = text.lines().skip(1).map(|line| line.matches(" ff").count()).collect();
        assert_eq!(bytes, [256, 256, 1]);
        assert!(text.lines().all(|line| line.len() < 1000));
    }
}
