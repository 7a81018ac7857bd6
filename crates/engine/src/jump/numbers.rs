//! The numbers in records: each stands for one handler at one site.
//!
//! A record has only the number; the data common to all records of a handler at a site is kept
//! here. A number belongs to one compiled handler: while a process has that handler, it can make
//! records with the number. When no process has it any more, records may still be in rings; once
//! they are read, the number is free.

use std::cell::RefCell;
use std::rc::Rc;

use rings::Bounds;

/// What all records with a number have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Common {
    /// The number of the program, and that of the probe in it.
    pub(crate) program: usize,
    pub(crate) probe: usize,
    /// The site's address; and the number of its arming if that may be copied (else 0): in other
    /// processes the site's address differs by as much as the arming was moved.
    pub(crate) address: u64,
    pub(crate) arming: u32,
    /// The major and minor code, unless the handler sets others.
    pub(crate) codes: (u32, u32),
    /// How much a record can hold.
    pub(crate) bounds: Bounds,
}

#[derive(Debug, Default)]
pub(crate) struct Numbers {
    all: Vec<Option<Common>>,
    free: Vec<u32>,
    /// The numbers whose handlers have gone since the rings were looked at last.
    retired: Rc<RefCell<Vec<u32>>>,
    /// The numbers whose handlers are gone, and whose records may not all be read.
    unread: Vec<u32>,
}

/// A number that is in use until this is dropped.
#[derive(Debug)]
pub(crate) struct Number {
    number: u32,
    retired: Rc<RefCell<Vec<u32>>>,
}

impl Number {
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
    /// Takes a number for records that have this in common.
    pub(crate) fn take(&mut self, common: Common) -> Number {
        let number = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            (self.all.len() - 1) as u32
        });
        self.all[number as usize] = Some(common);
        Number { number, retired: Rc::clone(&self.retired) }
    }

    /// What a number stands for. The number is from a process's memory, and may be invalid.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&Common> {
        self.all.get(usize::try_from(number).ok()?)?.as_ref()
    }

    /// How much a record with a number can hold.
    #[inline]
    pub(crate) fn bounds(&self, number: u32) -> Option<Bounds> {
        self.get(number).map(|common| common.bounds)
    }

    /// Called before the reader looks how far the rings are filled: handlers that are gone by now
    /// add nothing more.
    pub(crate) fn about_to_look(&mut self) {
        self.unread.append(&mut self.retired.borrow_mut());
    }

    /// Whether numbers become free once everything is read.
    pub(crate) fn wait(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Called when everything is read that was in the rings at the last look.
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
        // What is read now was looked at before it was dropped.
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
