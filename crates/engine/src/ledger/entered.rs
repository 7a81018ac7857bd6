//! Handles to ledger entries. Dropping one strikes the entry out.

use std::rc::Rc;

use super::Ledger;
use super::entry::Entry;

/// The entry of a change while it is made, or of memory while it is mapped.
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

/// The entry of a list for one process, while its changes may be there. The list outlives the
/// entry, which refers to it.
#[derive(Debug)]
pub(crate) struct EnteredList {
    pub(super) _entered: Entered,
    pub(super) _listed: Rc<Listed>,
}

/// A list of changes, while processes may have them.
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
        // Another list may follow it at the end.
        if free.1 == numbers.end { free.1 = numbers.start } else { free.0.extend(numbers) }
    }
}
