//! Compiles all handlers of a site, and determines what commits their record.

use std::ops::RangeInclusive;
use std::rc::Rc;

use process::Mapping;

use crate::jump::trampoline::Commit;
use crate::jump::{Code, Layout};
use crate::site::Planned;
use crate::site_use::Use;

mod compiler;

/// A site that is about to become a jump.
pub(crate) struct ReadySite {
    pub(crate) planned: Planned,
    handlers: Vec<(Use, Rc<dyn Code>)>,
    /// The code that commits a record behind the displaced instruction, if one waits for that.
    commit: Option<Commit>,
}

impl ReadySite {
    /// Its trampoline without a tail, not placed yet.
    pub(crate) fn layout(&self) -> Layout<'_> {
        Layout {
            displaced: &self.planned.0.displaced,
            handlers: &self.handlers,
            commit: self.commit.as_ref(),
            tail: &[],
        }
    }
}

/// The handlers of a site, and what commits their record if that waits for the displaced
/// instruction.
type Handlers = (Vec<(Use, Rc<dyn Code>)>, Option<Commit>);

/// Whether a range of addresses is mapped readable, or (if `written`) writable, too.
fn is_accessible(mappings: &[Mapping], range: &RangeInclusive<u64>, written: bool) -> bool {
    let mut next = *range.start();
    for mapping in mappings {
        if mapping.contains(next) && mapping.readable && (mapping.writable || !written) {
            next = mapping.end;
            if next > *range.end() {
                return true;
            }
        }
    }
    false
}
