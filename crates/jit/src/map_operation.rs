//! Instructions on maps.
//!
//! A word of a map without keys is at a known address. An entry with a key of 8 bytes that is found
//! at the first look ([`crate::lookup`]) is changed or read in machine code. All else is done by
//! the agent ([`crate::agent_call`]), with the key in a context; compiled code goes on behind the
//! call.

use core::mem::offset_of;

use layout::{Context, FRAME, RESUME_WORDS, claim};
use maps::{Kind, MapInfo};
use vm::{FRAME_LIMIT, Op, Word};

use crate::agent_call::{AgentCall, Asked};
use crate::emit::{Label, Stream};
use crate::frame::Cell;
use crate::lookup::Found;
use crate::map_range::MapRange;
use crate::operands::{Alu, RAX, RDX, Reg, Rm};
use crate::output::Operand;
use crate::owner::of_context;
use crate::run::Run;
use crate::shape::Location;
use crate::words::Known;

/// The most bytes that are fetched to words of the frame.
const FETCHED: u32 = 64;

/// What an instruction adds to an entry, or sets it to.
#[derive(Clone, Copy)]
enum Added {
    Nothing,
    One,
    Value(Reg),
    /// 1, to the word with the number in a register.
    Bucket(Reg),
}

/// An instruction on a map.
pub(crate) struct MapOperation<'r, 'a> {
    run: &'r mut Run<'a>,
    op: Op,
    map: usize,
    info: MapInfo,
}

impl MapOperation<'_, '_> {
    /// Emits an instruction. Returns false, with nothing relevant emitted, if it is not compiled.
    pub(crate) fn emit(run: &mut Run<'_>, op: Op, map: usize) -> bool {
        if op == Op::Update && run.path.update(map) {
            return true;
        }
        let Some(info) = run.path.out.environment.maps.get(map).copied() else { return false };
        MapOperation { run, op, map, info }.compile().is_some()
    }

    /// Emits [`Op::StackOf`]: the agent walks the stack from the program's registers, which are
    /// stored in the context.
    pub(crate) fn stack(run: &mut Run<'_>, map: usize) -> bool {
        let context = run.hold_context();
        let to = run.path.take();
        run.path.out.store_program_registers(context);
        run.calls = true;
        let most = run.path.operand(0);
        let nothing = Operand::Number(0);
        let asked = Asked {
            op: Op::StackOf,
            map,
            key: 0,
            key_length: nothing,
            value: Some(most),
            value_length: None,
        };
        Self::ask(run, context, asked);
        run.path.out.emitter.load(to, RAX);
        run.path.pop();
        run.path.push(Location::Register(to.0));
        true
    }

    fn compile(mut self) -> Option<()> {
        let key = MapRange::of(&mut self.run.path, 0, 1, self.info.key)?;
        let is_word = self.info.key == 0 && self.info.kind() == Kind::Plain && key.fixed == Some(0);
        if is_word && self.at_word() {
            return Some(());
        }
        if self.is_found_inline(&key) {
            return self.at_first_look(key);
        }
        self.by_agent(key)
    }

    /// The number of elements that it pops.
    fn pops(&self) -> usize {
        self.op.row().pops.map_or(0, usize::from)
    }

    /// Whether it pushes a result.
    fn pushes(&self) -> bool {
        self.op.row().pushes == Some(1)
    }

    /// Pops what it pops, and pushes its result.
    fn finish(&mut self, result: Option<Location>) {
        (0..self.pops()).for_each(|_| self.run.path.pop());
        if let Some(result) = result {
            self.run.path.push(result);
        }
    }

    /// Emits it for the first word of a plain map without keys, if it is one of those on words.
    fn at_word(&mut self) -> bool {
        let path = &mut self.run.path;
        let place = u32::try_from(8 * self.info.value_place()).ok();
        let Some(address) = place.and_then(|place| path.out.environment.tables.checked_add(place)) else {
            return false;
        };
        let word = Rm::Absolute(address);
        let result = match self.op {
            _ if self.info.value == 0 => return false,
            Op::Update => {
                let value = path.value_register(2);
                path.out.emitter.add_locked(word, value);
                None
            }
            Op::Put => {
                let value = path.value_register(2);
                path.out.emitter.store(word, value);
                None
            }
            Op::Load => {
                let to = path.take();
                path.out.emitter.load(to, word);
                Some(Location::Register(to.0))
            }
            Op::Bump => {
                let to = path.copy(2);
                path.out.emitter.fetch_add(word, to);
                Some(Location::Register(to.0))
            }
            Op::Has => Some(Location::Number(1)),
            _ => return false,
        };
        self.finish(result);
        true
    }

