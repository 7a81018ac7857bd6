//! The state of a probed address space: its sites, slots, trampolines and modules.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use patch::{Slot, SlotPosition};
use process::{Entrance, Error, Memory, Registers, STUB, Stopped};

use crate::change::{Batch, Change, Undo};
use crate::code_bytes::Text;
use crate::guard::Guard;
use crate::hold::Held;
use crate::interrupted::Interrupted;
use crate::jump::{
    Again, Domain, HandlerMemory, Hidden, Jumps, Looks, Part, Planners, Rings, ThreadLayout, Trampoline,
};
use crate::ledger::{Entered, Ledger};
use crate::loader::Arrived;
use crate::memory_entries::MemoryEntries;
use crate::module_key::{Generation, ModuleKey};
use crate::module_names::Named;
use crate::preplan::Preplan;
use crate::site::{self, Armed, Code, Disarmed, Site};
use crate::site_use::Use;
use crate::sites::Sites;
use crate::slots::Area;
use crate::window::Window;

mod ours;

mod disarm;

/// The change to the process's bytes while they are lent for system calls.
fn lent(spare: u64) -> Change {
    Change::new(spare, &[0; STUB.len()], &STUB).undone(Undo::WhenUnused)
}

/// One address space and what the tracer has done to it.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) code: Code,
    /// The number of followed threads in it.
    pub(crate) members: usize,
    pub(crate) sites: Sites,
    /// Sites that were armed before. Threads may still arrive from their traps.
    pub(crate) disarmed: HashMap<u64, Disarmed>,
    /// Instructions that threads still have to execute after a signal.
    pub(crate) interrupted: Interrupted,
    pub(crate) areas: Vec<Area>,
    /// The memory that jump probes need, once mapped.
    pub(crate) handler_memory: Option<HandlerMemory>,
    /// Bytes of the cells that are mapped, once there is handler memory.
    pub(crate) cells: u64,
    /// Its trust domain, the domain it is to change to, and when its domain is checked again.
    pub(crate) domain: Domain,
    pub(crate) becomes: Option<Domain>,
    pub(crate) again: Again,
    /// Whether the tracer's sign of life is mapped, for threads that wait.
    pub(crate) has_sign: bool,
    /// The armings that were copied to it: the number of each, and the distance of its sites from
    /// those of the original.
    pub(crate) moved: Vec<(u32, u64)>,
    /// The rings of its contexts, once mapped.
    pub(crate) rings: Option<Rc<Rings>>,
    /// Whether it is a copy of a space that has rings, and has no rings of its own yet.
    pub(crate) lacks_rings: bool,
    /// Why the compiled handlers in it cannot log, if that was tried and failed.
    pub(crate) ringless: Option<String>,
    /// The table of memory that handlers must not see, if any handler accesses memory.
    pub(crate) hidden: Option<Hidden>,
    /// Why handler memory is not mapped, if that was tried and failed.
    pub(crate) no_handler_memory: Option<String>,
    /// How handlers find the id of a thread, once known; the process id; and the threads for which
    /// that does not hold.
    pub(crate) known: Option<ThreadLayout>,
    pub(crate) pid: i32,
    pub(crate) unidentified_threads: HashSet<i32>,
    /// Whether its threads currently do not wait for room in a ring.
    pub(crate) waits_disabled: bool,
    /// When its threads are identified again.
    pub(crate) looks: Looks,
    /// Whether its threads may not read the time stamp counter. The tracer tells it the time then.
    pub(crate) tsc_forbidden: bool,
    /// The trampolines.
    pub(crate) jumps: Jumps,
    /// The current state of the sites and of what is known of their jumps.
    pub(crate) generation: Generation,
    /// Which bytes are changed, and which other bytes must stay as they are; empty until there are
    /// jumps.
    pub(crate) planners: Planners,
    /// The number of mappings made in it for probes.
    pub(crate) mappings: usize,
    /// Whether the kernel has refused to map memory in it.
    pub(crate) map_refused: bool,
    /// Slots that are mapped and not used yet.
    pub(crate) spare_slots: Option<Area>,
    /// Ledger entries of sites that are about to trap, until the sites have entries of their own.
    pub(crate) trapping: Vec<Entered>,
    /// An instruction of the process that makes a system call: `syscall`, or `int 0x80`.
    pub(crate) syscall: Option<Entrance>,
    /// The ledger entry of the bytes lent for system calls.
    spare_noted: Option<Entered>,
    /// The guard, which handles traps in the process if the tracer dies, and whether installing it
    /// was tried.
    pub(crate) guard: Option<Guard>,
    pub(crate) guard_tried: bool,
    /// Ledger entries of the memory that is mapped in it.
    pub(crate) noted: MemoryEntries,
    /// The modules in which programs have been placed, by program.
    pub(crate) placed: HashSet<(usize, ModuleKey)>,
    /// The modules in which the calls that block all signals have been made sites, as far as
    /// possible.
    pub(crate) blocking: HashSet<ModuleKey>,
    /// Caches whether a program's module name matches a mapped module.
    pub(crate) named: Named,
    /// At the end of a session: a thread that is kept stopped until the others have left, to unmap
    /// the memory for probes.
    pub(crate) unmapper: Option<Stopped>,
    /// Whether the dynamic linker is watched.
    pub(crate) watched: bool,
    /// Whether its program has not begun yet: it still runs in the dynamic linker.
    pub(crate) starting: bool,
    /// What the dynamic linker has just mapped. Set only while the thread that mapped it is
    /// stopped: nothing has executed it.
    pub(crate) mapped_now: Option<Arrived>,
    /// The modules that were mapped at the last look.
    pub(crate) seen: HashSet<ModuleKey>,
    /// Whether modules are to be looked for as soon as one of its threads stops.
    pub(crate) stale: bool,
    /// The plan of what to place as soon as one of its threads stops, once worked out.
    pub(crate) foreseen: Option<Vec<Preplan>>,
}

