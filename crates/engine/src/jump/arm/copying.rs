//! Carries out an arming, which was planned in one process, in another that maps the same file.
//!
//! In: armings of the same file in other processes (`Copied`). Out: the sites of the first that
//! fits are armed; or `Work` is planned as usual.
//!
//! The steps are those of a draft (`carry_out`), without the planning: memory is mapped,
//! trampolines are written, all threads are held, and the code is written. If the process does not
//! fit the arming, none of its code is changed, and the module is planned as usual.

use std::rc::Rc;
use std::sync::Arc;

use process::{Mapping, Module, Stop, Stopped};

use super::armer::{Armer, ToArm, is_fresh};
use super::choose_memory::choose_hidden;
use super::draft::{Basis, Draft};
use super::plan_input::free_for_pads;
use crate::jump::arming::{Circumstances, Keep};
use crate::jump::copied::Copied;
use crate::jump::not_jumped::NotJumped;
use crate::jump::put_back::put_back;
use crate::mapping::{self, Called};
use crate::module_key::{Generation, module_key};
use crate::observer::Note;
use crate::placing::Work;
use crate::program::Engine;
use crate::reason::NotCopied;
use crate::site_plans;

impl Armer<'_, '_> {
    /// The armings that may fit a program's probes in a module of a stopped thread's process.
    pub(crate) fn armings_for(&self, program: usize, thread: &Stopped, module: &Module) -> Vec<Copied> {
        if !self.cache.armings.any_of(program) {
            return Vec::new();
        }
        let circumstances = self.circumstances(program, thread, module);
        circumstances.map_or_else(Vec::new, |these| self.cache.armings.find(&these, module))
    }

    /// The circumstances for arming a program in a module; none if no other process will need the
    /// result, or the module has jumps already.
    pub(crate) fn circumstances(
        &self,
        program: usize,
        thread: &Stopped,
        module: &Module,
    ) -> Option<Circumstances> {
        let number = self.followed.threads.get(&thread.tid())?.space?;
        let space = self.followed.spaces.get(&number)?;
        let these = self.running(program, number, thread.tid(), module)?;
        let fresh = !self.serving && is_fresh(space, thread, module);
        Some(Circumstances { fresh, ..these })
    }

    /// The same for a process whose threads run, or may have executed the module's code.
    pub(crate) fn running(
        &self,
        program: usize,
        number: u32,
        tid: i32,
        module: &Module,
    ) -> Option<Circumstances> {
        let space = self.followed.spaces.get(&number)?;
        let is_alone = !space.plans.planners.has(&module_key(module)) && space.plans.planners.is_clean();
        let again = self.serving || space.modules.starting;
        // An arming that may be copied leaves addresses near other mappings unused. With
        // `--engine jump` all addresses are needed: no site may trap.
        if !is_alone || !again || self.programs[program].options.engine != Engine::Auto {
            return None;
        }
        Some(Circumstances {
            program,
            domain: space.trust.domain,
            starting: space.modules.starting,
            fresh: false,
            shadow_stacks: process::has_shadow_stack(tid),
        })
    }

    /// Arms a module by a copy that fits, and returns the sites that did not become jumps. If none
    /// fits, plans the module, and returns none.
    pub(crate) fn place_copy(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        work: &mut Work,
    ) -> Result<(Stopped, Stop, Option<Vec<NotJumped>>), process::Error> {
        let (mut thread, mut stop) = (thread, stop);
        let copies = std::mem::take(&mut work.copies);
        if copies.is_empty() {
            return Ok((thread, stop, None));
        }
        for copied in copies {
            let (stopped, now, done) = self.copy_arming(number, thread, stop, &work.module, &copied)?;
            (thread, stop) = (stopped, now);
            if let Ok(left) = done {
                let (count, remarks) = copied.count();
                (work.count, work.plan.remarks) = (count, remarks.to_vec());
                if self.messages.observer.wants_placed() {
                    work.probes = copied.probes();
                }
                return Ok((thread, stop, Some(left)));
            }
        }
        if let Some((program, checks)) = work.program.zip(work.checks)
            && let Some(space) = self.followed.spaces.get(&number)
        {
            let plan =
                site_plans::plan(program, &self.programs[program], &work.module, &space.text(), checks);
            *work = Work::new(&work.module, work.program, plan);
        }
        Ok((thread, stop, None))
    }

    /// The data for keeping the result of arming a module, if it is to be kept.
    pub(crate) fn plan_to_keep(
        &mut self,
        program: usize,
        thread: &Stopped,
        work: &Work,
        sites: &ToArm,
        remarks: Vec<Note>,
    ) -> Option<Keep> {
        let is_all = matches!(sites, ToArm::Planned(_)) && work.plan.refused.is_empty();
        let circumstances = self.circumstances(program, thread, &work.module).filter(|_| is_all)?;
        Some(Keep {
            number: self.cache.armings.number(),
            circumstances,
            image: Arc::clone(&work.module.image),
            count: work.count,
            probes: work.probes.clone(),
            remarks,
        })
    }

