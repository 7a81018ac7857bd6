//! Cells: words that the tracer shares with the processes it probes, for variables and for counters
//! of probes.
//!
//! ```text
//!     0               the global variables
//!     GLOBALS         single words: local variables, and what is counted with a lock
//!     then            pieces, as they are needed, each greater than the last of its kind: of single words, or of
//!                     counters, processor by processor: those of processor 0, 2^shift bytes; those of processor 1; ...
//! ```
//!
//! There are several memories of this layout: one for each *domain* (processes that could touch one
//! another anyway, [`super::trust`]), and the tracer's own, which no process has. A cell has the
//! same place in all of them, and its value is the sum over all.
//!
//! A process has the memory of its domain mapped at one address, which is an immediate in compiled
//! code. It maps the beginning, as far as pieces are in use ([`Cells::used`]), and more before a
//! handler is armed that needs more. Cells are given back when nobody reads them any more and no
//! thread can be in a handler that uses them: [`crate::forget`].

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use layout::{PAGE, PerProcessor};

use super::shared::Shared;
use super::trust::Trust;

const WORD: usize = size_of::<u64>();
/// Bytes of the global variables: the most that a program can have.
const GLOBALS: usize = (u16::MAX as usize + 1) * WORD;
/// Bytes for single words, maps of scripts and global variables, about.
const WORDS: usize = 64 << 20;
/// The most bytes for counters, of all processors together.
const COUNTERS: usize = 256 << 20;
/// The most bytes for the counters of one processor, as a power of two.
const SHIFT: u32 = 22;
/// Bytes of the first piece of single words; and of the first piece of one processor's counters, as
/// a power of two.
const FIRST_WORDS: usize = 16 << 10;
const FIRST_SHIFT: u32 = 10;
/// The most bytes of a piece of single words, unless more are requested at once.
const GREATEST_WORDS: usize = 4 << 20;
/// The most domains at a time.
const MAX_DOMAINS: usize = 128;

/// A trust domain, known by the number of its memory. No number is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Domain(u32);

impl Domain {
    /// The tracer's own: no process has its memory.
    pub(crate) const OWN: Domain = Domain(0);
}

/// The memory of each domain. A domain's memory is never reused for another one: a process may have
/// kept it.
#[derive(Debug)]
struct Memories(RefCell<BTreeMap<Domain, Rc<Shared>>>);

impl Memories {
    /// Makes the tracer's own memory.
    fn new() -> io::Result<Memories> {
        let memories = Memories(RefCell::default());
        memories.add(Domain::OWN)?;
        Ok(memories)
    }

    fn add(&self, domain: Domain) -> io::Result<()> {
        let memory = Shared::new(Cells::extent().0 as usize)?;
        self.0.borrow_mut().insert(domain, memory);
        Ok(())
    }

    fn of(&self, domain: Domain) -> Option<Rc<Shared>> {
        self.0.borrow().get(&domain).cloned()
    }

    fn each(&self, action: impl FnMut((&Domain, &Rc<Shared>))) {
        self.0.borrow().iter().for_each(action);
    }
}

/// All cells.
#[derive(Debug)]
pub(crate) struct Cells {
    memories: Rc<Memories>,
    /// The domains that have memory, but for the tracer's own.
    domains: Vec<(Domain, Rc<Trust>)>,
    last: Domain,
    /// The end of the last piece.
    used: usize,
    /// The next free single word, and the end of its piece.
    next_word: usize,
    words_end: usize,
    /// The next free counter, and the end of processor 0's part of its piece.
    next_counter: usize,
    counters_end: usize,
    processors: usize,
    /// The shift of that piece.
    shift: u32,
    /// Given back, and all 0: runs of words, by their count; and counters, each with its shift.
    free_words: HashMap<usize, Vec<usize>>,
    free_counters: Vec<(usize, u32)>,
}

/// Consecutive single words, in each memory.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    memories: Rc<Memories>,
    offset: usize,
    count: usize,
}

/// A counter: in each memory one word for each processor, and one (`spill`) for threads that cannot
/// count by processor.
#[derive(Clone, Debug)]
pub(crate) struct Counter {
    memories: Rc<Memories>,
    /// Offset of processor 0's word.
    offset: usize,
    processors: usize,
    shift: u32,
    spill: usize,
}

impl Cells {
    /// No cells are in use yet.
    ///
    /// # Errors
    /// There is no memory to share.
    pub(crate) fn new() -> io::Result<Cells> {
        let used = GLOBALS + FIRST_WORDS;
        Ok(Cells {
            memories: Rc::new(Memories::new()?),
            domains: Vec::new(),
            last: Domain::OWN,
            used,
            next_word: GLOBALS,
            words_end: used,
            next_counter: 0,
            counters_end: 0,
            processors: processors(),
            shift: FIRST_SHIFT - 1,
            free_words: HashMap::new(),
            free_counters: Vec::new(),
        })
    }

