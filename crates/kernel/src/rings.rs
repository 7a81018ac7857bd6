//! The rings of the processors, and their records in the order of time.

use bpf::{Map, MapError, MapKind, MapSpec, RingBuffer};

use crate::handler::Size;
use crate::record::RawRecord;

/// The rings of the processors.
#[derive(Debug)]
pub(crate) struct Rings {
    /// The array of the rings.
    map: Map,
    rings: Vec<RingBuffer>,
    /// Records that wait for older ones that may still come, oldest first.
    waiting: Vec<(u64, Vec<u8>)>,
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
        Ok(Rings { map, rings, waiting: Vec::new() })
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
                if let Some(record) = RawRecord::parse(bytes) {
                    waiting.push((record.time, bytes.to_vec()));
                }
            });
        }
        self.waiting.sort_by_key(|(time, _)| *time);
        let due = self.waiting.partition_point(|(time, _)| *time < before);
        for (_, bytes) in self.waiting.drain(..due) {
            if let Some(record) = RawRecord::parse(&bytes) {
                give(record);
            }
        }
        due
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
