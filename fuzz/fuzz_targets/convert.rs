//! Any file: what a store holds becomes other forms, whatever it holds. It is read as it is, and once more with all checksums set right, as by
//! someone who wants the rest to be believed. Each form has all records, and is what it should be: a line of JSON is JSON, a row has as many cells as
//! the first, packets end where they should, and nothing that the store says is markup, or obeyed by a terminal.
#![no_main]

mod seal;

use std::cell::RefCell;
use std::io::{self, Cursor, Write};
use std::rc::Rc;

use convert::perfetto::Counters;
use convert::report::{Between, html, text};
use convert::{Csv, Form, Json, Perfetto, Report, TemplateSet, TraceFacts, convert};
use libfuzzer_sys::fuzz_target;
use seal::sealed;
use trace::store::Reader;

fuzz_target!(|data: &[u8]| {
    judge(data);
    judge(&sealed(data));
});

/// Bytes that a form has written, which are looked at when it is done.
#[derive(Clone, Default)]
struct Written(Rc<RefCell<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Converts a file to a form; gives how many records it has.
fn converted(file: &[u8], form: impl FnOnce(&TraceFacts, &TemplateSet) -> Box<dyn Form>) -> Option<u64> {
    let mut reader = Reader::new(Cursor::new(file)).ok()?;
    let (mut known, sheet) = (TraceFacts::new(reader.info()), TemplateSet::new(None, reader.info()));
    let mut form = form(&known, &sheet);
    let poured = convert(&mut reader, &mut known, &sheet, &mut *form, |_| {}).expect("memory can be read and written");
    Some(poured.records)
}

fn judge(file: &[u8]) {
    let out = Written::default();
    let to = out.clone();
    let Some(records) = converted(file, |_, _| Box::new(Json::new(to))) else { return };
    let lines = std::mem::take(&mut *out.0.borrow_mut());
    let mut count = 0;
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let value: serde_json::Value = serde_json::from_slice(line).expect("a line is JSON");
        assert!(value["data"].is_string());
        count += 1;
    }
    assert_eq!(count, records);

    let to = out.clone();
    converted(file, |known, sheet| Box::new(Csv::new(to, known, sheet).expect("memory takes everything")));
    let rows = rows(&std::mem::take(&mut *out.0.borrow_mut()));
    assert_eq!(rows.len() as u64, records + 1);
    assert!(rows.iter().all(|cells| *cells == rows[0]), "{rows:?}");

    let to = out.clone();
    let counters = Counters { names: vec!["a".to_owned()] };
    converted(file, |known, _| Box::new(Perfetto::new(to, known, counters)));
    let packets = packets(&std::mem::take(&mut *out.0.borrow_mut())).expect("packets end where they should");
    assert!(packets > records, "one for each, and that of the clocks");

    let Ok(mut reader) = Reader::new(Cursor::new(file)) else { return };
    let (mut known, sheet) = (TraceFacts::new(reader.info()), TemplateSet::new(None, reader.info()));
    let probes: Vec<(u32, u32)> = reader.info().probes.iter().map(|probe| (probe.program, probe.number)).collect();
    let (first, last) = (probes.first().copied(), probes.last().copied());
    let between = Between {
        name: "first to last".to_owned(),
        from: first.into_iter().collect(),
        to: last.into_iter().collect(),
    };
    let range = (reader.info().times.map(|(least, _)| least / 2), None);
    let mut report = Report::new("a\u{1b}<b>", reader.info(), &known, vec![between], range);
    convert(&mut reader, &mut known, &sheet, &mut report, |_| {}).expect("memory can be read");
    let found = report.findings();
    assert_eq!(found.records, records);
    let shown = text(&found, 3);
    assert!(!shown.contains(|letter: char| letter.is_control() && letter != '\n'), "{shown:?}");
    let page = html(&found, 3);
    assert!(page.ends_with("</html>\n") && page.len() < 1 << 22);
    for tag in page.split('<').skip(1) {
        let name: String = tag.chars().take_while(char::is_ascii_alphanumeric).collect();
        const KNOWN: &str = " html head body meta link title style main h1 h2 h3 p code div b span section ul li i table thead tbody tr th td svg path rect line \
                             text footer DOCTYPE ";
        assert!(tag.starts_with(['/', '!']) || KNOWN.contains(&format!(" {name} ")), "{tag}");
    }
}

/// The rows of a table as RFC 4180 has it: how many cells each has.
fn rows(table: &[u8]) -> Vec<usize> {
    let (mut rows, mut cells, mut quoted) = (Vec::new(), 1, false);
    for (at, byte) in table.iter().enumerate() {
        match byte {
            // Two quotes within quotes end and begin them.
            b'"' => quoted = !quoted,
            b',' if !quoted => cells += 1,
            b'\n' if !quoted => {
                assert_eq!(table[at - 1], b'\r');
                rows.push(std::mem::replace(&mut cells, 1));
            }
            _ => {}
        }
    }
    assert!(!quoted);
    rows
}

/// A varint at the start of bytes, which are moved on.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..70).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// How many packets a trace of Perfetto's has, each made of whole fields.
fn packets(mut trace: &[u8]) -> Option<u64> {
    let mut count = 0;
    while !trace.is_empty() {
        assert_eq!(varint(&mut trace)?, 0x0a);
        let length = varint(&mut trace)? as usize;
        let mut packet = trace.split_off(..length)?;
        while !packet.is_empty() {
            match varint(&mut packet)? & 7 {
                0 => drop(varint(&mut packet)?),
                2 => {
                    let length = varint(&mut packet)? as usize;
                    packet.split_off(..length)?;
                }
                _ => return None,
            }
        }
        count += 1;
    }
    Some(count)
}
