//! Encodes protocol buffers: numbers, fields, and nested messages.
//!
//! ```text
//! field      = key value          key = number << 3 | type, as a varint
//! varint 0     7 bits a byte, least first; the highest bit says that more follow
//! fixed64 1    8 bytes, little-endian
//! bytes 2      length as a varint, then the bytes: texts and messages
//! ```

/// Appends a varint.
pub(super) fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a field with a number.
pub(super) fn number(field: u32, value: u64, out: &mut Vec<u8>) {
    varint(u64::from(field) << 3, out);
    varint(value, out);
}

/// Appends a field with a signed number (`int64`, not `sint64`).
pub(super) fn signed(field: u32, value: i64, out: &mut Vec<u8>) {
    number(field, value.cast_unsigned(), out);
}

/// Appends a field with a double.
pub(super) fn double(field: u32, value: f64, out: &mut Vec<u8>) {
    varint(u64::from(field) << 3 | 1, out);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a field with bytes.
pub(super) fn bytes(field: u32, value: &[u8], out: &mut Vec<u8>) {
    varint(u64::from(field) << 3 | 2, out);
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// Appends a field with text; bytes that are not UTF-8 become U+FFFD.
pub(super) fn text(field: u32, value: &[u8], out: &mut Vec<u8>) {
    bytes(field, String::from_utf8_lossy(value).as_bytes(), out);
}

/// Appends a field with a message, whose body `fill` appends.
pub(super) fn message(field: u32, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    varint(u64::from(field) << 3 | 2, out);
    let start = out.len();
    // Reserves one byte for the length, which is enough for most messages; for a longer length the
    // body is moved.
    out.push(0);
    fill(out);
    let length = out.len() - start - 1;
    if length < 0x80 {
        out[start] = length as u8;
        return;
    }
    let mut prefix = Vec::with_capacity(5);
    varint(length as u64, &mut prefix);
    out.splice(start..=start, prefix);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_those_of_the_encoding() {
        let mut out = Vec::new();
        number(1, 150, &mut out);
        text(2, b"testing", &mut out);
        message(3, &mut out, |out| number(1, 150, out));
        signed(4, -1, &mut out);
        double(5, 1.0, &mut out);
        let expected = [
            &b"\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01\x20"[..],
            &[0xff; 9],
            b"\x01\x29\0\0\0\0\0\0\xf0\x3f",
        ];
        assert_eq!(out, expected.concat());
    }

    #[test]
    fn long_messages_have_long_lengths() {
        for length in [127, 128, 16_384] {
            let mut out = Vec::new();
            message(1, &mut out, |out| out.resize(out.len() + length, 7));
            let mut expected = vec![0x0a];
            varint(length as u64, &mut expected);
            expected.resize(expected.len() + length, 7);
            assert_eq!(out, expected);
        }
    }
}
