//! Sites become jumps.
//!
//! First, all that can be done while the program runs: the memory that jumps need is mapped by one stopped thread, the
//! handlers are compiled, the trampolines written. Then all threads are held, the sites are written, and all go on.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::rc::Rc;

use patch::tactic::{Jump as Shape, Site, Write};
use patch::{Displaced, Mode};
use process::{Mapping, Module, Stop, Stopped};
use rpn::{Location, Point};

use super::tail::{self, Behind};
use super::{Code, Layout, Trampoline, plan};
use crate::change::{Batch, Change};
use crate::hold::Held;
use crate::mapping::{Called, Wanted};
use crate::program::Engine;
use crate::site::{self, Armed, Jump, Planned, Use};
use crate::space::Space;
use crate::tracer::Tracer;

/// The smallest area that is mapped for trampolines, in bytes.
const AREA: u64 = 1 << 16;
/// Bytes of a page.
const PAGE: u64 = 4096;

/// A site that did not become a jump.
pub(crate) struct Left {
    pub(crate) site: Planned,
    /// Why.
    pub(crate) reason: String,
    /// Whether it can trap instead: not where the jumps of others rely on its bytes.
    pub(crate) can_trap: bool,
}

/// The handlers of a site, and what commits their record behind the instruction, if it is tentative.
type Handlers = (Vec<Rc<dyn Code>>, Option<Vec<u8>>);

/// A site that is about to become a jump.
struct Ready {
    planned: Planned,
    handlers: Vec<Rc<dyn Code>>,
    /// What commits the record behind the instruction.
    commit: Option<Vec<u8>>,
}

/// What is written to an address space, all in one go.
#[derive(Default)]
struct Work {
    jumps: Vec<(Planned, Jump)>,
    trampolines: Vec<Trampoline>,
    /// The jumps between sites and trampolines: each with its site and its trampoline.
    ways: Vec<(u64, u64, u64)>,
    pads: Vec<Write>,
    /// Bytes that are the program's again.
    restore: Vec<Write>,
    /// The first bytes of sites that will trap.
    traps: Vec<Change>,
    left: Vec<Left>,
}

