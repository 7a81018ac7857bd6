//! Numbers as digits, appended to a text. Records come by the million: no formatting machinery.

/// The digits of a byte, for each.
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

/// Appends a number.
pub(crate) fn decimal(value: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends all the digits of a little-endian number of any size.
pub(crate) fn little_endian(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes.iter().rev() {
        out.extend_from_slice(&HEXADECIMAL[usize::from(byte)]);
    }
}

/// Appends the low `size` bytes of a value, all their digits; more if there are other digits.
pub(crate) fn hexadecimal(value: u64, size: usize, out: &mut Vec<u8>) {
    let needed = (64 - value.leading_zeros() as usize).div_ceil(8);
    little_endian(&value.to_le_bytes()[..size.max(needed).min(8)], out);
}

/// Appends a value without leading zeros.
pub(crate) fn short(value: u32, out: &mut Vec<u8>) {
    let digits = (32 - value.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        out.push(HEXADECIMAL[(value >> (place * 4) & 15) as usize][1]);
    }
}

/// A byte as a dump shows it: itself where it has a graphic, else a period.
pub(crate) fn graphic(byte: u8) -> u8 {
    if (0x20..0x7f).contains(&byte) { byte } else { b'.' }
}
