//! What a site is for.

use crate::change::LONGEST;

/// The largest distance of a site's changes from the site: the range of a short jump and the bytes
/// of a jump.
pub(crate) const FAR: u64 = 128 + LONGEST as u64;

/// The instruction that traps.
pub(crate) const INT3: u8 = 0xcc;

/// What a site is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Use {
    /// A probe of a program.
    Probe {
        /// The program's number.
        program: usize,
        /// The probe's index in it.
        probe: usize,
    },
    /// The dynamic linker has just mapped something.
    Mapped,
    /// The dynamic linker is about to close the file of what it has just mapped, or another file.
    Closes,
    /// The dynamic linker reports that its list of modules has changed or is about to.
    Listed,
    /// The program's first instruction: all modules it was linked with are mapped.
    Entry,
    /// The libc blocks all signals here.
    MasksSignals,
    /// Nothing: its bytes are reserved for the jump of another site.
    Neighbour,
}

impl Use {
    /// The number of the program whose probe it is.
    pub(crate) fn program(&self) -> Option<usize> {
        match *self {
            Use::Probe { program, .. } => Some(program),
            _ => None,
        }
    }

    /// Whether it is a probe of this program.
    pub(crate) fn is_of(&self, number: usize) -> bool {
        matches!(*self, Use::Probe { program, .. } if program == number)
    }
}

/// Which of the engine's own purposes a site serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnUses {
    /// [`Use::Mapped`].
    pub(crate) mapped: bool,
    /// [`Use::Closes`].
    pub(crate) closes: bool,
    /// [`Use::Listed`].
    pub(crate) listed: bool,
    /// [`Use::Entry`].
    pub(crate) entry: bool,
}