impl Tracer<'_> {
    /// Makes jumps of planned sites, as far as that can be. Gives the others back. `thread` is of the address space.
    pub(crate) fn arm_jumps(
        &mut self,
        number: u32,
        mut thread: Stopped,
        mut stop: Stop,
        module: &Module,
        planned: Vec<Planned>,
    ) -> Called<Vec<Left>> {
        let mut others = Vec::new();
        let mut wanted = Vec::new();
        for site in planned {
            match self.suits_a_jump(number, &site) {
                Ok(()) => wanted.push(site),
                Err(reason) => others.push((site, reason)),
            }
        }
        if !wanted.is_empty() {
            let (stopped, now, ground) = self.make_ground(number, thread, stop)?;
            (thread, stop) = (stopped, now);
            if let Err(reason) = ground {
                others.extend(wanted.drain(..).map(|site| (site, reason.clone())));
            }
        }
        let mappings = process::maps(thread.tid()).unwrap_or_default();
        let mut ready = Vec::with_capacity(wanted.len());
        for planned in wanted {
            // This may take seconds, in which other threads log.
            self.drain_meanwhile();
            match self.compile_all(number, &planned, &mappings) {
                Ok((handlers, commit)) => ready.push(Ready { planned, handlers, commit }),
                Err(reason) => others.push((planned, reason)),
            }
        }
        let mut area = 0..0;
        if !ready.is_empty() {
            let (stopped, now, room) = self.make_room(number, thread, stop, &ready)?;
            (thread, stop) = (stopped, now);
            match room {
                Ok(room) => area = room,
                Err(reason) => others.extend(ready.drain(..).map(|ready| (ready.planned, reason.clone()))),
            }
        }
        let is_planned = self.spaces.get(&number).is_some_and(|space| space.planner.is_some());
        if ready.is_empty() && !is_planned {
            let left = others.into_iter().map(|(site, reason)| Left { site, reason, can_trap: true });
            return Ok((thread, stop, Ok(left.collect())));
        }
        let held = match self.hold(number) {
            Ok(held) => held,
            Err(reason) => {
                let all =
                    others.into_iter().map(|(site, _)| site).chain(ready.into_iter().map(|it| it.planned));
                let left = all.map(|site| Left { site, reason: reason.clone(), can_trap: !is_planned });
                return Ok((thread, stop, Ok(left.collect())));
            }
        };
        if let Some(space) = self.spaces.get(&number) {
            plan::put_back(space, &mut thread)?;
        }
        self.bring_back(number, &held);
        self.free_trampolines(number, &held);
        let mut work = Work::default();
        let mut groups: BTreeMap<u64, Sites> = BTreeMap::new();
        let mapping = |address: u64| {
            let found = mappings.iter().find(|mapping| mapping.contains(address));
            found.map_or(address..address + 1, |mapping| mapping.start..mapping.end)
        };
        for ready in ready {
            let range = mapping(ready.planned.0.address);
            groups.entry(range.start).or_insert_with(|| (range, Vec::new(), Vec::new())).1.push(ready);
        }
        for other in others {
            let range = mapping(other.0.0.address);
            groups.entry(range.start).or_insert_with(|| (range, Vec::new(), Vec::new())).2.push(other);
        }
        for (range, ready, others) in groups.into_values() {
            let group = Group { module, range, area: area.clone(), ready, others };
            let (stopped, now, done) = self.plan_group(number, thread, stop, group, &mut work)?;
            (thread, stop) = (stopped, now);
            if let Err(reason) = done {
                self.tell_once(crate::observer::Note::Other(reason));
            }
        }
        let left = self.carry_out(number, &thread, work, &held);
        self.released_if_alone();
        Ok((thread, stop, Ok(left)))
    }

    /// Plans the sites of one mapping, and notes in `work` what is to be written.
    fn plan_group(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        group: Group<'_>,
        work: &mut Work,
    ) -> Called<()> {
        let Group { module, range, area, ready, others } = group;
        let there = self.spaces.get(&number).is_some_and(|space| space.planner.is_some());
        let site = |planned: &Planned, jump| Site {
            address: planned.0.address,
            length: planned.0.displaced.length(),
            jump,
        };
        let mut sites: Vec<Site> = ready.iter().map(|ready| site(&ready.planned, true)).collect();
        sites.extend(others.iter().map(|(planned, _)| site(planned, false)));
        if let Some(space) = self.spaces.get(&number) {
            let traps = space
                .sites
                .iter()
                .filter(|(address, armed)| range.contains(*address) && armed.jump().is_none());
            sites.extend(traps.map(|(&address, armed)| Site {
                address,
                length: armed.site().displaced.length(),
                jump: false,
            }));
        }
        sites.sort_by_key(|site| (site.address, site.jump));
        sites.dedup_by_key(|site| site.address);
        let (thread, stop, prepared) = self.prepare(number, thread, stop, module, range, area, &sites)?;
        let give_up = |work: &mut Work, reason: &str, ready: Vec<Ready>, others: Vec<(Planned, String)>| {
            let all = ready.into_iter().map(|it| (it.planned, reason.to_owned())).chain(others);
            work.left.extend(all.map(|(site, reason)| Left { site, reason, can_trap: !there }));
        };
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(reason) => {
                give_up(work, &reason, ready, others);
                return Ok((thread, stop, Ok(())));
            }
        };
        let Some(space) = self.spaces.get_mut(&number) else {
            return Ok((thread, stop, Err("the process is gone".to_owned())));
        };
        match draft(space, module, &prepared, &ready) {
            Ok(draft) => {
                space.planner = Some(prepared.planner);
                let reasons: HashMap<u64, (String, bool)> = prepared
                    .plan
                    .traps
                    .iter()
                    .map(|(address, reason)| (*address, (reason.to_string(), true)))
                    .chain(
                        prepared
                            .plan
                            .refused
                            .iter()
                            .map(|(address, reason)| (*address, (reason.to_string(), false))),
                    )
                    .collect();
                let mut ready: HashMap<u64, Ready> =
                    ready.into_iter().map(|ready| (ready.planned.0.address, ready)).collect();
                for (planned, jump) in draft.jumps {
                    let planned = match (planned, ready.remove(&jump.shape.address)) {
                        (_, Some(ready)) => ready.planned,
                        (Some(planned), None) => planned,
                        (None, None) => continue,
                    };
                    work.jumps.push((planned, jump));
                }
                let text = &prepared.text;
                let others = others.into_iter().map(|(site, reason)| (site, Some(reason)));
                for (site, own) in others.chain(ready.into_values().map(|ready| (ready.planned, None))) {
                    let address = site.0.address;
                    let (reason, can_trap) = reasons
                        .get(&address)
                        .cloned()
                        .unwrap_or_else(|| ("no jump was planned for it".to_owned(), false));
                    if can_trap && let Some(change) = text.trap(address) {
                        work.traps.push(change);
                    }
                    work.left.push(Left { site, reason: own.unwrap_or(reason), can_trap });
                }
                work.trampolines.extend(draft.trampolines);
                work.ways.extend(draft.ways);
                work.pads.extend(draft.pads);
                work.restore.extend(prepared.plan.restore);
            }
            // Nothing was written: what was there before stays as it is.
            Err(reason) => give_up(work, &reason, ready, others),
        }
        Ok((thread, stop, Ok(())))
    }

    /// Writes all of it.
    fn carry_out(&mut self, number: u32, thread: &Stopped, work: Work, held: &Held) -> Vec<Left> {
        let Work { jumps, trampolines, ways, pads, restore, traps, left } = work;
        self.identify_all(number, Some(thread));
        let Some(space) = self.spaces.get_mut(&number) else { return left };
        // They are known before any thread can be in them.
        space.jumps.add(trampolines);
        let mut failed = None;
        let probed = jumps.iter().map(|(planned, _)| planned).filter(|planned| is_probed(planned));
        for planned in probed.chain(left.iter().map(|left| &left.site)) {
            failed = space.jumps.cut(planned.0.address, &space.code.memory, held).err().or(failed);
        }
        for pad in pads {
            failed = space.code.memory.poke(pad.address, &pad.bytes).err().or(failed);
        }
        let mut before = Vec::new();
        let mut out = Batch::default();
        let mut batch = Batch::default();
        let mut retired = Vec::new();
        for write in restore {
            match space.sites.remove(&write.address) {
                Some(old) => retired.push(old),
                None => failed = space.code.memory.poke(write.address, &write.bytes).err().or(failed),
            }
        }
        for (mut planned, jump) in jumps {
            let address = planned.0.address;
            let new = planned.0.uses.clone();
            let mut was = Vec::new();
            if let Some(old) = space.sites.remove(&address) {
                was.extend(old.jump().map(|jump| (jump.tactic, old.site().uses.clone())));
                planned.0.uses.retain(|wanted| !old.site().uses.contains(wanted));
                planned.0.uses.splice(0..0, old.site().uses.iter().copied());
                if planned.0.uses.iter().any(|wanted| *wanted != Use::Neighbour) {
                    planned.0.uses.retain(|wanted| *wanted != Use::Neighbour);
                }
                if let Some(before) = old.jump().filter(|before| before.trampoline != jump.trampoline) {
                    space.jumps.retire(before.trampoline);
                }
                old.changes().into_iter().for_each(|change| out.take_out(change));
                // It is struck out of the ledger when the new jump is written.
                before.push(old);
            }
            crate::modules::set_armed(&mut self.programs, &new, address, Some(jump.tactic));
            for wanted in &new {
                if let Use::Probe { program, probe } = *wanted {
                    let before =
                        was.iter().find(|(_, uses)| uses.contains(wanted)).map(|&(tactic, _)| tactic);
                    self.programs[program].probes[probe].sites.jump(jump.tactic, before);
                }
            }
            space.disarmed.remove(&address);
            space.sites.insert(address, planned.arm_with(jump, &space.code, &mut batch));
        }
        for old in &retired {
            if let Some(jump) = old.jump() {
                space.jumps.retire(jump.trampoline);
            }
            old.changes().into_iter().for_each(|change| out.take_out(change));
        }
        ways.into_iter().for_each(|(at, site, trampoline)| space.jumps.add_way(at, site, trampoline));
        traps.into_iter().for_each(|change| batch.put_in(change));
        let written =
            site::write(out, &space.code, held).and_then(|()| site::write(batch, &space.code, held));
        if let Some(error) = written.err().or(failed) {
            let note = format!("process {}: writing the probes: {error}", space.code.process);
            self.tell_once(crate::observer::Note::Other(note));
        }
        drop((before, retired));
        left
    }

    /// Takes sites out of an address space, in which nobody uses them any more. Where its threads cannot be held they stay, and
    /// do nothing.
    pub(crate) fn take_out_jumps(&mut self, number: u32, addresses: &[u64]) {
        if let Ok(held) = self.hold(number) {
            self.bring_back(number, &held);
            if let Some(space) = self.spaces.get_mut(&number) {
                space.take_out_planned(addresses, &held);
                self.free_trampolines(number, &held);
            }
        }
    }

    /// Whether a site may become a jump, as far as can be said without trying.
    fn suits_a_jump(&self, number: u32, planned: &Planned) -> Result<(), String> {
        let Some(space) = self.spaces.get(&number) else { return Err("the process is gone".to_owned()) };
        let site = &planned.0;
        for wanted in &site.uses {
            match *wanted {
                Use::Probe { program, .. } if self.programs[program].options.engine == Engine::Trap => {
                    return Err("`--engine trap`".to_owned());
                }
                Use::Probe { program, .. } if self.programs[program].calls => {
                    return Err(
                        "a handler of its program calls a facility, which may show all threads".to_owned()
                    );
                }
                Use::Probe { program, .. } if self.programs[program].calls_plugins => {
                    return Err(
                        "a handler of its program calls plugins, which are not in the process".to_owned()
                    );
                }
                Use::Probe { program, probe } => {
                    let location = &self.programs[program].versions.main().probes[probe].location;
                    let is_return = matches!(location, Location::Points { point: Point::Return, .. });
                    if is_return && site.displaced.is_taken(&patch::Registers::default()).is_some() {
                        return Err("the function is left there only if the jump is taken".to_owned());
                    }
                }
                _ => return Err("it tells of modules that are mapped".to_owned()),
            }
        }
        if space.sites.get(&site.address).is_some_and(|armed| armed.jump().is_none()) {
            return Err("a trap is there already".to_owned());
        }
        unsuitable(&site.displaced).map_or(Ok(()), Err)
    }

    /// The handlers of a site: of the probes that it is planned for, behind those that it has already; and what commits
    /// their record behind the displaced instruction, if it is tentative.
    fn compile_all(
        &mut self,
        number: u32,
        planned: &Planned,
        mappings: &[Mapping],
    ) -> Result<Handlers, String> {
        let site = &planned.0;
        let displaced = &site.displaced;
        let may_fault =
            displaced.may_fault_in_trampoline(|range, written| is_accessible(mappings, &range, written));
        let there = self.spaces.get(&number).and_then(|space| space.sites.get(&site.address));
        let mut uses = there.map_or_else(Vec::new, |armed| armed.site().uses.clone());
        for wanted in &site.uses {
            if !uses.contains(wanted) {
                uses.push(*wanted);
            }
        }
        let mut handlers = Vec::with_capacity(uses.len());
        let mut tentative = 0;
        for wanted in uses {
            if let Use::Probe { program, probe } = wanted {
                let compiled = self.compile(number, program, probe, site, may_fault)?;
                tentative += usize::from(compiled.tentative);
                handlers.push(compiled.code);
            }
        }
        let text = displaced.text();
        let delta = displaced.stack_delta().and_then(|delta| i32::try_from(delta).ok());
        let commit = match (tentative, delta) {
            (0, _) => None,
            (1, Some(delta)) if !displaced.transfers_control() => Some(jit::Compiled::commit(delta)),
            (1, _) => {
                return Err(format!(
                    "`{text}` can fault, and what is behind it cannot be told: a record of it waits"
                ));
            }
            _ => {
                return Err(format!(
                    "`{text}` can fault, and records of more than one probe would wait for it"
                ));
            }
        };
        Ok((handlers, commit))
    }

    /// Maps memory for the trampolines of these sites, and for the copies of instructions that are moved for them.
    fn make_room(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        ready: &[Ready],
    ) -> Called<std::ops::Range<u64>> {
        let mut reach: RangeInclusive<u64> = 0..=u64::MAX;
        let (mut size, mut near) = (0, 0);
        for ready in ready {
            let layout = layout(ready);
            reach = *reach.start().max(layout.reach().start())..=*reach.end().min(layout.reach().end());
            size += (layout.size() + tail::USUAL).next_multiple_of(super::room::ALIGNMENT);
            near = ready.planned.0.address;
        }
        let copies =
            ready.len() as u64 * (patch::SLOT_CAPACITY as u64).next_multiple_of(super::room::ALIGNMENT);
        let size = (size + 2 * copies).max(AREA).next_multiple_of(PAGE);
        let (thread, stop, base) = self.map_code(number, thread, stop, &Wanted { size, near, reach })?;
        let added = base.map(|base| {
            if let Some(space) = self.spaces.get_mut(&number) {
                space.jumps.room.add(base, size);
            }
            base..base + size
        });
        Ok((thread, stop, added))
    }
}

