//! A site: one probed instruction of one address space. Its states are types.
//!
//! A [`Planned`] site has passed every check and nothing of the process was changed for it. Arming it gives an
//! [`Armed`] one: `int3` is its first byte, or a jump to a trampoline stands in its place ([`Way`]). Disarming that restores the
//! bytes; the [`Disarmed`] site is kept, for threads that had reached the `int3` before.

use std::io;
use std::rc::Rc;

use patch::{Displaced, Slot};
use process::Memory;

pub(crate) use crate::change::LONGEST;
use crate::change::{Batch, Change, Undone};
use crate::hold::Held;
use crate::ledger::{Entered, Full, Ledger};
use crate::sites::Sites;
use crate::space::ModuleKey;
use crate::window::Window;

/// A site's changes are no farther from it: where a short jump leads, and the bytes of a jump.
pub(crate) const FAR: u64 = 128 + LONGEST as u64;

/// The instruction that traps.
pub(crate) const INT3: u8 = 0xcc;

/// Who wants to know of a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// The dynamic linker is about to close the file of what it has just mapped, or another one.
    Closes,
    /// The dynamic linker says that its list of modules has changed, or is about to.
    Listed,
    /// The program's own first instruction: all it was linked with is mapped.
    Entry,
    /// The libc blocks all signals there.
    Blocks,
    /// Nobody: the jump of another site needs its bytes as they are.
    Neighbour,
}

impl Use {
    /// The program whose probe it is.
    pub(crate) fn program(&self) -> Option<usize> {
        match *self {
            Use::Probe { program, .. } => Some(program),
            _ => None,
        }
    }

    /// Whether it is a probe of a program.
    pub(crate) fn is_of(&self, number: usize) -> bool {
        matches!(*self, Use::Probe { program, .. } if program == number)
    }
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

impl Site {
    pub(crate) fn own_uses(&self) -> OwnUses {
        let has = |wanted| self.uses.contains(&wanted);
        OwnUses {
            mapped: has(Use::Mapped),
            closes: has(Use::Closes),
            listed: has(Use::Listed),
            entry: has(Use::Entry),
        }
    }

    /// The change that makes it trap. As long as anything traps, signals are blocked by what is lent.
    pub(crate) fn trap(&self) -> Change {
        let change = Change::new(self.address, &self.displaced.original()[..1], &[INT3]);
        change.undone(if self.displaced.lent().is_some() { Undone::Last } else { Undone::First })
    }

    /// The same site in a process that has the module `by` bytes farther.
    pub(crate) fn moved(&self, by: u64) -> Site {
        let (device, inode, bias) = self.module;
        Site {
            address: self.address.wrapping_add(by),
            module: (device, inode, bias.wrapping_add(by)),
            displaced: self.displaced.moved(by),
            slot: None,
            uses: self.uses.clone(),
        }
    }

    /// Whether it is a probe's.
    pub(crate) fn is_probed(&self) -> bool {
        self.uses.iter().any(|wanted| matches!(wanted, Use::Probe { .. }))
    }
}

/// How an armed site fires.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// By an `int3`, which the tracer answers.
    Trap,
    /// By a jump to a trampoline, in the process itself.
    Jump(Rc<Jump>),
}

/// A jump that stands at a site.
#[derive(Debug)]
pub(crate) struct Jump {
    /// What is written for it: the site first.
    pub(crate) changes: Vec<Change>,
    /// The address of its trampoline.
    pub(crate) trampoline: u64,
    /// How the jump was made to fit.
    pub(crate) tactic: &'static str,
    /// The same, for when it is to lead elsewhere.
    pub(crate) shape: patch::tactic::Jump,
    /// The instructions behind the site's that it covers, if they run in its trampoline alone.
    pub(crate) followers: Vec<Displaced>,
}

impl Jump {
    /// The same jump in a process in which its site and all that it leads to are `by` bytes farther.
    pub(crate) fn moved(&self, by: u64) -> Jump {
        Jump {
            changes: self.changes.iter().map(|change| change.moved(by)).collect(),
            trampoline: self.trampoline.wrapping_add(by),
            tactic: self.tactic,
            shape: self.shape.moved(by),
            followers: self.followers.iter().map(|follower| follower.moved(by)).collect(),
        }
    }
}