    /// Whether it is done in machine code if the entry is found at the first look.
    fn is_found_inline(&self, key: &MapRange) -> bool {
        let kind = self.info.kind();
        let adds = match kind {
            Kind::Plain | Kind::Count | Kind::Sum => self.info.value >= 8,
            Kind::Avg | Kind::Stats => self.info.value >= 16,
            Kind::Hist => self.info.a == 0 && self.info.value >= 8 * 65,
            _ => false,
        };
        let does = match self.op {
            Op::Update => adds,
            Op::Load | Op::Bump => kind == Kind::Plain && self.info.value >= 8,
            Op::Put => kind == Kind::Plain && self.info.value >= 8 && !self.is_erased(),
            Op::Erase => kind == Kind::Plain,
            Op::Has => true,
            _ => false,
        };
        // Only updates are of this processor's copy, and of all maps' others have one.
        let copy = self.op == Op::Update || self.info.copies == 1;
        does && copy && key.fixed == Some(8) && self.run.path.can_find(&self.info)
    }

    /// Whether the program removes entries of the map: then what it puts there is as a rule new.
    fn is_erased(&self) -> bool {
        vm::instructions(self.run.handler.code, Word::W8)
            .filter_map(|item| item.instruction())
            .any(|instruction| instruction.op == Op::Erase && instruction.operand == self.map as u64)
    }

    fn at_first_look(mut self, key: MapRange) -> Option<()> {
        let pushes = self.pushes();
        let path = &mut self.run.path;
        let Known::At(index) = path.known(key.at) else { return self.by_agent(key) };
        // Before others, so that none of them is in it.
        path.take_register(RDX);
        let sought = path.take();
        let operand = path.word_operand(index);
        path.out.set(sought, operand);
        let added = match self.op {
            Op::Update if self.info.kind() == Kind::Hist => Added::Bucket(path.bucket()),
            Op::Update if path.operand(2) == Operand::Number(1) => Added::One,
            Op::Update | Op::Put | Op::Bump => Added::Value(path.in_register(2)),
            _ => Added::Nothing,
        };
        let to = pushes.then(|| path.take());
        let [slow, done] = [(); 2].map(|()| path.out.emitter.label());
        let found = path.find(&self.info, sought, slow)?;
        self.at_found(found, added, to, slow);
        self.run.path.out.emitter.bind(done);
        let aside = self.run.path.out.emitter.aside(Stream::Cold);
        self.run.path.out.emitter.bind(slow);
        self.call_aside(key, to, &found);
        self.run.path.out.emitter.jump(done);
        self.run.path.out.emitter.end_detour(aside);
        self.finish(to.map(|to| Location::Register(to.0)));
        Some(())
    }

    /// Emits the instruction on an entry.
    fn at_found(&mut self, found: Found, added: Added, to: Option<Reg>, slow: Label) {
        let path = &mut self.run.path;
        let word = found.value(0);
        let emitter = &mut path.out.emitter;
        match (self.op, added, to) {
            (Op::Update, Added::Bucket(bucket), _) => {
                emitter.alu(Alu::Add, found.lane, found.at);
                emitter.step(true, false, Rm::Indexed(found.lane, bucket, 3, found.value));
            }
            (Op::Update, added, _) => {
                match added {
                    Added::Value(value) => emitter.add_locked(word, value),
                    _ => emitter.step(true, false, word),
                }
                if matches!(self.info.kind(), Kind::Avg | Kind::Stats) {
                    emitter.step(true, false, found.value(1));
                }
            }
            (Op::Put, Added::Value(value), _) => emitter.store(word, value),
            (Op::Bump, Added::Value(value), Some(to)) => {
                emitter.load(to, value);
                emitter.fetch_add(word, to);
            }
            (Op::Has, _, Some(to)) => emitter.number(to, 1),
            (Op::Erase, _, Some(to)) => {
                path.remove(&found, slow);
                path.out.emitter.number(to, 1);
            }
            (_, _, Some(to)) => {
                emitter.load(to, word);
                // What was read is the key's if nobody has changed the bucket.
                path.unchanged(&found, slow);
            }
            _ => {}
        }
    }

