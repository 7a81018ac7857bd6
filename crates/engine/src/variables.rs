//! Variables of programs, local and global.
//!
//! Each trust domain has its own variables, in its cells: the processes of a domain share them. The
//! tracer shows the sum over all domains.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::jump::{Cells, Domain, Shared, Words};

/// Variables: in memory shared with probed processes or, without such memory, in the tracer's own.
#[derive(Debug)]
pub(crate) enum Variables {
    Shared(Words),
    Own(Box<[AtomicU64]>),
}

/// The memory that holds a domain's variables, if there is any.
pub(crate) type Memory = Option<Rc<Shared>>;

impl Variables {
    /// `count` variables, all 0.
    pub(crate) fn new(count: usize, cells: Option<&mut Cells>) -> Variables {
        match cells.and_then(|cells| cells.words(count)) {
            Some(words) => Variables::Shared(words),
            None => Variables::Own((0..count).map(|_| AtomicU64::new(0)).collect()),
        }
    }

    /// The number of variables.
    pub(crate) fn len(&self) -> usize {
        match self {
            Variables::Shared(words) => words.count(),
            Variables::Own(words) => words.len(),
        }
    }

    /// The offset of a variable in the shared memory; `None` if not shared.
    pub(crate) fn offset(&self, number: u16) -> Option<usize> {
        match self {
            Variables::Shared(words) => Some(words.offset() + usize::from(number) * size_of::<u64>()),
            Variables::Own(_) => None,
        }
    }

    /// The address of the first variable in a process that has the shared memory at `base`.
    pub(crate) fn address(&self, base: u64) -> Option<u32> {
        match self {
            Variables::Shared(words) => Some(words.address(base)),
            Variables::Own(_) => None,
        }
    }

    /// The memory with the variables of a domain.
    pub(crate) fn memory(&self, domain: Domain) -> Memory {
        match self {
            Variables::Shared(words) => words.memory(domain),
            Variables::Own(_) => None,
        }
    }

    /// The variables in a memory.
    pub(crate) fn of<'a>(&'a self, memory: &'a Memory) -> &'a [AtomicU64] {
        match (self, memory) {
            (Variables::Shared(words), Some(memory)) => words.of(memory),
            (Variables::Shared(_), None) => &[],
            (Variables::Own(words), _) => words,
        }
    }

    /// The value of a variable: in a domain, or summed over all.
    pub(crate) fn value(&self, number: usize, domain: Option<Domain>) -> u64 {
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        match (self, domain) {
            (Variables::Shared(words), None) => words.sum(number),
            (Variables::Shared(words), Some(domain)) => words.with(domain, number, load).unwrap_or(0),
            (Variables::Own(words), _) => words.get(number).map_or(0, load),
        }
    }

    /// Sets a variable to 0 in all domains.
    pub(crate) fn reset(&self, number: usize) {
        match self {
            Variables::Shared(words) => words.each(number, |_, word| word.store(0, Ordering::Relaxed)),
            Variables::Own(words) => {
                words.get(number).into_iter().for_each(|word| word.store(0, Ordering::Relaxed));
            }
        }
    }
}

/// The global variables: one array for all programs. It grows to the largest number that a program
/// asks for, and keeps its values for the tracer's lifetime.
#[derive(Debug)]
pub(crate) struct Globals {
    values: Variables,
    count: usize,
}

impl Globals {
    /// No variable yet.
    pub(crate) fn new(cells: Option<&mut Cells>) -> Globals {
        /// The most a program can ask for.
        const MAX_GLOBALS: usize = u16::MAX as usize;
        let values = match cells {
            Some(cells) => Variables::Shared(cells.globals(MAX_GLOBALS)),
            None => Variables::new(MAX_GLOBALS, None),
        };
        Globals { values, count: 0 }
    }

    /// Grows to at least `count` variables.
    pub(crate) fn grow(&mut self, count: u16) {
        self.count = self.count.max(usize::from(count)).min(self.values.len());
    }

    /// The address of the first variable in a process that has the shared memory at `base`.
    pub(crate) fn address(&self, base: u64) -> Option<u32> {
        self.values.address(base)
    }

    /// The memory with the variables of a domain.
    pub(crate) fn memory(&self, domain: Domain) -> Memory {
        self.values.memory(domain)
    }

    /// The variables in a memory that a program may use which asks for `count`.
    pub(crate) fn of<'a>(&'a self, memory: &'a Memory, count: u16) -> &'a [AtomicU64] {
        let all = self.values.of(memory);
        &all[..usize::from(count).min(self.count).min(all.len())]
    }

    /// All values: in a domain, or summed over all.
    pub(crate) fn values(&self, domain: Option<Domain>) -> Vec<u64> {
        (0..self.count).map(|number| self.values.value(number, domain)).collect()
    }

    /// Sets a variable to 0.
    pub(crate) fn reset(&self, number: usize) {
        if number < self.count {
            self.values.reset(number);
        }
    }
}
