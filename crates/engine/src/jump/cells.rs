//! Words that the tracer shares with all the processes it probes: the programs' variables, and what is counted at probes.
//!
//! ```text
//!     0               the global variables
//!     GLOBALS         READER: the sign of life of whoever reads the rings; nothing else in its line
//!                     single words: local variables, and what is counted with a lock
//!     then            pieces, as they are needed, each greater than the last of its kind: of single words, or of
//!                     counters, processor by processor: those of processor 0, 2^shift bytes; those of processor 1; ...
//! ```
//!
//! All of it has a place at one address in a process, which compiled code has in its instructions. What is mapped there is the beginning,
//! as far as there are pieces ([`Cells::used`]), and more of it before a handler is armed that needs more. What is taken is given
//! back when nobody asks for it any more and no thread can be in a handler that has it: [`crate::forget`].

use std::collections::HashMap;
use std::io;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use agent::layout::{PAGE, PerProcessor};

use super::shared::Shared;

/// Bytes of a word.
const WORD: usize = size_of::<u64>();
/// Bytes of the global variables: the most that a program can ask for.
const GLOBALS: usize = (u16::MAX as usize + 1) * WORD;
/// Where the word is by which the reader of all rings shows that it lives: at the beginning of a page.
pub(crate) const READER: usize = GLOBALS;
/// Bytes that it has for itself.
const LINE: usize = 64;
/// Bytes for single words, those of the global variables included, as a rule.
const WORDS: usize = 32 << 20;
/// Bytes for counters, of all processors together, at most.
const COUNTERS: usize = 256 << 20;
/// Bytes for the counters of one processor: at most, as a power of two.
const SHIFT: u32 = 22;
/// Bytes of the first pieces: of single words, and of the counters of one processor as a power of two.
const FIRST_WORDS: usize = 16 << 10;
const FIRST_SHIFT: u32 = 10;
/// Bytes of a piece of single words, at most, unless more are asked for at once.
const GREATEST_WORDS: usize = 4 << 20;

/// All the words there are.
#[derive(Debug)]
pub(crate) struct Cells {
    shared: Rc<Shared>,
    /// Where the pieces end.
    used: usize,
    /// Where the next single word is, and the end of its piece.
    next_word: usize,
    words_end: usize,
    /// Where the next counter is, and the end of what processor 0 has in its piece.
    next_counter: usize,
    counters_end: usize,
    processors: usize,
    /// That of the piece.
    shift: u32,
    /// What was given back, all 0: words in a row, by their number, and the places of counters, each with its shift.
    free_words: HashMap<usize, Vec<usize>>,
    free_counters: Vec<(usize, u32)>,
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
        Shared::new(Self::extent().0 as usize)
    }

    /// None are taken yet of this memory.
    pub(crate) fn over(memory: Rc<Shared>) -> Cells {
        let used = GLOBALS + FIRST_WORDS;
        Cells {
            shared: memory,
            used,
            next_word: READER + LINE,
            words_end: used,
            next_counter: 0,
            counters_end: 0,
            processors: processors(),
            shift: FIRST_SHIFT - 1,
            free_words: HashMap::new(),
            free_counters: Vec::new(),
        }
    }

    /// The word by which the reader of all rings shows that it lives.
    pub(crate) fn reader(&self) -> Option<&AtomicU64> {
        self.shared.words(READER, 1).first()
    }

    /// Bytes of what there is, in whole pages: so many are to be mapped in a process that has what was taken.
    pub(crate) fn used(&self) -> u64 {
        self.used as u64
    }

    /// Begins a piece: its place; none if there is no room.
    fn begin(&mut self, size: usize) -> Option<usize> {
        let place = self.used;
        let end = place.checked_add(size)?.checked_next_multiple_of(PAGE as usize)?;
        (end <= self.shared.size()).then(|| std::mem::replace(&mut self.used, end))
    }

    /// How many bytes they can have on this machine, and for how many processors.
    pub(crate) fn extent() -> (u64, usize) {
        let processors = processors();
        ((WORDS + (processors << shift(processors))) as u64, processors)
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
        if let Some(offset) = self.free_words.get_mut(&count).and_then(Vec::pop) {
            return Some(Words { shared: Rc::clone(&self.shared), offset, count });
        }
        let bytes = count.checked_mul(WORD)?;
        if bytes > self.words_end - self.next_word {
            let least = bytes.max(FIRST_WORDS);
            let greater = least.max((self.used / 4).min(GREATEST_WORDS));
            // What is left of the last one are a few words.
            self.next_word = self.begin(greater).or_else(|| self.begin(least))?;
            self.words_end = self.used;
        }
        let offset = self.next_word;
        self.next_word += bytes;
        Some(Words { shared: Rc::clone(&self.shared), offset, count })
    }

    /// Takes a counter, which is 0. `spill` is its single word; another is taken where none is given.
    pub(crate) fn counter(&mut self, spill: Option<usize>) -> Option<Counter> {
        let place = match self.free_counters.last() {
            Some(&place) => place,
            None => {
                if self.next_counter == self.counters_end {
                    self.begin_counters()?;
                }
                (self.next_counter, self.shift)
            }
        };
        let spill = match spill {
            Some(spill) => spill,
            None => self.words(1)?.offset,
        };
        if self.free_counters.pop().is_none() {
            self.next_counter += WORD;
        }
        Some(Counter {
            shared: Rc::clone(&self.shared),
            offset: place.0,
            processors: self.processors,
            shift: place.1,
            spill,
        })
    }

    /// Begins a piece of counters: one that has twice as many, if there is room for it.
    fn begin_counters(&mut self) -> Option<()> {
        for shift in (FIRST_SHIFT..=(self.shift + 1).min(SHIFT)).rev() {
            if let Some(place) = self.begin(self.processors << shift) {
                (self.next_counter, self.counters_end, self.shift) = (place, place + (1 << shift), shift);
                return Some(());
            }
        }
        None
    }
}

