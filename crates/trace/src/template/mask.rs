//! The names of an integer's bits: `READ=0,WRITE=1,LEVEL=4-6,READ_ONLY=0-1:0`.

use super::number::code;
use super::problem::Mistake;
use crate::digits::{decimal, short};

/// What is expected in the parentheses of `%m`.
const EXPECTED: &str = "names of bits expected, as in `%4m(READ=0,WRITE=1,LEVEL=4-6,NONE=0-1:0)`";

/// The names of an integer's bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mask(Box<[Part]>);

/// The name of a bit, or of several neighbouring bits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    name: Box<str>,
    /// The number of the lowest bit.
    first: u32,
    /// The bits, in place.
    bits: u64,
    /// The only value of these bits for which the name stands.
    value: Option<u64>,
}

impl Mask {
    /// Parses the text between the parentheses, for an integer with so many bits. Positions in
    /// mistakes count from the start of the text.
    pub(super) fn parse(text: &[u8], bits: u32) -> Result<Mask, Mistake> {
        let mut parts = Vec::new();
        let mut start = 0;
        for part in text.split(|&byte| byte == b',') {
            let at = start..start + part.len();
            start = at.end + 1;
            let wrong = |message: String, expected: &str| Mistake::new(at.clone(), message, expected);
            let Some((name, place)) = split(part) else {
                return Err(wrong("this names no bit".to_owned(), EXPECTED));
            };
            if !name.chars().all(|each| printable::is_plain(each) && !"%|(".contains(each)) {
                let message = "this name has a character that no name of a bit has".to_owned();
                return Err(wrong(message, "a name without `%`, `|`, `(` and control characters expected"));
            }
            let Some((first, last, value)) = numbers(place) else {
                return Err(wrong(format!("`{}` is no bit", place.trim()), EXPECTED));
            };
            let most = bits - 1;
            if last > most.into() {
                let message = format!("this integer has no bit {last}");
                return Err(wrong(message, &format!("bits 0 to {most} expected")));
            }
            if first > last {
                let message = format!("bit {first} is above bit {last}");
                return Err(wrong(message, "the lower bit first expected"));
            }
            // Both are below 64.
            let (first, count) = (first as u32, (last - first + 1) as u32);
            let low = u64::MAX >> (64 - count);
            if value.is_some_and(|value| value > low) {
                let message = format!("{count} {} too few for this value", plural(count));
                return Err(wrong(message, &format!("a value from 0 to {low} expected")));
            }
            parts.push(Part { name: name.into(), first, bits: low << first, value });
        }
        Ok(Mask(parts.into()))
    }

    /// Appends a value: the names that stand for it joined by `|`, then bits without a name in
    /// hexadecimal; `0` if there is neither.
    pub(super) fn show(&self, value: u64, out: &mut Vec<u8>) {
        let mut rest = value;
        let mut is_first = true;
        let mut join = |out: &mut Vec<u8>| match std::mem::take(&mut is_first) {
            true => {}
            false => out.push(b'|'),
        };
        for part in &self.0 {
            let own = (value & part.bits) >> part.first;
            let stands = part.value.map_or(own != 0, |wanted| own == wanted);
            if !stands {
                continue;
            }
            join(out);
            out.extend_from_slice(part.name.as_bytes());
            if part.value.is_none() && !part.bits.is_power_of_two() {
                out.push(b'=');
                decimal(own, out);
            }
            rest &= !part.bits;
        }
        if rest != 0 {
            join(out);
            out.extend_from_slice(b"0x");
            short(rest, out);
        } else if is_first {
            out.push(b'0');
        }
    }
}

impl Mask {
    /// The same, as a text of its own.
    pub(super) fn text(&self, value: u64) -> String {
        let mut out = Vec::new();
        self.show(value, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }
}

fn plural(count: u32) -> &'static str {
    if count == 1 { "bit is" } else { "bits are" }
}

/// A part's name, and the text behind its `=`.
fn split(part: &[u8]) -> Option<(&str, &str)> {
    let (name, place) = str::from_utf8(part).ok()?.split_once('=')?;
    Some((name.trim(), place)).filter(|(name, _)| !name.is_empty())
}

