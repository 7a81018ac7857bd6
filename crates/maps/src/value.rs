//! Values of aggregates: what an update does to their words, and what two copies are together.
//!
//! ```text
//!     count, sum:   number
//!     min, max:     number in the form of `ordered` | 1 if it is set
//!     avg, stats:   sum | count
//!     hist, lhist:  a count for each bucket
//!     series:       see `series`
//! ```
//!
//! A value of zeros is one that nothing was added to.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::table::TRIES;
use crate::{Kind, MapInfo, buckets, series};

const SIGN: u64 = 1 << 63;

/// Adds a number to a value. False: it could not be added.
#[inline]
pub(crate) fn add(info: &MapInfo, value: &[AtomicU64], number: u64, now: u64) -> bool {
    let kind = info.kind();
    // The most frequent ones are known without a jump through a table.
    if let (Kind::Count | Kind::Sum, [sum, ..]) = (kind, value) {
        sum.fetch_add(number, Relaxed);
        return true;
    }
    let bucket = match kind {
        Kind::Tseries => return series::add(info, value, number, now),
        Kind::Hist => buckets::power(number as i64, buckets::bits(info.a)),
        Kind::Lhist => buckets::linear(number as i64, info.a, info.b, info.c),
        kind => return add_pair(kind, info, value, number, now),
    };
    value.get(bucket).map(|count| count.fetch_add(1, Relaxed)).is_some()
}

/// Adds a number to a value of one or two words.
#[inline]
pub(crate) fn add_pair(kind: Kind, info: &MapInfo, value: &[AtomicU64], number: u64, now: u64) -> bool {
    match (kind, value) {
        (Kind::Count | Kind::Sum, [sum, ..]) => {
            sum.fetch_add(number, Relaxed);
            true
        }
        (Kind::Avg | Kind::Stats, [sum, count, ..]) => {
            sum.fetch_add(number, Relaxed);
            count.fetch_add(1, Relaxed);
            true
        }
        (Kind::Min | Kind::Max, [most, set, ..]) => {
            let raised = raise(most, ordered(kind, info, number));
            if raised && set.load(Relaxed) == 0 {
                set.store(1, Relaxed);
            }
            raised
        }
        (Kind::Plain, [last, time]) => {
            last.store(number, Relaxed);
            time.store(now, Relaxed);
            true
        }
        _ => false,
    }
}

/// Makes a word at least this number. False: others changed it too often.
#[inline]
fn raise(word: &AtomicU64, to: u64) -> bool {
    let mut seen = word.load(Relaxed);
    for _ in 0..TRIES {
        if seen >= to {
            return true;
        }
        match word.compare_exchange_weak(seen, to, Relaxed, Relaxed) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    false
}

/// A number in the form in which the greatest of unsigned words is the wanted one, be it the least
/// or the greatest, signed or unsigned. Applied twice, it gives the number back.
#[inline]
fn ordered(kind: Kind, info: &MapInfo, number: u64) -> u64 {
    let number = if info.signed != 0 { number ^ SIGN } else { number };
    if kind == Kind::Min { !number } else { number }
}

fn restored(kind: Kind, info: &MapInfo, word: u64) -> u64 {
    let word = if kind == Kind::Min { !word } else { word };
    if info.signed != 0 { word ^ SIGN } else { word }
}

/// The words of a value of one or two words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pair(pub(crate) u64, pub(crate) u64);

impl Pair {
    /// The first two words of a value.
    pub(crate) fn of(value: &[AtomicU64]) -> Pair {
        let word = |place: usize| value.get(place).map_or(0, |word| word.load(Relaxed));
        Pair(word(0), word(1))
    }

    /// This value and another copy's together.
    pub(crate) fn merge(self, kind: Kind, other: Pair) -> Pair {
        match kind {
            Kind::Min | Kind::Max => Pair(self.0.max(other.0), self.1 | other.1),
            Kind::Plain => {
                if other.1 >= self.1 {
                    other
                } else {
                    self
                }
            }
            _ => Pair(self.0.wrapping_add(other.0), self.1.wrapping_add(other.1)),
        }
    }

    /// What the value amounts to.
    pub(crate) fn number(self, kind: Kind, info: &MapInfo) -> u64 {
        match kind {
            Kind::Min | Kind::Max if self == Pair::default() => 0,
            Kind::Min | Kind::Max => restored(kind, info, self.0),
            Kind::Avg | Kind::Stats if self.1 == 0 => 0,
            Kind::Avg | Kind::Stats if info.signed != 0 => {
                (self.0 as i64).wrapping_div(i64::try_from(self.1).unwrap_or(i64::MAX)) as u64
            }
            Kind::Avg | Kind::Stats => self.0 / self.1,
            _ => self.0,
        }
    }
}