impl Space {
    /// The space of a thread that was just found or has just started a program.
    pub(crate) fn open(tid: i32, starting: bool, ledger: Option<Rc<Ledger>>) -> Result<Space, Error> {
        Ok(Space {
            code: Code { memory: Memory::open(tid)?, process: tid, ledger },
            members: 1,
            sites: Sites::new(),
            disarmed: HashMap::new(),
            interrupted: Interrupted::default(),
            areas: Vec::new(),
            handler_memory: None,
            cells: 0,
            domain: Domain::OWN,
            becomes: None,
            again: Again::default(),
            has_sign: false,
            moved: Vec::new(),
            rings: None,
            lacks_rings: false,
            ringless: None,
            hidden: None,
            no_handler_memory: None,
            known: None,
            pid: 0,
            unidentified_threads: HashSet::new(),
            waits_disabled: false,
            looks: Looks::new(starting),
            tsc_forbidden: false,
            jumps: Jumps::default(),
            generation: Generation::next(),
            planners: Planners::default(),
            mappings: 0,
            map_refused: false,
            spare_slots: None,
            trapping: Vec::new(),
            syscall: None,
            spare_noted: None,
            guard: None,
            guard_tried: false,
            noted: MemoryEntries::default(),
            placed: HashSet::new(),
            blocking: HashSet::new(),
            named: Named::default(),
            unmapper: None,
            watched: false,
            starting,
            mapped_now: None,
            seen: HashSet::new(),
            stale: true,
            foreseen: None,
        })
    }

