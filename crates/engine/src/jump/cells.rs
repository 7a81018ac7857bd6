//! Words that the tracer shares with all the processes it probes: the programs' variables, and what is counted at probes.
//!
//! ```text
//!     0               the global variables
//!     GLOBALS         READER: the sign of life of whoever reads the rings; nothing else in its line
//!                     single words: local variables, and what is counted with a lock
//!     words end       counters, processor by processor:
//!                     those of processor 0, 2^shift bytes; those of processor 1; ...
//! ```
//!
//! All of it is mapped at one address in a process, which compiled code has in its instructions. What is taken is never given
//! back: a program that was removed may still be asked for its counts, and a thread may still be in its handlers.

use std::io;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use agent::layout::PerProcessor;

use super::shared::Shared;

/// Bytes of a word.
const WORD: usize = size_of::<u64>();
/// Bytes of the global variables: the most that a program can ask for.
const GLOBALS: usize = (u16::MAX as usize + 1) * WORD;
/// Where the word is by which the reader of all rings shows that it lives: at the beginning of a page.
pub(crate) const READER: usize = GLOBALS;
/// Bytes that it has for itself.
const LINE: usize = 64;
/// Bytes of single words, those of the global variables included.
const WORDS: usize = 32 << 20;
/// Bytes of counters, of all processors together, at most.
const COUNTERS: usize = 256 << 20;
/// Bytes of the counters of one processor: at most, as a power of two.
const SHIFT: u32 = 22;

/// All the words there are.
#[derive(Debug)]
pub(crate) struct Cells {
    shared: Rc<Shared>,
    /// Where the next single word is.
    next_word: usize,
    /// Where the next counter is, within what each processor has.
    next_counter: usize,
    processors: usize,
    shift: u32,
}

/// Some single words in a row.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    shared: Rc<Shared>,
    offset: usize,
    count: usize,
}

/// A counter: what each processor has counted, and a word more for threads that cannot count by processor.
#[derive(Clone, Debug)]
pub(crate) struct Counter {
    shared: Rc<Shared>,
    /// Where that of processor 0 is.
    offset: usize,
    processors: usize,
    shift: u32,
    /// Where the one more is.
    spill: usize,
}

impl Cells {
    /// Memory for all of them.
    ///
    /// # Errors
    /// There is no memory to share.
    pub(crate) fn memory() -> io::Result<Rc<Shared>> {
        let processors = processors();
        Shared::new(WORDS + (processors << shift(processors)))
    }

    /// None are taken yet of this memory.
    pub(crate) fn over(memory: Rc<Shared>) -> Cells {
        let processors = processors();
        let shift = shift(processors);
        Cells { shared: memory, next_word: READER + LINE, next_counter: 0, processors, shift }
    }

    /// The word by which the reader of all rings shows that it lives.
    pub(crate) fn reader(&self) -> Option<&AtomicU64> {
        self.shared.words(READER, 1).first()
    }

    /// The memory.
    pub(crate) fn shared(&self) -> &Rc<Shared> {
        &self.shared
    }

    /// The processors there can be.
    pub(crate) fn processors(&self) -> usize {
        self.processors
    }

    /// The global variables.
    pub(crate) fn globals(&self, count: usize) -> Words {
        Words { shared: Rc::clone(&self.shared), offset: 0, count: count.min(GLOBALS / WORD) }
    }

    /// Takes words, all 0; none if there are not so many left.
    pub(crate) fn words(&mut self, count: usize) -> Option<Words> {
        let offset = self.next_word;
        let end = offset.checked_add(count.checked_mul(WORD)?).filter(|&end| end <= WORDS)?;
        self.next_word = end;
        Some(Words { shared: Rc::clone(&self.shared), offset, count })
    }

    /// Takes a counter, which is 0. `spill` is its single word; another is taken where none is given.
    pub(crate) fn counter(&mut self, spill: Option<usize>) -> Option<Counter> {
        let place = self.next_counter;
        if place + WORD > 1 << self.shift {
            return None;
        }
        let spill = match spill {
            Some(spill) => spill,
            None => self.words(1)?.offset,
        };
        self.next_counter += WORD;
        Some(Counter {
            shared: Rc::clone(&self.shared),
            offset: WORDS + place,
            processors: self.processors,
            shift: self.shift,
            spill,
        })
    }
}

impl Words {
    /// Where the first is.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// Its address in a process in which all words are mapped at `base`.
    pub(crate) fn address(&self, base: u64) -> u32 {
        (base + self.offset as u64) as u32
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        self.shared.words(self.offset, self.count)
    }
}

impl Counter {
    /// What was counted so far.
    pub(crate) fn value(&self) -> u64 {
        self.own().fold(0u64, |sum, word| sum.wrapping_add(word.load(Ordering::Relaxed)))
    }

    /// Counts one more, from the tracer.
    pub(crate) fn count(&self) {
        if let Some(spill) = self.shared.words(self.spill, 1).first() {
            spill.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Begins anew.
    pub(crate) fn reset(&self) {
        self.own().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Its words.
    fn own(&self) -> impl Iterator<Item = &AtomicU64> {
        let places = (0..self.processors).map(|processor| self.offset + (processor << self.shift));
        places.chain([self.spill]).flat_map(|place| self.shared.words(place, 1))
    }

    /// Where it is in a process in which all words are mapped at `base`.
    pub(crate) fn at(&self, base: u64) -> PerProcessor {
        PerProcessor {
            address: (base + self.offset as u64) as u32,
            shift: self.shift as u8,
            spill: (base + self.spill as u64) as u32,
        }
    }
}

/// Bytes of the counters of one processor, where there are so many: as a power of two.
fn shift(processors: usize) -> u32 {
    SHIFT.min((COUNTERS / processors).ilog2())
}

/// The processors that there can be: one more than the greatest number.
fn processors() -> usize {
    /// What the kernel's number of processors can be at most, on x86-64.
    const MOST: usize = 8192;
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let greatest = text.trim().split([',', '-']).filter_map(|number| number.parse::<usize>().ok()).max();
    let known = greatest.map(|greatest| greatest + 1);
    known.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1).clamp(1, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_the_sum_of_its_words() {
        let mut cells = Cells::over(Cells::memory().expect("memory"));
        let first = cells.counter(None).expect("room");
        let second = cells.counter(None).expect("room");
        let at = first.at(0x1000_0000);
        for processor in 0..cells.processors {
            let offset = (at.address - 0x1000_0000) as usize + (processor << at.shift);
            cells.shared().words(offset, 1)[0].fetch_add(2, Ordering::Relaxed);
        }
        first.count();
        assert_eq!(first.value(), 2 * cells.processors as u64 + 1);
        assert_eq!(second.value(), 0);
        first.reset();
        assert_eq!(first.value(), 0);
    }

    #[test]
    fn words_do_not_overlap_and_come_to_an_end() {
        let mut cells = Cells::over(Cells::memory().expect("memory"));
        let globals = cells.globals(70_000);
        assert_eq!(globals.len(), 65_536);
        let locals = cells.words(65_535).expect("room");
        assert!(locals.offset() >= GLOBALS && locals.len() == 65_535);
        let counter = cells.counter(Some(locals.offset())).expect("room");
        counter.count();
        assert_eq!(locals[0].load(Ordering::Relaxed), 1, "a variable is its counter's own word");
        while cells.words(65_535).is_some() {}
        assert!(cells.words(1 << 40).is_none());
        assert!(cells.words(1).is_some_and(|words| words.len() == 1));
    }
}
