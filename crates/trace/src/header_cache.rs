//! A fast path for the text of most records: one thread writes millions of records a second.
//!
//! Successive records of one probe differ in little, so the text of the codes, processor and
//! process is cached and rebuilt only when they change. Hexadecimal digits are made four bytes at a
//! time, and a row is appended as one piece.

use crate::digits::digits;
use crate::{Items, Record, header};

/// Bytes in a row.
pub(crate) const ROW: usize = 16;

/// Appends a row of at most 16 bytes with its newline; `offset` is the position of the first byte
/// in the log: `  0x00000000 : 10270000 00000000 61620a             : .'......ab.`
pub(crate) fn row(offset: u32, bytes: &[u8], out: &mut Vec<u8>) {
    /// The columns at which the hexadecimal digits and the characters begin.
    const DIGITS: usize = 15;
    const SHOWN: usize = DIGITS + 38;
    let mut row = *b"  0x00000000 :                                     : 0123456789abcdef\n";
    let mut all = [0; ROW];
    let count = bytes.len().min(ROW);
    all[..count].copy_from_slice(&bytes[..count]);
    row[4..12].copy_from_slice(&digits(offset.to_be_bytes()));
    for (group, four) in all.as_chunks::<4>().0.iter().enumerate() {
        let at = DIGITS + 9 * group;
        row[at..at + 8].copy_from_slice(&digits(*four));
    }
    let shown = all.map(|byte| if (0x20..0x7f).contains(&byte) { byte } else { b'.' });
    row[SHOWN..SHOWN + ROW].copy_from_slice(&shown);
    if count < ROW {
        let end = DIGITS + 2 * count + count.div_ceil(4).saturating_sub(1);
        row[end..SHOWN - 3].fill(b' ');
        row[SHOWN + count] = b'\n';
    }
    out.extend_from_slice(&row[..SHOWN + count + 1]);
}

/// The cached beginning of the header line.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeaderCache {
    codes: CachedText<(u32, u32)>,
    place: CachedText<(u32, u32, u32)>,
    name: String,
}

/// A text, and the key from which it was made.
#[derive(Clone, Debug, Default)]
struct CachedText<K> {
    of: Option<K>,
    text: Vec<u8>,
}

impl HeaderCache {
    /// Appends the prefix of every line: `DProbes(1,2)`.
    pub(crate) fn codes(&mut self, record: &Record, out: &mut Vec<u8>) {
        let of = (record.major, record.minor);
        if self.codes.of != Some(of) {
            self.codes.of = Some(of);
            self.codes.text.clear();
            header::codes(record, &mut self.codes.text);
        }
        out.extend_from_slice(&self.codes.text);
    }

    /// Appends the processor, name, process and user, as far as `items` has them. All calls must
    /// pass the same `items`.
    pub(crate) fn append_origin(&mut self, record: &Record, items: Items, out: &mut Vec<u8>) {
        let of = (record.cpu, record.pid, record.uid);
        let named = items.contains(Items::PROCNAME);
        if self.place.of != Some(of) || (named && self.name != record.name) {
            self.place.of = Some(of);
            if named {
                self.name.clone_from(&record.name);
            }
            self.place.text.clear();
            header::append_origin(items, record, &mut self.place.text);
        }
        out.extend_from_slice(&self.place.text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_any_length_has_its_characters_at_one_place() {
        let bytes: Vec<u8> = (0x1a..0x2a).collect();
        for count in 0..=ROW {
            let mut out = Vec::new();
            row(0xfedc_0010, &bytes[..count], &mut out);
            let groups: Vec<String> = bytes[..count]
                .chunks(4)
                .map(|four| four.iter().map(|byte| format!("{byte:02x}")).collect())
                .collect();
            let shown: String = bytes[..count]
                .iter()
                .map(|&byte| if byte >= 0x20 { char::from(byte) } else { '.' })
                .collect();
            let expected = format!("  0xfedc0010 : {:35} : {shown}\n", groups.join(" "));
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }

    #[test]
    fn what_changes_is_noticed() {
        let mut known = HeaderCache::default();
        let items = Items::ALL;
        let record =
            |major, pid, name: &str| Record { major, pid, name: name.to_owned(), ..Record::default() };
        for (record, expected) in [
            (record(1, 2, "a"), "DProbes(1,0) cpu=0 name=a pid=2 uid=0"),
            (record(1, 2, "a"), "DProbes(1,0) cpu=0 name=a pid=2 uid=0"),
            (record(1, 2, "b"), "DProbes(1,0) cpu=0 name=b pid=2 uid=0"),
            (record(3, 2, "b"), "DProbes(3,0) cpu=0 name=b pid=2 uid=0"),
            (record(3, 4, "b"), "DProbes(3,0) cpu=0 name=b pid=4 uid=0"),
        ] {
            let mut out = Vec::new();
            known.codes(&record, &mut out);
            known.append_origin(&record, items, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }
}
