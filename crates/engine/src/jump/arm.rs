//! Sites become jumps.
//!
//! First, all that can be done while the program runs: the memory that jumps need is mapped by one stopped thread, the
//! handlers are compiled, the trampolines written. Then all threads are held, the sites are written, and all go on.

use std::ops::RangeInclusive;
use std::rc::Rc;

use patch::Mode;
use process::{Mapping, Stop, Stopped};
use rpn::{Location, Point};

use super::{Code, Layout, Trampoline};
use crate::change::{Batch, Change};
use crate::mapping::{Called, Wanted};
use crate::program::Engine;
use crate::site::{self, Jump, Planned, Use};
use crate::space::Space;
use crate::tracer::Tracer;

/// The bytes of a `jmp rel32`.
const JUMP: usize = 5;
/// The smallest area that is mapped for trampolines, in bytes.
const AREA: u64 = 1 << 16;
/// Bytes of a page.
const PAGE: u64 = 4096;

/// A site that did not become a jump, and why.
pub(crate) type Left = (Planned, String);

/// The handlers of a site, and what commits their record behind the instruction, if it is tentative.
type Handlers = (Vec<Rc<dyn Code>>, Option<Vec<u8>>);

/// A site that is about to become a jump.
struct Ready {
    planned: Planned,
    handlers: Vec<Rc<dyn Code>>,
    /// What commits the record behind the instruction.
    commit: Option<Vec<u8>>,
}

