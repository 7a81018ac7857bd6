//! Histograms: which interval a bucket is, and the bars.
//!
//! ```text
//! hist, 2^k buckets for each power of 2:
//!   bucket 0      below 0
//!   1, 2, ...     0, 1, 2, ... up to 2 * 2^k - 1, one number each
//!   the others    a 2^k-th of the way from a power of 2 to the next one
//! lhist:
//!   bucket 0      below `least`
//!   1, 2, ...     from least + (bucket - 1) * step, `step` numbers
//!   the last one  from there on
//! ```

use crate::datum::{Datum, append};
use crate::unit::Unit;

/// A histogram: its buckets between the first and the last one that is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Histogram {
    pub(crate) buckets: Vec<Bucket>,
}

/// A bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// The lowest number; `None`: there is none.
    pub(crate) low: Option<Bound>,
    /// The first number above it; `None`: there is none.
    pub(crate) high: Option<Bound>,
    /// Whether it is for a single number and shown as that.
    pub(crate) single: bool,
    /// How many numbers fell into it.
    pub(crate) count: u64,
}

/// A bound of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) number: i128,
    pub(crate) text: String,
}

/// The buckets that are shown: none if all are empty.
fn shown(counts: &[u64]) -> impl Iterator<Item = (usize, u64)> + '_ {
    let filled = |count: &u64| *count > 0;
    let first = counts.iter().position(filled).unwrap_or(counts.len());
    let last = counts.iter().rposition(filled).map_or(first, |last| last + 1);
    (first..last).map(|index| (index, counts[index]))
}

impl Histogram {
    /// A histogram of powers of 2. Counts are divided by `divisor`, and bars show them divided, as
    /// in 0.24 (0.17 shows bars of what is not divided).
    pub(crate) fn of_powers(counts: &[u64], bits: u32, divisor: u64) -> Histogram {
        // The buckets of one number each, as bounds.
        let singles = 2usize << bits.min(5);
        let bound = |index: usize| match index <= singles {
            true => Bound { number: index as i128, text: index.to_string() },
            false => power_bound(index, bits.min(5)),
        };
        let bucket = |(index, count): (usize, u64)| Bucket {
            low: index.checked_sub(1).map(bound),
            high: Some(bound(index)),
            single: index > 0 && index <= singles,
            count: count / divisor.max(1),
        };
        Histogram { buckets: shown(counts).map(bucket).collect() }
    }

    /// A histogram of intervals of one size. It is not divided.
    pub(crate) fn linear(counts: &[u64], least: i64, most: i64, step: i64) -> Histogram {
        let step = i128::from(step.max(1));
        let start = |index: usize| i128::from(least) + index as i128 * step;
        // 0.24 shortens numbers only if all of them can be; 0.17 shortens each that can be, so that
        // `128000` is `125K` between `127000` and `129000`.
        let short = step % 1024 == 0;
        let bound =
            |number| Bound { number, text: if short { shortened(number) } else { number.to_string() } };
        let bucket = |(index, count): (usize, u64)| Bucket {
            low: index.checked_sub(1).map(|index| bound(start(index))),
            high: Some(start(index)).filter(|number| *number <= i128::from(most)).map(bound),
            single: false,
            count,
        };
        Histogram { buckets: shown(counts).map(bucket).collect() }
    }

    /// Appends its lines, the bounds with their unit.
    pub(crate) fn write(&self, unit: Option<Unit>, out: &mut Vec<u8>) {
        const WIDTH: usize = 52;
        let most = self.buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0);
        for bucket in &self.buckets {
            // In single precision, as bpftrace calculates it. Without any count it is not a number,
            // which becomes 0.
            let length = ((bucket.count as f32 / most as f32) * WIDTH as f32) as usize;
            let interval = bucket.interval(unit);
            let bar = "@".repeat(length.min(WIDTH));
            let room = if unit.is_some() { 20 } else { 16 };
            append(out, format_args!("{interval:<room$}{:>8} |{bar:<WIDTH$}|\n", bucket.count));
        }
    }
}

