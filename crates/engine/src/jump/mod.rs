//! Sites that are jumps.
//!
//! ```text
//!     site:   e9 ..              jmp T                     (or a jump to a landing pad, which jumps to T)
//!     T:      the handlers, one behind the other
//!     D:      the displaced instruction
//!     A:      the record is committed                      only where a handler logs and the instruction can fault
//!     F:      copies of the following instructions         as many as the site's jump covers
//!     J:      jmp behind them
//! ```
//!
//! `arm` makes jumps of sites: `draft` works out how, while the program runs, and `carry` does it: memory is mapped and trampolines are
//! written while one thread is stopped, the sites while all are held.
//!
//! | file | what it is |
//! |---|---|
//! | `suits`, `stack` | which sites may become jumps; which have no stack for a handler |
//! | `draft`, `plan`, `planners`, `around`, `area`, `proof`, `text`, `texts` | the plan for the sites of a module, and what it has to know: what was planned before, what is around, where memory is to be, what is proven, the code |
//! | `handlers`, `compile` | the handlers of a site, as machine code |
//! | `trampoline`, `tail`, `emit`, `shape` | the code from T to J; that of F; all trampolines of a plan; its jumps |
//! | `carry`, `write`, `writing`, `back` | what a draft says is done; threads between a site and T are put back |
//! | `remove`, `over` | jumps are taken out; probes that handlers have ended |
//! | `ground`, `lay`, `room`, `shared`, `cells`, `contexts`, `rings`, `identity`, `thread_ids` | the memory that it takes, in the process and shared with it |
//! | `trust`, `domain` | which processes share cells; those that become others |
//! | `hidden` | what of all this handlers do not see |
//! | `drain`, `ring`, `who`, `clock`, `mark` | records are read, in the order of time, up to a moment |
//! | `pulse`, `waiting`, `parked` | the reader's sign of life; threads that wait for room, and are kept stopped |
//! | `signal`, `forbidden`, `out` | signals of threads that are in a trampoline; instructions that the process may not execute; threads are taken out of one |

mod area;
mod arm;
mod around;
mod back;
mod carry;
mod cells;
mod clock;
mod compile;
mod contexts;
mod domain;
mod draft;
mod drain;
mod emit;
mod forbidden;
mod ground;
mod handlers;
mod hidden;
mod identity;
mod lay;
mod mark;
mod numbers;
mod out;
mod over;
mod parked;
mod plan;
mod planners;
pub(crate) mod proof;
mod pulse;
mod remove;
mod ring;
mod rings;
mod room;
mod shape;
mod shared;
mod signal;
mod stack;
mod suits;
mod tail;
mod text;
mod texts;
mod thread_ids;
mod trampoline;
mod trust;
mod waiting;
mod who;
mod write;
mod writing;

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use crate::change::Change;
use crate::hold::Held;
use crate::site::Jump;
pub(crate) use area::best_gap;
pub(crate) use arm::{Left, Sites};
pub(crate) use around::free_for_pads;
pub(crate) use cells::{Cells, Counter, Domain, Words};
pub(crate) use compile::has_limits;
pub(crate) use draft::{Basis, Draft};
pub(crate) use drain::Drain;
pub(crate) use ground::{Ground, low_memory};
pub(crate) use hidden::Hidden;
pub(crate) use identity::{Known, Looks};
pub(crate) use mark::Mark;
pub(crate) use numbers::Numbers;
pub(crate) use over::has;
pub(crate) use parked::{Parked, Wait};
pub(crate) use planners::Planners;
use process::{Mapping, Memory};
pub use pulse::Pulse;
pub(crate) use pulse::Sign;
pub(crate) use rings::Rings;
use room::Room;
pub(crate) use shape::name;
pub(crate) use shared::Shared;
pub(crate) use stack::Stacks;
pub(crate) use suits::unsuitable;
pub(crate) use texts::Texts;
pub(crate) use thread_ids::take_ids;
pub(crate) use trampoline::{Code, Layout, Part, Trampoline};
pub(crate) use trust::{Again, NextLook, Trust};
pub(crate) use waiting::Patience;

