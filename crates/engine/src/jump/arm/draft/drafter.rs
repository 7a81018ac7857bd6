//! Makes the draft of a module: plans its jumps, compiles handlers, lays trampolines out.
//!
//! In: planned sites (`Planned`), and what the space has now (`Basis`). Out: `Draft`; nothing in
//! the process is changed.

use std::collections::BTreeMap;

use process::{Mapping, Module};

use super::super::choose_memory::choose_hidden;
use super::super::compile::compiler::HandlerCompiler;
use super::super::plan_input::{PlanInput, free};
use super::super::writing::Writing;
use super::{AHEAD, Basis, Draft, FEW, Group, MANY, Wanted, heaps};
use crate::cache::Cache;
use crate::followed::Followed;
use crate::jump::arming::Keep;
use crate::jump::text::Text;
use crate::jump::{Drainer, HandlerMemory};
use crate::mapping;
use crate::messages::Messages;
use crate::module_key::{Generation, module_key};
use crate::program::{Engine, Program};
use crate::programs::Programs;
use crate::reader::Reader;
use crate::reason::{NoJump, NotMapped};
use crate::sharing::Sharing;
use crate::site::Planned;
use crate::site_plans::kept;

/// Makes drafts, and changes nothing in a process. It reads rings meanwhile, since compiling may
/// take long.
pub(crate) struct Drafter<'t, 'a> {
    pub(crate) programs: &'t mut Programs,
    pub(crate) followed: &'t mut Followed,
    pub(crate) sharing: &'t mut Sharing,
    pub(crate) reader: &'t mut Reader,
    pub(crate) cache: &'t mut Cache,
    pub(crate) messages: &'t mut Messages<'a>,
    /// Whether the tracer serves requests.
    pub(crate) serving: bool,
    /// Whether no process has begun with its probes armed: then a refusal ends the session.
    pub(crate) is_first: bool,
}