    /// The space of a child whose memory was copied from this one. It has the same sites; where a
    /// site was disarmed during the copy, its byte is restored. A copy taken while sites were being
    /// armed may also lack their slots: then it starts without probes, and is stale until they have
    /// been placed.
    pub(crate) fn copy(&self, child: i32) -> Result<Space, Error> {
        let code = Code { memory: Memory::open(child)?, process: child, ledger: self.code.ledger.clone() };
        let window = Window::new(&code.memory);
        let (own, missing): (Vec<_>, Vec<_>) = self
            .sites
            .own()
            .map(|(&address, armed)| (address, armed.copy(&code)))
            .partition(|(_, armed)| armed.is_in(&window));
        drop(window);
        let mut sites: Sites = own.into_iter().collect();
        for copied in self.sites.copies() {
            // All sites of an arming were written at once.
            let entered = copied.enter(&code).unwrap_or_else(|_| {
                let ledger = code.ledger.iter();
                ledger.for_each(|ledger| ledger.misses(copied.sites_in(0..u64::MAX).count()));
                None
            });
            sites.add_copy(copied.clone(), entered);
        }
        // The child has one thread, which is stopped.
        let held = Held::of_one();
        let mut batch = Batch::default();
        let disarmed =
            self.disarmed.iter().map(|(&address, site)| (address, site.inherit(&mut batch))).collect();
        // Fails only if the child is gone.
        let _ = site::write(batch, &code, &held);
        let guard = self.guard.as_ref().and_then(|guard| guard.copy(&code.memory));
        let mut copy = Space {
            code,
            members: 1,
            sites,
            disarmed,
            interrupted: Interrupted::default(),
            areas: self.areas.clone(),
            handler_memory: self.handler_memory.clone(),
            moved: self.moved.clone(),
            rings: None,
            cells: self.cells,
            domain: self.domain,
            becomes: None,
            again: self.again,
            has_sign: self.has_sign,
            lacks_rings: self.rings.is_some() || self.lacks_rings,
            ringless: self.ringless.clone(),
            hidden: self.hidden.as_ref().map(Hidden::copy),
            no_handler_memory: self.no_handler_memory.clone(),
            known: self.known,
            pid: 0,
            unidentified_threads: HashSet::new(),
            waits_disabled: false,
            looks: self.looks,
            tsc_forbidden: false,
            jumps: self.jumps.clone(),
            generation: Generation::next(),
            planners: self.planners.clone(),
            mappings: self.mappings,
            map_refused: self.map_refused,
            spare_slots: self.spare_slots.clone(),
            trapping: Vec::new(),
            syscall: self.syscall,
            spare_noted: None,
            guard_tried: self.guard_tried && guard.is_some() == self.guard.is_some(),
            guard,
            noted: MemoryEntries::default(),
            placed: self.placed.clone(),
            blocking: self.blocking.clone(),
            named: Named::default(),
            unmapper: None,
            watched: self.watched,
            starting: self.starting,
            mapped_now: None,
            seen: self.seen.clone(),
            stale: self.stale,
            foreseen: None,
        };
        copy.note_spare();
        copy.clear_spare();
        if !missing.is_empty() {
            for (address, armed) in missing {
                copy.sites.insert(address, armed);
            }
            let batch = copy.all_out();
            copy.disarm_all(batch, &held);
            let mappings = process::maps(child).unwrap_or_default();
            copy.areas.retain(|area| area.is_among(&mappings));
            copy.spare_slots = copy.spare_slots.filter(|area| area.is_among(&mappings));
            copy.jumps.retain(&mappings);
            copy.planners = Planners::default();
            // The child's copy of the memory for jumps may be older than the tracer's knowledge of
            // it: the child gets new memory.
            if let Some(handler_memory) = copy.handler_memory.take() {
                copy.has_sign = false;
                let mapped = handler_memory.mapped(std::mem::take(&mut copy.cells));
                mapped.into_iter().for_each(|(base, size)| copy.jumps.add_pads(base, size));
                if std::mem::take(&mut copy.lacks_rings) {
                    handler_memory
                        .claimed()
                        .into_iter()
                        .for_each(|(base, size)| copy.jumps.add_pads(base, size));
                }
            }
            if let Some(hidden) = copy.hidden.take() {
                let (base, size) = hidden.mapped();
                copy.jumps.add_pads(base, size);
            }
            copy.jumps.retain_pads(&mappings);
            (copy.no_handler_memory, copy.known) = (None, None);
            copy.placed.clear();
            copy.blocking.clear();
            copy.watched = false;
            copy.stale = true;
        }
        Ok(copy)
    }

    /// Whether a probe is armed, or may be as soon as one of its threads stops or its program has
    /// begun.
    pub(crate) fn is_probed(&self) -> bool {
        self.starting || self.stale || self.sites.any_is_probed()
    }