/// Checked, and nothing changed.
#[derive(Debug)]
pub(crate) struct Planned(pub(crate) Box<Site>);

/// Something else than the program's bytes is there, or about to be written, and the ledger says so.
#[derive(Debug)]
pub(crate) struct Armed {
    /// Shared with the copies that forked children have.
    site: Rc<Site>,
    way: Way,
    entered: Vec<Entered>,
}

/// The code of an address space: where it is written, and how that is kept in mind.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) memory: Memory,
    /// A process that has the address space.
    pub(crate) process: i32,
    pub(crate) ledger: Option<Rc<Ledger>>,
}

impl Code {
    /// Enters changes in the ledger, until what is returned is dropped: all of them or none.
    pub(crate) fn enter(&self, changes: &[Change]) -> Result<Vec<Entered>, Full> {
        let Some(ledger) = &self.ledger else { return Ok(Vec::new()) };
        changes.iter().map(|change| ledger.enter(self.process, change)).collect()
    }

    /// Whether the ledger has room for so many changes.
    pub(crate) fn has_room(&self, changes: usize) -> Result<(), Full> {
        self.ledger.as_ref().map_or(Ok(()), |ledger| ledger.has_room(changes))
    }

    /// Enters changes that are there already.
    pub(crate) fn enter_if_room(&self, changes: &[Change]) -> Vec<Entered> {
        self.enter(changes).unwrap_or_else(|Full| {
            self.ledger.iter().for_each(|ledger| ledger.misses(changes.len()));
            Vec::new()
        })
    }
}

/// Its bytes are its own again.
#[derive(Clone, Debug)]
pub(crate) struct Disarmed {
    site: Rc<Site>,
    way: Way,
}

impl Planned {
    pub(crate) fn new(module: ModuleKey, displaced: Displaced, wanted: Use) -> Planned {
        let address = displaced.address();
        Planned(Box::new(Site { address, module, displaced, slot: None, uses: vec![wanted] }))
    }

    /// A site whose `int3` is not there any more, before it was ever noted that it was.
    pub(crate) fn unwritten(self) -> Disarmed {
        Disarmed { site: self.0.into(), way: Way::Trap }
    }

    /// Enters the `int3` in the ledger, and in the batch that is about to be written.
    pub(crate) fn arm(self, code: &Code, batch: &mut Batch) -> io::Result<Armed> {
        let change = self.0.trap();
        let entered = code.enter(&[change])?;
        batch.put_in(change);
        Ok(Armed { site: self.0.into(), way: Way::Trap, entered })
    }

    /// Enters the jump in the ledger, which has room for it ([`Code::has_room`]), and in the batch that is about to be written.
    pub(crate) fn arm_with(self, jump: Rc<Jump>, code: &Code, batch: &mut Batch) -> Armed {
        let entered = code.enter_if_room(&jump.changes);
        jump.changes.iter().for_each(|change| batch.put_in(*change));
        Armed { site: self.0.into(), way: Way::Jump(jump), entered }
    }
}

impl Way {
    /// What is written for it.
    fn changes(&self, site: &Site) -> Vec<Change> {
        match self {
            Way::Trap => vec![site.trap()],
            Way::Jump(jump) => jump.changes.clone(),
        }
    }
}

impl Armed {
    /// A site that is armed with many others, for which the ledger has one entry.
    pub(crate) fn with_others(site: Site, jump: Jump) -> Armed {
        Armed { site: Rc::new(site), way: Way::Jump(Rc::new(jump)), entered: Vec::new() }
    }

    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    /// What it shares with its copies: the site and its jump, unless it traps.
    pub(crate) fn shared(&self) -> Option<(Rc<Site>, Rc<Jump>)> {
        Some((Rc::clone(&self.site), Rc::clone(self.jump()?)))
    }

    pub(crate) fn uses_mut(&mut self) -> &mut Vec<Use> {
        &mut Rc::make_mut(&mut self.site).uses
    }

