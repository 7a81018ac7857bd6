//! Conditions on values that the record has shown before: `kind=1,2`, `flags&0x4`.

use std::ops::Range;

use super::number::code;
use super::problem::Mistake;

/// What is expected between `%?` and its group.
const EXPECTED: &str = "a value's name and a test expected, as in `%?kind=1,2(%4u)` or `%?flags&0x4(%s)`";

/// How many values of one template conditions can ask for.
pub(super) const SLOTS: usize = 16;

/// How many conditions one template can have. Each costs time in each repetition, also where it
/// takes no data.
pub(super) const MOST: usize = 256;

/// A condition on an integer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    /// The name of the integer.
    pub(super) name: String,
    /// Where its value is kept.
    pub(super) slot: u8,
    /// Whether it is signed.
    pub(super) is_signed: bool,
    /// The slots of the values inside the group: without the group there are none.
    pub(super) inside: u16,
    pub(super) test: Test,
    /// What it is compared with.
    pub(super) numbers: Box<[i128]>,
}

/// A comparison with some numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// `=`: with one of them.
    Equal,
    /// `!=`: with none of them.
    Unequal,
    /// `<`
    Less,
    /// `>`
    Greater,
    /// `&`: a bit is set in both.
    AnyBit,
    /// `!&`: no bit is set in both.
    NoBit,
}

/// The tests as they are written; the longer ones first.
const TESTS: &[(&str, Test)] = &[
    ("!=", Test::Unequal),
    ("!&", Test::NoBit),
    ("=", Test::Equal),
    ("<", Test::Less),
    (">", Test::Greater),
    ("&", Test::AnyBit),
];

impl Condition {
    /// Parses the text between `%?` and `(`. Slot and sign are unknown yet. Positions in mistakes
    /// count from the start of the text.
    pub(super) fn parse(text: &[u8]) -> Result<Condition, Mistake> {
        let wrong = |at: Range<usize>, message: &str| Mistake::new(at, message, EXPECTED);
        let name = text.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
        if name == 0 {
            return Err(wrong(0..text.len(), "this condition names no value"));
        }
        let (name, rest) = text.split_at(name);
        let Some((sign, test)) = TESTS.iter().find(|(sign, _)| rest.starts_with(sign.as_bytes())) else {
            return Err(wrong(name.len()..text.len(), "this condition tests nothing"));
        };
        let mut start = name.len() + sign.len();
        let mut numbers = Vec::new();
        for written in text[start..].split(|&byte| byte == b',') {
            let at = start..start + written.len();
            start = at.end + 1;
            match number(written) {
                Some(number) => numbers.push(number),
                None => return Err(wrong(at, "this is no number")),
            }
        }
        if numbers.len() > 1 && !matches!(test, Test::Equal | Test::Unequal) {
            return Err(wrong(name.len()..text.len(), "only `=` and `!=` take several numbers"));
        }
        Ok(Condition {
            name: String::from_utf8_lossy(name).into_owned(),
            slot: 0,
            is_signed: false,
            inside: 0,
            test: *test,
            numbers: numbers.into(),
        })
    }

    /// Whether it holds. For a value that is missing, no condition does.
    pub(super) fn holds(&self, kept: &Kept) -> bool {
        let Some(bits) = kept.0.get(usize::from(self.slot)).copied().flatten() else { return false };
        let value = if self.is_signed { bits.cast_signed().into() } else { i128::from(bits) };
        let any = |test: fn(i128, i128) -> bool| self.numbers.iter().any(|&number| test(value, number));
        match self.test {
            Test::Equal => any(|value, number| value == number),
            Test::Unequal => !any(|value, number| value == number),
            Test::Less => any(|value, number| value < number),
            Test::Greater => any(|value, number| value > number),
            Test::AnyBit => any(|value, number| value & number != 0),
            Test::NoBit => !any(|value, number| value & number != 0),
        }
    }
}

