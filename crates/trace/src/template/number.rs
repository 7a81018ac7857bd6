//! Numbers: those in a record's data, and those written in a template.

/// A little-endian number; bytes after the eighth are ignored.
pub(super) fn integer(bytes: &[u8]) -> u64 {
    match <[u8; 8]>::try_from(bytes) {
        Ok(bytes) => u64::from_le_bytes(bytes),
        Err(_) => bytes.iter().take(8).rev().fold(0, |value, &byte| value << 8 | u64::from(byte)),
    }
}

/// The same, as a signed number.
pub(super) fn signed(bytes: &[u8]) -> i64 {
    let unused = 64 - 8 * bytes.len().clamp(1, 8) as u32;
    (integer(bytes) << unused).cast_signed() >> unused
}

/// A floating point number of 4, 8 or 10 bytes. 10 bytes are an x87 number, which is rounded to 8.
pub(super) fn float(bytes: &[u8]) -> f64 {
    match bytes {
        [significand @ .., low, high] if bytes.len() == 10 => {
            extended(integer(significand), u16::from_le_bytes([*low, *high]))
        }
        _ if bytes.len() == 8 => f64::from_bits(integer(bytes)),
        _ => f32::from_bits(integer(bytes) as u32).into(),
    }
}

/// Converts an x87 number: its significand, with the integer bit as the highest, and its sign and
/// exponent.
fn extended(significand: u64, high: u16) -> f64 {
    let sign = if high & 0x8000 == 0 { 1.0 } else { -1.0 };
    let size = match high & 0x7fff {
        0x7fff if significand << 1 == 0 => f64::INFINITY,
        0x7fff => f64::NAN,
        biased => {
            let exponent = i32::from(biased) - 16383 - 63;
            // In two steps: the power of two alone may be too small for a double even if the
            // product is not.
            let half = exponent / 2;
            significand as f64 * 2f64.powi(half) * 2f64.powi(exponent - half)
        }
    };
    sign * size
}

/// Parses a number as C writes it, in decimal or hexadecimal.
pub(super) fn code(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    // The standard library would take a sign.
    let is_number = digits.starts_with(|first: char| first.is_digit(radix));
    u64::from_str_radix(digits, radix).ok().filter(|_| is_number)
}
