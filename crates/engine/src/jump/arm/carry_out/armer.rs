//! Carries a draft out in a process: maps its memory, writes its code, enters its sites.
//!
//! In: `Draft`. Out: armed sites, and those that did not become jumps; or the draft back, if it is
//! outdated.

use process::{Stop, Stopped};

use super::super::draft::{Draft, DraftBytes};
use super::super::writing::Writing;
use super::{CarryOutcome, Written, write_code};
use crate::hold::Held;
use crate::jump::Armer;
use crate::jump::arming::{Arming, ArmingInput};
use crate::jump::not_jumped::NotJumped;
use crate::jump::put_back::put_back;
use crate::mapping::Called;
use crate::observer::Note;
use crate::reason::{NoJump, What};
use crate::site::{self, Armed, Site};
use crate::site_use::Use;
use crate::space::Space;

impl Armer<'_, '_> {
    /// Carries out a draft for the address space that `thread` belongs to.
    pub(crate) fn carry_out(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        draft: Draft,
    ) -> Called<CarryOutcome, NoJump> {
        let Some(space) = self.followed.spaces.get(&number) else {
            return Ok((thread, stop, Err(NoJump::Gone)));
        };
        if draft.after.is_none() {
            return Ok((thread, stop, Ok(CarryOutcome::Out(draft.left))));
        }
        if space.plans.generation != draft.generation
            || space.shared.handler_memory.is_some() == draft.to_map.maps_handler_memory
            || !draft.has_seen_traps(space)
        {
            return Ok((thread, stop, Ok(CarryOutcome::Outdated(Box::new(draft), NoJump::ProbesChanged))));
        }
        let (mut thread, stop, mapped) = self.map_all(number, thread, stop, &draft)?;
        if let Err(reason) = mapped {
            return Ok((thread, stop, Ok(CarryOutcome::Outdated(Box::new(draft), reason.into()))));
        }
        // Before any code changes, the ledger must know what to unmap if the tracer is killed.
        if let Some(space) = self.followed.spaces.get_mut(&number) {
            space.note_memory();
        }
        let pads = draft.to_map.pads.clone();
        match self.write_all(number, &mut thread, draft)? {
            Written::All(left) => Ok((thread, stop, Ok(CarryOutcome::Out(left)))),
            Written::Nothing(carried) => {
                let (thread, stop) = self.followed.spaces.unmap_pads(number, thread, stop, pads)?;
                Ok((thread, stop, carried))
            }
        }
    }

    /// Writes a draft for which everything is mapped.
    fn write_all(
        &mut self,
        number: u32,
        thread: &mut Stopped,
        mut draft: Draft,
    ) -> Result<Written, process::Error> {
        let gone = || Ok(Written::Nothing(Err(NoJump::Gone)));
        let outdated =
            |draft, reason| Ok(Written::Nothing(Ok(CarryOutcome::Outdated(Box::new(draft), reason))));
        let Some(space) = self.followed.spaces.get_mut(&number) else { return gone() };
        if let Err(error) = write_code(space, &mut draft) {
            return outdated(draft, NoJump::Writing { what: What::Trampolines, cause: error.into() });
        }
        // Before any of it is there, or is changed.
        if let Err(error) = space.hide(draft.writing.changes()) {
            return outdated(draft, NoJump::Writing { what: What::HiddenTable, cause: error.into() });
        }
        let held = match self.followed.hold(number) {
            Ok(held) => held,
            Err(reason) => {
                let can_trap = self
                    .followed
                    .spaces
                    .get(&number)
                    .is_some_and(|space| !space.plans.planners.has(&draft.module));
                let left = draft.into_sites();
                let left =
                    left.map(|site| NotJumped { site, reason: reason.clone().into(), can_trap, was: None });
                return Ok(Written::Nothing(Ok(CarryOutcome::Out(left.collect()))));
            }
        };
        let Some(space) = self.followed.spaces.get(&number) else { return gone() };
        put_back(space, thread, false)?;
        if !draft.texts.iter().all(|text| text.is_still(space, &draft.writing.places)) {
            self.followed.holds.released_if_alone();
            return outdated(draft, NoJump::CodeChanged);
        }
        // Landing pads in pages that are in use; no site jumps to these pads yet.
        let memory = &space.code.memory;
        if let Err(error) =
            draft.bytes.old_page_pads.iter().try_for_each(|pad| memory.poke(pad.address, &pad.bytes))
        {
            self.followed.holds.released_if_alone();
            return outdated(draft, NoJump::Writing { what: What::LandingPads, cause: error.into() });
        }
        self.followed.bring_back(number, &held);
        self.followed.identify_all(number, Some(thread));
        let left = self.write_sites(number, draft, &held);
        self.followed.free_trampolines(number, &held);
        self.followed.holds.released_if_alone();
        Ok(Written::All(left))
    }