    /// Carries an arming out in a thread's process, and returns the sites that did not become
    /// jumps; or why the process does not fit.
    pub(crate) fn copy_arming(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        module: &Module,
        copied: &Copied,
    ) -> Called<Vec<NotJumped>, NotCopied> {
        let mappings = match thread.mappings() {
            Ok(mappings) => mappings,
            Err(_) => return Ok((thread, stop, Err(NotCopied::Gone))),
        };
        let draft = match self.draft_of(number, thread.tid(), &mappings, module, copied) {
            Ok(draft) => draft,
            Err(reason) => return Ok((thread, stop, Err(reason))),
        };
        let (thread, stop, is_file) = self.map_code_file(number, thread, stop, &mappings, copied)?;
        let (mut thread, stop, mapped) = match is_file {
            true => self.map_others(number, thread, stop, &draft)?,
            false => self.map_all(number, thread, stop, &draft)?,
        };
        if mapped.is_err() {
            return Ok((thread, stop, Err(NotCopied::NotMapped)));
        }
        // Before any code changes, the ledger must know what to unmap if the tracer is killed.
        if let Some(space) = self.followed.spaces.get_mut(&number) {
            space.note_memory();
        }
        let Some(code) = copied.mapping(&mappings) else {
            return Ok((thread, stop, Err(NotCopied::OtherMapping)));
        };
        let pads = draft.to_map.pads.clone();
        match self.write_copy(number, &mut thread, (module, code), draft, (copied, is_file))? {
            Ok(left) => Ok((thread, stop, Ok(left))),
            Err(reason) => {
                let (thread, stop) = self.followed.spaces.unmap_pads(number, thread, stop, pads)?;
                Ok((thread, stop, Err(reason)))
            }
        }
    }

    /// Maps its trampolines and landing pads from the arming's file. False if that fails: they are
    /// written instead. A process with several threads gets no descriptor: another thread could
    /// close or use it. So could a process that shares its descriptors (CLONE_FILES), perhaps with
    /// fewer rights: what was mapped is checked, unless nothing of the program but its libraries'
    /// initialisation has run since exec, which unshares them.
    fn map_code_file(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        mappings: &[Mapping],
        copied: &Copied,
    ) -> Result<(Stopped, Stop, bool), process::Error> {
        let space = self.followed.spaces.get(&number).filter(|space| space.members == 1);
        let Some((space, file)) = space.zip(copied.arming.file()) else { return Ok((thread, stop, false)) };
        let (mut is_mapped, is_new) = (false, space.modules.starting);
        let done = self.followed.spaces.with_calls(number, thread, stop, mappings, |caller| {
            let pieces = file.pieces(copied.by);
            let (caller, mapped) = caller.map_file(file.descriptor(), &pieces, mapping::EXECUTE)?;
            is_mapped = mapped.is_ok();
            Ok(caller)
        });
        let (thread, stop, _) = done?;
        let pieces = file.pieces(copied.by);
        if !is_mapped || is_new || file.is_mapped_at(&pieces, &thread.mappings().unwrap_or_default()) {
            return Ok((thread, stop, is_mapped));
        }
        let places: Vec<_> = pieces.iter().map(|piece| (piece.place, piece.size)).collect();
        let (thread, stop, _) = self.followed.spaces.unmap_pieces(number, thread, stop, &places)?;
        Ok((thread, stop, false))
    }