    /// The domain of processes with this trust. None if there are too many domains, or no memory
    /// for another.
    pub(crate) fn domain(&mut self, trust: &Rc<Trust>) -> Option<Domain> {
        if let Some((known, _)) = self.domains.iter().find(|(_, known)| known == trust) {
            return Some(*known);
        }
        let domain = Domain(self.last.0.checked_add(1)?);
        if self.domains.len() >= MAX_DOMAINS {
            return None;
        }
        self.memories.add(domain).ok()?;
        self.last = domain;
        self.domains.push((domain, Rc::clone(trust)));
        Some(domain)
    }

    pub(crate) fn domains(&self) -> &[(Domain, Rc<Trust>)] {
        &self.domains
    }

    /// Ends a domain without processes: adds its counts to the tracer's own memory.
    pub(crate) fn end_domain(&mut self, domain: Domain) {
        if domain == Domain::OWN {
            return;
        }
        self.domains.retain(|(other, _)| *other != domain);
        let left = self.memories.0.borrow_mut().remove(&domain);
        let Some((own, left)) = self.memories.of(Domain::OWN).zip(left) else { return };
        let count = self.used / WORD;
        for (sum, word) in own.words(0, count).iter().zip(left.words(0, count)) {
            let value = word.load(Ordering::Relaxed);
            if value != 0 {
                sum.fetch_add(value, Ordering::Relaxed);
            }
        }
    }

    /// The memory of a domain, to be mapped in its processes; none for the tracer's own.
    pub(crate) fn memory(&self, domain: Domain) -> Option<Rc<Shared>> {
        self.memories.of(domain).filter(|_| domain != Domain::OWN)
    }

    /// The size of each memory.
    pub(crate) fn size(&self) -> u64 {
        Self::extent().0
    }

    /// Bytes in use, in whole pages: a process with cells has them mapped.
    pub(crate) fn used(&self) -> u64 {
        self.used as u64
    }

    /// Begins a piece and returns its offset; none if there is no room.
    fn begin(&mut self, size: usize) -> Option<usize> {
        let place = self.used;
        let end = place.checked_add(size)?.checked_next_multiple_of(PAGE as usize)?;
        (end as u64 <= self.size()).then(|| std::mem::replace(&mut self.used, end))
    }

    /// The size of each memory on this machine, and the number of processors.
    pub(crate) fn extent() -> (u64, usize) {
        let processors = processors();
        ((WORDS + (processors << shift(processors))) as u64, processors)
    }

    /// How many processors there can be.
    pub(crate) fn processors(&self) -> usize {
        self.processors
    }

    pub(crate) fn globals(&self, count: usize) -> Words {
        Words { memories: Rc::clone(&self.memories), offset: 0, count: count.min(GLOBALS / WORD) }
    }

    /// Takes `count` words, all 0; none if there are not enough.
    pub(crate) fn words(&mut self, count: usize) -> Option<Words> {
        if let Some(offset) = self.free_words.get_mut(&count).and_then(Vec::pop) {
            return Some(Words { memories: Rc::clone(&self.memories), offset, count });
        }
        let bytes = count.checked_mul(WORD)?;
        if bytes > self.words_end - self.next_word {
            let least = bytes.max(FIRST_WORDS);
            let greater = least.max((self.used / 4).min(GREATEST_WORDS));
            // What is left of the last piece is lost: a few words.
            self.next_word = self.begin(greater).or_else(|| self.begin(least))?;
            self.words_end = self.used;
        }
        let offset = self.next_word;
        self.next_word += bytes;
        Some(Words { memories: Rc::clone(&self.memories), offset, count })
    }

    /// Takes a counter, set to 0. `spill` is the offset of its spill word; without it a new one is
    /// taken.
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
            memories: Rc::clone(&self.memories),
            offset: place.0,
            processors: self.processors,
            shift: place.1,
            spill,
        })
    }

    /// Begins a piece of counters, twice as large as the last one if there is room.
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
    /// Takes back words that nobody uses any more, and clears them.
    pub(crate) fn give_back_words(&mut self, words: Words) {
        words.set(0);
        if words.count > 0 {
            self.free_words.entry(words.count).or_default().push(words.offset);
        }
    }

    /// Takes back a counter that nobody uses any more.
    pub(crate) fn give_back(&mut self, counter: Counter) {
        let (offset, memories) = (counter.spill, Rc::clone(&counter.memories));
        self.give_back_shared(counter);
        self.give_back_words(Words { memories, offset, count: 1 });
    }

    /// The same for a counter whose spill word belongs to somebody else.
    pub(crate) fn give_back_shared(&mut self, counter: Counter) {
        counter.reset();
        self.free_counters.push((counter.offset, counter.shift));
    }
}