    /// Its jump, unless it traps.
    pub(crate) fn jump(&self) -> Option<&Rc<Jump>> {
        match &self.way {
            Way::Trap => None,
            Way::Jump(jump) => Some(jump),
        }
    }

    /// Shows what is written for it, change by change.
    pub(crate) fn each_change(&self, mut show: impl FnMut(&Change)) {
        match &self.way {
            Way::Trap => show(&self.site.trap()),
            Way::Jump(jump) => jump.changes.iter().for_each(show),
        }
    }

    /// What is written for it.
    pub(crate) fn changes(&self) -> Vec<Change> {
        self.way.changes(&self.site)
    }

    /// Restores the byte of a site that traps, unless something else is there by now: the module was unmapped, or another
    /// debugger has written there. A jump is taken out with others: [`Armed::take_out`].
    pub(crate) fn disarm(self, memory: &Memory) -> Disarmed {
        debug_assert!(self.jump().is_none(), "a jump is taken out while all threads are held");
        self.site.trap().restore_byte(memory);
        self.forget()
    }

    /// Enters the restoring of its bytes in a batch. They stay in the ledger until what is returned is dropped, after the
    /// batch was written.
    pub(crate) fn take_out(self, batch: &mut Batch) -> (Disarmed, Vec<Entered>) {
        self.way.changes(&self.site).into_iter().for_each(|change| batch.take_out(change));
        (Disarmed { site: self.site, way: self.way }, self.entered)
    }

    /// The same site in the memory of a child, which is a copy of this one's.
    pub(crate) fn copy(&self, code: &Code) -> Armed {
        let entered = code.enter_if_room(&self.way.changes(&self.site));
        Armed { site: Rc::clone(&self.site), way: self.way.clone(), entered }
    }

    /// Whether the memory of a child that was copied from this site's process has what is written for it (and with it the slot
    /// or trampoline, which is written first). It has not where the copy was taken before the site was armed, or where the
    /// module was unmapped.
    pub(crate) fn is_in(&self, memory: &Window<'_>) -> bool {
        match &self.way {
            Way::Trap => self.site.trap().is_in(memory),
            Way::Jump(jump) => jump.changes.iter().all(|change| change.is_in(memory)),
        }
    }

    /// Makes sure that what makes it fire is there, after the module may have been mapped anew. Says whether the site is
    /// still what it was made for. A jump is not written again, but the site planned anew.
    pub(crate) fn refresh(&self, memory: &Window<'_>, sites: &Sites) -> io::Result<bool> {
        let original = self.site.displaced.original();
        let mut bytes = [0; LONGEST];
        let bytes = &mut bytes[..original.len()];
        memory.peek(self.site.address, bytes)?;
        match &self.way {
            Way::Trap if bytes == original => {
                self.site.trap().write_byte(memory.memory())?;
                memory.forget();
                Ok(true)
            }
            Way::Trap => Ok(bytes[0] == INT3 && bytes[1..] == original[1..]),
            Way::Jump(_) => {
                sites.hide(self.site.address, bytes);
                Ok(bytes == original && self.is_in(memory))
            }
        }
    }

    /// Forgets a site whose module is no longer mapped.
    pub(crate) fn forget(self) -> Disarmed {
        Disarmed { site: self.site, way: self.way }
    }
}

impl Disarmed {
    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    /// Whether threads may still be on their way from its `int3`.
    pub(crate) fn trapped(&self) -> bool {
        matches!(self.way, Way::Trap)
    }

    /// In the memory of a child that was copied from this site's process: restores the bytes where the copy was
    /// taken before the site was disarmed.
    pub(crate) fn inherit(&self, batch: &mut Batch) -> Disarmed {
        self.way.changes(&self.site).into_iter().for_each(|change| batch.take_out(change));
        self.clone()
    }
}

/// Makes the changes of a batch in the memory of an address space, all of whose threads are held.
pub(crate) fn write(batch: Batch, code: &Code, held: &Held) -> io::Result<()> {
    if batch.is_empty() { Ok(()) } else { batch.write(&code.memory, held) }
}
