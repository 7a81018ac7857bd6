//! A record as bytes, as a trace daemon gets it: the header of the paper, section 5, then the
//! logged bytes.
//!
//! ```text
//! flags   4    which of the items below are there; 0x0001 for the first, 0x0002 for the second, and so on
//! major   4
//! minor   4
//! cpu     4
//! pid     4
//! uid     4
//! cs      4
//! eip     word
//! ss      4
//! esp     word
//! tsc     8    seconds since 1970 in the first 4 bytes, microseconds in the other 4
//! name    n+1  the process name, and a NUL
//! data         all that follows: what the handler logged
//! ```
//!
//! Absent items take no room. Numbers are unsigned and little-endian. A *word* has 4 bytes for an
//! i386 program and 8 for an x86-64 one. The header says neither which of the two it is nor how
//! long the data is; the container must say both (for the length, `DataSize` of the paper's
//! `trace_raw`).
//!
//! The paper's table gives the time as one number of 8 bytes, and the kernel log shows it as
//! `seconds:microseconds`. Here the two halves are written in that order, as in the original's
//! `struct timeval`.

use std::fmt;

use crate::{Items, Record};

/// The size in bytes of a header with every item, an empty name and 8-byte words.
pub const LONGEST_WITHOUT_NAME: usize = 4 + 7 * 4 + 2 * 8 + 8 + 1;

/// An error: these bytes are no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Where, in bytes from the start of the record.
    pub offset: usize,
    /// What was expected there.
    pub item: &'static str,
    /// What was found instead.
    pub found: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "offset {}: {}: {}", self.offset, self.item, self.found)
    }
}

impl std::error::Error for Malformed {}

/// Appends a record: the header with these items, then the logged bytes. If [`Record::word`] is 4,
/// only the low halves of the addresses are written; otherwise words have 8 bytes. The name is cut
/// at its first NUL.
pub fn write(record: &Record, items: Items, out: &mut Vec<u8>) {
    out.reserve(LONGEST_WITHOUT_NAME + record.name.len() + record.data.len());
    header(record, items, out);
    out.extend_from_slice(&record.data);
}

/// Appends the header alone.
pub fn header(record: &Record, items: Items, out: &mut Vec<u8>) {
    let mut half = |item: Items, value: u32| {
        if items.contains(item) {
            out.extend_from_slice(&value.to_le_bytes());
        }
    };
    half(Items::NONE, items.flags());
    half(Items::MAJOR, record.major);
    half(Items::MINOR, record.minor);
    half(Items::CPU, record.cpu);
    half(Items::PID, record.pid);
    half(Items::UID, record.uid);
    half(Items::CS, record.cs);
    word(items.contains(Items::EIP), record.eip, record.word, out);
    if items.contains(Items::SS) {
        out.extend_from_slice(&record.ss.to_le_bytes());
    }
    word(items.contains(Items::ESP), record.esp, record.word, out);
    if items.contains(Items::TSC) {
        // As an unsigned number, the seconds last until 2106.
        out.extend_from_slice(&(record.seconds() as u32).to_le_bytes());
        out.extend_from_slice(&record.microseconds().to_le_bytes());
    }
    if items.contains(Items::PROCNAME) {
        out.extend(record.name.bytes().take_while(|&byte| byte != 0));
        out.push(0);
    }
}

fn word(wanted: bool, value: u64, word: usize, out: &mut Vec<u8>) {
    let bytes = value.to_le_bytes();
    if wanted {
        out.extend_from_slice(if word == 4 { &bytes[..4] } else { &bytes });
    }
}

