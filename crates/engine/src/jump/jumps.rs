//! The trampolines of an address space, and the jumps on the way to them.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use elsa::FrozenMap;
use process::{Mapping, Memory};

use super::copied::Copied;
use super::room::Room;
use super::tail;
use super::trampoline::{Part, Trampoline};
use crate::change::Change;
use crate::hold::Held;
use crate::site::Jump;

/// The trampolines of an address space.
#[derive(Clone, Debug, Default)]
pub(crate) struct Jumps {
    /// The memory that they are in.
    pub(crate) room: Room,
    /// All that threads can be in, by their addresses. A child's are its parent's until one of the
    /// two changes.
    trampolines: Rc<BTreeMap<u64, Rc<Trampoline>>>,
    /// The addresses of those that no site leads to any more.
    retired: Vec<u64>,
    /// The jumps on the way from a site to its trampoline, by their addresses: the site, and the
    /// trampoline.
    ways: Rc<BTreeMap<u64, (u64, u64)>>,
    /// The instructions of which trampolines have copies behind their own: what is before each
    /// copy.
    followers: Rc<BTreeMap<u64, Vec<u64>>>,
    /// Memory for landing pads: addresses and sizes.
    pads: Vec<(u64, u64)>,
    /// Those of armings that were copied from other processes.
    copies: Vec<Copy>,
}

/// The trampolines of one copied arming: each is made when it is asked for.
struct Copy {
    copied: Copied,
    made: FrozenMap<u64, Made>,
}

/// A trampoline that was made, where it stays.
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
    /// The trampoline that begins at an address.
    fn get(&self, start: u64) -> Option<&Rc<Trampoline>> {
        if let Some(made) = self.made.get(&start) {
            return Some(&made.0);
        }
        let made = Rc::new(self.copied.trampoline(start)?);
        Some(&self.made.insert(start, Box::new((made,))).0)
    }

    /// The trampoline that holds an address, and which part of it that is.
    fn at(&self, rip: u64) -> Option<(&Rc<Trampoline>, Part)> {
        if let Some((_, start)) = self.copied.way(rip) {
            return Some((self.get(start)?, Part::Handler));
        }
        let trampoline = self.get(self.copied.trampoline_before(rip)?)?;
        Some((trampoline, trampoline.part(rip)?))
    }
}

/// Trampolines that are still to be written, as [`Jumps`] keeps them.
#[derive(Debug, Default)]
pub(crate) struct New {
    pub(super) trampolines: BTreeMap<u64, Rc<Trampoline>>,
    pub(super) ways: BTreeMap<u64, (u64, u64)>,
    pub(super) followers: BTreeMap<u64, Vec<u64>>,
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
        let own = self.trampolines.range(..=rip).next_back();
        let own = own.and_then(|(_, trampoline)| Some((trampoline, trampoline.part(rip)?)));
        own.or_else(|| self.copies.iter().find_map(|copy| copy.at(rip)))
    }

    /// Adds those of an arming that was copied.
    pub(crate) fn add_copy(&mut self, copied: Copied) {
        self.copies.push(Copy { copied, made: FrozenMap::new() });
    }

    /// Those of some copied armings become the space's own.
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

    /// A trampoline of a site.
    pub(crate) fn of_site(&self, site: u64) -> Option<&Rc<Trampoline>> {
        let own = self.trampolines.values().find(|trampoline| trampoline.site() == site);
        own.or_else(|| self.copies.iter().find_map(|copy| copy.get(copy.copied.site(site)?.1.trampoline)))
    }

    /// Whether there are any.
    pub(crate) fn any(&self) -> bool {
        !self.trampolines.is_empty() || !self.copies.is_empty()
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

    /// An instruction is about to be probed: whoever comes to a copy of it in a trampoline goes to
    /// the original instead.
    pub(crate) fn cut(&mut self, address: u64, memory: &Memory, _held: &Held) -> io::Result<()> {
        self.make_own(|copied| copied.has_follower(address));
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

    /// The site from which a thread that is on its way to a trampoline comes, having done nothing
    /// yet.
    pub(crate) fn way_from(&self, rip: u64) -> Option<u64> {
        let own = self.ways.get(&rip).copied();
        own.or_else(|| self.copies.iter().find_map(|copy| copy.copied.way(rip))).map(|(site, _)| site)
    }

    /// Forgets the ways of a jump, in which no thread is.
    pub(crate) fn forget_ways(&mut self, site: u64, jump: &Jump) {
        self.make_own(|copied| copied.has_site(site));
        let ways = Rc::make_mut(&mut self.ways);
        for at in jump.changes.iter().map(Change::address).chain(jump.shape.pad) {
            if ways.get(&at).is_some_and(|&(owner, _)| owner == site) {
                ways.remove(&at);
            }
        }
    }

    /// Forgets the ways of all jumps, in which no thread is.
    pub(crate) fn forget_all_ways(&mut self) {
        self.make_own(|_| true);
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
        self.make_own(|copied| copied.trampoline_before(start) == Some(start));
        if self.trampolines.contains_key(&start) {
            self.retired.push(start);
        }
    }

    /// Gives the memory of retired trampolines back in which no thread is: `is_in` says of a range
    /// whether one is.
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