/// Why an instruction cannot be in a trampoline, if it cannot.
pub(crate) fn unsuitable(displaced: &Displaced) -> Option<String> {
    if displaced.mode() != Mode::Bits64 {
        return Some("it is 32-bit code".to_owned());
    }
    if displaced.enters_kernel() {
        return Some(format!("`{}` enters the kernel", displaced.text()));
    }
    displaced.can_set_trap_flag().then(|| format!("`{}` can make the program step itself", displaced.text()))
}

/// A mapping, those of its sites that are ready, and those that are to trap, with why.
type Sites = (std::ops::Range<u64>, Vec<Ready>, Vec<(Planned, String)>);

/// The sites of one mapping.
struct Group<'a> {
    module: &'a Module,
    range: std::ops::Range<u64>,
    /// Where their trampolines will be.
    area: std::ops::Range<u64>,
    ready: Vec<Ready>,
    /// Those that are to trap, and why.
    others: Vec<(Planned, String)>,
}

/// The jumps of a plan, with their trampolines written.
struct Draft {
    /// Each with its site, unless that is one of those that are ready.
    jumps: Vec<(Option<Planned>, Jump)>,
    trampolines: Vec<Trampoline>,
    ways: Vec<(u64, u64, u64)>,
    pads: Vec<Write>,
}