/// Parses a number: decimal or hexadecimal, perhaps negative.
fn number(text: &[u8]) -> Option<i128> {
    let text = str::from_utf8(text).ok()?.trim();
    match text.strip_prefix('-') {
        Some(size) => code(size).map(|size| -i128::from(size)),
        None => code(text).map(i128::from),
    }
}

/// The values of one record that conditions ask for.
#[derive(Debug, Default)]
pub(super) struct Kept([Option<u64>; SLOTS]);

impl Kept {
    /// Keeps a value, or that it is missing. Signed values are extended to 64 bits.
    pub(super) fn keep(&mut self, slot: Option<u8>, value: Option<u64>) {
        if let Some(kept) = slot.and_then(|slot| self.0.get_mut(usize::from(slot))) {
            *kept = value;
        }
    }

    /// Forgets the values of a group that is not there.
    pub(super) fn forget(&mut self, slots: u16) {
        for (slot, kept) in self.0.iter_mut().enumerate() {
            if slots & 1 << slot != 0 {
                *kept = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn holds(condition: &str, value: i64, is_signed: bool) -> bool {
        let condition = Condition { is_signed, ..Condition::parse(condition.as_bytes()).expect("right") };
        let mut kept = Kept::default();
        kept.keep(Some(0), Some(value.cast_unsigned()));
        condition.holds(&kept)
    }

    #[test]
    fn conditions_compare_as_their_signs_say() {
        for (condition, those) in [
            ("a=1", [false, true, false]),
            ("a=0, 2", [true, false, true]),
            ("a!=0,2", [false, true, false]),
            ("a<1", [true, false, false]),
            ("a>0x0", [false, true, true]),
            ("a&3", [false, true, true]),
            ("a!&2", [true, true, false]),
        ] {
            assert_eq!([0, 1, 2].map(|value| holds(condition, value, false)), those, "{condition}");
        }
        assert!(holds("a<0", -1, true) && !holds("a<0", -1, false));
        assert!(holds("a=-1", -1, true) && !holds("a=-1", -1, false));
        assert!(holds("a&0x8000000000000000", i64::MIN, true), "a negative number has its bits");
        let missing = Condition::parse(b"a!=1").expect("it is right");
        assert!(!missing.holds(&Kept::default()), "a missing value is not even unlike a number");
    }

    #[test]
    fn what_is_no_condition_is_told_with_its_place() {
        let wrong = |text: &[u8]| {
            let wrong = Condition::parse(text).expect_err("it is wrong");
            (wrong.range, wrong.message)
        };
        assert_eq!(wrong(b""), (0..0, "this condition names no value".to_owned()));
        assert_eq!(wrong(b"=1"), (0..2, "this condition names no value".to_owned()));
        assert_eq!(wrong(b"a"), (1..1, "this condition tests nothing".to_owned()));
        assert_eq!(wrong(b"a 1"), (1..3, "this condition tests nothing".to_owned()));
        assert_eq!(wrong(b"a=1,"), (4..4, "this is no number".to_owned()));
        assert_eq!(wrong(b"a=+1"), (2..4, "this is no number".to_owned()));
        assert_eq!(wrong(b"a<1,2"), (1..5, "only `=` and `!=` take several numbers".to_owned()));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused_with_a_place(text in "[a_=!<>&,0-9x -]{0,16}") {
            if let Err(wrong) = Condition::parse(text.as_bytes()) {
                prop_assert!(wrong.range.end <= text.len());
            }
        }

        #[test]
        fn a_condition_and_its_opposite_never_agree(value in any::<i64>(), number in any::<i64>(), is_signed in any::<bool>()) {
            let size = number.unsigned_abs() >> 1;
            for (one, other) in [("=", "!="), ("&", "!&")] {
                let of = |sign: &str| holds(&format!("a{sign}{size}"), value, is_signed);
                prop_assert_ne!(of(one), of(other));
            }
        }
    }
}
