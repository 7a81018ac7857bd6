//! A site: one probed instruction of one address space. Its states are types.
//!
//! A [`Planned`] site has passed every check, and nothing in the process was changed for it. Arming
//! makes it an [`Armed`] site: its first byte is `int3`, or it is a jump to a trampoline ([`Way`]).
//! Disarming restores the bytes. The [`Disarmed`] site is kept for threads that had hit the `int3`
//! before.

use std::io;
use std::rc::Rc;

use patch::{Displaced, Slot};
use process::Memory;

pub(crate) use crate::change::LONGEST;
use crate::change::{Batch, Change, Undo};
use crate::hold::Held;
use crate::ledger::{Entered, Full, Ledger};
use crate::module_key::ModuleKey;
use crate::site_use::{INT3, OwnUses, Use};
use crate::window::Window;

mod refresh;

/// The data that all states of a site have.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// Its address.
    pub(crate) address: u64,
    /// The module it is in.
    pub(crate) module: ModuleKey,
    /// Its instruction, ready to be emulated or executed elsewhere.
    pub(crate) displaced: Displaced,
    /// Its slot, if it has one.
    pub(crate) slot: Option<Slot>,
    /// What it is for.
    pub(crate) uses: Vec<Use>,
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

    /// The change that makes it trap. A site that lends a signal mask is restored last: until
    /// nothing traps any more, SIGTRAP must not be blocked.
    pub(crate) fn trap(&self) -> Change {
        let change = Change::new(self.address, &self.displaced.original()[..1], &[INT3]);
        change.undone(if self.displaced.lent().is_some() { Undo::AfterTraps } else { Undo::Now })
    }

    /// The same site in a process that has the module mapped `by` bytes higher.
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

    /// Whether a probe is at it.
    pub(crate) fn is_probed(&self) -> bool {
        self.uses.iter().any(|wanted| matches!(wanted, Use::Probe { .. }))
    }
}

/// How an armed site fires.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// By an `int3`, which the tracer handles.
    Trap,
    /// By a jump to a trampoline in the process.
    Jump(Rc<Jump>),
}

/// The jump at a site.
#[derive(Debug)]
pub(crate) struct Jump {
    /// The bytes written for it, those of the site first.
    pub(crate) changes: Vec<Change>,
    /// The address of its trampoline.
    pub(crate) trampoline: u64,
    /// The name of the tactic.
    pub(crate) tactic: &'static str,
    /// The tactic's description of the jump, needed to change its target.
    pub(crate) shape: patch::tactic::Jump,
    /// The instructions after the site's that it covers, if they are executed only in its
    /// trampoline.
    pub(crate) followers: Vec<Displaced>,
}

impl Jump {
    /// The same jump in a process in which its site and everything it leads to are `by` bytes
    /// higher.
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

/// A site that has passed all checks; nothing was changed.
#[derive(Debug)]
pub(crate) struct Planned(pub(crate) Box<Site>);

/// A site whose changed bytes are written or about to be. The ledger has an entry for them.
#[derive(Debug)]
pub(crate) struct Armed {
    /// Shared with the copies in forked children.
    site: Rc<Site>,
    way: Way,
    entered: Vec<Entered>,
}

/// The code of an address space, and the ledger for changes to it.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) memory: Memory,
    /// The id of a process that has the address space.
    pub(crate) process: i32,
    pub(crate) ledger: Option<Rc<Ledger>>,
}

impl Code {
    /// Enters changes in the ledger until the returned entries are dropped: all of them or none.
    pub(crate) fn enter(&self, changes: &[Change]) -> Result<Vec<Entered>, Full> {
        let Some(ledger) = &self.ledger else { return Ok(Vec::new()) };
        changes.iter().map(|change| ledger.enter(self.process, change)).collect()
    }

    /// Whether the ledger has room for this many changes.
    pub(crate) fn has_room(&self, changes: usize) -> Result<(), Full> {
        self.ledger.as_ref().map_or(Ok(()), |ledger| ledger.has_room(changes))
    }

    /// Enters changes that are already in effect, if there is room; else counts them as missed.
    pub(crate) fn enter_if_room(&self, changes: &[Change]) -> Vec<Entered> {
        self.enter(changes).unwrap_or_else(|Full| {
            self.ledger.iter().for_each(|ledger| ledger.misses(changes.len()));
            Vec::new()
        })
    }
}

