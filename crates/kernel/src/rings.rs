//! The rings of the processors, and their records in the order of time.

use std::ops::Range;

use bpf::{Map, MapError, MapKind, MapSpec, RingBuffer};

use crate::handler::Size;
use crate::record::RawRecord;

/// The rings of the processors.
#[derive(Debug)]
pub(crate) struct Rings {
    /// The array of the rings.
    map: Map,
    rings: Vec<RingBuffer>,
    waiting: Waiting,
}

/// Records that wait for older ones that may still come.
#[derive(Debug, Default)]
struct Waiting {
    /// Their times, and where their bytes are; oldest first.
    records: Vec<(u64, Range<usize>)>,
    /// One after the other, so that none needs memory of its own.
    bytes: Vec<u8>,
}

/// The memory that is kept for records that wait.
const KEPT: usize = 1 << 20;

impl Waiting {
    fn add(&mut self, time: u64, bytes: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.records.push((time, start..self.bytes.len()));
    }

    /// Gives those that are older than a time, in the order of time; returns how many.
    fn give(&mut self, before: u64, give: &mut dyn FnMut(RawRecord<'_>)) -> usize {
        self.records.sort_by_key(|(time, _)| *time);
        let due = self.records.partition_point(|(time, _)| *time < before);
        for (_, place) in self.records.drain(..due) {
            if let Some(record) = RawRecord::parse(&self.bytes[place]) {
                give(record);
            }
        }
        // What is left are the few records of the last moment.
        let mut left = Vec::new();
        for (_, place) in &mut self.records {
            let start = left.len();
            left.extend_from_slice(&self.bytes[place.clone()]);
            *place = start..left.len();
        }
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
        self.bytes.extend_from_slice(&left);
        due
    }
}

impl Rings {
    pub(crate) fn create(size: &Size) -> Result<Rings, MapError> {
        let rings: Vec<Map> = (0..size.processors)
            .map(|_| Map::create(&MapSpec::ring("dp_ring", size.ring)))
            .collect::<Result<_, _>>()?;
        let map = Map::create(&MapSpec {
            kind: MapKind::ArrayOfMaps,
            name: "dp_rings",
            key_size: 4,
            value_size: 4,
            max_entries: size.processors,
            mappable: false,
            inner: rings.first(),
        })?;
        put_all(&map, &rings)?;
        let rings = rings.iter().map(RingBuffer::new).collect::<Result<_, _>>()?;
        Ok(Rings { map, rings, waiting: Waiting::default() })
    }

    /// The array of the rings.
    pub(crate) fn map(&self) -> &Map {
        &self.map
    }

    /// Takes the records out of the rings, and gives those that are older than a time. Returns how
    /// many were given.
    pub(crate) fn drain(&mut self, before: u64, give: &mut dyn FnMut(RawRecord<'_>)) -> usize {
        for ring in &mut self.rings {
            let waiting = &mut self.waiting;
            // The kernel breaks no ring: only our programs write to it.
            let _ = ring.drain(|bytes| {
                if let Some(time) = RawRecord::time(bytes) {
                    waiting.add(time, bytes);
                }
            });
        }
        self.waiting.give(before, give)
    }
}

/// Puts the rings into the array. For each the kernel waits until no program runs that saw the
/// array before: so they are put in at the same time.
fn put_all(map: &Map, rings: &[Map]) -> Result<(), MapError> {
    const THREADS: usize = 64;
    for (group, rings) in rings.chunks(THREADS).enumerate() {
        std::thread::scope(|scope| {
            let put = |number: usize, ring| map.put_map((group * THREADS + number) as u32, ring);
            let put: Vec<_> = rings
                .iter()
                .enumerate()
                .map(|(number, ring)| scope.spawn(move || put(number, ring)))
                .collect();
            put.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
        })?;
    }
    Ok(())
}

/// Nanoseconds of `CLOCK_BOOTTIME`, as programs read it.
pub(crate) fn now() -> u64 {
    time(libc::CLOCK_BOOTTIME)
}

/// Nanoseconds of a clock.
pub(crate) fn time(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one `timespec`, which is there.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(result, 0, "every kernel has this clock");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of this time, with a log of so many bytes.
    fn record(time: u64, log: u32) -> Vec<u8> {
        let mut bytes = vec![0; crate::record::HEADER];
        bytes[crate::record::TIME as usize..][..8].copy_from_slice(&time.to_le_bytes());
        bytes[crate::record::END as usize..][..4].copy_from_slice(&crate::record::end::EXIT.to_le_bytes());
        bytes[crate::record::LOG as usize..][..4].copy_from_slice(&log.to_le_bytes());
        bytes.extend(std::iter::repeat_n(time as u8, log as usize));
        bytes
    }

    /// Times and logs of those that are given.
    fn given(waiting: &mut Waiting, before: u64) -> Vec<(u64, Vec<u8>)> {
        let mut given = Vec::new();
        let count = waiting.give(before, &mut |record| given.push((record.time, record.log.to_vec())));
        assert_eq!(count, given.len());
        given
    }

    #[test]
    fn records_are_given_in_the_order_of_time_once_they_are_due() {
        let mut waiting = Waiting::default();
        for (time, log) in [(5, 3), (2, 0), (9, 1), (7, 40)] {
            waiting.add(time, &record(time, log));
        }
        assert_eq!(given(&mut waiting, 7), [(2, vec![]), (5, vec![5; 3])]);
        waiting.add(6, &record(6, 2));
        assert_eq!(given(&mut waiting, 9), [(6, vec![6; 2]), (7, vec![7; 40])]);
        assert_eq!(given(&mut waiting, u64::MAX), [(9, vec![9])]);
        assert_eq!((given(&mut waiting, u64::MAX), waiting.bytes.len()), (vec![], 0));
    }
}
