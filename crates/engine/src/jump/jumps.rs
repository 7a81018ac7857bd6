//! The trampolines of an address space, and the intermediate jumps from sites to them.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use elsa::FrozenMap;
use process::{Mapping, Memory};

use super::copied::Copied;
use super::relocated_successors;
use super::trampoline::{Part, Trampoline};
use super::trampoline_allocator::TrampolineAllocator;
use crate::change::Change;
use crate::hold::Held;
use crate::site::Jump;

/// All trampolines of an address space.
#[derive(Clone, Debug, Default)]
pub(crate) struct Jumps {
    /// The memory for them.
    pub(crate) room: TrampolineAllocator,
    /// All trampolines that threads can be in, by address. A child shares its parent's until one of
    /// the two changes.
    trampolines: Rc<BTreeMap<u64, Rc<Trampoline>>>,
    /// The trampolines to which no site leads any more.
    retired: Vec<u64>,
    /// The intermediate jumps (landing pads and others), by address: site and trampoline of each.
    ways: Rc<BTreeMap<u64, (u64, u64)>>,
    /// For each instruction that trampolines have copies of behind their own: the addresses of the
    /// `nop`s before the copies ([`relocated_successors::TAIL_NOP`]).
    followers: Rc<BTreeMap<u64, Vec<u64>>>,
    pads: Vec<(u64, u64)>,
    /// The trampolines of armings that were copied from other processes.
    copies: Vec<Copy>,
}

/// The trampolines of one copied arming, made on demand.
struct Copy {
    copied: Copied,
    made: FrozenMap<u64, Made>,
}

/// A trampoline that was made on demand, boxed so that it does not move.
type Made = Box<(Rc<Trampoline>,)>;

impl std::fmt::Debug for Copy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Copy {{ {:?} }}", self.copied)
    }
}

impl Clone for Copy {
    fn clone(&self) -> Copy {
        Copy { copied: self.copied.clone(), made: FrozenMap::new() }
    }
}

impl Copy {
    fn get(&self, start: u64) -> Option<&Rc<Trampoline>> {
        if let Some(made) = self.made.get(&start) {
            return Some(&made.0);
        }
        let made = Rc::new(self.copied.trampoline(start)?);
        Some(&self.made.insert(start, Box::new((made,))).0)
    }

    /// The trampoline at an address, and the part of it.
    fn at(&self, rip: u64) -> Option<(&Rc<Trampoline>, Part)> {
        if let Some((_, start)) = self.copied.way(rip) {
            return Some((self.get(start)?, Part::Handler));
        }
        let trampoline = self.get(self.copied.trampoline_before(rip)?)?;
        Some((trampoline, trampoline.part(rip)?))
    }
}

/// Trampolines that are still to be written, in the form in which [`Jumps`] keeps them.
#[derive(Debug, Default)]
pub(crate) struct New {
    pub(super) trampolines: BTreeMap<u64, Rc<Trampoline>>,
    pub(super) ways: BTreeMap<u64, (u64, u64)>,
    pub(super) followers: BTreeMap<u64, Vec<u64>>,
}

impl New {
    /// Adds trampolines and intermediate jumps: address, site and trampoline of each.
    pub(crate) fn add(
        &mut self,
        trampolines: impl IntoIterator<Item = Rc<Trampoline>>,
        ways: impl IntoIterator<Item = (u64, u64, u64)>,
    ) {
        for trampoline in trampolines {
            for follower in trampoline.successor_copies() {
                self.followers.entry(follower.address).or_default().push(follower.cut);
            }
            self.trampolines.insert(trampoline.start(), trampoline);
        }
        self.ways.extend(ways.into_iter().map(|(at, site, trampoline)| (at, (site, trampoline))));
    }
}

impl Jumps {
    /// The trampoline that an address is in, or leads to, and the part of it.
    pub(crate) fn at(&self, rip: u64) -> Option<(&Rc<Trampoline>, Part)> {
        if let Some((_, start)) = self.ways.get(&rip) {
            return Some((self.trampolines.get(start)?, Part::Handler));
        }
        let own = self.trampolines.range(..=rip).next_back();
        let own = own.and_then(|(_, trampoline)| Some((trampoline, trampoline.part(rip)?)));
        own.or_else(|| self.copies.iter().find_map(|copy| copy.at(rip)))
    }

    /// Adds the trampolines of a copied arming.
    pub(crate) fn add_copy(&mut self, copied: Copied) {
        self.copies.push(Copy { copied, made: FrozenMap::new() });
    }