impl Histogram {
    /// Appends a line that says which times half of all, 90% and 99% are below: ends of buckets, or
    /// the one number of a bucket.
    pub(crate) fn write_percentiles(&self, unit: Unit, out: &mut Vec<u8>) {
        let of = |percent: u64| {
            let bucket = self.percentile(percent)?;
            let (sign, bound) = match bucket.single {
                true => ("=", bucket.low.as_ref()?),
                false => ("<", bucket.high.as_ref()?),
            };
            Some(format!("p{percent} {sign} {}", unit.text(bound.number)?))
        };
        let parts: Vec<String> = [50, 90, 99].into_iter().filter_map(of).collect();
        if !parts.is_empty() {
            append(out, format_args!("{}\n", parts.join(", ")));
        }
    }

    /// The bucket with the number that is not below this part of all.
    fn percentile(&self, percent: u64) -> Option<&Bucket> {
        let total: u128 = self.buckets.iter().map(|bucket| u128::from(bucket.count)).sum();
        let rank = (total * u128::from(percent)).div_ceil(100).max(1);
        let mut before = 0;
        self.buckets.iter().find(|bucket| {
            before += u128::from(bucket.count);
            before >= rank
        })
    }
}

impl Bucket {
    fn interval(&self, unit: Option<Unit>) -> String {
        let text = |bound: &Bound| {
            unit.and_then(|unit| unit.text(bound.number)).unwrap_or_else(|| bound.text.clone())
        };
        match (&self.low, &self.high) {
            (None, None) => "(..., ...)".into(),
            (None, Some(high)) => format!("(..., {})", text(high)),
            (Some(low), None) => format!("[{}, ...)", text(low)),
            (Some(low), Some(_)) if self.single => format!("[{}]", text(low)),
            (Some(low), Some(high)) => format!("[{}, {})", text(low), text(high)),
        }
    }

    /// The fields of its object in JSON.
    pub(crate) fn fields(&self) -> Vec<(&'static str, Datum)> {
        let low = self.low.iter().map(|low| ("min", Datum::integer(low.number)));
        // Text says where the next bucket begins, JSON the last number of this one.
        let high = self.high.iter().map(|high| ("max", Datum::integer(high.number - 1)));
        low.chain(high).chain([("count", Datum::Unsigned(self.count))]).collect()
    }
}

/// Where the bucket behind bucket `index` of powers of 2 begins.
fn power_bound(index: usize, bits: u32) -> Bound {
    let parts = 1u128 << bits;
    let part = index as u128 & (parts - 1);
    // A bucket of so great a number does not exist: no number has so many bits.
    let power = u32::try_from((index >> bits).saturating_sub(1)).unwrap_or(u32::MAX).min(100);
    let suffixes = ["", "K", "M", "G", "T", "P", "E"];
    let tens = (power / 10).min(suffixes.len() as u32 - 1);
    let text = format!("{}{}", (parts + part) << (power - 10 * tens), suffixes[tens as usize]);
    Bound { number: ((parts + part) << power).cast_signed(), text }
}