/// A site whose bytes are restored.
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

    /// A site whose `int3` was removed before the site was registered as armed.
    pub(crate) fn unwritten(self) -> Disarmed {
        Disarmed { site: self.0.into(), way: Way::Trap }
    }

    /// Enters the `int3` in the ledger and in the batch to be written.
    pub(crate) fn arm(self, code: &Code, batch: &mut Batch) -> io::Result<Armed> {
        let change = self.0.trap();
        let entered = code.enter(&[change])?;
        batch.put_in(change);
        Ok(Armed { site: self.0.into(), way: Way::Trap, entered })
    }

    /// Enters the jump in the ledger, which has room for it ([`Code::has_room`]), and in the batch
    /// to be written.
    pub(crate) fn arm_with(self, jump: Rc<Jump>, code: &Code, batch: &mut Batch) -> Armed {
        let entered = code.enter_if_room(&jump.changes);
        jump.changes.iter().for_each(|change| batch.put_in(*change));
        Armed { site: self.0.into(), way: Way::Jump(jump), entered }
    }
}

impl Way {
    /// The changes it consists of.
    fn changes(&self, site: &Site) -> Vec<Change> {
        match self {
            Way::Trap => vec![site.trap()],
            Way::Jump(jump) => jump.changes.clone(),
        }
    }
}

impl Armed {
    /// A site of a copied arming, for which the ledger has one common entry.
    pub(crate) fn with_others(site: Site, jump: Jump) -> Armed {
        Armed { site: Rc::new(site), way: Way::Jump(Rc::new(jump)), entered: Vec::new() }
    }

    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    /// The parts it shares with its copies: the site and its jump, unless it traps.
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

    /// Calls `show` with each change written for it.
    pub(crate) fn each_change(&self, mut show: impl FnMut(&Change)) {
        match &self.way {
            Way::Trap => show(&self.site.trap()),
            Way::Jump(jump) => jump.changes.iter().for_each(show),
        }
    }

    /// The changes written for it.
    pub(crate) fn changes(&self) -> Vec<Change> {
        self.way.changes(&self.site)
    }

    /// Restores the byte of a site that traps, unless another byte is there by now: the module was
    /// unmapped, or another debugger has written there. Jumps are removed in batches:
    /// [`Armed::take_out`].
    pub(crate) fn disarm(self, memory: &Memory) -> Disarmed {
        debug_assert!(self.jump().is_none(), "a jump is taken out while all threads are held");
        self.site.trap().restore_byte(memory);
        self.forget()
    }

    /// Adds the restoring of its bytes to a batch. The ledger entries are returned, to be dropped
    /// after the batch was written.
    pub(crate) fn take_out(self, batch: &mut Batch) -> (Disarmed, Vec<Entered>) {
        self.way.changes(&self.site).into_iter().for_each(|change| batch.take_out(change));
        (Disarmed { site: self.site, way: self.way }, self.entered)
    }

    /// The same site in the memory of a forked child.
    pub(crate) fn copy(&self, code: &Code) -> Armed {
        let entered = code.enter_if_room(&self.way.changes(&self.site));
        Armed { site: Rc::clone(&self.site), way: self.way.clone(), entered }
    }

    /// Whether the memory of a forked child has the changes made for the site (and so its slot or
    /// trampoline, which is written first). It has not if the fork came before the arming, or if
    /// the module was unmapped.
    pub(crate) fn is_in(&self, memory: &Window<'_>) -> bool {
        match &self.way {
            Way::Trap => self.site.trap().is_in(memory),
            Way::Jump(jump) => jump.changes.iter().all(|change| change.is_in(memory)),
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

    /// Whether threads may still arrive from its `int3`.
    pub(crate) fn trapped(&self) -> bool {
        matches!(self.way, Way::Trap)
    }

    /// In a forked child: restores the bytes if the fork came before the site was disarmed.
    pub(crate) fn inherit(&self, batch: &mut Batch) -> Disarmed {
        self.way.changes(&self.site).into_iter().for_each(|change| batch.take_out(change));
        self.clone()
    }
}

/// Writes a batch to an address space all of whose threads are held.
pub(crate) fn write(batch: Batch, code: &Code, held: &Held) -> io::Result<()> {
    if batch.is_empty() { Ok(()) } else { batch.write(&code.memory, held) }
}
