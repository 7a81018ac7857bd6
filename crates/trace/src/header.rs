//! The record header as text, in the order of the template in the paper, section 5.

use crate::digits::{decimal, hexadecimal, short};
use crate::{Items, Record};

/// Appends the prefix of every line of a record: `DProbes(1,2)`.
pub(crate) fn codes(record: &Record, out: &mut Vec<u8>) {
    out.extend_from_slice(b"DProbes(");
    decimal(record.major, out);
    out.push(b',');
    decimal(record.minor, out);
    out.push(b')');
}

/// Appends the header line without its newline.
pub(crate) fn header(items: Items, record: &Record, out: &mut Vec<u8>) {
    codes(record, out);
    append_origin(items, record, out);
    rest(items, record, out);
}

/// Appends the processor, the name, the process and the user.
pub(crate) fn append_origin(items: Items, record: &Record, out: &mut Vec<u8>) {
    if items.contains(Items::CPU) {
        out.extend_from_slice(b" cpu=");
        decimal(record.cpu, out);
    }
    if items.contains(Items::PROCNAME) {
        out.extend_from_slice(b" name=");
        out.extend_from_slice(printable::text(&record.name).as_bytes());
    }
    if items.contains(Items::PID) {
        out.extend_from_slice(b" pid=");
        decimal(record.pid, out);
    }
    if items.contains(Items::UID) {
        out.extend_from_slice(b" uid=");
        decimal(record.uid, out);
    }
}

/// Appends the items that differ from record to record: registers and time.
pub(crate) fn rest(items: Items, record: &Record, out: &mut Vec<u8>) {
    let word = record.word;
    if items.contains(Items::CSEIP) {
        out.extend_from_slice(b" cs=");
        short(record.cs.into(), out);
        out.extend_from_slice(b" eip=");
        hexadecimal(record.eip, word, out);
    }
    if items.contains(Items::SSESP) {
        out.extend_from_slice(b" ss=");
        short(record.ss.into(), out);
        out.extend_from_slice(b" esp=");
        hexadecimal(record.esp, word, out);
    }
    if items.contains(Items::TSC) {
        out.extend_from_slice(b" tsc=");
        // Eight digits, independent of the word size; after 2106 the seconds need more.
        let width = if record.seconds() > u64::from(u32::MAX) { 8 } else { 4 };
        hexadecimal(record.seconds(), width, out);
        out.push(b':');
        hexadecimal(record.microseconds().into(), 4, out);
    }
}
