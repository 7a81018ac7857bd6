//! JSON lines: one object per record.

use std::io::{self, Write};

use trace::Items;

use crate::event::{Event, Form};
use crate::facts::ProbeSite;
use crate::text::{Clock, decimal, hex, hexadecimal, string};
use crate::value::json_fields;

/// Buffered bytes that trigger a write.
const FULL: usize = 1 << 16;

/// Writes each record as a line of JSON.
///
/// ```json
/// {"number":0,"time":1700000000000000001,"iso":"2023-11-14T22:13:20.000000001Z","cpu":1,"pid":42,"tid":43,"uid":1000,"comm":"ls","module":"libc.so.6","probe":"malloc:entry","symbol":"malloc","major":1,"minor":2,"ip":"0x7f0012345678","sp":"0x7ffc00001000","data":"2a00000000000000","event":"request","fields":{"size":42}}
/// ```
///
/// Header items that were not asked for are left out, and so are `event` and `fields` where there
/// is no template.
#[derive(Debug)]
pub struct Json<W: Write> {
    out: W,
    line: Vec<u8>,
    clock: Clock,
    /// The part that all records of a place share, by the place's number.
    places: Vec<Vec<u8>>,
}

impl<W: Write> Json<W> {
    /// Writes to `out`, in large pieces.
    pub fn new(out: W) -> Json<W> {
        Json { out, line: Vec::with_capacity(2 * FULL), clock: Clock::default(), places: Vec::new() }
    }

    /// Appends the part that all records of a place share.
    fn shared_part(&mut self, place: &ProbeSite) {
        let Some(number) = place.number else { return about(place, &mut self.line) };
        let number = number as usize;
        if self.places.len() <= number {
            self.places.resize(number + 1, Vec::new());
        }
        let text = &mut self.places[number];
        if text.is_empty() {
            about(place, text);
        }
        self.line.extend_from_slice(text);
    }
}

fn about(place: &ProbeSite, out: &mut Vec<u8>) {
    for (name, text) in [("module", &place.module), ("probe", &place.point), ("symbol", &place.symbol)] {
        if !text.is_empty() {
            key(name, out);
            string(text.as_bytes(), out);
        }
    }
}

/// Appends the name of a member that is not the first.
fn key(name: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

/// Appends a member with an address.
fn address(name: &str, value: u64, out: &mut Vec<u8>) {
    key(name, out);
    out.push(b'"');
    hexadecimal(value, out);
    out.push(b'"');
}

impl<W: Write> Form for Json<W> {
    fn record(&mut self, event: &Event<'_>) -> io::Result<()> {
        let (record, items) = (event.record, event.place.items);
        let out = &mut self.line;
        out.extend_from_slice(b"{\"number\":");
        decimal(event.number, out);
        if items.contains(Items::TSC) {
            key("time", out);
            decimal(record.time, out);
            out.extend_from_slice(b",\"iso\":\"");
            self.clock.show(record.time, out);
            out.push(b'"');
        }
        let numbers = [
            (Items::CPU, "cpu", record.cpu),
            (Items::PID, "pid", record.pid),
            // No header item selects the thread id; it is always there.
            (Items::NONE, "tid", record.tid),
            (Items::UID, "uid", record.uid),
        ];
        for (item, name, number) in numbers {
            if items.contains(item) {
                key(name, out);
                decimal(number, out);
            }
        }
        if items.contains(Items::PROCNAME) {
            key("comm", out);
            string(record.name.as_bytes(), out);
        }
        self.shared_part(event.place);
        let out = &mut self.line;
        key("major", out);
        decimal(record.major, out);
        key("minor", out);
        decimal(record.minor, out);
        if items.contains(Items::EIP) {
            address("ip", record.eip, out);
        }
        if items.contains(Items::ESP) {
            address("sp", record.esp, out);
        }
        out.extend_from_slice(b",\"data\":\"");
        hex(&record.data, out);
        out.push(b'"');
        if let Some(template) = event.template {
            key("event", out);
            string(template.description.as_bytes(), out);
            key("fields", out);
            json_fields(template, record, out);
        }
        out.extend_from_slice(b"}\n");
        if out.len() >= FULL {
            self.out.write_all(out)?;
            out.clear();
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<Vec<String>> {
        self.out.write_all(&self.line)?;
        self.line.clear();
        self.out.flush()?;
        Ok(Vec::new())
    }
}
