//! The encodings of Parquet: how the values of a page become bytes.
//!
//! ```text
//! plain    numbers with their lowest byte first; bytes behind their length (4 bytes)
//! hybrid   runs: count << 1 as a varint, the value          of a value that repeats
//!                groups << 1 | 1 as a varint, packed bits   of groups of 8 values
//! delta    values in a block, miniblocks in a block, count, first value
//!          blocks: least difference, a width for each miniblock, miniblocks of packed bits
//! ```
//!
//! <https://parquet.apache.org/docs/file-format/data-pages/encodings/>

use crate::thrift::{varint, zigzag};

/// Values of a block of differences, and of each of its parts.
const BLOCK: usize = 128;
const MINIBLOCK: usize = 32;

/// Appends numbers of 4 or 8 bytes.
pub(crate) fn plain(numbers: impl IntoIterator<Item = i64>, bytes: usize, out: &mut Vec<u8>) {
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes()[..bytes]);
    }
}

/// Appends a value of bytes.
pub(crate) fn plain_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// The least number of bits that hold a number.
pub(crate) fn width(number: u64) -> u32 {
    u64::BITS - number.leading_zeros()
}

/// Appends the lowest `width` bits of each number, the first number in the lowest bits. All of
/// them are whole bytes.
fn pack(numbers: impl Iterator<Item = u64>, width: u32, out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0_u128, 0);
    for number in numbers {
        bits |= u128::from(number) << count;
        count += width;
        if count >= u64::BITS {
            out.extend_from_slice(&(bits as u64).to_le_bytes());
            bits >>= u64::BITS;
            count -= u64::BITS;
        }
    }
    out.extend_from_slice(&(bits as u64).to_le_bytes()[..count as usize / 8]);
}

/// Appends numbers below `1 << width` in runs.
pub(crate) fn hybrid<T: Copy + PartialEq + Into<u32>>(numbers: &[T], width: u32, out: &mut Vec<u8>) {
    // Where the numbers begin that are not yet written, and where the look at them has come to.
    let (mut start, mut at) = (0, 0);
    while at < numbers.len() {
        let run = numbers[at..].iter().take_while(|number| **number == numbers[at]).count();
        // Numbers before the run are groups of 8: some of the run fill the last group.
        let fill = (at - start).next_multiple_of(8) - (at - start);
        if run < fill + 8 {
            at += run;
            continue;
        }
        groups(&numbers[start..at + fill], width, out);
        varint(((run - fill) as u64) << 1, out);
        let value: u32 = numbers[at].into();
        out.extend_from_slice(&value.to_le_bytes()[..width.div_ceil(8) as usize]);
        at += run;
        start = at;
    }
    groups(&numbers[start..], width, out);
}

/// Appends numbers in groups of 8; the last one is filled with zeros.
fn groups<T: Copy + Into<u32>>(numbers: &[T], width: u32, out: &mut Vec<u8>) {
    if numbers.is_empty() {
        return;
    }
    let count = numbers.len().div_ceil(8);
    varint((count as u64) << 1 | 1, out);
    let all = numbers.iter().map(|number| u64::from((*number).into())).chain(std::iter::repeat(0));
    pack(all.take(8 * count), width, out);
}

/// Appends numbers as their differences. `bytes` is 4 or 8: numbers of 4 bytes wrap around there.
pub(crate) fn delta(numbers: &[i64], bytes: usize, out: &mut Vec<u8>) {
    for number in [BLOCK, BLOCK / MINIBLOCK, numbers.len()] {
        varint(number as u64, out);
    }
    varint(zigzag(numbers.first().copied().unwrap_or(0)), out);
    let mut last = numbers.first().copied().unwrap_or(0);
    for block in numbers.get(1..).unwrap_or(&[]).chunks(BLOCK) {
        let mut differences = [0_i64; BLOCK];
        for (difference, number) in differences.iter_mut().zip(block) {
            *difference = match bytes {
                4 => i64::from((*number as i32).wrapping_sub(last as i32)),
                _ => number.wrapping_sub(last),
            };
            last = *number;
        }
        let differences = &mut differences[..];
        let least = differences[..block.len()].iter().copied().min().unwrap_or(0);
        varint(zigzag(least), out);
        // What is behind the last number is as the least.
        differences[block.len()..].fill(least);
        let above = |difference: &i64| difference.wrapping_sub(least).cast_unsigned();
        let widths = differences
            .chunks(MINIBLOCK)
            .map(|part| width(part.iter().map(above).fold(0, |all, number| all | number)));
        let widths: Vec<u32> = widths.collect();
        out.extend(widths.iter().map(|width| *width as u8));
        // A part without numbers has the width 0, and so no bytes.
        for (part, width) in differences.chunks(MINIBLOCK).zip(widths) {
            pack(part.iter().map(above), width, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out);
        out
    }

    #[test]
    fn runs_are_those_of_the_format() {
        // The example of the format: 0 to 7 in three bits.
        let numbers: Vec<u32> = (0..8).collect();
        assert_eq!(written(|out| hybrid(&numbers, 3, out)), [3, 0b1000_1000, 0b1100_0110, 0b1111_1010]);
        assert_eq!(written(|out| hybrid(&[true; 100], 1, out)), [0xc8, 1, 1]);
        // Five of the run fill the group.
        let numbers = [&[1_u32, 2, 3][..], &[4; 20]].concat();
        assert_eq!(written(|out| hybrid(&numbers, 9, out))[..1], [3]);
        assert_eq!(written(|out| hybrid(&numbers, 9, out))[10..], [30, 4, 0]);
        assert!(written(|out| hybrid::<u32>(&[], 1, out)).is_empty());
    }

    #[test]
    fn differences_are_those_of_the_format() {
        // Examples of the format, whose blocks have 128 numbers.
        let one_to_five = written(|out| delta(&[1, 2, 3, 4, 5], 8, out));
        assert_eq!(one_to_five, [0x80, 1, 4, 5, 2, 2, 0, 0, 0, 0]);
        let head = [0x80, 1, 4, 8, 14, 3, 2, 0, 0, 0];
        let numbers = written(|out| delta(&[7, 5, 3, 1, 2, 3, 4, 5], 8, out));
        assert_eq!(numbers, [&head[..], &[0b1100_0000, 0b11_1111, 0, 0, 0, 0, 0, 0]].concat());
        assert_eq!(written(|out| delta(&[], 8, out)), [0x80, 1, 4, 0, 0]);
        // From the greatest to the least is one step, in 4 bytes too.
        let around = [i32::MAX.into(), i32::MIN.into()];
        assert_eq!(written(|out| delta(&around, 4, out))[9..], [2, 0, 0, 0, 0]);
    }
}