impl Cells {
    /// Takes words back, which nobody uses any more.
    pub(crate) fn give_back_words(&mut self, words: Words) {
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        if words.count > 0 {
            self.free_words.entry(words.count).or_default().push(words.offset);
        }
    }

    /// Takes a counter back, which nobody uses any more.
    pub(crate) fn give_back(&mut self, counter: Counter) {
        let (offset, shared) = (counter.spill, Rc::clone(&counter.shared));
        self.give_back_shared(counter);
        self.give_back_words(Words { shared, offset, count: 1 });
    }

    /// The same for a counter whose single word is a part of others.
    pub(crate) fn give_back_shared(&mut self, counter: Counter) {
        counter.reset();
        self.free_counters.push((counter.offset, counter.shift));
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

    /// Words in a row.
    const COUNT: usize = 4;

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
    fn what_is_given_back_is_taken_again_and_is_nothing_counted() {
        let mut cells = Cells::over(Cells::memory().expect("memory"));
        let most = (1 << shift(cells.processors)) / WORD;
        // More than there is room for, were none given back.
        for _ in 0..2 * most / 1000 + 1 {
            let locals = cells.words(5).expect("room");
            let variable = cells.counter(Some(locals.offset())).expect("room");
            let counters: Vec<Counter> = (0..1000).map(|_| cells.counter(None).expect("room")).collect();
            let words: Vec<Words> = (0..10).map(|_| cells.words(COUNT).expect("room")).collect();
            for counter in counters.iter().chain([&variable]) {
                assert_eq!(counter.value(), 0);
                counter.count();
                counter.own().for_each(|word| word.store(9, Ordering::Relaxed));
            }
            for word in words.iter().chain([&locals]).flat_map(|words| words.iter()) {
                assert!([0, 9].contains(&word.swap(3, Ordering::Relaxed)));
            }
            cells.give_back_shared(variable);
            cells.give_back_words(locals);
            words.into_iter().for_each(|words| cells.give_back_words(words));
            counters.into_iter().for_each(|counter| cells.give_back(counter));
        }
        let used = cells.used() as usize - GLOBALS;
        assert!(used <= cells.processors * 16 * 1024 + (128 << 10), "{used} bytes are taken");
        assert!(
            cells.words(COUNT).is_some_and(|words| words.iter().all(|it| it.load(Ordering::Relaxed) == 0))
        );
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

    #[test]
    fn a_few_counters_take_little_and_many_have_room() {
        let mut cells = Cells::over(Cells::memory().expect("memory"));
        let few: Vec<Counter> = (0..16).map(|_| cells.counter(None).expect("room")).collect();
        assert!(cells.used() as usize <= GLOBALS + FIRST_WORDS + (cells.processors << FIRST_SHIFT) + 4096);
        let most = (1 << shift(cells.processors)) / WORD;
        let spill = cells.words(1).expect("room").offset();
        let many = (0..most * 3 / 4).map(|_| cells.counter(Some(spill)).expect("room"));
        let many: Vec<Counter> = few.into_iter().chain(many).collect();
        // No word of one is another's.
        let mut places: Vec<usize> = many
            .iter()
            .flat_map(|it| (0..it.processors).map(|processor| it.offset + (processor << it.shift)))
            .collect();
        let count = places.len();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), count);
        assert!(places.iter().all(|place| (GLOBALS + FIRST_WORDS..cells.used).contains(place)));
        assert!(cells.used() <= Cells::extent().0);
    }
}