    /// Maps what a draft needs, by system calls of the thread. The result says why something could
    /// not be mapped.
    ///
    /// Memory with fixed addresses comes first: rings and slots go wherever there is room, and
    /// could take its place.
    pub(in crate::jump) fn map_all(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        draft: &Draft,
    ) -> Called<()> {
        let pieces: Vec<(u64, u64)> = draft.to_map.areas.iter().chain(&draft.to_map.pads).copied().collect();
        let (thread, stop, mapped) = self.followed.spaces.map_pieces(number, thread, stop, &pieces)?;
        if let Some(space) = self.followed.spaces.get_mut(&number) {
            space.mapped.map_refused |= mapped.is_err();
        }
        if mapped.is_err() {
            return Ok((thread, stop, mapped));
        }
        self.map_others(number, thread, stop, draft)
    }

    /// Maps the rest of what a draft needs, once its areas and pads are mapped.
    pub(in crate::jump) fn map_others(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        draft: &Draft,
    ) -> Called<()> {
        if let Some(space) = self.followed.spaces.get_mut(&number) {
            space.mapped.mappings += draft.to_map.areas.len() + draft.to_map.pads.len();
            draft.to_map.areas.iter().for_each(|&(base, size)| space.jumps.room.add(base, size));
            draft.to_map.pads.iter().for_each(|&(base, size)| space.jumps.add_pads(base, size));
        }
        let (mut thread, mut stop, mapped) = self.map_rest(number, thread, stop, draft)?;
        if mapped.is_err() {
            (thread, stop) =
                self.followed.spaces.unmap_pads(number, thread, stop, draft.to_map.pads.clone())?;
        }
        Ok((thread, stop, mapped))
    }

    /// Maps handler memory, cells, the table of hidden memory, and slots: they need no certain
    /// place, or have one that nothing else takes.
    fn map_rest(&mut self, number: u32, thread: Stopped, stop: Stop, draft: &Draft) -> Called<()> {
        let (mut thread, mut stop) = (thread, stop);
        let lossless = self.programs.is_lossless();
        let lacks = |space: &Space| space.shared.rings.is_none() || lossless && !space.shared.has_sign;
        let lacks = self.followed.spaces.get(&number).is_some_and(lacks);
        if let Some(handler_memory) = draft.after.as_ref().and_then(|after| after.handler_memory.as_ref())
            && (draft.to_map.maps_handler_memory || handler_memory.claims && lacks)
        {
            let (stopped, now, laid) =
                self.memory_mapper().map_missing_handler_memory(number, thread, stop, handler_memory)?;
            (thread, stop) = (stopped, now);
            if let Err(reason) = laid {
                return Ok((thread, stop, Err(reason)));
            }
        }
        let (stopped, now, grown) = self.memory_mapper().grow_cells(number, thread, stop)?;
        (thread, stop) = (stopped, now);
        if grown.is_err() {
            return Ok((thread, stop, grown));
        }
        if let Some(base) = draft.to_map.hidden {
            let (stopped, now, mapped) = self.followed.spaces.map_hidden(number, thread, stop, base)?;
            (thread, stop) = (stopped, now);
            if mapped.is_err() {
                return Ok((thread, stop, mapped));
            }
        }
        let trap = draft.left.iter().filter(|left| left.can_trap).chain(&draft.demoted);
        let trap: Vec<&Site> = trap.map(|left| &*left.site.0).collect();
        self.followed.spaces.map_spare(number, thread, stop, &trap)
    }