    /// Calls the agent from code that is seldom reached: what is known of the run stays as it is. A
    /// context is claimed for the call, unless the run has one.
    fn call_aside(&mut self, key: MapRange, to: Option<Reg>, free: &Found) {
        let held = self.run.context();
        let context = held.unwrap_or(free.lane);
        if held.is_none() {
            self.run.claims = true;
            let out = &mut self.run.path.out;
            let other = out.emitter.label();
            out.with_rax();
            out.processor(free.at);
            out.claim_own(free.at, context, false, other);
            out.set_owner(context, Some(other));
        }
        self.call(key, None, context);
        let emitter = &mut self.run.path.out.emitter;
        if held.is_none() {
            emitter.store32_number(of_context(context, offset_of!(Context, claim)), claim::FREE);
        }
        if let Some(to) = to {
            emitter.load(to, RAX);
        }
    }

    /// Has the agent do it, with the key in a context that the run holds from here on.
    fn by_agent(mut self, key: MapRange) -> Option<()> {
        let pushes = self.pushes();
        let path = &mut self.run.path;
        let value = match self.op {
            Op::Store => Some(MapRange::of(path, 2, 3, self.info.value)?),
            _ => None,
        };
        let fetched = match self.op {
            Op::Fetch => self.fetched(&key)?,
            _ => 0..0,
        };
        let context = self.run.hold_context();
        let path = &mut self.run.path;
        let dynamic = [Some(key), value].into_iter().flatten().filter(|range| range.fixed.is_none());
        let dynamic: Vec<MapRange> = dynamic.collect();
        dynamic.iter().for_each(|range| {
            range.length_register(path);
        });
        let to = pushes.then(|| path.take());
        if !dynamic.is_empty() {
            let leave = self.run.side_exit();
            dynamic.iter().for_each(|range| range.check(&mut self.run.path, leave));
        }
        self.call(key, value, context);
        let path = &mut self.run.path;
        if let Some(to) = to {
            path.out.frame.change(to);
            path.out.emitter.load(to, RAX);
        }
        for offset in fetched.step_by(8) {
            let cell = path.out.frame.cell(Cell::Word(offset));
            path.out.emitter.load(RAX, of_context(context, FRAME as usize + usize::from(offset)));
            path.out.emitter.store(cell, RAX);
            match path.known(offset) {
                Known::At(index) => path.shape.words[index].1 = Location::Cell,
                Known::Zero(index) => path.shape.words.insert(index, (offset, Location::Cell)),
                Known::Partly => {}
            }
        }
        self.finish(to.map(|to| Location::Register(to.0)));
        Some(())
    }

    /// The range of the frame to which `fetch` copies, if all of it is words that can be kept.
    fn fetched(&mut self, key: &MapRange) -> Option<std::ops::Range<u16>> {
        let path = &mut self.run.path;
        let Operand::Number(start) = path.operand(2) else { return None };
        let size = self.info.value;
        let fits = size <= FETCHED && start.saturating_add(size.into()) <= FRAME_LIMIT as u64;
        let start = u16::try_from(start).ok().filter(|_| fits)?;
        let range = start..start + size as u16;
        // Where they overlap an exception is raised.
        if key.fixed != Some(0) && key.overlaps(path, start.into(), size as usize) {
            return None;
        }
        let places: Vec<Known> = range.clone().step_by(8).map(|offset| path.known(offset)).collect();
        let new = places.iter().filter(|place| matches!(place, Known::Zero(_))).count();
        let kept = !places.iter().any(|place| matches!(place, Known::Partly))
            && path.shape.words.len() + new <= RESUME_WORDS;
        kept.then_some(range)
    }

    /// Calls the agent; the result is in rax.
    fn call(&mut self, key: MapRange, value: Option<MapRange>, context: Reg) {
        let run = &mut *self.run;
        run.calls = true;
        let path = &mut run.path;
        for range in [Some(key), value].into_iter().flatten() {
            range.write(path, context);
        }
        let key_length = key.length(path);
        let has_value = matches!(self.op, Op::Update | Op::Put | Op::Bump | Op::Store | Op::Fetch);
        let asked = Asked {
            op: self.op,
            map: self.map,
            key: key.at,
            key_length,
            value: if has_value { Some(path.operand(2)) } else { None },
            value_length: value.map(|value| value.length(path)),
        };
        Self::ask(run, context, asked);
    }

    /// Asks the agent, which is called with the context.
    fn ask(run: &mut Run<'_>, context: Reg, asked: Asked) {
        // Until a context is claimed, these two hold what is needed for it.
        let kept = 1 << run.claimed.context.0 | 1 << run.claimed.record.0 | 1 << context.0;
        let needed = run.path.shape.registers() | kept;
        AgentCall { out: &mut run.path.out, needed, context }.call(asked);
    }
}
