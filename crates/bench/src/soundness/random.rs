//! Random batches, determined by the seed.

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// A sequence for a seed.
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Shuffles things.
    pub(crate) fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, (self.number() % (last as u64 + 1)) as usize);
        }
    }

    /// The numbers below `count` in random batches of at least `size`, as equal in size as
    /// possible.
    pub(super) fn batches(&mut self, count: usize, size: usize) -> Vec<Vec<usize>> {
        let mut all: Vec<usize> = (0..count).collect();
        self.shuffle(&mut all);
        let batches = (count / size.max(1)).max(1);
        (0..batches)
            .map(|batch| all[batch * count / batches..(batch + 1) * count / batches].to_vec())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn batches_cover_all_once() {
        for (count, size, expected) in [(100, 10, 10), (109, 10, 10), (5, 10, 1), (0, 10, 1), (7, 1, 7)] {
            let batches = Random::new(3).batches(count, size);
            assert_eq!(batches.len(), expected);
            assert!(batches.iter().all(|batch| batch.len() >= size.min(count)));
            let mut all = batches.concat();
            all.sort_unstable();
            assert_eq!(all, (0..count).collect::<Vec<_>>());
        }
        assert_eq!(Random::new(9).batches(50, 5), Random::new(9).batches(50, 5));
        assert_ne!(Random::new(9).batches(50, 5), Random::new(8).batches(50, 5));
    }
}