/// The trampolines of an address space.
#[derive(Clone, Debug, Default)]
pub(crate) struct Jumps {
    /// The memory that they are in.
    pub(crate) room: Room,
    /// All that threads can be in, by their addresses. A child's are its parent's until one of the two changes.
    trampolines: Rc<BTreeMap<u64, Rc<Trampoline>>>,
    /// The addresses of those that no site leads to any more.
    retired: Vec<u64>,
    /// The jumps on the way from a site to its trampoline, by their addresses: the site, and the trampoline.
    ways: Rc<BTreeMap<u64, (u64, u64)>>,
    /// The instructions of which trampolines have copies behind their own: what is before each copy.
    followers: Rc<BTreeMap<u64, Vec<u64>>>,
    /// Memory for landing pads: addresses and sizes.
    pads: Vec<(u64, u64)>,
}

/// Trampolines that are still to be written, as [`Jumps`] keeps them.
#[derive(Debug, Default)]
pub(crate) struct New {
    trampolines: BTreeMap<u64, Rc<Trampoline>>,
    ways: BTreeMap<u64, (u64, u64)>,
    followers: BTreeMap<u64, Vec<u64>>,
}

impl New {
    /// Adds trampolines, and the jumps on the way to them: each with its site and its trampoline.
    pub(crate) fn add(
        &mut self,
        trampolines: impl IntoIterator<Item = Rc<Trampoline>>,
        ways: impl IntoIterator<Item = (u64, u64, u64)>,
    ) {
        for trampoline in trampolines {
            for follower in trampoline.tail() {
                self.followers.entry(follower.address).or_default().push(follower.cut);
            }
            self.trampolines.insert(trampoline.start(), trampoline);
        }
        self.ways.extend(ways.into_iter().map(|(at, site, trampoline)| (at, (site, trampoline))));
    }
}

impl Jumps {
    /// The trampoline that holds an address, and which part of it that is.
    pub(crate) fn at(&self, rip: u64) -> Option<(&Rc<Trampoline>, Part)> {
        if let Some((_, start)) = self.ways.get(&rip) {
            return Some((self.trampolines.get(start)?, Part::Handler));
        }
        let (_, trampoline) = self.trampolines.range(..=rip).next_back()?;
        Some((trampoline, trampoline.part(rip)?))
    }

    /// A trampoline of a site.
    pub(crate) fn of_site(&self, site: u64) -> Option<&Rc<Trampoline>> {
        self.trampolines.values().find(|trampoline| trampoline.site() == site)
    }

    /// Whether there are any.
    pub(crate) fn any(&self) -> bool {
        !self.trampolines.is_empty()
    }

    /// Whether there are trampolines that no site leads to.
    pub(crate) fn has_retired(&self) -> bool {
        !self.retired.is_empty()
    }

    /// Adds trampolines that are written, and the jumps on the way to them.
    pub(crate) fn add(&mut self, mut new: New) {
        Rc::make_mut(&mut self.trampolines).append(&mut new.trampolines);
        Rc::make_mut(&mut self.ways).append(&mut new.ways);
        let followers = Rc::make_mut(&mut self.followers);
        if followers.is_empty() {
            *followers = new.followers;
        } else {
            for (address, mut cuts) in new.followers {
                followers.entry(address).or_default().append(&mut cuts);
            }
        }
    }

    /// An instruction is about to be probed: whoever comes to a copy of it in a trampoline goes to the original instead.
    pub(crate) fn cut(&mut self, address: u64, memory: &Memory, _held: &Held) -> io::Result<()> {
        if !self.followers.contains_key(&address) {
            return Ok(());
        }
        let followers = Rc::make_mut(&mut self.followers);
        let mut cuts = followers.remove(&address).unwrap_or_default();
        let mut failed = None;
        cuts.retain(|cut| {
            let mut bytes = [0xe9; tail::CUT.len()];
            // The trampoline ends in jumps like this one, so that it reaches.
            let distance = address.wrapping_sub(cut + bytes.len() as u64) as i32;
            bytes[1..].copy_from_slice(&distance.to_le_bytes());
            let error = memory.poke(*cut, &bytes).err();
            let stays = error.is_some();
            failed = error.or(failed.take());
            stays
        });
        if !cuts.is_empty() {
            followers.insert(address, cuts);
        }
        failed.map_or(Ok(()), Err)
    }