/// Writes the trampolines of a plan's jumps. No byte of the program is changed.
fn draft(
    space: &mut Space,
    module: &Module,
    prepared: &plan::Prepared,
    ready: &[Ready],
) -> Result<Draft, String> {
    let mut draft = Draft { jumps: Vec::new(), trampolines: Vec::new(), ways: Vec::new(), pads: Vec::new() };
    let ready: HashMap<u64, &Ready> = ready.iter().map(|ready| (ready.planned.0.address, ready)).collect();
    if let Some((address, _)) = prepared
        .plan
        .traps
        .iter()
        .find(|(address, _)| space.sites.get(address).is_some_and(|armed| armed.jump().is_some()))
    {
        return Err(format!("the jump at {address:#x} would have to become a trap"));
    }
    let shapes: HashMap<u64, &Shape> =
        prepared.plan.jumps.iter().map(|shape| (shape.address, shape)).collect();
    let tail_of = |space: &Space, shape: &Shape| {
        let around = Around { sites: &space.sites, ready: &ready, shapes: &shapes };
        let next = shape.address + shape.length as u64;
        tail::tail(&prepared.text, next, plan::end(shape), &prepared.kept, &around)
    };
    for shape in &prepared.plan.jumps {
        let address = shape.address;
        let mut planned = None;
        let (start, entry) = match (ready.get(&address), space.sites.get(&address)) {
            (Some(ready), _) => {
                let tail = tail_of(space, shape);
                let trampoline = space.write_trampoline(Layout { tail: &tail, ..layout(ready) })?;
                let place = (trampoline.start(), trampoline.entry());
                draft.trampolines.push(trampoline);
                place
            }
            (None, Some(armed)) => {
                let jump = armed.jump().ok_or("a trap is in the way")?;
                let (trampoline, _) = space.jumps.at(jump.trampoline).ok_or("its trampoline is gone")?;
                planned = Some(Planned(armed.site().clone()));
                (trampoline.start(), trampoline.entry())
            }
            (None, None) => {
                let neighbour = prepared.text.neighbour(module, shape)?;
                let tail = tail_of(space, shape);
                let trampoline = space.write_copy(&neighbour.0.displaced, &tail)?;
                planned = Some(neighbour);
                let place = (trampoline.start(), trampoline.entry());
                draft.trampolines.push(trampoline);
                place
            }
        };
        let written = prepared.text.written(shape, entry).ok_or("a trampoline is out of reach")?;
        draft.ways.extend(plan::ways(address, &written).map(|at| (at, address, start)));
        let jump = Jump {
            changes: written.changes,
            trampoline: start,
            tactic: plan::name(shape.tactic),
            shape: shape.clone(),
        };
        draft.pads.extend(written.pad);
        draft.jumps.push((planned, jump));
    }
    Ok(draft)
}

