//! The followed address spaces, by number.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use crate::ledger::Ledger;
use crate::space::Space;

/// All address spaces. A number is never reused.
#[derive(Debug)]
pub(crate) struct Spaces {
    all: HashMap<u32, Space>,
    next: u32,
    /// The ledger in which changes to them are entered.
    pub(crate) ledger: Option<Rc<Ledger>>,
}

impl Spaces {
    /// No space yet.
    pub(crate) fn new(ledger: Option<Rc<Ledger>>) -> Spaces {
        Spaces { all: HashMap::new(), next: 0, ledger }
    }

    /// Adds a space. Returns its number.
    pub(crate) fn add(&mut self, space: Space) -> u32 {
        let number = self.next;
        self.next += 1;
        self.all.insert(number, space);
        number
    }
}

impl Deref for Spaces {
    type Target = HashMap<u32, Space>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl DerefMut for Spaces {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.all
    }
}
