//! The code of a mapping as the program has it, over which jumps are planned.
//!
//! It is read while the program runs, and compared again when all threads are held
//! ([`Text::is_still`]): a plan holds only for the bytes that it was made for.

use std::ops::Range;
use std::rc::Rc;

use patch::Mode;
use patch::tactic::{Jump as Shape, Write};
use process::Module;

use super::code_cache::Kept;
use crate::change::Change;
use crate::module_key::module_key;
use crate::reason::NoJump;
use crate::site::Planned;
use crate::site_use::{INT3, Use};

mod space;

/// Changes closer together than this are compared together.
const CLOSE: u64 = 4096;
/// How far around a change the bytes must be unchanged: farther than any jump relies on them.
const AROUND: u64 = 256;

/// The code of one mapping as the program has it, without our changes.
#[derive(Debug)]
pub(crate) struct Text {
    start: u64,
    code: Rc<Kept>,
}

/// What is written for a jump: the changes of the program's code, and the landing pad.
pub(crate) struct Written {
    pub(crate) changes: Vec<Change>,
    pub(crate) pad: Option<Write>,
}

impl Text {
    #[cfg(test)]
    pub(crate) fn new(start: u64, bytes: &[u8]) -> Text {
        Text { start, code: Rc::new(Kept::of(bytes.to_vec())) }
    }

    /// The addresses inside instructions to which the code jumps, ascending.
    pub(crate) fn entered(&self) -> Vec<u64> {
        self.code.entered().iter().map(|offset| self.start + offset).collect()
    }

    pub(crate) fn code(&self) -> &Rc<Kept> {
        &self.code
    }

    pub(crate) fn range(&self) -> Range<u64> {
        self.start..self.start + self.bytes().len() as u64
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.code.bytes()
    }

    /// The program's bytes at an address.
    fn at(&self, address: u64, length: usize) -> Option<&[u8]> {
        let from = usize::try_from(address.checked_sub(self.start)?).ok()?;
        self.bytes().get(from..from.checked_add(length)?)
    }

    /// Up to `most` of the program's bytes from an address on.
    pub(crate) fn ahead(&self, address: u64, most: usize) -> &[u8] {
        let from = address.checked_sub(self.start).and_then(|from| usize::try_from(from).ok());
        let rest = from.and_then(|from| self.bytes().get(from..)).unwrap_or_default();
        &rest[..rest.len().min(most)]
    }

    /// The changes that replace the program's bytes by these.
    fn changes(&self, writes: Vec<Write>) -> Option<Vec<Change>> {
        let change = |write: &Write| {
            Some(Change::new(write.address, self.at(write.address, write.bytes.len())?, &write.bytes))
        };
        writes.iter().map(change).collect()
    }

    /// The bytes for a planned jump to a trampoline with this entry.
    pub(crate) fn written(&self, shape: &Shape, entry: u64) -> Option<Written> {
        let changes = self.changes(shape.code(entry)?)?;
        let pad = match shape.pad {
            Some(_) => Some(shape.pad(entry)?),
            None => None,
        };
        Some(Written { changes, pad })
    }

    /// The `int3` of a site that will trap.
    pub(crate) fn trap(&self, address: u64) -> Option<Change> {
        Some(Change::new(address, self.at(address, 1)?, &[INT3]))
    }

    /// An instruction that is moved because it is in the way, as a site without a probe.
    pub(crate) fn neighbour(&self, module: &Module, shape: &Shape) -> Result<Planned, NoJump> {
        let bytes = self.at(shape.address, shape.length).ok_or(NoJump::NotInCode)?;
        let displaced = patch::displace_in(Mode::Bits64, bytes, shape.address)?;
        Ok(Planned::new(module_key(module), displaced, Use::Neighbour))
    }
}
