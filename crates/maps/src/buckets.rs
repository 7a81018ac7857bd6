//! Which bucket of a histogram a number belongs to.

/// The most bits of [`Kind::Hist`](crate::Kind::Hist).
const MOST_BITS: u32 = 5;

/// The bits of a histogram; others than 0 to 5 are taken for the nearest.
pub(crate) fn bits(a: i64) -> u32 {
    a.clamp(0, i64::from(MOST_BITS)) as u32
}

/// The bucket of a number in a histogram with `2^bits` buckets for each power of 2: bucket 0 has
/// the negative numbers, 1 has 0, and up to `2^bits` each number has its own.
pub(crate) fn power(number: i64, bits: u32) -> usize {
    let Ok(number) = u64::try_from(number) else { return 0 };
    let mask = (1u64 << bits) - 1;
    if number <= mask {
        return number as usize + 1;
    }
    let shift = number.ilog2() - bits;
    let part = (number >> shift) & mask;
    ((u64::from(shift) + 1) << bits) as usize + part as usize + 1
}

/// How many buckets such a histogram has.
#[cfg(any(test, feature = "std"))]
pub(crate) fn powers(bits: u32) -> usize {
    power(i64::MAX, bits) + 1
}

/// The bucket of a number in a histogram of buckets from `least` to `most`, `step` wide: 0 is
/// below, the last one is at or above `most`.
pub(crate) fn linear(number: i64, least: i64, most: i64, step: i64) -> usize {
    if number < least {
        return 0;
    }
    let above = number.min(most).max(least).wrapping_sub(least) as u64;
    usize::try_from(above / (step.max(1) as u64)).map_or(usize::MAX, |bucket| bucket.saturating_add(1))
}

/// How many buckets such a histogram has.
#[cfg(any(test, feature = "std"))]
pub(crate) fn linears(least: i64, most: i64, step: i64) -> usize {
    linear(most.max(least), least, most, step).saturating_add(1)
}
