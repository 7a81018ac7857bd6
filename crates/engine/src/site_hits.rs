//! The sites of probes that have many, with a hit count for each.
//!
//! A site is identified by its module's file and its address there, so processes that map the file
//! at different addresses share a count.

use std::collections::HashMap;

use crate::jump::{Cells, Counter, Domain};
use crate::module_key::ModuleKey;

/// A site in a file: the probe's index in its program, the file's device and inode, the address in
/// the file's own numbering.
type Key = (usize, (u32, u32), u64, u64);

/// One site.
#[derive(Clone, Debug)]
struct CountedSite {
    probe: usize,
    module: String,
    function: String,
    /// The offset in the file.
    offset: u64,
    /// Hits by traps.
    hits: u64,
    /// Counter of hits by jumps, once the site is a jump.
    jumps: Option<Counter>,
}

impl CountedSite {
    fn hits(&self) -> u64 {
        self.hits.saturating_add(self.jumps.as_ref().map_or(0, Counter::value))
    }
}

/// The sites of one program's probes that have many.
#[derive(Debug, Default)]
pub(crate) struct ManySites {
    numbers: HashMap<Key, usize>,
    all: Vec<CountedSite>,
}

/// The counts in one function of one module, for one probe with many sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceReport {
    /// The file name of the module.
    pub module: String,
    /// The function; for points that are single instructions, with the offset from its start:
    /// `main+0x4`.
    pub function: String,
    /// The number of sites.
    pub sites: usize,
    /// The hits of all of them, in all processes.
    pub hits: u64,
}

fn key(probe: usize, module: &ModuleKey, address: u64) -> Key {
    let (device, inode, bias) = *module;
    (probe, device, inode, address.wrapping_sub(bias))
}

impl ManySites {
    /// Registers a site.
    pub(crate) fn note(
        &mut self,
        probe: usize,
        module: &ModuleKey,
        address: u64,
        names: (&str, &str),
        offset: u64,
    ) {
        let next = self.all.len();
        if *self.numbers.entry(key(probe, module, address)).or_insert(next) == next {
            let (module, function) = (names.0.to_owned(), names.1.to_owned());
            self.all.push(CountedSite { probe, module, function, offset, hits: 0, jumps: None });
        }
    }

    /// Counts a hit by a trap. Returns the offset of the site in its file, if the site is
    /// registered.
    pub(crate) fn hit(&mut self, probe: usize, module: &ModuleKey, address: u64) -> Option<u64> {
        let number = *self.numbers.get(&key(probe, module, address))?;
        let place = self.all.get_mut(number)?;
        place.hits += 1;
        Some(place.offset)
    }

    /// The offset of a site in its file and its counter for jumps, if the site is registered and
    /// there is room for a counter.
    pub(crate) fn counter(
        &mut self,
        probe: usize,
        module: &ModuleKey,
        address: u64,
        cells: &mut Cells,
    ) -> Option<(u64, Counter)> {
        let number = *self.numbers.get(&key(probe, module, address))?;
        let place = self.all.get_mut(number)?;
        if place.jumps.is_none() {
            place.jumps = Some(cells.counter(None)?);
        }
        Some((place.offset, place.jumps.clone()?))
    }

    /// The counters of all sites.
    pub(crate) fn into_counters(self) -> impl Iterator<Item = Counter> {
        self.all.into_iter().filter_map(|place| place.jumps)
    }

    /// Hits of a probe by jumps.
    pub(crate) fn jump_hits(&self, probe: usize) -> u64 {
        let places = self.all.iter().filter(|place| place.probe == probe);
        let hits = places.filter_map(|place| place.jumps.as_ref()).map(Counter::value);
        hits.fold(0, u64::saturating_add)
    }

    /// Hits of a probe by jumps in one domain.
    pub(crate) fn jump_hits_of(&self, probe: usize, domain: Domain) -> u64 {
        let places = self.all.iter().filter(|place| place.probe == probe);
        let hits = places.filter_map(|place| place.jumps.as_ref()).map(|jumps| jumps.value_of(domain));
        hits.fold(0, u64::saturating_add)
    }

    /// Counts a hit of a jump, on behalf of the tracer.
    pub(crate) fn count(&self, probe: usize, module: &ModuleKey, address: u64) {
        let number = self.numbers.get(&key(probe, module, address));
        let place = number.and_then(|&number| self.all.get(number));
        if let Some(counter) = place.and_then(|place| place.jumps.as_ref()) {
            counter.count();
        }
    }

    /// The counts of a probe by module and function: the most hits first, then in the order of the
    /// file.
    pub(crate) fn report(&self, probe: usize) -> Vec<PlaceReport> {
        let mut by_function: HashMap<(&str, &str), (usize, u64, u64)> = HashMap::new();
        for place in self.all.iter().filter(|place| place.probe == probe) {
            let new = (0, 0, place.offset);
            let (sites, hits, first) = by_function.entry((&place.module, &place.function)).or_insert(new);
            *sites += 1;
            *hits = hits.saturating_add(place.hits());
            *first = place.offset.min(*first);
        }
        let mut found: Vec<_> = by_function.into_iter().collect();
        found.sort_by_key(|((module, function), (_, hits, first))| {
            (std::cmp::Reverse(*hits), *module, *first, *function)
        });
        let report = |((module, function), (sites, hits, _)): ((&str, &str), (usize, u64, u64))| {
            PlaceReport { module: module.to_owned(), function: function.to_owned(), sites, hits }
        };
        found.into_iter().map(report).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_count_together_and_functions_apart() {
        let mut places = ManySites::default();
        let (one, other) = (((8, 1), 77, 0x1000), ((8, 1), 77, 0x5000));
        for module in [&one, &other] {
            places.note(0, module, module.2 + 0x10, ("lib.so", "f"), 0x10);
            places.note(0, module, module.2 + 0x18, ("lib.so", "f"), 0x18);
            places.note(0, module, module.2 + 0x20, ("lib.so", "g"), 0x20);
        }
        places.note(1, &one, 0x1010, ("lib.so", "f"), 0x10);
        assert_eq!(places.hit(0, &one, 0x1020), Some(0x20));
        assert_eq!(places.hit(0, &other, 0x5010), Some(0x10));
        assert_eq!(places.hit(0, &one, 0x1020), Some(0x20));
        assert_eq!(places.hit(0, &one, 0x1021), None);
        let report = |function: &str, sites, hits| PlaceReport {
            module: "lib.so".into(),
            function: function.into(),
            sites,
            hits,
        };
        assert_eq!(places.report(0), [report("g", 1, 2), report("f", 2, 1)]);
        assert_eq!(places.report(1), [report("f", 1, 0)]);
    }
}