impl<'a> Drafter<'_, 'a> {
    fn drainer(&mut self) -> Drainer<'_, 'a> {
        Drainer {
            programs: self.programs,
            followed: self.followed,
            sharing: self.sharing,
            reader: self.reader,
            messages: self.messages,
        }
    }

    fn compiler(&mut self) -> HandlerCompiler<'_> {
        HandlerCompiler {
            programs: self.programs,
            spaces: &self.followed.spaces,
            sharing: self.sharing,
            serving: self.serving,
        }
    }

    /// Plans the arming of these sites of a module; `tid` is a thread of the process. If `strict`,
    /// no site may trap: sites without a jump stay as they are, and if that ends the session,
    /// nothing is done. If `fresh`, no thread has executed the module's code, nor will
    /// before the draft is carried out.
    #[expect(clippy::too_many_arguments, reason = "what a draft is made of")]
    pub(crate) fn draft(
        &mut self,
        number: u32,
        tid: i32,
        module: &Module,
        planned: Vec<Planned>,
        mut known: Basis,
        strict: bool,
        fresh: bool,
        keep: Option<Keep>,
    ) -> Draft {
        let heaps = heaps(tid, module);
        let keep = keep.filter(|_| heaps.is_empty() || planned.len() <= MANY);
        let mut draft =
            Draft { module: module_key(module), generation: known.generation, ..Draft::default() };
        let mappings = match process::maps(tid) {
            Ok(mappings) => mappings,
            Err(error) => {
                let reason = NoJump::from(NotMapped::Mappings(error.into()));
                let can_trap = !known.planners.has(&draft.module);
                draft.give_no_jump(planned.into_iter().map(|site| (site, reason.clone())), can_trap);
                return draft;
            }
        };
        let (mut wanted, mut others) = (Vec::with_capacity(planned.len()), Vec::new());
        let mut known_stacks = std::mem::take(&mut self.cache.texts.stacks);
        let stacks = known_stacks.of(&module.image);
        for site in planned {
            let objection = |()| {
                let why = stacks.objection(&module.image, site.0.address.wrapping_sub(module.bias));
                why.map_or(Ok(()), Err)
            };
            match self.suits_a_jump(number, &site).and_then(objection) {
                Ok(()) => wanted.push(site),
                Err(reason) => others.push((site, reason)),
            }
        }
        self.cache.texts.stacks = known_stacks;
        let mut wanted = wanted;
        if (known.handler_memory.is_some() || !wanted.is_empty())
            && let Err(reason) = self.handler_memory_for(number, tid, &mappings, &mut known, &mut draft)
        {
            others.extend(wanted.drain(..).map(|site| (site, reason.clone().into())));
        }
        if self.accesses_memory(&wanted)
            && let Err(reason) = choose_hidden(tid, &mappings, &mut known, &mut draft)
        {
            others.extend(wanted.drain(..).map(|site| (site, reason.clone().into())));
        }
        let described = known.handler_memory.as_ref().map_or(0, HandlerMemory::described);
        let arming = keep.as_ref().map_or(0, |keep| keep.number);
        let (is_planned, is_first) = (known.planners.has(&draft.module), self.is_first);
        let is_strict =
            |(number, program): (usize, &Program)| (program.options.engine == Engine::Jump).then_some(number);
        let by_jump_alone: Vec<usize> = self.programs.iter().filter_map(is_strict).collect();
        let mut groups =
            self.group(number, module, &mappings, wanted, others, &mut known, &mut draft, arming);
        if strict {
            for group in &mut groups {
                draft.give_no_jump(group.others.drain(..), !is_planned);
            }
            if !draft.left.is_empty() && is_first {
                let ready = groups.into_iter().flat_map(|group| group.ready.into_values());
                draft.give_no_jump(ready.map(|ready| (ready.planned, NoJump::OthersRefused)), !is_planned);
                return draft;
            }
        }
        if let Some(handler_memory) =
            known.handler_memory.as_ref().filter(|handler_memory| handler_memory.claims)
        {
            handler_memory.claimed().into_iter().for_each(|(base, size)| known.reserve(base, size));
        }
        let Some(space) = self.followed.spaces.get(&number) else { return draft };
        // What is to be copied has areas of its own for its trampolines.
        let shared_room = keep.is_some().then(|| std::mem::take(&mut known.room));
        if keep.is_some() {
            known.avoid(&mappings, module, space);
        }
        let any = |groups: &[Group]| groups.iter().any(|group| !group.ready.is_empty());
        if any(&groups)
            && let Err(reason) = draft.choose_areas(
                space,
                tid,
                &mappings,
                &groups,
                &mut known,
                self.serving && !space.mapped.map_refused,
            )
        {
            for group in &mut groups {
                let ready = std::mem::take(&mut group.ready).into_values();
                let ready = ready.map(|ready| (ready.planned, NoJump::from(reason.clone())));
                match strict {
                    true => draft.give_no_jump(ready, true),
                    false => group.others.extend(ready),
                }
            }
        }
        if !any(&groups) && !is_planned {
            draft.give_no_jump(groups.into_iter().flat_map(|group| group.others), true);
            return draft;
        }
        // Mappings for landing pads count as theirs, not as the program's.
        let others = mappings.len().saturating_sub(known.planners.mappings());
        let limits = mapping::limits_for_pads(tid, others);
        let kept = kept(module, &space.code.memory);
        for group in groups {
            let entered = group.text.entered();
            let (free, trampolines) = free(&known, tid, &mappings, &group.text);
            let (kept, by_jump_alone) = (kept.clone(), by_jump_alone.clone());
            let around =
                PlanInput { space, module, entered, kept, free, trampolines, limits, fresh, by_jump_alone };
            draft.plan(group, &around, &mut known, strict);
        }
        if strict && !draft.left.is_empty() && is_first {
            return Draft {
                left: draft.into_all_left(!is_planned, NoJump::OthersRefused),
                ..Draft::default()
            };
        }
        let changes = draft.jumps.iter().map(|drafted| drafted.jump.changes.len()).sum::<usize>();
        // A site that traps is entered again when it becomes armed.
        if space.code.has_room(changes + 2 * draft.traps.len() + draft.left.len()).is_err() {
            return Draft { left: draft.into_all_left(false, NoJump::LedgerFull), ..Draft::default() };
        }
        if let Some(mut shared_room) = shared_room {
            draft.to_keep.own_room = known.room.clone();
            shared_room.add_moved(&known.room, 0);
            known.room = shared_room;
        }
        known.avoided.clear();
        let describes = |handler_memory: &HandlerMemory| handler_memory.described() != described;
        draft.to_keep.described =
            known.handler_memory.clone().filter(describes).map(|handler_memory| (described, handler_memory));
        let in_heaps = draft.to_map.pads.iter().filter(|pad| heaps.contains(&pad.0)).count();
        draft.to_keep.keep = keep.filter(|_| in_heaps <= FEW);
        draft.writing =
            Writing::of(space, std::mem::take(&mut draft.jumps), std::mem::take(&mut draft.traps));
        known.generation = Generation::next();
        draft.after = Some(known);
        draft
    }

    /// Makes sure that there is handler memory, choosing its place if none is mapped, and reserves
    /// its memory.
    pub(in crate::jump) fn handler_memory_for(
        &mut self,
        number: u32,
        tid: i32,
        mappings: &[Mapping],
        known: &mut Basis,
        draft: &mut Draft,
    ) -> Result<(), NotMapped> {
        let cells = known.handler_memory.as_ref().map(HandlerMemory::reserved);
        cells.into_iter().flatten().for_each(|(base, size)| known.reserve(base, size));
        if let Some(handler_memory) =
            known.handler_memory.as_mut().filter(|handler_memory| !handler_memory.claims)
        {
            let reserved = known.reserved.iter().map(|&(start, end, _)| (start, end));
            handler_memory.move_contexts(tid, mappings, reserved);
        }
        if known.handler_memory.is_none() {
            let no_handler_memory =
                self.followed.spaces.get(&number).and_then(|space| space.shared.no_handler_memory.clone());
            let handler_memory =
                no_handler_memory.map_or_else(|| self.choose_handler_memory(tid, mappings), Err)?;
            handler_memory.reserved().into_iter().for_each(|(base, size)| known.reserve(base, size));
            known.handler_memory = Some(handler_memory);
            draft.to_map.maps_handler_memory = true;
        }
        Ok(())
    }

    /// Compiles the handlers of a module's sites, and groups the sites by mapping.
    #[expect(clippy::too_many_arguments, reason = "what a draft is made of")]
    fn group(
        &mut self,
        number: u32,
        module: &Module,
        mappings: &[Mapping],
        wanted: Vec<Planned>,
        others: Vec<(Planned, NoJump)>,
        known: &mut Basis,
        draft: &mut Draft,
        arming: u32,
    ) -> Vec<Group> {
        let mapping_of = |address: u64| {
            let found = mappings.partition_point(|mapping| mapping.end <= address);
            let found = mappings.get(found).filter(|mapping| mapping.contains(address));
            found.cloned().unwrap_or_else(|| Mapping::anonymous(address, address + 1, None))
        };
        let all = wanted.into_iter().map(|site| (site, None));
        let all = all.chain(others.into_iter().map(|(site, reason)| (site, Some(reason))));
        let mut by_mapping: BTreeMap<u64, (Mapping, Vec<Wanted>)> = BTreeMap::new();
        for (site, reason) in all {
            let address = site.0.address;
            let sites = match by_mapping.range_mut(..=address).next_back() {
                Some((_, (mapping, sites))) if mapping.contains(address) => sites,
                _ => {
                    let mapping = mapping_of(address);
                    &mut by_mapping.entry(mapping.start).or_insert_with(|| (mapping, Vec::new())).1
                }
            };
            sites.push((site, reason));
        }
        let mut groups = Vec::with_capacity(by_mapping.len());
        for (mapping, sites) in by_mapping.into_values() {
            let space = self.followed.spaces.get(&number);
            let again = self.serving || space.is_some_and(|space| space.modules.starting);
            let text =
                space.and_then(|space| Text::read(space, module, &mapping, &mut self.cache.texts, again));
            let Some(text) = text else {
                draft.give_no_jump(
                    sites.into_iter().map(|(site, own)| (site, own.unwrap_or(NoJump::UnreadableCode))),
                    !known.planners.has(&draft.module),
                );
                continue;
            };
            let mut group = Group { text, ready: BTreeMap::new(), others: Vec::new() };
            for (site, reason) in sites {
                // Compiling may take seconds, in which other threads log.
                self.drainer().drain_meanwhile();
                let (address, handler_memory) = (site.0.address, &mut known.handler_memory);
                let original = site.0.displaced.original();
                let made = match (reason, handler_memory) {
                    (Some(reason), _) => Err(Box::new((site, reason))),
                    _ if group.text.ahead(address, original.len()) != original => {
                        Err(Box::new((site, NoJump::CodeChanged)))
                    }
                    (None, None) => Err(Box::new((site, NoJump::NoHandlerMemory))),
                    (None, Some(handler_memory)) => {
                        let ahead = group.text.ahead(address, AHEAD);
                        self.compiler().make_ready(number, site, handler_memory, mappings, (ahead, arming))
                    }
                };
                match made {
                    Ok(ready) => drop(group.ready.insert(address, ready)),
                    Err(other) => group.others.push(*other),
                }
            }
            groups.push(group);
        }
        groups
    }
}
