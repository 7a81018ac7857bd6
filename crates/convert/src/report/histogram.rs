//! Histograms of times, with buckets whose widths grow with the time.
//!
//! They are shown in powers of two, as other tracers do. Each power is counted in eight parts, so
//! percentiles are accurate to a sixteenth.

/// Binary logarithm of the number of buckets per power of two.
const PARTS: u32 = 3;
/// Number of buckets; numbers below 16 have a bucket each.
const BUCKETS: usize = ((64 - PARTS as usize) << PARTS) + (1 << PARTS);

/// A histogram of times.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    buckets: Box<[u64]>,
    /// Number of times.
    pub(crate) count: u64,
    /// Sum of the times; at most `u64::MAX`.
    pub(crate) sum: u64,
    /// The least time; 0 if there is none.
    pub(crate) least: u64,
    /// The greatest time.
    pub(crate) greatest: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: vec![0; BUCKETS].into(), count: 0, sum: 0, least: 0, greatest: 0 }
    }
}

/// The bucket of a number.
fn bucket(value: u64) -> usize {
    let power = (u64::BITS - 1).saturating_sub(value.leading_zeros());
    match power.checked_sub(PARTS) {
        None => value as usize,
        Some(shift) => ((shift as usize + 1) << PARTS) + ((value >> shift) as usize & ((1 << PARTS) - 1)),
    }
}

/// The least number of a bucket, and the bucket's width.
fn range(bucket: usize) -> (u64, u64) {
    match (bucket >> PARTS).checked_sub(1) {
        None => (bucket as u64, 1),
        Some(shift) => (((1 << PARTS) + (bucket as u64 & ((1 << PARTS) - 1))) << shift, 1 << shift),
    }
}

impl Histogram {
    /// Counts a time.
    pub(crate) fn add(&mut self, value: u64) {
        self.buckets[bucket(value)] += 1;
        self.least = if self.count == 0 { value } else { self.least.min(value) };
        self.greatest = self.greatest.max(value);
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
    }

    /// The arithmetic mean; 0 if there are no times.
    pub(crate) fn mean(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }

    /// The time that `percent` of all times do not exceed, accurate to a sixteenth.
    pub(crate) fn percentile(&self, percent: f64) -> u64 {
        let wanted = (self.count as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                let (start, width) = range(bucket);
                return (start + width / 2).clamp(self.least, self.greatest);
            }
        }
        self.greatest
    }

    /// The counts by powers of two, from the first to the last that is not 0: `[1, 2)` and so on.
    /// The first is `[0, 1)`.
    pub(crate) fn powers(&self) -> Vec<Power> {
        let mut powers: Vec<Power> = Vec::new();
        for (bucket, &count) in self.buckets.iter().enumerate() {
            let (start, _) = range(bucket);
            let from = if start == 0 { 0 } else { 1 << start.ilog2() };
            match powers.last_mut() {
                Some(last) if last.from == from => last.count += count,
                _ => powers.push(Power { from, count }),
            }
        }
        let first = powers.iter().position(|power| power.count > 0).unwrap_or(powers.len());
        let end = powers.iter().rposition(|power| power.count > 0).map_or(first, |last| last + 1);
        powers[first..end].to_vec()
    }
}

/// A power of two, and the number of times in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Power {
    /// The least of its numbers: a power of two, or 0.
    pub(crate) from: u64,
    /// Number of times.
    pub(crate) count: u64,
}

impl Power {
    /// The number after its greatest.
    pub(crate) fn to(&self) -> u64 {
        if self.from == 0 { 1 } else { self.from.saturating_mul(2) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_in_its_bucket() {
        let powers = (0..64).map(|power| 1_u64 << power);
        for value in powers.flat_map(|power| [power - 1, power, power | power >> 3]).chain([u64::MAX]) {
            let (start, width) = range(bucket(value));
            assert!(start <= value && value - start < width, "{value}: {start} {width}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert!((1..BUCKETS).all(|bucket| range(bucket).0 == range(bucket - 1).0 + range(bucket - 1).1));
    }

    #[test]
    fn percentiles_are_near() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.percentile(50.0), histogram.mean(), histogram.powers()), (0, 0, vec![]));
        (1..=1000).for_each(|value| histogram.add(value));
        assert_eq!(
            (histogram.mean(), histogram.least, histogram.greatest, histogram.count),
            (500, 1, 1000, 1000)
        );
        for (percent, exact) in [(50.0, 500.0), (90.0, 900.0), (99.0, 990.0), (99.9, 999.0), (100.0, 1000.0)]
        {
            let error = (histogram.percentile(percent) as f64 - exact).abs() / exact;
            assert!(error <= 1.0 / 16.0, "{percent}: {error}");
        }
    }

    #[test]
    fn powers_are_those_of_two() {
        let mut histogram = Histogram::default();
        [3, 4, 5, 7, 8, 100].into_iter().for_each(|value| histogram.add(value));
        let shown: Vec<(u64, u64, u64)> =
            histogram.powers().iter().map(|power| (power.from, power.to(), power.count)).collect();
        assert_eq!(shown, [(2, 4, 1), (4, 8, 3), (8, 16, 1), (16, 32, 0), (32, 64, 0), (64, 128, 1)]);
        histogram.add(0);
        assert_eq!(histogram.powers()[0], Power { from: 0, count: 1 });
    }
}
