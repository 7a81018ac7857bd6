//! Variables of programs, local and global.
//!
//! They are in the cells, of which each trust domain has its own: the processes of one domain share them, and nobody else. What the tracer
//! shows is the sum of all domains.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::jump::{Cells, Domain, Shared, Words};

/// Variables: in memory that is shared with probed processes, or, where there is none, in the tracer's own.
#[derive(Debug)]
pub(crate) enum Variables {
    Shared(Words),
    Own(Box<[AtomicU64]>),
}

/// The memory in which a domain's variables are, if they are in any.
pub(crate) type Memory = Option<Rc<Shared>>;

impl Variables {
    /// This many, all 0.
    pub(crate) fn new(count: usize, cells: Option<&mut Cells>) -> Variables {
        match cells.and_then(|cells| cells.words(count)) {
            Some(words) => Variables::Shared(words),
            None => Variables::Own((0..count).map(|_| AtomicU64::new(0)).collect()),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            Variables::Shared(words) => words.count(),
            Variables::Own(words) => words.len(),
        }
    }

    /// Where one is in the shared memory; none if they are not shared.
    pub(crate) fn offset(&self, number: u16) -> Option<usize> {
        match self {
            Variables::Shared(words) => Some(words.offset() + usize::from(number) * size_of::<u64>()),
            Variables::Own(_) => None,
        }
    }

    /// The address of the first, in a process that has the shared memory at `base`.
    pub(crate) fn address(&self, base: u64) -> Option<u32> {
        match self {
            Variables::Shared(words) => Some(words.address(base)),
            Variables::Own(_) => None,
        }
    }

    /// The memory in which those of a domain are.
    pub(crate) fn memory(&self, domain: Domain) -> Memory {
        match self {
            Variables::Shared(words) => words.memory(domain),
            Variables::Own(_) => None,
        }
    }

    /// Those in a memory.
    pub(crate) fn of<'a>(&'a self, memory: &'a Memory) -> &'a [AtomicU64] {
        match (self, memory) {
            (Variables::Shared(words), Some(memory)) => words.of(memory),
            (Variables::Shared(_), None) => &[],
            (Variables::Own(words), _) => words,
        }
    }

    /// The value of one: in a domain, or the sum of all.
    pub(crate) fn value(&self, number: usize, domain: Option<Domain>) -> u64 {
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        match (self, domain) {
            (Variables::Shared(words), None) => words.sum(number),
            (Variables::Shared(words), Some(domain)) => words.with(domain, number, load).unwrap_or(0),
            (Variables::Own(words), _) => words.get(number).map_or(0, load),
        }
    }

    /// Sets one to 0, in all domains.
    pub(crate) fn reset(&self, number: usize) {
        match self {
            Variables::Shared(words) => words.each(number, |_, word| word.store(0, Ordering::Relaxed)),
            Variables::Own(words) => {
                words.get(number).into_iter().for_each(|word| word.store(0, Ordering::Relaxed));
            }
        }
    }
}

/// The global variables: one array for all programs. It grows to the largest number that a program has asked for
/// and keeps its values as long as the tracer lives.
#[derive(Debug)]
pub(crate) struct Globals {
    values: Variables,
    count: usize,
}

impl Globals {
    /// None yet.
    pub(crate) fn new(cells: Option<&mut Cells>) -> Globals {
        /// The most that a program can ask for.
        const MOST: usize = u16::MAX as usize;
        let values = match cells {
            Some(cells) => Variables::Shared(cells.globals(MOST)),
            None => Variables::new(MOST, None),
        };
        Globals { values, count: 0 }
    }

    /// Makes sure that there are this many.
    pub(crate) fn grow(&mut self, count: u16) {
        self.count = self.count.max(usize::from(count)).min(self.values.len());
    }

    /// The address of the first, in a process that has the shared memory at `base`.
    pub(crate) fn address(&self, base: u64) -> Option<u32> {
        self.values.address(base)
    }

    /// The memory in which those of a domain are.
    pub(crate) fn memory(&self, domain: Domain) -> Memory {
        self.values.memory(domain)
    }

    /// Those in a memory that a program can use, which asks for so many.
    pub(crate) fn of<'a>(&'a self, memory: &'a Memory, count: u16) -> &'a [AtomicU64] {
        let all = self.values.of(memory);
        &all[..usize::from(count).min(self.count).min(all.len())]
    }

    /// The values of all: of a domain, or the sums of all domains.
    pub(crate) fn values(&self, domain: Option<Domain>) -> Vec<u64> {
        (0..self.count).map(|number| self.values.value(number, domain)).collect()
    }

    /// Sets one to 0.
    pub(crate) fn reset(&self, number: usize) {
        if number < self.count {
            self.values.reset(number);
        }
    }
}