/// Reads a record of a program with words of `word` bytes (any value but 4 means 8). Returns it
/// with the items of its header; all other items, and [`Record::tid`] and [`Record::probe`], are
/// zero or empty.
///
/// # Errors
/// The header is cut off, has an unknown flag, or its microseconds are a million or more.
pub fn read(bytes: &[u8], word: usize) -> Result<(Record, Items), Malformed> {
    let mut rest = Rest { bytes, offset: 0 };
    let flags = rest.half("flags")?;
    let items = Items::from_flags(flags).ok_or_else(|| Malformed {
        offset: 0,
        item: "flags",
        found: format!("{flags:#x}, but only the flags {:#x} are known", Items::ALL.flags()),
    })?;
    let word = if word == 4 { 4 } else { 8 };
    let mut record = Record { word, ..Record::default() };
    let mut half = |item: Items, name, into: &mut u32| {
        if items.contains(item) {
            *into = rest.half(name)?;
        }
        Ok(())
    };
    half(Items::MAJOR, "major", &mut record.major)?;
    half(Items::MINOR, "minor", &mut record.minor)?;
    half(Items::CPU, "cpu", &mut record.cpu)?;
    half(Items::PID, "pid", &mut record.pid)?;
    half(Items::UID, "uid", &mut record.uid)?;
    half(Items::CS, "cs", &mut record.cs)?;
    if items.contains(Items::EIP) {
        record.eip = rest.number(word, "eip")?;
    }
    if items.contains(Items::SS) {
        record.ss = rest.half("ss")?;
    }
    if items.contains(Items::ESP) {
        record.esp = rest.number(word, "esp")?;
    }
    if items.contains(Items::TSC) {
        let seconds = rest.half("tsc")?;
        let offset = rest.offset;
        let microseconds = rest.half("tsc")?;
        if microseconds >= 1_000_000 {
            let found = format!("{microseconds} microseconds, at most 999999 expected");
            return Err(Malformed { offset, item: "tsc", found });
        }
        record.time = u64::from(seconds) * 1_000_000_000 + u64::from(microseconds) * 1000;
    }
    if items.contains(Items::PROCNAME) {
        record.name = rest.name()?;
    }
    record.data = rest.bytes.to_vec();
    Ok((record, items))
}