/// A multiple of 1024 with its unit.
fn shortened(number: i128) -> String {
    match number {
        0 => "0".into(),
        _ if number % (1 << 20) == 0 => format!("{}M", number >> 20),
        _ if number % (1 << 10) == 0 => format!("{}K", number >> 10),
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intervals(histogram: &Histogram) -> Vec<String> {
        histogram.buckets.iter().map(|bucket| bucket.interval(None)).collect()
    }

    fn last(bits: u32, index: usize) -> String {
        let mut counts = vec![0; index];
        counts.push(1);
        let histogram = Histogram::of_powers(&counts, bits, 1);
        assert_eq!(histogram.buckets.len(), 1);
        histogram.buckets[0].interval(None)
    }

    #[test]
    fn buckets_are_powers_of_2() {
        let powers = intervals(&Histogram::of_powers(&[1; 14], 0, 1));
        assert_eq!(powers[..5], ["(..., 0)", "[0]", "[1]", "[2, 4)", "[4, 8)"]);
        assert_eq!(powers[11..], ["[512, 1K)", "[1K, 2K)", "[2K, 4K)"]);
        assert_eq!(last(0, 64), "[4E, 8E)");
        assert_eq!(last(0, 65), "[8E, 16E)");
        // No such bucket exists; nothing overflows.
        last(5, 100_000);
    }

    #[test]
    fn a_power_of_2_can_have_several_buckets() {
        let quarters = intervals(&Histogram::of_powers(&[1; 18], 2, 1));
        let expected = [
            "(..., 0)", "[0]", "[1]", "[2]", "[3]", "[4]", "[5]", "[6]", "[7]", "[8, 10)", "[10, 12)",
            "[12, 14)", "[14, 16)", "[16, 20)", "[20, 24)", "[24, 28)", "[28, 32)", "[32, 40)",
        ];
        assert_eq!(quarters, expected);
    }

    #[test]
    fn buckets_can_have_one_size() {
        let of = |counts: &[u64], least, most, step| intervals(&Histogram::linear(counts, least, most, step));
        assert_eq!(of(&[1; 4], 0, 2, 1), ["(..., 0)", "[0, 1)", "[1, 2)", "[2, ...)"]);
        assert_eq!(of(&[0, 1, 1, 0], -10, 10, 10), ["[-10, 0)", "[0, 10)"]);
        assert_eq!(of(&[1; 4], 0, 2048, 1024), ["(..., 0)", "[0, 1K)", "[1K, 2K)", "[2K, ...)"]);
        assert_eq!(of(&[0, 0, 1], 0, 2 << 20, 1 << 20), ["[1M, 2M)"]);
        assert_eq!(of(&[0, 0, 1], 0, 4000, 2000), ["[2000, 4000)"]);
        assert_eq!(of(&[1; 3], i64::MAX, i64::MAX, 0).len(), 3);
    }

    #[test]
    fn percentiles_are_in_the_buckets_of_their_ranks() {
        // 50 ones, 40 of [2, 4), 9 of [4, 8), 1 of [8, 16).
        let histogram = Histogram::of_powers(&[0, 0, 50, 40, 9, 1], 0, 1);
        let of = |percent| histogram.percentile(percent).map(|bucket| bucket.interval(None));
        let expected =
            [(0, "[1]"), (50, "[1]"), (51, "[2, 4)"), (90, "[2, 4)"), (99, "[4, 8)"), (100, "[8, 16)")];
        for (percent, interval) in expected {
            assert_eq!(of(percent).as_deref(), Some(interval), "{percent}");
        }
        assert_eq!(Histogram::of_powers(&[], 0, 1).percentile(50), None);
    }

    #[test]
    fn empty_buckets_at_both_ends_are_left_out() {
        assert_eq!(Histogram::of_powers(&[0; 9], 0, 1).buckets, []);
        assert_eq!(intervals(&Histogram::of_powers(&[0, 0, 1, 0, 1, 0], 0, 1)), ["[1]", "[2, 4)", "[4, 8)"]);
    }

    #[test]
    fn bars_are_as_long_as_their_part_of_the_largest_one() {
        let mut out = Vec::new();
        Histogram::of_powers(&[0, 3, 0, 2], 0, 1).write(None, &mut out);
        let expected = "\
[0]                    3 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[1]                    0 |                                                    |
[2, 4)                 2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@                  |
";
        assert_eq!(String::from_utf8(out).expect("ASCII"), expected);
        let mut out = Vec::new();
        Histogram::of_powers(&[1], 0, 10).write(None, &mut out);
        assert_eq!(out, format!("(..., 0)               0 |{:52}|\n", "").as_bytes());
    }
}