    /// The code as the program has it, without changes made for probes.
    pub(crate) fn text(&self) -> Text<'_> {
        Text::new(&self.code.memory, Some(&self.sites))
    }

    /// The site at an address, armed or disarmed.
    pub(crate) fn site(&self, address: u64) -> Option<&Site> {
        self.sites.get(&address).map(Armed::site).or_else(|| self.disarmed.get(&address).map(Disarmed::site))
    }

    /// If `rip` is in a slot or at a displaced instruction in a trampoline: the address of the
    /// site, and where in the instruction's execution the thread is.
    pub(crate) fn in_slot(&self, rip: u64) -> Option<(u64, SlotPosition)> {
        if let Some((trampoline, part)) = self.jumps.at(rip) {
            return match part {
                Part::Displaced(place) => Some((trampoline.site(), place)),
                _ => None,
            };
        }
        let (address, offset) = self.areas.iter().find_map(|area| area.slot_at(rip))?;
        let slot = self.site(address)?.slot.as_ref()?;
        Some((address, slot.place(offset)))
    }

    /// Whether a thread in a trampoline has reached an instruction whose bytes a jump covers. It
    /// cannot be shown at its address.
    pub(crate) fn is_amid_a_group(&self, rip: u64) -> bool {
        let Some((_, Part::Displaced(SlotPosition::After { rip: shown, .. }))) = self.jumps.at(rip) else {
            return false;
        };
        self.sites.is_covered(shown)
    }

    /// The trampoline that a thread is in, or for which it runs the agent, and the part of it.
    pub(crate) fn in_jump(&self, registers: &Registers) -> Option<(Rc<Trampoline>, Part)> {
        if !self.jumps.any() {
            return None;
        }
        let rip = registers.rip();
        if let Some((trampoline, part)) = self.jumps.at(rip) {
            return Some((Rc::clone(trampoline), part));
        }
        let handler_memory =
            self.handler_memory.as_ref().filter(|handler_memory| handler_memory.is_agent(rip))?;
        // On entry to and exit from the agent, the thread has the program's stack and the context
        // in a register.
        let [rbx, rdi] = [registers.general()[3], registers.rdi()];
        let (contexts, memory) = (&handler_memory.contexts, &self.code.memory);
        let site = contexts
            .site_of_stack(memory, registers.rsp())
            .or_else(|| contexts.site_at(memory, rdi))
            .or_else(|| contexts.site_at(memory, rbx))?;
        let armed = self.sites.get(&site).and_then(|armed| self.jumps.at(armed.jump()?.trampoline));
        let trampoline = armed.map(|(trampoline, _)| trampoline).or_else(|| self.jumps.of_site(site))?;
        let part = match handler_memory.repair(rip) {
            Some(repair) => Part::Access { repair },
            None => Part::Handler,
        };
        Some((Rc::clone(trampoline), part))
    }

    /// The slot that a site had when it was armed before, with the same instruction. A thread may
    /// still be in it, so its contents stay.
    pub(crate) fn slot_of(&self, site: &Site) -> Option<&Slot> {
        let before = self.disarmed.get(&site.address)?.site();
        let slot = before.slot.as_ref()?;
        let is_its = |area: &Area| area.slot_at(slot.address) == Some((site.address, 0));
        let is_same = before.displaced.original() == site.displaced.original()
            && before.displaced.lent() == site.displaced.lent();
        (is_same && self.areas.iter().any(is_its)).then_some(slot)
    }

    /// How its threads make system calls for the tracer.
    pub(crate) fn entrance(&self) -> Option<Entrance> {
        let refuge = self.guard.as_ref().map(Guard::refuge);
        self.syscall.map(|entrance| Entrance { refuge, ..entrance })
    }

    /// Enters in the ledger that bytes are lent for system calls, before they are. Without an
    /// entry, no bytes are lent.
    pub(crate) fn note_spare(&mut self) {
        if let Some(Entrance { spare: Some(spare), .. }) = self.syscall {
            self.spare_noted = self.code.enter(&[lent(spare)]).ok().and_then(|mut entered| entered.pop());
            if self.spare_noted.is_none() && self.code.ledger.is_some() {
                self.syscall = self.syscall.map(|entrance| Entrance { spare: None, ..entrance });
            }
        }
    }

    /// Restores the lent bytes in a child. Its one thread is in no call for the tracer, but another
    /// thread of its parent may have been.
    fn clear_spare(&self) {
        if let Some(Entrance { spare: Some(spare), .. }) = self.syscall {
            let mut batch = Batch::default();
            batch.take_out(lent(spare));
            let is_there = lent(spare).is_in(&Window::new(&self.code.memory));
            if is_there {
                // Fails only if the child is gone.
                let _ = site::write(batch, &self.code, &Held::of_one());
            }
        }
    }

    /// The sites that only lend signal masks for other sites' traps, in modules that have no such
    /// traps any more.
    pub(crate) fn blocks_for_nobody(&mut self) -> Vec<u64> {
        if self.blocking.is_empty() {
            return Vec::new();
        }
        let traps = self.sites.own().map(|(_, armed)| armed).filter(|armed| armed.jump().is_none());
        let traps = traps.map(Armed::site);
        let probed: HashSet<ModuleKey> =
            traps.filter(|site| site.is_probed()).map(|site| site.module).collect();
        self.blocking.retain(|module| probed.contains(module));
        let is_one = |site: &Site| site.uses == [Use::MasksSignals] && !probed.contains(&site.module);
        let sites = self.sites.own().filter(|(_, armed)| armed.jump().is_none() && is_one(armed.site()));
        sites.map(|(&address, _)| address).collect()
    }

    /// Whether one of its sites is a jump.
    pub(crate) fn has_jumps(&self) -> bool {
        self.jumps.any() && self.sites.any_is_jump()
    }

    /// Adds an arming's number, and how much higher its sites are here: records refer to it.
    pub(crate) fn add_moved(&mut self, moved: (u32, u64)) {
        self.moved.push(moved);
        self.rings.iter().for_each(|rings| rings.add_moved(moved));
    }
}
