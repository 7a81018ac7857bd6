//! The maps and constants of a program in an arena, as the tracer puts them into a process.

use std::mem::size_of_val;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use layout::{CLOCK_WORDS, HandlerInfo};
use vm::{Constants, Maps};

use super::arena::Arena;

/// Where they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables {
    maps: u32,
    map_count: u32,
    words: u32,
    word_count: u32,
    constants: u32,
    constants_length: u32,
}

impl Arena {
    /// Copies the maps and constants of a program. They stay until the code is cleared.
    pub(crate) fn put_tables(&mut self, maps: &Maps<'_>, constants: Constants<'_>) -> Tables {
        // SAFETY: they are numbers without padding between them.
        let infos =
            unsafe { std::slice::from_raw_parts(maps.infos.as_ptr().cast::<u8>(), size_of_val(maps.infos)) };
        let words = maps.words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes());
        let words: Vec<u8> = clock().into_iter().flat_map(u64::to_le_bytes).chain(words).collect();
        Tables {
            maps: self.put(infos) as u32,
            map_count: maps.infos.len() as u32,
            words: self.put(&words) as u32,
            word_count: words.len() as u32 / 8,
            constants: self.put(constants.0) as u32,
            constants_length: constants.0.len() as u32,
        }
    }
}

/// A clock that stands still.
fn clock() -> [u64; CLOCK_WORDS] {
    let mut clock = [0; CLOCK_WORDS];
    let [monotonic, elapsed, boot, real] = super::script_pieces::TIMES;
    clock[2..7].copy_from_slice(&[monotonic, 0, monotonic - elapsed, boot - monotonic, real - monotonic]);
    clock
}

impl Tables {
    /// The words of the clock.
    pub(crate) fn clock(&self) -> &[AtomicU64] {
        // SAFETY: as for `words`.
        unsafe { std::slice::from_raw_parts(self.words as usize as *const AtomicU64, CLOCK_WORDS) }
    }

    /// Says where they are.
    pub(crate) fn describe(&self, info: &mut HandlerInfo) {
        (info.maps, info.map_count) = (self.maps, self.map_count);
        (info.tables, info.table_words) = (self.words, self.word_count);
        (info.constants, info.constants_length) = (self.constants, self.constants_length);
    }

    /// The address of the words of the maps.
    pub(crate) fn address(&self) -> u32 {
        self.words + 8 * CLOCK_WORDS as u32
    }

    /// The words of the maps.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: `put_tables` has put that many words there, in memory that stays mapped.
        let words = unsafe {
            std::slice::from_raw_parts(self.words as usize as *const AtomicU64, self.word_count as usize)
        };
        &words[CLOCK_WORDS..]
    }
}
