//! Numbers in records: each stands for a handler at a site.
//!
//! What all records of a handler at a site have in common is kept here, and a record says the number only. A number is that of one
//! compiled handler, and belongs to it: as long as a process has the handler it can make records of that number. When no process has it any
//! more, its records may still wait in rings, and are read first; then the number is free.

use std::cell::RefCell;
use std::rc::Rc;

use rings::Bounds;

/// What the records of a number have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Common {
    /// The program's number, and the probe's in it.
    pub(crate) program: usize,
    pub(crate) probe: usize,
    /// The site's address; and the arming that it is of, if that may be copied to other processes, where it is farther by as much.
    pub(crate) address: u64,
    pub(crate) arming: u32,
    /// Major and minor code, where the handler sets none.
    pub(crate) codes: (u32, u32),
    /// What a record can hold.
    pub(crate) bounds: Bounds,
}

/// All numbers.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    all: Vec<Option<Common>>,
    free: Vec<u32>,
    /// Those whose handlers are gone, since it was looked last.
    retired: Rc<RefCell<Vec<u32>>>,
    /// Those whose handlers are gone, and whose records may not all be read.
    unread: Vec<u32>,
}

/// A number that is taken, for as long as this is kept.
#[derive(Debug)]
pub(crate) struct Number {
    number: u32,
    retired: Rc<RefCell<Vec<u32>>>,
}

impl Number {
    /// The number itself.
    pub(crate) fn get(&self) -> u32 {
        self.number
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        self.retired.borrow_mut().push(self.number);
    }
}

impl Numbers {
    /// A number for records that have this in common.
    pub(crate) fn take(&mut self, common: Common) -> Number {
        let number = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            (self.all.len() - 1) as u32
        });
        self.all[number as usize] = Some(common);
        Number { number, retired: Rc::clone(&self.retired) }
    }

    /// What a number stands for. It comes from a process's memory: it may be nobody's.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&Common> {
        self.all.get(usize::try_from(number).ok()?)?.as_ref()
    }

    /// What a record of a number can hold.
    #[inline]
    pub(crate) fn bounds(&self, number: u32) -> Option<Bounds> {
        self.get(number).map(|common| common.bounds)
    }

    /// It is about to be looked how far the rings are filled: no handler that is gone puts anything behind that.
    pub(crate) fn about_to_look(&mut self) {
        self.unread.append(&mut self.retired.borrow_mut());
    }

    /// Whether numbers wait until all is read.
    pub(crate) fn wait(&self) -> bool {
        !self.unread.is_empty()
    }

    /// All is read that was seen when it was looked last.
    pub(crate) fn all_is_read(&mut self) {
        for number in self.unread.drain(..) {
            self.all[number as usize] = None;
            self.free.push(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(probe: usize) -> Common {
        Common {
            program: 1,
            probe,
            address: 2,
            arming: 0,
            codes: (3, 4),
            bounds: Bounds { log: 5, traces: 6 },
        }
    }

    #[test]
    fn a_number_is_used_again_once_its_records_are_read() {
        let mut numbers = Numbers::default();
        let (first, second) = (numbers.take(common(1)), numbers.take(common(2)));
        let (one, two) = (first.get(), second.get());
        assert_eq!((numbers.get(one), numbers.get(two)), (Some(&common(1)), Some(&common(2))));
        assert_eq!((numbers.get(7), numbers.bounds(one)), (None, Some(Bounds { log: 5, traces: 6 })));
        drop(first);
        // What was looked at before it was dropped is not all.
        numbers.all_is_read();
        assert_eq!(numbers.get(one), Some(&common(1)));
        numbers.about_to_look();
        assert!(numbers.wait() && numbers.get(one).is_some());
        let third = numbers.take(common(3));
        assert!(![one, two].contains(&third.get()));
        numbers.all_is_read();
        assert!(!numbers.wait() && numbers.get(one).is_none());
        assert_eq!(numbers.take(common(4)).get(), one);
        assert_eq!(numbers.get(one), Some(&common(4)));
    }
}