/// Whether somebody wants to know of a site's hits.
fn is_probed(planned: &Planned) -> bool {
    planned.0.uses.iter().any(|wanted| *wanted != Use::Neighbour)
}

/// What is, or will be, around a site.
struct Around<'a> {
    sites: &'a site::Sites,
    ready: &'a HashMap<u64, &'a Ready>,
    shapes: &'a HashMap<u64, &'a Shape>,
}

impl Behind for Around<'_> {
    fn stays(&self, address: u64) -> bool {
        let probed = |armed: &Armed| armed.site().uses.iter().any(|wanted| *wanted != Use::Neighbour);
        self.ready.contains_key(&address) || self.sites.get(&address).is_some_and(probed)
    }

    fn jump_end(&self, address: u64) -> Option<u64> {
        let there = || Some(&self.sites.get(&address)?.jump()?.shape);
        Some(plan::end(self.shapes.get(&address).copied().or_else(there)?))
    }
}

/// Whether addresses are mapped so that the program can read them, or write to them.
fn is_accessible(mappings: &[Mapping], range: &RangeInclusive<u64>, written: bool) -> bool {
    let mut next = *range.start();
    for mapping in mappings {
        if mapping.contains(next) && mapping.readable && (mapping.writable || !written) {
            next = mapping.end;
            if next > *range.end() {
                return true;
            }
        }
    }
    false
}

/// The trampoline of a site, to be put somewhere.
fn layout(ready: &Ready) -> Layout<'_> {
    Layout {
        displaced: &ready.planned.0.displaced,
        handlers: ready.handlers.clone(),
        commit: ready.commit.clone(),
        tail: &[],
    }
}
