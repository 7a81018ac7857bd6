//! Numbers by their types.

use script::{Compiled, Integer};

use crate::datum::Datum;

/// A number of which only the bytes of its type count.
pub(crate) fn integer(word: u64, kind: Integer) -> Datum {
    let above = 64 - u32::from(kind.bytes.clamp(1, 8)) * 8;
    match kind.signed {
        true => Datum::Signed((word << above).cast_signed() >> above),
        false => Datum::Unsigned(word << above >> above),
    }
}

/// A value of an enum: its name, or the number if it has none.
pub(crate) fn enumerator(enumeration: &str, number: u64, script: &Compiled) -> Datum {
    // An enum has 32 bits: a negative value may come with or without the bits above.
    let is_meant = |value: i64| value == number.cast_signed() || u64::from(value as u32) == number;
    let values = script.enums.get(enumeration).into_iter().flatten();
    let name = values.into_iter().find(|(_, value)| is_meant(*value)).map(|(name, _)| name.clone());
    Datum::Symbolic { text: name.unwrap_or_else(|| number.to_string()).into(), number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_bytes_of_a_type_count() {
        let kind = |bytes, signed| Integer { bytes, signed };
        assert_eq!(integer(0x1ff, kind(1, true)), Datum::Signed(-1));
        assert_eq!(integer(0x1ff, kind(1, false)), Datum::Unsigned(255));
        assert_eq!(integer(u64::MAX, kind(8, true)), Datum::Signed(-1));
        assert_eq!(integer(u64::MAX, kind(8, false)), Datum::Unsigned(u64::MAX));
    }
}