/// The unread rest of a record.
struct Rest<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl Rest<'_> {
    fn half(&mut self, item: &'static str) -> Result<u32, Malformed> {
        self.number(4, item).map(|value| value as u32)
    }

    /// A number of 4 or 8 bytes.
    fn number(&mut self, size: usize, item: &'static str) -> Result<u64, Malformed> {
        let Some((taken, rest)) = self.bytes.split_at_checked(size) else {
            return Err(self.wrong(item, format!("{size} bytes expected, {} left", self.bytes.len())));
        };
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(taken);
        self.bytes = rest;
        self.offset += size;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Text up to a NUL. Bytes that are not UTF-8 are replaced, since a program may choose any
    /// name.
    fn name(&mut self) -> Result<String, Malformed> {
        let Some(end) = self.bytes.iter().position(|&byte| byte == 0) else {
            return Err(self.wrong("name", "it has no terminating NUL".to_owned()));
        };
        let name = String::from_utf8_lossy(&self.bytes[..end]).into_owned();
        self.bytes = &self.bytes[end + 1..];
        self.offset += end + 1;
        Ok(name)
    }

    fn wrong(&self, item: &'static str, found: String) -> Malformed {
        Malformed { offset: self.offset, item, found }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record() -> Record {
        Record {
            major: 1,
            minor: 2,
            cpu: 3,
            pid: 0x1267,
            tid: 0,
            probe: 0,
            uid: 1000,
            cs: 0x33,
            eip: 0x7f00_1234_5678,
            ss: 0x2b,
            esp: 0x7ffc_0000_1000,
            time: 0x672f_0a10 * 1_000_000_000 + 0x3c1b2 * 1000,
            name: "ls".to_owned(),
            word: 8,
            data: vec![0xaa, 0xbb],
        }
    }

    /// The bytes of a hexadecimal listing. In each line, `;` begins a comment.
    fn listing(text: &str) -> Vec<u8> {
        let digits = text.lines().flat_map(|line| line.split(';').next()).flat_map(str::split_whitespace);
        digits.map(|byte| u8::from_str_radix(byte, 16).expect("hexadecimal")).collect()
    }

    #[test]
    fn all_items_stand_in_the_order_of_the_seeds_table() {
        let mut bytes = Vec::new();
        write(&record(), Items::ALL, &mut bytes);
        let expected = listing(
            "ff 07 00 00              ; flags: 0x0001 to 0x0400, all of them
             01 00 00 00              ; 1  0x0001 uint32 major
             02 00 00 00              ; 2  0x0002 uint32 minor
             03 00 00 00              ; 3  0x0004 uint32 cpu
             67 12 00 00              ; 4  0x0008 uint32 pid
             e8 03 00 00              ; 5  0x0010 uint32 uid
             33 00 00 00              ; 6  0x0020 uint32 cs
             78 56 34 12 00 7f 00 00  ; 7  0x0040 eip, a word
             2b 00 00 00              ; 8  0x0080 uint32 ss
             00 10 00 00 fc 7f 00 00  ; 9  0x0100 esp, a word
             10 0a 2f 67 b2 c1 03 00  ; 10 0x0200 uint64 tsc: seconds, microseconds
             6c 73 00                 ; 11 0x0400 string, process name
             aa bb                    ; what was logged",
        );
        assert_eq!(bytes, expected);
        assert_eq!(read(&bytes, 8), Ok((record(), Items::ALL)));
    }

    #[test]
    fn items_that_are_not_there_take_no_room_and_a_short_word_is_the_seeds_own() {
        let record = Record { word: 4, eip: 0x0804_8000, ..record() };
        let mut bytes = Vec::new();
        write(&record, Items::DEFAULT.with(Items::CSEIP), &mut bytes);
        let expected = listing(
            "6f 00 00 00
             01 00 00 00
             02 00 00 00
             03 00 00 00
             67 12 00 00
             33 00 00 00
             00 80 04 08              ; 7  0x0040 uint32 eip
             aa bb",
        );
        assert_eq!(bytes, expected);
        let (back, items) = read(&bytes, 4).expect("it was written so");
        assert_eq!(
            (back.eip, back.uid, back.data, items),
            (0x0804_8000, 0, vec![0xaa, 0xbb], Items::DEFAULT.with(Items::CSEIP))
        );
    }

    #[test]
    fn an_error_says_where_and_what() {
        let error = |bytes: &[u8]| read(bytes, 8).expect_err("malformed").to_string();
        assert_eq!(error(&[1, 0]), "offset 0: flags: 4 bytes expected, 2 left");
        assert_eq!(error(&[0, 8, 0, 0]), "offset 0: flags: 0x800, but only the flags 0x7ff are known");
        assert_eq!(error(&[0x40, 0, 0, 0, 1, 2, 3]), "offset 4: eip: 8 bytes expected, 3 left");
        assert_eq!(error(&[0, 4, 0, 0, b'a']), "offset 4: name: it has no terminating NUL");
        let late = error(&[0, 2, 0, 0, 1, 0, 0, 0, 0x40, 0x42, 0x0f, 0]);
        assert_eq!(late, "offset 8: tsc: 1000000 microseconds, at most 999999 expected");
    }

    #[test]
    fn every_header_that_is_cut_off_is_refused() {
        let mut bytes = Vec::new();
        header(&record(), Items::ALL, &mut bytes);
        for length in 0..bytes.len() {
            let error = read(&bytes[..length], 8).expect_err("cut off");
            assert!(error.offset <= length);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            flags in 0..=Items::ALL.flags(), word in prop_oneof![Just(4usize), Just(8)],
            numbers in any::<[u32; 7]>(), addresses in any::<[u64; 2]>(), time in any::<u32>(), micro in 0u64..1_000_000,
            name in "[^\0]{0,20}", data in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let items = Items::from_flags(flags).expect("all are known");
            let [major, minor, cpu, pid, uid, cs, ss] = numbers;
            let mask = if word == 4 { u64::from(u32::MAX) } else { u64::MAX };
            let [eip, esp] = addresses.map(|address| address & mask);
            let record = Record {
                major, minor, cpu, pid, uid, cs, eip, ss, esp, name, word, data,
                time: u64::from(time) * 1_000_000_000 + micro * 1000, ..Record::default()
            };
            let mut bytes = Vec::new();
            write(&record, items, &mut bytes);
            let (back, found) = read(&bytes, word).expect("it was written so");
            prop_assert_eq!(found, items);
            let mut again = Vec::new();
            write(&back, items, &mut again);
            prop_assert_eq!(&again, &bytes);
            if items == Items::ALL {
                prop_assert_eq!(back, record);
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80), low in any::<bool>()) {
            let mut bytes = bytes;
            if let Some(flags) = bytes.get_mut(2..4).filter(|_| low) {
                flags.fill(0);
            }
            for word in [4, 8] {
                match read(&bytes, word) {
                    Ok((record, items)) => {
                        let mut again = Vec::new();
                        header(&record, items, &mut again);
                        prop_assert!(record.data.len() <= bytes.len());
                    }
                    Err(error) => prop_assert!(error.offset <= bytes.len()),
                }
            }
        }
    }
}
