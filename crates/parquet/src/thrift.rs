//! Thrift's compact protocol, in which Parquet has its headers and its footer.
//!
//! ```text
//! field   = (number - number of the field before) << 4 | type, value
//! number  = zigzag, as a varint            text = length as a varint, bytes
//! list    = length << 4 | type (15: the length follows as a varint), values
//! struct  = fields, 0
//! ```

const I32: u8 = 5;
const I64: u8 = 6;
const TEXT: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// The bytes of a structure.
#[derive(Debug)]
pub(crate) struct Thrift {
    bytes: Vec<u8>,
    /// The number of the last field, for each structure that is open.
    last: Vec<u8>,
}

/// Appends a varint: seven bits in each byte, the lowest first.
pub(crate) fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Small for numbers near 0 on both sides of it.
pub(crate) fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

impl Thrift {
    /// Begins the outermost structure.
    pub(crate) fn new() -> Thrift {
        Thrift { bytes: Vec::new(), last: vec![0] }
    }

    /// The bytes, once the outermost structure is ended.
    pub(crate) fn bytes(mut self) -> Vec<u8> {
        self.end();
        self.bytes
    }

    /// Begins a field. Fields come in the order of their numbers, which differ by less than 16.
    fn field(&mut self, number: u8, kind: u8) {
        let last = self.last.last_mut().expect("a structure is open");
        self.bytes.push((number - *last) << 4 | kind);
        *last = number;
    }

    pub(crate) fn i32(&mut self, field: u8, number: i32) {
        self.field(field, I32);
        varint(zigzag(number.into()), &mut self.bytes);
    }

    pub(crate) fn i64(&mut self, field: u8, number: u64) {
        self.field(field, I64);
        varint(zigzag(number.cast_signed()), &mut self.bytes);
    }

    pub(crate) fn text(&mut self, field: u8, text: &[u8]) {
        self.field(field, TEXT);
        self.text_alone(text);
    }

    fn text_alone(&mut self, text: &[u8]) {
        varint(text.len() as u64, &mut self.bytes);
        self.bytes.extend_from_slice(text);
    }

    /// Begins a structure as a field.
    pub(crate) fn begin(&mut self, field: u8) {
        self.field(field, STRUCT);
        self.last.push(0);
    }

    /// Begins a structure in a list.
    pub(crate) fn item(&mut self) {
        self.last.push(0);
    }

    /// Ends a structure.
    pub(crate) fn end(&mut self) {
        self.bytes.push(0);
        self.last.pop();
    }

    fn list(&mut self, field: u8, kind: u8, length: usize) {
        self.field(field, LIST);
        if length < 15 {
            self.bytes.push((length as u8) << 4 | kind);
        } else {
            self.bytes.push(0xf0 | kind);
            varint(length as u64, &mut self.bytes);
        }
    }

    /// Begins a list of so many structures, which follow.
    pub(crate) fn structs(&mut self, field: u8, length: usize) {
        self.list(field, STRUCT, length);
    }

    /// Structures of a list, ready as bytes.
    pub(crate) fn ready(&mut self, structs: &[u8]) {
        self.bytes.extend_from_slice(structs);
    }

    pub(crate) fn numbers(&mut self, field: u8, numbers: &[i32]) {
        self.list(field, I32, numbers.len());
        for number in numbers {
            varint(zigzag((*number).into()), &mut self.bytes);
        }
    }

    pub(crate) fn texts(&mut self, field: u8, texts: &[&[u8]]) {
        self.list(field, TEXT, texts.len());
        for text in texts {
            self.text_alone(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_protocol() {
        let mut thrift = Thrift::new();
        thrift.i32(1, -1);
        thrift.i64(4, 150);
        thrift.begin(5);
        thrift.text(2, b"ab");
        thrift.end();
        thrift.numbers(6, &[0, 3]);
        thrift.structs(7, 16);
        let bytes = thrift.bytes();
        assert_eq!(bytes[..5], [0x15, 1, 0x36, 0xac, 2]);
        assert_eq!(bytes[5..11], [0x1c, 0x28, 2, b'a', b'b', 0]);
        assert_eq!(bytes[11..], [0x19, 0x25, 0, 6, 0x19, 0xfc, 16, 0]);
    }
}