    /// The site from which a thread that is on its way to a trampoline comes, having done nothing yet.
    pub(crate) fn way_from(&self, rip: u64) -> Option<u64> {
        self.ways.get(&rip).map(|&(site, _)| site)
    }

    /// Forgets the ways of a jump, in which no thread is.
    pub(crate) fn forget_ways(&mut self, site: u64, jump: &Jump) {
        let ways = Rc::make_mut(&mut self.ways);
        for at in jump.changes.iter().map(Change::address).chain(jump.shape.pad) {
            if ways.get(&at).is_some_and(|&(owner, _)| owner == site) {
                ways.remove(&at);
            }
        }
    }

    /// Forgets the ways of all jumps, in which no thread is.
    pub(crate) fn forget_all_ways(&mut self) {
        self.ways = Rc::default();
    }

    /// Memory for landing pads has been mapped.
    pub(crate) fn add_pads(&mut self, base: u64, size: u64) {
        self.pads.push((base, size));
    }

    /// It is not there any more.
    pub(crate) fn remove_pads(&mut self, gone: &[(u64, u64)]) {
        self.pads.retain(|pads| !gone.contains(pads));
    }

    /// All memory that was mapped: addresses and sizes.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = (u64, u64)> {
        self.room.areas().chain(self.pads.iter().copied())
    }

    /// No site leads to a trampoline any more; threads may still be in it.
    pub(crate) fn retire(&mut self, start: u64) {
        if self.trampolines.contains_key(&start) {
            self.retired.push(start);
        }
    }

    /// Gives the memory of retired trampolines back in which no thread is: `is_in` says of a range whether one is.
    pub(crate) fn free(&mut self, is_in: impl Fn(&Trampoline) -> bool) {
        if self.retired.is_empty() {
            return;
        }
        let known = Rc::make_mut(&mut self.trampolines);
        let followers = Rc::make_mut(&mut self.followers);
        let room = &mut self.room;
        self.retired.retain(|start| match known.get(start) {
            Some(trampoline) if is_in(trampoline) => true,
            _ => {
                if let Some(trampoline) = known.remove(start) {
                    room.give_back(trampoline.start(), trampoline.size());
                    forget(followers, &trampoline);
                }
                false
            }
        });
    }

    /// Forgets memory that is not mapped.
    pub(crate) fn retain_pads(&mut self, mappings: &[Mapping]) {
        self.pads.retain(|&(base, size)| {
            let end = base + size;
            let mut next = base;
            for mapping in mappings.iter().filter(|mapping| mapping.end > base && mapping.start < end) {
                if mapping.start > next {
                    return false;
                }
                next = mapping.end;
            }
            next >= end
        });
    }

    /// Forgets what is not mapped, in a child whose copy was taken while it was being mapped.
    pub(crate) fn retain(&mut self, mappings: &[Mapping]) {
        let is_mapped = |base: u64, size: u64| {
            mappings
                .iter()
                .any(|mapping| mapping.start <= base && base + size <= mapping.end && mapping.executable)
        };
        self.room.retain(is_mapped);
        self.pads.retain(|&(base, size)| is_mapped(base, size));
        let followers = Rc::make_mut(&mut self.followers);
        Rc::make_mut(&mut self.trampolines).retain(|&start, trampoline| {
            let mapped = is_mapped(start, trampoline.size());
            if !mapped {
                forget(followers, trampoline);
            }
            mapped
        });
    }
}

/// Forgets the copies in a trampoline that is no more.
fn forget(followers: &mut BTreeMap<u64, Vec<u64>>, trampoline: &Trampoline) {
    for follower in trampoline.tail() {
        if let Some(cuts) = followers.get_mut(&follower.address) {
            cuts.retain(|&cut| cut != follower.cut);
            if cuts.is_empty() {
                followers.remove(&follower.address);
            }
        }
    }
}
