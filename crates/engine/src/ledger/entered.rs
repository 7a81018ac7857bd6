//! What the ledger has, as long as it has it: dropping it strikes it out.

use std::rc::Rc;

use super::Ledger;
use super::entry::Entry;

/// A site's place in a ledger, as long as the site is armed; or that of memory, as long as it is mapped.
#[derive(Debug)]
pub(crate) struct Entered {
    pub(super) ledger: Rc<Ledger>,
    pub(super) number: usize,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.ledger.strike(self.number);
    }
}

/// A list's place in a ledger for one process, as long as its changes may be there. The list outlives the entry, which names it.
#[derive(Debug)]
pub(crate) struct EnteredList {
    pub(super) _entered: Entered,
    pub(super) _listed: Rc<Listed>,
}

/// A list of changes, as long as processes may have them.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(super) ledger: Rc<Ledger>,
    pub(super) first: usize,
    pub(super) count: usize,
}

impl Drop for Listed {
    fn drop(&mut self) {
        let numbers = self.first..self.first + self.count;
        self.ledger.entries()[numbers.clone()].iter().for_each(Entry::clear);
        let mut free = self.ledger.free.borrow_mut();
        // What is at the end can be another list.
        if free.1 == numbers.end { free.1 = numbers.start } else { free.0.extend(numbers) }
    }
}
