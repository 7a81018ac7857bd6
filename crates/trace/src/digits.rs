//! Appends numbers as digits to a buffer, without `std::fmt`: there are millions of records.

/// The two hexadecimal digits of each byte value.
pub(crate) const HEXADECIMAL: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut table = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    table
};

/// Appends a number in decimal.
pub fn decimal(value: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends all hexadecimal digits of a little-endian number of any size.
pub(crate) fn little_endian(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes.iter().rev() {
        out.extend_from_slice(&HEXADECIMAL[usize::from(byte)]);
    }
}

/// The hexadecimal digits of four bytes, in order. Each byte is spread over two, upper half first;
/// then all eight become digits at once. Adding 6 to a half above 9 carries out of its four bits,
/// which marks it as a letter.
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

/// Appends all hexadecimal digits of a value of `size` bytes, and more digits if the value does not
/// fit.
pub(crate) fn hexadecimal(value: u64, size: usize, out: &mut Vec<u8>) {
    let all = [(value >> 32) as u32, value as u32].map(|half| digits(half.to_be_bytes()));
    let all = all.as_flattened();
    match size {
        4 if value <= u32::MAX.into() => out.extend_from_slice(&all[8..]),
        8 => out.extend_from_slice(all),
        _ => {
            let needed = (64 - value.leading_zeros() as usize).div_ceil(8);
            out.extend_from_slice(&all[16 - 2 * size.max(needed).min(8)..]);
        }
    }
}

/// Appends a value in hexadecimal, without leading zeros.
pub fn short(value: u64, out: &mut Vec<u8>) {
    let count = (64 - value.leading_zeros()).div_ceil(4).max(1) as usize;
    let all = [(value >> 32) as u32, value as u32].map(|half| digits(half.to_be_bytes()));
    out.extend_from_slice(&all.as_flattened()[16 - count..]);
}

/// Appends the two hexadecimal digits of each byte.
pub fn bytes(bytes: &[u8], out: &mut Vec<u8>) {
    let (words, rest) = bytes.as_chunks();
    for &word in words {
        out.extend_from_slice(&digits(word));
    }
    for &byte in rest {
        out.extend_from_slice(&HEXADECIMAL[usize::from(byte)]);
    }
}

/// A byte as a dump shows it: itself if it is printable ASCII, else a period.
pub(crate) fn graphic(byte: u8) -> u8 {
    if (0x20..0x7f).contains(&byte) { byte } else { b'.' }
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
    fn bytes_have_two_digits_and_short_numbers_what_they_need() {
        let mut out = Vec::new();
        bytes(b"\x00\x01\x02\xff\x1a", &mut out);
        for value in [0, 0x10f, u64::MAX] {
            out.push(b' ');
            short(value, &mut out);
        }
        assert_eq!(out, b"000102ff1a 0 10f ffffffffffffffff");
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
}