    /// Makes an arming of a draft that is about to be written, if it is to be kept and can be
    /// moved.
    fn arming_of(&self, draft: &mut Draft) -> Option<Arming> {
        let keep = draft.to_keep.keep.take()?;
        let is_whole = draft.bytes.restore.is_empty()
            && draft.demoted.is_empty()
            && draft.bytes.old_page_pads.is_empty();
        let [text] = &draft.texts[..] else { return None };
        let after = draft.after.as_ref().filter(|_| is_whole)?;
        Arming::of(ArmingInput {
            handler_memory: after.handler_memory.as_ref()?,
            planner: after.planners.known(&draft.module)?,
            code: self.cache.texts.kept(text.code())?,
            start: text.range().start,
            keep,
            module: draft.module,
            described: draft.to_keep.described.take(),
            seen: &draft.seen,
            writing: &draft.writing,
            trampolines: &draft.trampolines,
            room: std::mem::take(&mut draft.to_keep.own_room),
            areas: draft.to_map.areas.clone(),
            pads: draft.to_map.pads.clone(),
            trampoline_bytes: &draft.bytes.code,
            pad_bytes: &draft.bytes.new_page_pads,
            left: &draft.left,
        })
    }

    /// Writes the sites while all threads are held, and records the result. Returns the sites that
    /// did not become jumps.
    fn write_sites(&mut self, number: u32, mut draft: Draft, held: &Held) -> Vec<NotJumped> {
        let kept = self.arming_of(&mut draft);
        let Draft {
            after,
            trampolines,
            bytes: DraftBytes { restore, code, new_page_pads: fresh, .. },
            mut left,
            demoted,
            writing,
            texts,
            ..
        } = draft;
        let Some(space) = self.followed.spaces.get_mut(&number) else { return left };
        left.extend(demoted);
        let Writing { mut armed, notes, probed, retired, mut out, batch, trapping, .. } = writing;
        space.calls.trapping.extend(trapping);
        let memory = &space.code.memory;
        let mut failed = None;
        let mut gone = Vec::new();
        for write in restore {
            match space.sites.remove(&write.address) {
                Some(old) => gone.push(old),
                None => failed = memory.poke(write.address, &write.bytes).err().or(failed),
            }
        }
        for old in &gone {
            if let Some(jump) = old.jump() {
                space.jumps.forget_ways(old.site().address, jump);
            }
        }
        // Known before any thread can be in them.
        space.jumps.add(trampolines);
        for old in &gone {
            // A site that gets another jump may keep its trampoline.
            let stays = |start| {
                armed.get(&old.site().address).and_then(Armed::jump).is_some_and(|it| it.trampoline == start)
            };
            if let Some(jump) = old.jump().filter(|jump| !stays(jump.trampoline)) {
                space.jumps.retire(jump.trampoline);
            }
            old.changes().into_iter().for_each(|change| out.take_out(change));
        }
        let written =
            site::write(out, &space.code, held).and_then(|()| site::write(batch, &space.code, held));
        // Strikes the old changes out of the ledger.
        drop(gone);
        retired.into_iter().for_each(|trampoline| space.jumps.retire(trampoline));
        for note in &notes {
            crate::placing::set_armed(
                self.programs,
                space.trust.domain,
                &note.new,
                note.address,
                Some(note.tactic),
            );
            for wanted in &note.new {
                if let Use::Probe { program, probe } = *wanted {
                    let before = note.before.as_ref().filter(|(_, uses)| uses.contains(wanted));
                    let before = before.map(|&(tactic, _)| tactic);
                    self.programs[program].probes[probe].sites.jump(note.tactic, before);
                }
            }
        }
        if !space.disarmed.is_empty() {
            notes.iter().for_each(|note| drop(space.disarmed.remove(&note.address)));
        }
        space.sites.append(&mut armed);
        for address in probed.iter().copied().chain(left.iter().map(|left| left.site.0.address)) {
            // A site covered by a jump stays covered: it is not armed, and reported with its
            // reason.
            if !space.sites.is_covered(address) {
                failed = space.jumps.cut(address, &space.code.memory, held).err().or(failed);
            }
        }
        if let Some(after) = after {
            let before = std::mem::replace(&mut space.plans.planners, after.planners);
            self.spent.push(Box::new(before));
            (space.plans.generation, space.jumps.room, space.shared.handler_memory) =
                (after.generation, after.room, after.handler_memory);
        }
        self.spent.push(Box::new((probed, notes, code, fresh, texts)));
        let failed = written.err().or(failed);
        if let Some(arming) = kept.filter(|_| failed.is_none()) {
            space.add_moved((arming.number(), 0));
            self.cache.armings.keep_arming(self.programs, arming);
        }
        let Some(space) = self.followed.spaces.get(&number) else { return left };
        if let Some(error) = failed {
            let note = format!("process {}: writing the probes: {error}", space.code.process);
            self.messages.tell_once(Note::Other(note));
        }
        left
    }
}
