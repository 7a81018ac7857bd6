//! What most records' text consists of, built quickly: millions of records a second are written by one thread.
//!
//! Records of one probe that follow one another differ in little: the codes, the processor and the process are turned into text when they
//! change. The digits of four bytes are made in one word, and a row in one piece.

use crate::{Items, Record};

/// Bytes in a row.
pub(crate) const ROW: usize = 16;

/// The digits of four bytes, in their order: each byte is spread over two, its upper half first; then all eight become digits at
/// once. What is above 9 carries out of its four bits when 6 is added.
pub(crate) fn digits(bytes: [u8; 4]) -> [u8; 8] {
    const LOW: u64 = 0x000f_000f_000f_000f;
    let mut word = u64::from(u32::from_le_bytes(bytes));
    word = (word | word << 16) & 0x0000_ffff_0000_ffff;
    word = (word | word << 8) & 0x00ff_00ff_00ff_00ff;
    let halves = (word >> 4 & LOW) | (word & LOW) << 8;
    let letters = (halves + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101;
    let letter = u64::from(b'a' - b'0' - 10);
    (halves + 0x3030_3030_3030_3030 + letters * letter).to_le_bytes()
}

/// Appends a row of at most 16 bytes, whose first is `offset` bytes into the log, and the end of its line:
/// `  0x00000000 : 10270000 00000000 61620a             : .'......ab.`
pub(crate) fn row(offset: u32, bytes: &[u8], out: &mut Vec<u8>) {
    /// Where the digits of the bytes begin, and where the characters do.
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

/// What the records before have begun with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    codes: Part<(u32, u32)>,
    place: Part<(u32, u32, u32)>,
    name: String,
}

/// A text, and what it was made of.
#[derive(Clone, Debug, Default)]
struct Part<K> {
    of: Option<K>,
    text: Vec<u8>,
}

impl Known {
    /// Appends what every line begins with: `DProbes(1,2)`.
    pub(crate) fn codes(&mut self, record: &Record, out: &mut Vec<u8>) {
        let of = (record.major, record.minor);
        if self.codes.of != Some(of) {
            self.codes.of = Some(of);
            let text = &mut self.codes.text;
            text.clear();
            text.extend_from_slice(b"DProbes(");
            decimal(record.major, text);
            text.push(b',');
            decimal(record.minor, text);
            text.push(b')');
        }
        out.extend_from_slice(&self.codes.text);
    }

    /// Appends the processor, the name, the process and the user, as far as they are wanted, which is always the same.
    pub(crate) fn place(&mut self, record: &Record, items: Items, out: &mut Vec<u8>) {
        let of = (record.cpu, record.pid, record.uid);
        let named = items.contains(Items::PROCNAME);
        if self.place.of != Some(of) || (named && self.name != record.name) {
            self.place.of = Some(of);
            let text = &mut self.place.text;
            text.clear();
            if items.contains(Items::CPU) {
                text.extend_from_slice(b" cpu=");
                decimal(record.cpu, text);
            }
            if named {
                self.name.clone_from(&record.name);
                text.extend_from_slice(b" name=");
                text.extend(record.name.chars().flat_map(char::escape_default).map(|shown| shown as u8));
            }
            if items.contains(Items::PID) {
                text.extend_from_slice(b" pid=");
                decimal(record.pid, text);
            }
            if items.contains(Items::UID) {
                text.extend_from_slice(b" uid=");
                decimal(record.uid, text);
            }
        }
        out.extend_from_slice(&self.place.text);
    }
}

fn decimal(value: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends the low `size` bytes of a value, all their digits; all 8 if there are other digits.
pub(crate) fn hexadecimal(value: u64, size: usize, out: &mut Vec<u8>) {
    let [high, low] = [(value >> 32) as u32, value as u32].map(|half| digits(half.to_be_bytes()));
    match size {
        4 if high == [b'0'; 8] => out.extend_from_slice(&low),
        8 => out.extend_from_slice([high, low].as_flattened()),
        _ => {
            let needed = (64 - value.leading_zeros() as usize).div_ceil(8);
            let all = [high, low];
            out.extend_from_slice(&all.as_flattened()[16 - 2 * size.max(needed).min(8)..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digits_are_those_of_each_byte() {
        for byte in 0..=255u8 {
            let bytes = [byte, 0x0f, !byte, 0xa9];
            let expected: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(digits(bytes), expected.as_bytes());
        }
    }

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
    fn numbers_have_the_digits_of_their_size_or_those_they_need() {
        let text = |value: u64, size: usize| {
            let mut out = Vec::new();
            hexadecimal(value, size, &mut out);
            String::from_utf8(out).expect("digits")
        };
        assert_eq!(text(0x1f, 4), "0000001f");
        assert_eq!(text(0x1f, 8), "000000000000001f");
        assert_eq!(text(0x12_3456_789a, 4), "123456789a");
        assert_eq!(text(u64::MAX, 4), "ffffffffffffffff");
        assert_eq!(text(7, 1), "07");
    }

    #[test]
    fn what_changes_is_noticed() {
        let mut known = Known::default();
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
            known.place(&record, items, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }
}
