//! Formats data as a dump, `%z` of the paper:
//!
//! ```text
//! +00000000 21 22 23 24 25 26 27 28 20 c4 a8 fe ae ef ff bb 21 22 23 24 25 26 27 28 20 c4 a8 fe ae ef ff bb *!"#$%&'( .......!"#$%&'( .......*
//! +00000020 21 22 23 24 25 26                                                                               *!"#$%&*
//! ```

use crate::digits::{HEXADECIMAL, graphic, hexadecimal};

/// Bytes in a row.
const ROW: usize = 0x20;

/// The width of the hexadecimal part of a row.
const WIDTH: usize = ROW * 3;

/// Appends a dump, with newlines between its rows and none after the last. Begins a new line if
/// necessary.
pub(super) fn dump(data: &[u8], out: &mut Vec<u8>) {
    for (number, row) in data.chunks(ROW).enumerate() {
        if out.last().is_some_and(|&last| last != b'\n') {
            out.push(b'\n');
        }
        out.push(b'+');
        hexadecimal((number * ROW) as u64, 4, out);
        out.push(b' ');
        let mut text = [b' '; WIDTH];
        for (place, &byte) in text.chunks_exact_mut(3).zip(row) {
            place[..2].copy_from_slice(&HEXADECIMAL[usize::from(byte)]);
        }
        out.extend_from_slice(&text);
        out.push(b'*');
        out.extend(row.iter().copied().map(graphic));
        out.push(b'*');
    }
}