impl Words {
    /// The offset of the first.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// The address of the first in a process that has the cells at `base`.
    pub(crate) fn address(&self, base: u64) -> u32 {
        (base + self.offset as u64) as u32
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The memory that holds a domain's values; the tracer's own if the domain has none.
    pub(crate) fn memory(&self, domain: Domain) -> Option<Rc<Shared>> {
        self.memories.of(domain).or_else(|| self.memories.of(Domain::OWN))
    }

    pub(crate) fn of<'a>(&self, memory: &'a Shared) -> &'a [AtomicU64] {
        memory.words(self.offset, self.count)
    }

    /// Applies `action` to one word of a domain.
    pub(crate) fn with<T>(
        &self,
        domain: Domain,
        which: usize,
        action: impl FnOnce(&AtomicU64) -> T,
    ) -> Option<T> {
        self.memory(domain).and_then(|memory| self.of(&memory).get(which).map(action))
    }

    /// Applies `action` to one word in each memory, the tracer's own first.
    pub(crate) fn each(&self, which: usize, mut action: impl FnMut(Domain, &AtomicU64)) {
        self.memories.each(|(&domain, memory)| {
            self.of(memory).get(which).into_iter().for_each(|word| action(domain, word));
        });
    }

    /// The sum of one word over all memories.
    pub(crate) fn sum(&self, which: usize) -> u64 {
        let mut sum = 0u64;
        self.each(which, |_, word| sum = sum.wrapping_add(word.load(Ordering::Relaxed)));
        sum
    }

    /// Sets all words in all memories.
    pub(crate) fn set(&self, value: u64) {
        let set =
            |memory: &Shared| self.of(memory).iter().for_each(|word| word.store(value, Ordering::Relaxed));
        self.memories.each(|(_, memory)| set(memory));
    }
}

impl Counter {
    /// The count so far, in all domains.
    pub(crate) fn value(&self) -> u64 {
        let mut sum = 0u64;
        self.memories.each(|(_, memory)| sum = sum.wrapping_add(self.value_in(memory)));
        sum
    }

    pub(crate) fn value_of(&self, domain: Domain) -> u64 {
        self.memories.of(domain).map_or(0, |memory| self.value_in(&memory))
    }

    fn value_in(&self, memory: &Shared) -> u64 {
        self.own(memory).fold(0u64, |sum, word| sum.wrapping_add(word.load(Ordering::Relaxed)))
    }

    /// Counts a hit on behalf of the tracer.
    pub(crate) fn count(&self) {
        let own = self.memories.of(Domain::OWN);
        if let Some(spill) = own.as_ref().and_then(|own| own.words(self.spill, 1).first()) {
            spill.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn reset(&self) {
        self.set(0);
    }

    fn set(&self, value: u64) {
        self.memories
            .each(|(_, memory)| self.own(memory).for_each(|word| word.store(value, Ordering::Relaxed)));
    }

    fn own<'a>(&self, memory: &'a Shared) -> impl Iterator<Item = &'a AtomicU64> + use<'a> {
        let Counter { offset, processors, shift, spill, .. } = *self;
        let places = (0..processors).map(move |processor| offset + (processor << shift));
        places.chain([spill]).flat_map(|place| memory.words(place, 1))
    }

    /// What compiled code needs to count, in a process that has the cells at `base`.
    pub(crate) fn at(&self, base: u64) -> PerProcessor {
        PerProcessor {
            address: (base + self.offset as u64) as u32,
            shift: self.shift as u8,
            spill: (base + self.spill as u64) as u32,
        }
    }
}

/// Bytes of the counters of one processor, as a power of two.
fn shift(processors: usize) -> u32 {
    SHIFT.min((COUNTERS / processors).ilog2())
}

/// How many processors there can be: the greatest number plus one.
pub fn processors() -> usize {
    /// The kernel's greatest number of processors on x86-64.
    const MOST: usize = 8192;
    // Fixed when the kernel boots.
    static KNOWN: OnceLock<usize> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
        let greatest = text.trim().split([',', '-']).filter_map(|number| number.parse::<usize>().ok()).max();
        let known = greatest.map(|greatest| greatest + 1);
        let known = known.or_else(|| std::thread::available_parallelism().ok().map(Into::into));
        known.unwrap_or(1).clamp(1, MOST)
    })
}

#[cfg(test)]
mod tests;