    /// A draft that lists what is to be mapped, with the state after it; or why the arming does not
    /// fit.
    fn draft_of(
        &mut self,
        number: u32,
        tid: i32,
        mappings: &[Mapping],
        module: &Module,
        copied: &Copied,
    ) -> Result<Draft, NotCopied> {
        let space = self.followed.spaces.get(&number).ok_or(NotCopied::Gone)?;
        let key = module_key(module);
        let code = copied.mapping(mappings).ok_or(NotCopied::OtherMapping)?;
        if space.plans.planners.has(&key) || !copied.has_seen(space.traps_in(code.start..code.end)) {
            return Err(NotCopied::OtherProbes);
        }
        if space.shared.no_handler_memory.is_some()
            || space.shared.ringless.is_some()
            || space.mapped.map_refused
        {
            return Err(NotCopied::NoRoom);
        }
        // A record names its arming, not its site's address: an arming may be in a process only
        // once.
        if space.plans.moved.iter().any(|(number, _)| *number == copied.moved().0) {
            return Err(NotCopied::Twice);
        }
        let mut known = Basis::of(space);
        let mut draft =
            Draft { module: key, generation: known.generation, left: copied.left(), ..Draft::default() };
        self.drafter()
            .handler_memory_for(number, tid, mappings, &mut known, &mut draft)
            .map_err(|_| NotCopied::NoRoom)?;
        if copied.hides() {
            choose_hidden(tid, mappings, &mut known, &mut draft).map_err(|_| NotCopied::NoRoom)?;
        }
        let handler_memory = known.handler_memory.as_mut().ok_or(NotCopied::NoRoom)?;
        handler_memory.claims |= copied.arming.claims;
        if let Some((before, described)) = &copied.arming.described
            && !handler_memory.describe_as(described, *before)
        {
            return Err(NotCopied::OtherHandlers);
        }
        if !copied.addresses_match(handler_memory) {
            return Err(NotCopied::HandlersElsewhere);
        }
        if handler_memory.claims {
            handler_memory.claimed().into_iter().for_each(|(base, size)| known.reserve(base, size));
        }
        let [areas, pads] = copied.mapped();
        let free = free_for_pads(&known.taken(tid, mappings), &(code.start..code.end));
        let is_free = |&(base, size): &(u64, u64)| {
            let at = free.partition_point(|range| range.end <= base);
            free.get(at).is_some_and(|range| range.start <= base && base + size <= range.end)
        };
        if !areas.iter().chain(&pads).all(is_free) {
            return Err(NotCopied::InUse);
        }
        let space = self.followed.spaces.get(&number).ok_or(NotCopied::Gone)?;
        let more = areas.len() + pads.len();
        mapping::count_mapping(mappings.len() + more - 1, space.mapped.mappings)
            .map_err(|_| NotCopied::TooManyMappings)?;
        let others = mappings.len().saturating_sub(known.planners.mappings());
        let most = mapping::mappings_for_pads(others);
        if known.planners.mappings() + copied.arming.planner.mappings() > most {
            return Err(NotCopied::TooManyMappings);
        }
        space.code.has_room(1 + 2 * draft.left.len()).map_err(|_| NotCopied::LedgerFull)?;
        known.planners.carry(key, &copied.arming.planner, copied.by);
        known.room.add_moved(&copied.arming.room, copied.by);
        known.generation = Generation::next();
        (draft.to_map.areas, draft.to_map.pads) = (areas, pads);
        draft.after = Some(known);
        Ok(draft)
    }

    /// Writes the copy, once everything is mapped.
    fn write_copy(
        &mut self,
        number: u32,
        thread: &mut Stopped,
        (module, code): (&Module, &Mapping),
        mut draft: Draft,
        (copied, is_file): (&Copied, bool),
    ) -> Result<Result<Vec<NotJumped>, NotCopied>, process::Error> {
        let gone = || Ok(Err(NotCopied::Gone));
        let Some(space) = self.followed.spaces.get_mut(&number) else { return gone() };
        let written = copied.write_code(&space.code.memory, is_file).and_then(|()| {
            let handler_memory = draft.after.as_mut().and_then(|after| after.handler_memory.as_mut());
            handler_memory.map_or(Ok(()), |handler_memory| handler_memory.write(&space.code.memory))
        });
        if written.is_err() || space.shared.hidden.is_some() && space.hide(copied.changes()).is_err() {
            return Ok(Err(NotCopied::NotWritten));
        }
        let held = match self.followed.hold(number) {
            Ok(held) => held,
            Err(_) => return Ok(Err(NotCopied::NotHeld)),
        };
        let Some(space) = self.followed.spaces.get(&number) else { return gone() };
        put_back(space, thread, false)?;
        let known = self.cache.texts.known(space, module, code);
        if !known.is_some_and(|code| Rc::ptr_eq(&code, &copied.arming.code)) {
            self.followed.holds.released_if_alone();
            return Ok(Err(NotCopied::OtherCode));
        }
        let entered = match copied.enter(&space.code) {
            Ok(entered) => entered,
            Err(_) => {
                self.followed.holds.released_if_alone();
                return Ok(Err(NotCopied::LedgerFull));
            }
        };
        let trapping = space.code.enter_if_room(&copied.traps());
        self.followed.bring_back(number, &held);
        self.followed.identify_all(number, Some(thread));
        let Some(space) = self.followed.spaces.get_mut(&number) else { return gone() };
        space.calls.trapping.extend(trapping);
        // Known before any thread can be in them.
        space.jumps.add_copy(copied.clone());
        space.add_moved(copied.moved());
        let written = copied.write_sites(&space.code.memory, &held);
        if !space.disarmed.is_empty() {
            space.disarmed.retain(|&address, _| !copied.has_site(address));
        }
        space.sites.add_copy(copied.clone(), entered);
        if let Some(after) = draft.after {
            (space.plans.planners, space.plans.generation) = (after.planners, after.generation);
            (space.jumps.room, space.shared.handler_memory) = (after.room, after.handler_memory);
        }
        self.cache.armings.copied += 1;
        copied.count_copy();
        self.followed.free_trampolines(number, &held);
        self.followed.holds.released_if_alone();
        if let Err(error) = written {
            let note = format!("process {}: writing the probes: {error}", thread.tid());
            self.messages.tell_once(Note::Other(note));
        }
        Ok(Ok(draft.left))
    }
}