/// Parses `0`, `4-6` or `4-6:2`: the first bit, the last bit, and the value.
fn numbers(text: &str) -> Option<(u64, u64, Option<u64>)> {
    let (bits, value) = match text.split_once(':') {
        Some((bits, value)) => (bits, Some(code(value.trim())?)),
        None => (text, None),
    };
    match bits.split_once('-') {
        Some((first, last)) => Some((code(first.trim())?, code(last.trim())?, value)),
        None => code(bits.trim()).map(|bit| (bit, bit, value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(names: &str, value: u64) -> String {
        let mask = Mask::parse(names.as_bytes(), 64).expect("it is right");
        let mut out = Vec::new();
        mask.show(value, &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn names_stand_for_bits_and_for_values_of_several() {
        let names = "RDONLY=0-1:0, WRONLY=0-1:1, RDWR=0-1:2, CREAT=6, LEVEL=8-0xb, HIGH=63";
        assert_eq!(shown(names, 0), "RDONLY");
        assert_eq!(shown(names, 0x42), "RDWR|CREAT");
        assert_eq!(shown(names, 0x543), "CREAT|LEVEL=5|0x3", "the two bits have no name for 3");
        assert_eq!(shown(names, 1 << 63 | 1 << 62 | 1), "WRONLY|HIGH|0x4000000000000000");
        assert_eq!((shown("A=0", 0), shown("A=0", 6)), ("0".to_owned(), "0x6".to_owned()));
        assert_eq!(shown("ALL=0-63", u64::MAX), format!("ALL={}", u64::MAX));
    }

    #[test]
    fn what_is_no_name_of_a_bit_is_told_with_its_place() {
        let wrong = |text: &[u8]| {
            let wrong = Mask::parse(text, 8).expect_err("it is wrong");
            (wrong.range, wrong.message)
        };
        assert_eq!(wrong(b""), (0..0, "this names no bit".to_owned()));
        assert_eq!(wrong(b"A=0,B"), (4..5, "this names no bit".to_owned()));
        assert_eq!(wrong(b"A=0,=1"), (4..6, "this names no bit".to_owned()));
        assert_eq!(wrong(b"A=x"), (0..3, "`x` is no bit".to_owned()));
        assert_eq!(wrong(b"A=8"), (0..3, "this integer has no bit 8".to_owned()));
        assert_eq!(wrong(b"A=3-1"), (0..5, "bit 3 is above bit 1".to_owned()));
        assert_eq!(wrong(b"A=1:2"), (0..5, "1 bit is too few for this value".to_owned()));
        assert_eq!(wrong(b"A=1-2:4").1, "2 bits are too few for this value");
        assert_eq!(wrong(b"A\x1b=1").1, "this name has a character that no name of a bit has");
        assert_eq!(wrong(b"\xff=1").1, "this names no bit");
    }

    proptest! {
        #[test]
        fn what_is_shown_is_the_value_again(value in any::<u64>(), bits in prop::collection::btree_set(0u32..64, 0..20)) {
            // Names for some single bits: the names shown and the rest add up to the value.
            let names: Vec<String> = bits.iter().map(|bit| format!("B{bit}={bit}")).chain(["C=0-3:9".to_owned()]).collect();
            let sum = shown(&names.join(","), value).split('|').fold(0u64, |sum, each| sum | match each {
                "0" => 0,
                "C" => 9,
                _ => match each.strip_prefix("0x") {
                    Some(rest) => u64::from_str_radix(rest, 16).expect("hexadecimal"),
                    None => 1 << each[1..].parse::<u32>().expect("a bit"),
                },
            });
            prop_assert_eq!(sum, value);
        }

        #[test]
        fn any_text_is_parsed_or_refused_with_a_place(text in "[A-C=,:0-9x -]{0,20}", bits in 1u32..=64) {
            if let Err(wrong) = Mask::parse(text.as_bytes(), bits) {
                prop_assert!(wrong.range.end <= text.len() && !wrong.message.is_empty() && !wrong.expected.is_empty());
            }
        }
    }
}
