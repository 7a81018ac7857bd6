//! Arithmetic on words: pure functions. Operands must be words (already truncated); results are.

use crate::Word;

/// `count` modulo the word's bits.
#[inline(always)]
fn modulo(word: Word, count: u64) -> u32 {
    (count & u64::from(word.bits() - 1)) as u32
}

/// `value` rotated left by `count` modulo the word's bits.
#[inline(always)]
pub(crate) fn rotate_left(word: Word, value: u64, count: u64) -> u64 {
    match word {
        Word::W4 => u64::from((value as u32).rotate_left(modulo(word, count))),
        Word::W8 => value.rotate_left(modulo(word, count)),
    }
}

/// `value` rotated right by `count` modulo the word's bits.
#[inline(always)]
pub(crate) fn rotate_right(word: Word, value: u64, count: u64) -> u64 {
    match word {
        Word::W4 => u64::from((value as u32).rotate_right(modulo(word, count))),
        Word::W8 => value.rotate_right(modulo(word, count)),
    }
}

/// `value` shifted left by `count` modulo the word's bits.
#[inline(always)]
pub(crate) fn shift_left(word: Word, value: u64, count: u64) -> u64 {
    word.truncate(value << modulo(word, count))
}

/// `value` shifted right by `count` modulo the word's bits, filled with zeros.
#[inline(always)]
pub(crate) fn shift_right(word: Word, value: u64, count: u64) -> u64 {
    value >> modulo(word, count)
}

/// Quotient and remainder of an unsigned division; `None` for a divisor of zero.
#[inline(always)]
pub(crate) fn divide(dividend: u64, divisor: u64) -> Option<(u64, u64)> {
    Some((dividend.checked_div(divisor)?, dividend % divisor))
}

/// Quotient and remainder of a signed division towards zero; `None` for a divisor of zero. The
/// smallest number divided by -1 gives itself, remainder 0.
#[inline(always)]
pub(crate) fn divide_signed(word: Word, dividend: u64, divisor: u64) -> Option<(u64, u64)> {
    let (dividend, divisor) = (word.signed(dividend), word.signed(divisor));
    if divisor == 0 {
        return None;
    }
    let quotient = dividend.wrapping_div(divisor) as u64;
    let remainder = dividend.wrapping_rem(divisor) as u64;
    Some((word.truncate(quotient), word.truncate(remainder)))
}

/// The quotient of a signed division towards zero; 0 for a divisor of zero.
#[inline(always)]
pub(crate) fn quotient_signed(word: Word, dividend: u64, divisor: u64) -> u64 {
    divide_signed(word, dividend, divisor).map_or(0, |(quotient, _)| quotient)
}

/// The remainder of a signed division towards zero; the dividend for a divisor of zero.
#[inline(always)]
pub(crate) fn remainder_signed(word: Word, dividend: u64, divisor: u64) -> u64 {
    divide_signed(word, dividend, divisor).map_or(dividend, |(_, remainder)| remainder)
}

/// `value` shifted right by `count` modulo the word's bits, filled with copies of its sign.
#[inline(always)]
pub(crate) fn shift_right_signed(word: Word, value: u64, count: u64) -> u64 {
    word.truncate((word.signed(value) >> modulo(word, count)) as u64)
}

/// A mask of the bit at a position, 1 to the word's bits; `None` for another position.
#[inline(always)]
fn bit(word: Word, position: u64) -> Option<u64> {
    (1..=u64::from(word.bits())).contains(&position).then(|| 1 << (position - 1))
}

/// A mask of the bits above a bit.
#[inline(always)]
fn above(word: Word, bit: u64) -> u64 {
    word.truncate(!(bit | (bit - 1)))
}

/// `pbl`: the bit at `position` copied to all higher bits; `None` for a position the word does not
/// have.
#[inline(always)]
pub(crate) fn propagate_left(word: Word, value: u64, position: u64) -> Option<u64> {
    let bit = bit(word, position)?;
    Some(if value & bit == 0 { value & !above(word, bit) } else { value | above(word, bit) })
}

/// `pbr`: the bit at `position` copied to all lower bits; `None` for a position the word does not
/// have.
#[inline(always)]
pub(crate) fn propagate_right(word: Word, value: u64, position: u64) -> Option<u64> {
    let bit = bit(word, position)?;
    Some(if value & bit == 0 { value & !(bit - 1) } else { value | (bit - 1) })
}

/// `pzl`: the bits above `position` cleared; `None` for a position the word does not have.
#[inline(always)]
pub(crate) fn zero_left(word: Word, value: u64, position: u64) -> Option<u64> {
    Some(value & !above(word, bit(word, position)?))
}

/// `pzr`: the bits below `position` cleared; `None` for a position the word does not have.
#[inline(always)]
pub(crate) fn zero_right(word: Word, value: u64, position: u64) -> Option<u64> {
    Some(value & !(bit(word, position)? - 1))
}
