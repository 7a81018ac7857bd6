//! A record as the original wrote it to the kernel log.
//!
//! ```text
//! DProbes(1,2) cpu=0 name=ls pid=4711 uid=0 cs=33 eip=00007f0012345678 ss=2b esp=00007ffc00001000 tsc=00000000672f0a10:0003c1b2
//! DProbes(1,2)  0x00000000 : 10270000 00000000 61620a             : .'......ab.
//! ```
//!
//! The header's items stand in the order of the template in seed 000, section 5. Each row shows up to 16 bytes
//! in groups of four, then the same bytes as characters; an empty log has no row.
//!
//! That is the form of 5.0. Before, the bytes stood one after another in one line, without offsets and characters, as
//! [`Form::Unformatted`] still writes them:
//!
//! ```text
//! DProbes(1,2) cpu=0 pid=4711
//! DProbes(1,2)  10 27 00 00 00 00 00 00 61 62 0a
//! ```

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::{Items, Record};

/// Bytes in a row.
const ROW: usize = 16;

/// Bytes in an unformatted line. The kernel's log takes no message of more than 1000 bytes or so.
const LINE: usize = 256;

/// How the logged bytes are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Rows of 16, with their offsets and as characters.
    #[default]
    Formatted,
    /// One after another, in hexadecimal (`--unformatted-output` of dprobes(8)); a line for every 256.
    Unformatted,
}

/// Writes a record as text, in one write.
///
/// # Errors
/// Those of the writer.
pub fn write_text(record: &Record, items: Items, form: Form, out: &mut dyn Write) -> io::Result<()> {
    let mut text = String::with_capacity(128 + record.data.len() * 5);
    header(record, items, &mut text);
    match form {
        Form::Formatted => {
            for (row, bytes) in record.data.chunks(ROW).enumerate() {
                rows(record, row * ROW, bytes, &mut text);
            }
        }
        Form::Unformatted => record.data.chunks(LINE).for_each(|bytes| line(record, bytes, &mut text)),
    }
    out.write_all(text.as_bytes())
}

/// Appends the header's line. Writing to a string cannot fail.
fn header(record: &Record, items: Items, text: &mut String) {
    let digits = record.word * 2;
    let _ = write!(text, "DProbes({},{})", record.major, record.minor);
    if items.contains(Items::CPU) {
        let _ = write!(text, " cpu={}", record.cpu);
    }
    if items.contains(Items::PROCNAME) {
        let _ = write!(text, " name={}", record.name.escape_default());
    }
    if items.contains(Items::PID) {
        let _ = write!(text, " pid={}", record.pid);
    }
    if items.contains(Items::UID) {
        let _ = write!(text, " uid={}", record.uid);
    }
    if items.contains(Items::CSEIP) {
        let _ = write!(text, " cs={:x} eip={:0digits$x}", record.cs, record.eip);
    }
    if items.contains(Items::SSESP) {
        let _ = write!(text, " ss={:x} esp={:0digits$x}", record.ss, record.esp);
    }
    if items.contains(Items::TSC) {
        let _ = write!(text, " tsc={:0digits$x}:{:08x}", record.seconds, record.microseconds);
    }
    text.push('\n');
}

/// Appends bytes without any formatting.
fn line(record: &Record, bytes: &[u8], text: &mut String) {
    let _ = write!(text, "DProbes({},{}) ", record.major, record.minor);
    for byte in bytes {
        let _ = write!(text, " {byte:02x}");
    }
    text.push('\n');
}

/// Appends one row of at most 16 bytes, whose first is `offset` bytes into the log.
fn rows(record: &Record, offset: usize, bytes: &[u8], text: &mut String) {
    let _ = write!(text, "DProbes({},{})  0x{offset:08x} : ", record.major, record.minor);
    for place in 0..ROW {
        match bytes.get(place) {
            Some(byte) => {
                let _ = write!(text, "{byte:02x}");
            }
            None => text.push_str("  "),
        }
        if place % 4 == 3 {
            text.push(' ');
        }
    }
    text.push_str(": ");
    text.extend(bytes.iter().map(|&byte| if (0x20..0x7f).contains(&byte) { byte as char } else { '.' }));
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(record: &Record, items: Items) -> String {
        text_in(Form::Formatted, record, items)
    }

    fn text_in(form: Form, record: &Record, items: Items) -> String {
        let mut out = Vec::new();
        write_text(record, items, form, &mut out).expect("a vector takes everything");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_items_stand_in_the_templates_order_and_the_bytes_in_rows() {
        let record = Record {
            major: 1,
            minor: 2,
            cpu: 3,
            pid: 4711,
            uid: 1000,
            cs: 0x33,
            eip: 0x7f00_1234_5678,
            ss: 0x2b,
            esp: 0x7ffc_0000_1000,
            seconds: 0x672f_0a10,
            microseconds: 0x3c1b2,
            name: "a b\n".to_owned(),
            word: 8,
            data: b"0123456789abcdefg\x00\xff".to_vec(),
        };
        assert_eq!(
            text(&record, Items::ALL),
            "DProbes(1,2) cpu=3 name=a b\\n pid=4711 uid=1000 cs=33 eip=00007f0012345678 ss=2b \
             esp=00007ffc00001000 tsc=00000000672f0a10:0003c1b2\n\
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
