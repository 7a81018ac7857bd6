//! The maps and constants of a script: memory that all its handlers share with this process.
//!
//! ```text
//!     words of the maps | (start, length) of each constant | constants | zeros
//! ```
//!
//! The words are laid out as crate `maps` does it, so that this process reads the maps, and runs
//! handlers of its own on them, as it does on those of probed processes. Each constant is followed
//! by zeros up to a multiple of 8 bytes; the zeros at the end are copied to clear memory.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bpf::{Map, MapError, MapSpec, Shared};
use maps::{Kind, MapInfo, Maps};
use vm::{Clock, Constants, FRAME_LIMIT};

/// Bytes of zeros.
pub(crate) const ZEROS: usize = FRAME_LIMIT;

/// The classes of constants.
const CLASSES: u64 = 3;

/// The most frames of a stack.
pub(crate) const MAX_FRAMES: usize = 127;

/// What handlers are compiled for: the maps of a script, its constants, and its clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct TablesShape<'a> {
    /// The maps, placed in `words` words.
    pub infos: &'a [MapInfo],
    /// The words of the maps.
    pub words: usize,
    /// The constants, as [`Constants`] reads them.
    pub constants: &'a [u8],
    /// `CLOCK_MONOTONIC` when tracing began.
    pub start: u64,
    /// `CLOCK_REALTIME` less `CLOCK_MONOTONIC`.
    pub real: u64,
}

impl TablesShape<'_> {
    /// The most bytes of a key, or of a stack.
    pub(crate) fn longest_key(&self) -> usize {
        let of = |info: &MapInfo| match info.kind() {
            Kind::Stacks => 8 * MAX_FRAMES,
            _ => info.key as usize,
        };
        self.infos.iter().map(of).max().unwrap_or(0)
    }

    /// The most bytes of a plain map's value.
    pub(crate) fn longest_value(&self) -> usize {
        let plain = self.infos.iter().filter(|info| info.kind() == Kind::Plain);
        plain.map(|info| info.value as usize).max().unwrap_or(0)
    }

    /// The place of the list of constants, in bytes.
    pub(crate) fn constants_at(&self) -> usize {
        8 * self.words
    }

    /// The number of constants of each class.
    pub(crate) fn counts(&self) -> [usize; CLASSES as usize] {
        let constants = Constants(self.constants);
        let count = |class: u64| (0..).take_while(move |index| constants.get(class << 32 | index).is_some());
        [0, 1, 2].map(|class| count(class).count())
    }

    /// The list of constants, and the constants.
    fn packed(&self) -> Vec<u8> {
        let constants = Constants(self.constants);
        let numbers = (0..CLASSES).zip(self.counts());
        let all: Vec<&[u8]> = numbers
            .flat_map(|(class, count)| (0..count as u64).map(move |index| class << 32 | index))
            .filter_map(|number| constants.get(number))
            .collect();
        let (mut list, mut texts) = (Vec::new(), Vec::new());
        for text in &all {
            let start = 8 * all.len() + texts.len();
            list.extend((start as u32).to_le_bytes());
            list.extend((text.len() as u32).to_le_bytes());
            texts.extend_from_slice(text);
            texts.resize(texts.len().next_multiple_of(8), 0);
        }
        list.extend(texts);
        list
    }

    /// The place of the zeros.
    pub(crate) fn zeros_at(&self) -> usize {
        self.constants_at() + self.packed().len()
    }

    /// All bytes.
    pub(crate) fn size(&self) -> usize {
        self.zeros_at() + ZEROS
    }
}

/// The maps and constants of a script.
#[derive(Debug)]
pub struct Tables {
    infos: Vec<MapInfo>,
    words: usize,
    constants: Vec<u8>,
    start: u64,
    real: u64,
    pub(crate) map: Map,
    memory: Shared,
}

impl Tables {
    /// Maps, placed in so many words, and constants, as [`Constants`] reads them.
    ///
    /// # Errors
    /// If the kernel refuses so much memory.
    pub fn create(infos: Vec<MapInfo>, words: usize, constants: Vec<u8>) -> Result<Arc<Tables>, MapError> {
        let start = nanoseconds(libc::CLOCK_MONOTONIC);
        let real = nanoseconds(libc::CLOCK_REALTIME).wrapping_sub(start);
        let shape = TablesShape { infos: &infos, words, constants: &constants, start, real };
        let size = u32::try_from(shape.size().next_multiple_of(8));
        let size = size.ok().filter(|size| *size < 1 << 29).ok_or(MapError::Create(bpf::Errno::E2BIG))?;
        let map = Map::create(&MapSpec { mappable: true, ..MapSpec::array("dp_tables", size, 1) })?;
        let memory = map.share()?;
        let packed = shape.packed();
        for (word, bytes) in memory.iter().skip(words).zip(packed.chunks(8)) {
            let mut eight = [0; 8];
            eight[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(eight), std::sync::atomic::Ordering::Relaxed);
        }
        Ok(Arc::new(Tables { infos, words, constants, start, real, map, memory }))
    }

    /// What handlers are compiled for.
    pub fn shape(&self) -> TablesShape<'_> {
        let Tables { infos, words, constants, start, real, .. } = self;
        TablesShape { infos, words: *words, constants, start: *start, real: *real }
    }

    /// The words of the maps.
    fn all(&self) -> &[AtomicU64] {
        &self.memory[..self.words]
    }

    /// The maps.
    pub fn maps(&self) -> Maps<'_> {
        Maps { infos: &self.infos, words: self.all() }
    }

    /// The constants.
    pub fn constants(&self) -> Constants<'_> {
        Constants(&self.constants)
    }

    /// A time as handlers have it.
    pub fn time(&self, clock: Clock) -> u64 {
        let monotonic = || nanoseconds(libc::CLOCK_MONOTONIC);
        match clock {
            Clock::Monotonic => monotonic(),
            Clock::Elapsed => monotonic().wrapping_sub(self.start),
            Clock::Boot => nanoseconds(libc::CLOCK_BOOTTIME),
            Clock::Real => monotonic().wrapping_add(self.real),
        }
    }
}

fn nanoseconds(clock: libc::clockid_t) -> u64 {
    crate::rings::time(clock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_packed_and_padded() {
        let mut bytes = Vec::new();
        for number in [2_u32, 0, 1, 36, 1, 37, 2, 39, 0] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(b"abc");
        let shape = TablesShape { constants: &bytes, words: 3, ..TablesShape::default() };
        assert_eq!(shape.counts(), [2, 0, 1]);
        let packed = shape.packed();
        let number = |place: usize| u32::from_le_bytes(packed[place..place + 4].try_into().expect("four"));
        assert_eq!([0, 4, 8, 12, 16, 20].map(number), [24, 1, 32, 2, 40, 0]);
        assert_eq!(&packed[24..], b"a\0\0\0\0\0\0\0bc\0\0\0\0\0\0");
        assert_eq!((shape.constants_at(), shape.zeros_at()), (24, 24 + 40));
    }
}
