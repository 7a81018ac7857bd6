//! A cache of a file's disassembled stretches: each is disassembled once, in whatever order probes
//! need them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::region::Region;

/// The most bytes of code in the cache. It takes three times as much memory.
const KEPT: u64 = 24 << 20;

/// The stretches of one file, by their starts. They do not overlap.
#[derive(Debug, Default)]
pub(super) struct Regions {
    known: BTreeMap<u64, Arc<Region>>,
    /// Bytes of code in them.
    bytes: u64,
}

impl Regions {
    /// The cached stretch that contains an address.
    pub(super) fn get(&self, vaddr: u64) -> Option<Arc<Region>> {
        let (_, region) = self.known.range(..=vaddr).next_back()?;
        region.range().contains(&vaddr).then(|| Arc::clone(region))
    }

    /// Adds a stretch. If the cache is full, all others are dropped first.
    pub(super) fn keep(&mut self, region: Arc<Region>) {
        self.keep_within(region, KEPT);
    }

    fn keep_within(&mut self, region: Arc<Region>, most: u64) {
        let size = |region: &Region| region.range().end - region.range().start;
        if self.bytes + size(&region) > most {
            self.known.clear();
            self.bytes = 0;
        }
        self.bytes += size(&region);
        if let Some(other) = self.known.insert(region.range().start, region) {
            self.bytes -= size(&other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::region::RegionContext;
    use super::*;

    fn region(start: u64, length: usize) -> Arc<Region> {
        let around = RegionContext { proven: true, claimed: start, labels: &[], is_code: &|_| true };
        Arc::new(Region::analyze(start, vec![0x90; length], 64, &around))
    }

    #[test]
    fn all_are_known_again_in_any_order() {
        let mut regions = Regions::default();
        for start in [0x3000, 0x1000, 0x2000] {
            assert!(regions.get(start).is_none());
            regions.keep(region(start, 0x100));
        }
        for vaddr in [0x1000, 0x30ff, 0x2080, 0x10ff] {
            assert!(regions.get(vaddr).is_some_and(|region| region.range().contains(&vaddr)), "{vaddr:#x}");
        }
        assert!([0xfff, 0x1100, 0x3100].iter().all(|vaddr| regions.get(*vaddr).is_none()));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut regions = Regions::default();
        for number in 0..100 {
            regions.keep_within(region(number << 8, 1 << 8), 24 << 8);
            assert!(regions.get(number << 8).is_some());
            assert!(regions.bytes <= 24 << 8 && regions.known.len() as u64 == regions.bytes >> 8);
        }
        // Adding the same stretch again does not count twice.
        let bytes = regions.bytes;
        regions.keep_within(region(99 << 8, 1 << 8), 24 << 8);
        assert_eq!(regions.bytes, bytes);
    }
}