    /// Makes the trampolines of some copied armings the space's own.
    pub(crate) fn make_own(&mut self, which: impl Fn(&Copied) -> bool) {
        if self.copies.is_empty() {
            return;
        }
        let gone: Vec<Copy> = self.copies.extract_if(.., |copy| which(&copy.copied)).collect();
        for Copy { copied, made } in gone {
            let mut made = made.into_map();
            let trampolines = copied.trampolines().filter_map(|start| {
                made.remove(&start).map(|made| made.0).or_else(|| Some(Rc::new(copied.trampoline(start)?)))
            });
            let mut new = New::default();
            new.add(trampolines, copied.ways());
            self.add(new);
        }
    }

    pub(crate) fn of_site(&self, site: u64) -> Option<&Rc<Trampoline>> {
        let own = self.trampolines.values().find(|trampoline| trampoline.site() == site);
        own.or_else(|| self.copies.iter().find_map(|copy| copy.get(copy.copied.site(site)?.1.trampoline)))
    }

    pub(crate) fn any(&self) -> bool {
        !self.trampolines.is_empty() || !self.copies.is_empty()
    }

    /// Whether there are trampolines to which no site leads any more.
    pub(crate) fn has_retired(&self) -> bool {
        !self.retired.is_empty()
    }

    /// Adds trampolines that have been written.
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

    /// Called before an instruction is probed: makes trampolines that have a copy of it jump to the
    /// original instead.
    pub(crate) fn cut(&mut self, address: u64, memory: &Memory, _held: &Held) -> io::Result<()> {
        self.make_own(|copied| copied.has_follower(address));
        if !self.followers.contains_key(&address) {
            return Ok(());
        }
        let followers = Rc::make_mut(&mut self.followers);
        let mut cuts = followers.remove(&address).unwrap_or_default();
        let mut failed = None;
        cuts.retain(|cut| {
            let mut bytes = [0xe9; relocated_successors::TAIL_NOP.len()];
            // It reaches: the trampoline ends in a jump to about the same place.
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

    /// The site from which a thread at this address is on the way to a trampoline, with nothing
    /// executed yet; none if it is not on the way.
    pub(crate) fn way_from(&self, rip: u64) -> Option<u64> {
        let own = self.ways.get(&rip).copied();
        own.or_else(|| self.copies.iter().find_map(|copy| copy.copied.way(rip))).map(|(site, _)| site)
    }

    /// Forgets the intermediate jumps of a site's jump. No thread may be at one of them.
    pub(crate) fn forget_ways(&mut self, site: u64, jump: &Jump) {
        self.make_own(|copied| copied.has_site(site));
        let ways = Rc::make_mut(&mut self.ways);
        for at in jump.changes.iter().map(Change::address).chain(jump.shape.pad) {
            if ways.get(&at).is_some_and(|&(owner, _)| owner == site) {
                ways.remove(&at);
            }
        }
    }

    /// Forgets all intermediate jumps. No thread may be at one of them.
    pub(crate) fn forget_all_ways(&mut self) {
        self.make_own(|_| true);
        self.ways = Rc::default();
    }

    /// Adds memory that was mapped for landing pads.
    pub(crate) fn add_pads(&mut self, base: u64, size: u64) {
        self.pads.push((base, size));
    }

    /// Removes memory for landing pads that is no longer mapped.
    pub(crate) fn remove_pads(&mut self, gone: &[(u64, u64)]) {
        self.pads.retain(|pads| !gone.contains(pads));
    }

    /// All memory mapped for trampolines and landing pads: addresses and sizes.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = (u64, u64)> {
        self.room.areas().chain(self.pads.iter().copied())
    }

    /// Marks a trampoline to which no site leads any more. Threads may still be in it.
    pub(crate) fn retire(&mut self, start: u64) {
        self.make_own(|copied| copied.trampoline_before(start) == Some(start));
        if self.trampolines.contains_key(&start) {
            self.retired.push(start);
        }
    }

    /// Frees the memory of retired trampolines in which no thread is; `is_in` tells whether a
    /// thread is in one.
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

    /// Forgets memory for landing pads that is no longer mapped.
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

    /// Forgets what is not mapped in a child, which may have been copied while it was being mapped.
    pub(crate) fn retain(&mut self, mappings: &[Mapping]) {
        let is_mapped = |base: u64, size: u64| {
            mappings
                .iter()
                .any(|mapping| mapping.start <= base && base + size <= mapping.end && mapping.executable)
        };
        self.make_own(|_| true);
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

/// Forgets the copies in a trampoline that is gone.
fn forget(followers: &mut BTreeMap<u64, Vec<u64>>, trampoline: &Trampoline) {
    for follower in trampoline.successor_copies() {
        if let Some(cuts) = followers.get_mut(&follower.address) {
            cuts.retain(|&cut| cut != follower.cut);
            if cuts.is_empty() {
                followers.remove(&follower.address);
            }
        }
    }
}