impl Tracer<'_> {
    /// Makes jumps of planned sites, as far as that can be. Gives the others back. `thread` is of the address space.
    pub(crate) fn arm_jumps(
        &mut self,
        number: u32,
        mut thread: Stopped,
        mut stop: Stop,
        planned: Vec<Planned>,
    ) -> Called<Vec<Left>> {
        let mut left = Vec::new();
        let mut wanted = Vec::new();
        for site in planned {
            match self.suits_a_jump(number, &site) {
                Ok(()) => wanted.push(site),
                Err(reason) => left.push((site, reason)),
            }
        }
        if wanted.is_empty() {
            return Ok((thread, stop, Ok(left)));
        }
        let (stopped, now, ground) = self.make_ground(number, thread, stop)?;
        (thread, stop) = (stopped, now);
        if let Err(reason) = ground {
            left.extend(wanted.into_iter().map(|site| (site, reason.clone())));
            return Ok((thread, stop, Ok(left)));
        }
        let mappings = process::maps(thread.tid()).unwrap_or_default();
        let mut ready = Vec::with_capacity(wanted.len());
        for planned in wanted {
            match self.compile_all(number, &planned, &mappings) {
                Ok((handlers, commit)) => ready.push(Ready { planned, handlers, commit }),
                Err(reason) => left.push((planned, reason)),
            }
        }
        let (thread, stop, room) = self.make_room(number, thread, stop, &ready)?;
        if let Err(reason) = room {
            left.extend(ready.into_iter().map(|ready| (ready.planned, reason.clone())));
            return Ok((thread, stop, Ok(left)));
        }
        left.extend(self.write_jumps(number, &thread, ready));
        Ok((thread, stop, Ok(left)))
    }

    /// Takes jumps out of an address space, in which nobody uses them any more. Where its threads cannot be held they stay, and
    /// do nothing.
    pub(crate) fn take_out_jumps(&mut self, number: u32, addresses: impl Iterator<Item = u64>) {
        if let Ok(held) = self.hold(number)
            && let Some(space) = self.spaces.get_mut(&number)
        {
            space.take_out(addresses, &held);
            self.free_trampolines(number, &held);
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
        let displaced = &site.displaced;
        if displaced.mode() != Mode::Bits64 {
            return Err("it is 32-bit code".to_owned());
        }
        if displaced.enters_kernel() {
            return Err(format!("`{}` enters the kernel", displaced.text()));
        }
        if displaced.can_set_trap_flag() {
            return Err(format!("`{}` can make the program step itself", displaced.text()));
        }
        if displaced.length() < JUMP {
            return Err(format!(
                "`{}` has {} bytes, and a jump {JUMP}",
                displaced.text(),
                displaced.length()
            ));
        }
        Ok(())
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

    /// Makes sure that there is memory for trampolines, so far as one piece more will do.
    fn make_room(&mut self, number: u32, thread: Stopped, stop: Stop, ready: &[Ready]) -> Called<()> {
        let Some(space) = self.spaces.get_mut(&number) else {
            return Ok((thread, stop, Err("the process is gone".to_owned())));
        };
        let mut room = space.jumps.room.clone();
        let mut reach: RangeInclusive<u64> = 0..=u64::MAX;
        let (mut size, mut near) = (0, None);
        for ready in ready {
            let layout = layout(ready);
            if room.take(layout.size(), &layout.reach()).is_none() {
                reach = *reach.start().max(layout.reach().start())..=*reach.end().min(layout.reach().end());
                size += layout.size().next_multiple_of(super::room::ALIGNMENT);
                near.get_or_insert(ready.planned.0.address);
            }
        }
        let Some(near) = near else { return Ok((thread, stop, Ok(()))) };
        let size = (size + size / 8).max(AREA).next_multiple_of(PAGE);
        let (thread, stop, base) = self.map_code(number, thread, stop, &Wanted { size, near, reach })?;
        let added = base.map(|base| {
            if let Some(space) = self.spaces.get_mut(&number) {
                space.jumps.room.add(base, size);
            }
        });
        Ok((thread, stop, added))
    }

    /// Writes the trampolines, then, while all threads are held, the jumps.
    fn write_jumps(&mut self, number: u32, thread: &Stopped, ready: Vec<Ready>) -> Vec<Left> {
        let mut left = Vec::new();
        let Some(space) = self.spaces.get_mut(&number) else { return left };
        let mut jumps: Vec<(Planned, Jump)> = Vec::with_capacity(ready.len());
        let mut trampolines = Vec::with_capacity(ready.len());
        for ready in ready {
            match write_trampoline(space, &ready) {
                Ok(trampoline) => {
                    let jump = plain(&ready.planned, &trampoline);
                    jumps.push((ready.planned, jump));
                    trampolines.push(trampoline);
                }
                Err(reason) => left.push((ready.planned, reason)),
            }
        }
        // They are known before any thread can be in them.
        space.jumps.add(trampolines);
        if jumps.is_empty() {
            return left;
        }
        let held = match self.hold(number) {
            Ok(held) => held,
            Err(reason) => {
                if let Some(space) = self.spaces.get_mut(&number) {
                    jumps.iter().for_each(|(_, jump)| space.jumps.retire(jump.trampoline));
                }
                left.extend(jumps.into_iter().map(|(planned, _)| (planned, reason.clone())));
                return left;
            }
        };
        self.free_trampolines(number, &held);
        self.identify_all(number, thread);
        let Some(space) = self.spaces.get_mut(&number) else { return left };
        let mut batch = Batch::default();
        let mut before = Vec::new();
        for (mut planned, jump) in jumps {
            let address = planned.0.address;
            let new = planned.0.uses.clone();
            if let Some(old) = space.sites.remove(&address) {
                planned.0.uses.retain(|wanted| !old.site().uses.contains(wanted));
                planned.0.uses.splice(0..0, old.site().uses.iter().copied());
                if let Some(jump) = old.jump() {
                    space.jumps.retire(jump.trampoline);
                }
                // It is struck out of the ledger when the new jump is written.
                before.push(old);
            }
            crate::modules::set_armed(&mut self.programs, &new, address, Some(jump.tactic));
            space.disarmed.remove(&address);
            space.sites.insert(address, planned.arm_with(jump, &space.code, &mut batch));
        }
        if let Err(error) = site::write(batch, &space.code, &held) {
            let note = format!("process {}: writing the probes: {error}", space.code.process);
            self.tell_once(crate::observer::Note::Other(note));
        }
        drop(before);
        left
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
    }
}

/// Puts a trampoline where there is room for it.
fn write_trampoline(space: &mut Space, ready: &Ready) -> Result<Trampoline, String> {
    let layout = layout(ready);
    let size = layout.size();
    let Some(start) = space.jumps.room.take(size, &layout.reach()) else {
        return Err("no memory for its trampoline is within reach".to_owned());
    };
    let written = layout.at(start).map_err(|refusal| refusal.to_string()).and_then(|(trampoline, bytes)| {
        let written = space.code.memory.poke(start, &bytes);
        written.map(|()| trampoline).map_err(|error| format!("writing the trampoline: {error}"))
    });
    match &written {
        Ok(trampoline) => space.jumps.room.give_back(start + trampoline.size(), size - trampoline.size()),
        Err(_) => space.jumps.room.give_back(start, size),
    }
    written
}

/// A jump in place of an instruction that is as long, or longer.
fn plain(planned: &Planned, trampoline: &Trampoline) -> Jump {
    let site = &planned.0;
    let distance = trampoline.entry().wrapping_sub(site.address + JUMP as u64) as u32;
    let mut bytes = vec![0xe9];
    bytes.extend_from_slice(&distance.to_le_bytes());
    let change = Change::new(site.address, &site.displaced.original()[..JUMP], &bytes);
    Jump { changes: vec![change], trampoline: trampoline.start(), tactic: "plain" }
}
