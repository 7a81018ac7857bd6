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
use crate::jump::{Again, Domain, Hidden, Jumps, Looks, Part, Planners, Trampoline};
use crate::ledger::Ledger;
use crate::memory_entries::MemoryEntries;
use crate::module_key::{Generation, ModuleKey};
use crate::module_names::Named;
use crate::semaphores::Semaphores;
use crate::site::{self, Armed, Code, Disarmed, Site};
use crate::site_use::Use;
use crate::sites::Sites;
use crate::slots::Area;
use crate::unwinding::Unwinding;
use crate::window::Window;

pub(crate) use state::{CallState, Mapped, ModuleState, Plans, SharedMemory, ThreadState, TrustState};

mod ours;
mod state;

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
    pub(crate) mapped: Mapped,
    pub(crate) shared: SharedMemory,
    pub(crate) trust: TrustState,
    pub(crate) plans: Plans,
    pub(crate) threads: ThreadState,
    /// The trampolines.
    pub(crate) jumps: Jumps,
    pub(crate) calls: CallState,
    pub(crate) modules: ModuleState,
    pub(crate) semaphores: Semaphores,
    /// At the end of a session: a thread that is kept stopped until the others have left, to unmap
    /// the memory for probes.
    pub(crate) unmapper: Option<Stopped>,
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
            mapped: Mapped {
                areas: Vec::new(),
                mappings: 0,
                map_refused: false,
                spare_slots: None,
                noted: MemoryEntries::default(),
            },
            shared: SharedMemory {
                handler_memory: None,
                cells: 0,
                has_sign: false,
                rings: None,
                lacks_rings: false,
                ringless: None,
                hidden: None,
                unwinding: Unwinding::default(),
                no_handler_memory: None,
            },
            trust: TrustState { domain: Domain::OWN, becomes: None, again: Again::default() },
            plans: Plans { moved: Vec::new(), generation: Generation::next(), planners: Planners::default() },
            threads: ThreadState {
                known: None,
                pid: 0,
                unidentified_threads: HashSet::new(),
                waits_disabled: false,
                looks: Looks::new(starting),
                tsc_forbidden: false,
            },
            jumps: Jumps::default(),
            calls: CallState {
                trapping: Vec::new(),
                syscall: None,
                spare_noted: None,
                guard: None,
                guard_tried: false,
            },
            modules: ModuleState {
                placed: HashSet::new(),
                blocking: HashSet::new(),
                named: Named::default(),
                watched: false,
                starting,
                mapped_now: None,
                seen: HashSet::new(),
                stale: true,
                foreseen: None,
            },
            semaphores: Semaphores::default(),
            unmapper: None,
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
        let guard = self.calls.guard.as_ref().and_then(|guard| guard.copy(&code.memory));
        let semaphores = self.semaphores.copy(&code);
        let unwinding = self.shared.unwinding.copy(&code.memory, self.shared.directory());
        let mut copy = Space {
            code,
            semaphores,
            members: 1,
            sites,
            disarmed,
            interrupted: Interrupted::default(),
            mapped: Mapped {
                areas: self.mapped.areas.clone(),
                mappings: self.mapped.mappings,
                map_refused: self.mapped.map_refused,
                spare_slots: self.mapped.spare_slots.clone(),
                noted: MemoryEntries::default(),
            },
            shared: SharedMemory {
                handler_memory: self.shared.handler_memory.clone(),
                rings: None,
                cells: self.shared.cells,
                has_sign: self.shared.has_sign,
                lacks_rings: self.shared.rings.is_some() || self.shared.lacks_rings,
                ringless: self.shared.ringless.clone(),
                hidden: self.shared.hidden.as_ref().map(Hidden::copy),
                unwinding,
                no_handler_memory: self.shared.no_handler_memory.clone(),
            },
            plans: Plans {
                moved: self.plans.moved.clone(),
                generation: Generation::next(),
                planners: self.plans.planners.clone(),
            },
            trust: TrustState { domain: self.trust.domain, becomes: None, again: self.trust.again },
            threads: ThreadState {
                known: self.threads.known,
                pid: 0,
                unidentified_threads: HashSet::new(),
                waits_disabled: false,
                looks: self.threads.looks,
                tsc_forbidden: false,
            },
            jumps: self.jumps.clone(),
            calls: CallState {
                trapping: Vec::new(),
                syscall: self.calls.syscall,
                spare_noted: None,
                guard_tried: self.calls.guard_tried && guard.is_some() == self.calls.guard.is_some(),
                guard,
            },
            modules: ModuleState {
                placed: self.modules.placed.clone(),
                blocking: self.modules.blocking.clone(),
                named: Named::default(),
                watched: self.modules.watched,
                starting: self.modules.starting,
                mapped_now: None,
                seen: self.modules.seen.clone(),
                stale: self.modules.stale,
                foreseen: None,
            },
            unmapper: None,
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
            copy.mapped.areas.retain(|area| area.is_among(&mappings));
            copy.mapped.spare_slots = copy.mapped.spare_slots.filter(|area| area.is_among(&mappings));
            copy.jumps.retain(&mappings);
            copy.plans.planners = Planners::default();
            // The child's copy of the memory for jumps may be older than the tracer's knowledge of
            // it: the child gets new memory.
            if let Some(handler_memory) = copy.shared.handler_memory.take() {
                copy.shared.has_sign = false;
                let mapped = handler_memory.mapped(std::mem::take(&mut copy.shared.cells));
                mapped.into_iter().for_each(|(base, size)| copy.jumps.add_pads(base, size));
                if std::mem::take(&mut copy.shared.lacks_rings) {
                    handler_memory
                        .claimed()
                        .into_iter()
                        .for_each(|(base, size)| copy.jumps.add_pads(base, size));
                }
            }
            if let Some(hidden) = copy.shared.hidden.take() {
                let (base, size) = hidden.mapped();
                copy.jumps.add_pads(base, size);
            }
            let unwinding = std::mem::take(&mut copy.shared.unwinding);
            unwinding.mapped().for_each(|(base, size)| copy.jumps.add_pads(base, size));
            copy.jumps.retain_pads(&mappings);
            (copy.shared.no_handler_memory, copy.threads.known) = (None, None);
            copy.modules.placed.clear();
            copy.modules.blocking.clear();
            copy.modules.watched = false;
            copy.modules.stale = true;
        }
        Ok(copy)
    }

    /// Whether a probe is armed, or may be as soon as one of its threads stops or its program has
    /// begun.
    pub(crate) fn is_probed(&self) -> bool {
        self.modules.starting || self.modules.stale || self.sites.any_is_probed()
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
        let (address, offset) = self.mapped.areas.iter().find_map(|area| area.slot_at(rip))?;
        let slot = self.site(address)?.slot.as_ref()?;
        Some((address, slot.position_at(offset)))
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
            self.shared.handler_memory.as_ref().filter(|handler_memory| handler_memory.is_agent(rip))?;
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
        (is_same && self.mapped.areas.iter().any(is_its)).then_some(slot)
    }

    /// How its threads make system calls for the tracer.
    pub(crate) fn entrance(&self) -> Option<Entrance> {
        let refuge = self.calls.guard.as_ref().map(Guard::refuge);
        self.calls.syscall.map(|entrance| Entrance { refuge, ..entrance })
    }

    /// Enters in the ledger that bytes are lent for system calls, before they are. Without an
    /// entry, no bytes are lent.
    pub(crate) fn note_spare(&mut self) {
        if let Some(Entrance { spare: Some(spare), .. }) = self.calls.syscall {
            self.calls.spare_noted =
                self.code.enter(&[lent(spare)]).ok().and_then(|mut entered| entered.pop());
            if self.calls.spare_noted.is_none() && self.code.ledger.is_some() {
                self.calls.syscall = self.calls.syscall.map(|entrance| Entrance { spare: None, ..entrance });
            }
        }
    }

    /// Restores the lent bytes in a child. Its one thread is in no call for the tracer, but another
    /// thread of its parent may have been.
    fn clear_spare(&self) {
        if let Some(Entrance { spare: Some(spare), .. }) = self.calls.syscall {
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
        if self.modules.blocking.is_empty() {
            return Vec::new();
        }
        let traps = self.sites.own().map(|(_, armed)| armed).filter(|armed| armed.jump().is_none());
        let traps = traps.map(Armed::site);
        let probed: HashSet<ModuleKey> =
            traps.filter(|site| site.is_probed()).map(|site| site.module).collect();
        self.modules.blocking.retain(|module| probed.contains(module));
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
        self.plans.moved.push(moved);
        self.shared.rings.iter().for_each(|rings| rings.add_moved(moved));
    }
}
