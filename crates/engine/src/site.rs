//! A site: one probed instruction of one address space. Its states are types.
//!
//! A [`Planned`] site has passed every check and nothing of the process was changed for it. Arming it gives an
//! [`Armed`] one, with `int3` as its first byte. Disarming that restores the byte; the [`Disarmed`] site is kept,
//! for threads that had reached the `int3` before.

use std::io;
use std::rc::Rc;

use patch::{Displaced, Slot};
use process::Memory;

use crate::ledger::{Entered, Ledger};
use crate::space::ModuleKey;

/// The longest instruction of the processor, in bytes.
pub(crate) const LONGEST: usize = 15;

/// The instruction that traps.
pub(crate) const INT3: u8 = 0xcc;

/// Who wants to know of a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// A probe of a program.
    Probe {
        /// The program's number.
        program: usize,
        /// The probe's number in it.
        probe: usize,
    },
    /// The dynamic linker has just mapped something.
    Mapped,
    /// The dynamic linker says that its list of modules has changed, or is about to.
    Listed,
    /// The program's own first instruction: all it was linked with is mapped.
    Entry,
}

/// What all states of a site have.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// Its address.
    pub(crate) address: u64,
    /// The module it is in.
    pub(crate) module: ModuleKey,
    /// Its instruction, ready to be emulated or run elsewhere.
    pub(crate) displaced: Displaced,
    /// Its slot, once it has one.
    pub(crate) slot: Option<Slot>,
    /// Who wants to know.
    pub(crate) uses: Vec<Use>,
    /// The first byte of the instruction.
    original: u8,
}

/// Which of the engine's own purposes a site serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnUses {
    /// [`Use::Mapped`].
    pub(crate) mapped: bool,
    /// [`Use::Listed`].
    pub(crate) listed: bool,
    /// [`Use::Entry`].
    pub(crate) entry: bool,
}

impl Site {
    /// The first byte of the instruction, in place of which `int3` stands while it is armed.
    pub(crate) fn original(&self) -> u8 {
        self.original
    }

    pub(crate) fn own_uses(&self) -> OwnUses {
        let has = |wanted| self.uses.contains(&wanted);
        OwnUses { mapped: has(Use::Mapped), listed: has(Use::Listed), entry: has(Use::Entry) }
    }
}

/// Checked, and nothing changed.
#[derive(Debug)]
pub(crate) struct Planned(pub(crate) Site);

/// Its first byte is `int3`, and the ledger says so.
#[derive(Debug)]
pub(crate) struct Armed(Site, #[expect(dead_code, reason = "its drop strikes the site out")] Option<Entered>);

/// The code of an address space: where it is written, and how that is kept in mind.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) memory: Memory,
    /// A process that has the address space.
    pub(crate) process: i32,
    pub(crate) ledger: Option<Rc<Ledger>>,
}

impl Code {
    fn enter(&self, site: &Site) -> Option<Entered> {
        self.ledger.as_ref()?.enter(self.process, site.address, site.original)
    }
}

/// Its first byte is its own again.
#[derive(Clone, Debug)]
pub(crate) struct Disarmed(Site);

impl Planned {
    pub(crate) fn new(module: ModuleKey, displaced: Displaced, wanted: Use) -> Planned {
        let original = displaced.original()[0];
        Planned(Site {
            address: displaced.address(),
            module,
            displaced,
            slot: None,
            uses: vec![wanted],
            original,
        })
    }

    /// Writes the `int3`.
    pub(crate) fn arm(self, code: &Code) -> io::Result<Armed> {
        let entered = code.enter(&self.0);
        code.memory.poke(self.0.address, &[INT3])?;
        Ok(Armed(self.0, entered))
    }
}

impl Armed {
    pub(crate) fn site(&self) -> &Site {
        &self.0
    }

    pub(crate) fn uses_mut(&mut self) -> &mut Vec<Use> {
        &mut self.0.uses
    }

    /// Restores the byte, unless something else is there by now: the module was unmapped, or another debugger
    /// has written there.
    pub(crate) fn disarm(self, memory: &Memory) -> Disarmed {
        restore(&self.0, memory);
        Disarmed(self.0)
    }

    /// The same site in the memory of a child, which is a copy of this one's.
    pub(crate) fn copy(&self, code: &Code) -> Armed {
        Armed(self.0.clone(), code.enter(&self.0))
    }

    /// Whether the memory of a child that was copied from this site's process has the `int3` (and with it the slot,
    /// which is written first). It has not where the copy was taken before the site was armed, or where the module
    /// was unmapped.
    pub(crate) fn is_in(&self, memory: &Memory) -> bool {
        let mut byte = [0];
        memory.peek(self.0.address, &mut byte).is_ok() && byte[0] == INT3
    }

    /// Makes sure that the `int3` is there, after the module may have been mapped anew. Says whether the instruction
    /// is still the one that the site was made for.
    pub(crate) fn refresh(&self, memory: &Memory) -> io::Result<bool> {
        let original = self.0.displaced.original();
        let mut bytes = [0; LONGEST];
        let bytes = &mut bytes[..original.len()];
        memory.peek(self.0.address, bytes)?;
        if bytes == original {
            memory.poke(self.0.address, &[INT3])?;
            return Ok(true);
        }
        Ok(bytes[0] == INT3 && bytes[1..] == original[1..])
    }

    /// Forgets a site whose module is no longer mapped.
    pub(crate) fn forget(self) -> Disarmed {
        Disarmed(self.0)
    }
}

impl Disarmed {
    pub(crate) fn site(&self) -> &Site {
        &self.0
    }

    /// In the memory of a child that was copied from this site's process: restores the byte where the copy was
    /// taken before the site was disarmed.
    pub(crate) fn inherit(&self, memory: &Memory) -> Disarmed {
        restore(&self.0, memory);
        self.clone()
    }
}

/// Puts a site's byte back where the `int3` is.
fn restore(site: &Site, memory: &Memory) {
    let mut byte = [0];
    if memory.peek(site.address, &mut byte).is_ok() && byte[0] == INT3 {
        // It fails only if the process is gone or has unmapped the page meanwhile.
        let _ = memory.poke(site.address, &[site.original]);
    }
}
