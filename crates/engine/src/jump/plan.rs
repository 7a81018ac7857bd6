//! Jumps of all lengths: which bytes are written for each, and where its landing pad is.
//!
//! Most instructions are shorter than a jump. What can be done about that is planned by [`patch::tactic`], for all sites of a
//! mapping at once; here the plan gets what it has to know of the process, and what it asks for is done: pages are mapped for
//! landing pads, instructions are moved that are in the way, and everything is written in one go while all threads are held.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use patch::tactic::{Code, Jump as Shape, Limits, Plan, Planner, Site, Space as Around, Tactic, Write};
use patch::{Mode, instructions};
use process::{Event, Module, Status, Stop, Stopped};

use super::{Layout, Trampoline, proof};
use crate::change::{Batch, Change};
use crate::hold::Held;
use crate::mapping::{self, Called};
use crate::place::critical_sections;
use crate::site::{self, INT3, Jump, Planned, Use};
use crate::slots;
use crate::space::{Space, module_key};
use crate::tracer::Tracer;

/// How far a jump leads.
const REACH: u64 = 1 << 31;
/// Memory for trampolines that is no farther from code has that code's trampolines, most likely.
const NEAR: u64 = 1 << 30;

/// The code of one mapping as the program has it.
pub(crate) struct Text {
    pub(crate) start: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Text {
    /// The program's bytes at an address.
    pub(crate) fn at(&self, address: u64, length: usize) -> Option<&[u8]> {
        let from = usize::try_from(address.checked_sub(self.start)?).ok()?;
        self.bytes.get(from..from.checked_add(length)?)
    }

    pub(crate) fn range(&self) -> Range<u64> {
        self.start..self.start + self.bytes.len() as u64
    }

    /// The changes that make these bytes of the program's.
    fn changes(&self, writes: Vec<Write>) -> Option<Vec<Change>> {
        let change = |write: &Write| {
            Some(Change::new(write.address, self.at(write.address, write.bytes.len())?, &write.bytes))
        };
        writes.iter().map(change).collect()
    }
}

/// A plan that can be carried out: its pages are mapped.
pub(crate) struct Prepared {
    pub(crate) plan: Plan,
    pub(crate) planner: Planner,
    pub(crate) text: Text,
    /// Code that has to be executed where it is: restartable sequences.
    pub(crate) kept: Vec<Range<u64>>,
}

/// The name of a tactic, as reports show it.
pub(crate) fn name(tactic: Tactic) -> &'static str {
    match tactic {
        Tactic::Plain => "plain",
        Tactic::Punned => "punned",
        Tactic::Padded(_) => "padded",
        Tactic::SuccessorEvicted => "successor evicted",
        Tactic::NeighbourEvicted => "neighbour evicted",
        Tactic::Grouped => "grouped",
        Tactic::OverPadding => "over padding",
        Tactic::InPadding => "in padding",
    }
}

impl Tracer<'_> {
    /// Plans sites of one mapping, and maps the pages that the plan needs. All threads are held but `thread`, which is of the
    /// same address space. `trampolines` is where those of the sites will be.
    #[expect(clippy::too_many_arguments, reason = "what a plan is made of")]
    pub(crate) fn prepare(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        module: &Module,
        mapping: Range<u64>,
        trampolines: Range<u64>,
        sites: &[Site],
    ) -> Called<Prepared> {
        let tid = thread.tid();
        let gone = || Err("the process is gone".to_owned());
        let Some(space) = self.spaces.get(&number) else { return Ok((thread, stop, gone())) };
        let Some(text) = read(space, mapping) else {
            return Ok((thread, stop, Err("the code cannot be read".to_owned())));
        };
        let Ok(mappings) = process::maps(tid) else { return Ok((thread, stop, gone())) };
        let taken = mapping::taken(tid, &mappings);
        // Jumps of earlier plans may get other landing pads: those must reach their trampolines, too.
        let near = |&(base, size): &(u64, u64)| {
            base + size > text.start.saturating_sub(NEAR) && base < text.range().end.saturating_add(NEAR)
        };
        let trampolines = space.jumps.room.areas().filter(near).fold(trampolines, |all, (base, size)| {
            if all.is_empty() { base..base + size } else { all.start.min(base)..all.end.max(base + size) }
        });
        let free = free_for_pads(&taken, &text.range(), &trampolines);
        let mut kept: Vec<Range<u64>> = critical_sections(module, &space.code.memory)
            .into_iter()
            .map(|(start, end)| start..end)
            .collect();
        kept.sort_by_key(|range| range.start);
        let starts = sweep(&text.bytes, text.start);
        let entered = patch::entered(&text.bytes, text.start, &starts);
        let known = proof::around(&module.image, module.bias, &text.bytes, text.start, sites);
        let shadow_stacks = Status::read(tid).is_ok_and(|status| status.shadow_stack);
        let limits = Limits { mappings: mapping::mappings_for_pads(mappings.len()), shadow_stacks };
        let mut planner = space.planner.clone().unwrap_or_else(|| Planner::new(limits));
        let code = Code {
            address: text.start,
            bytes: &text.bytes,
            instructions: &known.instructions,
            padding: &known.padding,
            entered: &entered,
            kept: &kept,
            flow: None,
        };
        let plan = planner.plan(&code, &Around { free: &free, trampolines }, sites);
        let mut failed = None;
        let mut mapped = Vec::new();
        let pages = plan.map.clone();
        let done = self.with_calls(number, thread, stop, &mappings, |mut thread, syscall| {
            let mut stop = Stop::Interrupt;
            let protection = (libc::PROT_READ | libc::PROT_EXEC) as u64;
            let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
            for run in pages {
                let size = run.end - run.start;
                let arguments = [run.start, size, protection, flags, !0, 0];
                let (stopped, now, result) = thread.call(syscall, libc::SYS_mmap, arguments)?;
                (thread, stop) = (stopped, now);
                match result {
                    Ok(base) => {
                        mapped.push((base, size));
                        if base != run.start {
                            failed = Some("its landing pad's place was taken meanwhile".to_owned());
                        }
                    }
                    Err(cause) => failed = Some(format!("mapping memory for landing pads: {cause}")),
                }
                if failed.is_some() {
                    break;
                }
            }
            Ok((thread, stop))
        });
        let (thread, stop, allowed) = done?;
        if let Some(space) = self.spaces.get_mut(&number) {
            space.mappings += mapped.len();
            mapped.into_iter().for_each(|(base, size)| space.jumps.add_pads(base, size));
        }
        let result = match (allowed, failed) {
            (Err(reason), _) | (Ok(()), Some(reason)) => Err(reason),
            (Ok(()), None) => Ok(Prepared { plan, planner, text, kept }),
        };
        Ok((thread, stop, result))
    }

    /// Threads that are between a site and its trampoline are put back to the site: they have done nothing yet.
    pub(crate) fn bring_back(&mut self, number: u32, _held: &Held) {
        let Some(space) = self.spaces.get(&number) else { return };
        for event in &mut self.held {
            let Event::Stopped(thread, _) = event else { continue };
            if self.threads.get(&thread.tid()).and_then(|tracked| tracked.space) == Some(number) {
                // It fails only if the thread has been killed.
                let _ = put_back(space, thread);
            }
        }
    }
}

/// Puts a thread back to the site from which it is on its way to a trampoline.
pub(crate) fn put_back(space: &Space, thread: &mut Stopped) -> Result<(), process::Error> {
    let mut registers = thread.registers()?;
    if let Some(site) = space.jumps.way_from(registers.rip()) {
        registers.set_rip(site);
        thread.set_registers(&registers)?;
    }
    Ok(())
}

/// Reads the code of a mapping as the program has it.
fn read(space: &Space, mapping: Range<u64>) -> Option<Text> {
    let mut bytes = vec![0; usize::try_from(mapping.end - mapping.start).ok()?];
    space.code.memory.peek(mapping.start, &mut bytes).ok()?;
    site::hide(&space.sites, mapping.start, &mut bytes);
    Some(Text { start: mapping.start, bytes })
}

/// What is free for landing pads of code, by address: what is `taken` is not, nor where the trampolines are.
pub(crate) fn free_for_pads(
    taken: &[(u64, u64, slots::Growth)],
    code: &Range<u64>,
    trampolines: &Range<u64>,
) -> Vec<Range<u64>> {
    let reach = code.start.saturating_sub(REACH)..code.end.saturating_add(REACH);
    let without = |range: Range<u64>| {
        let below = range.start..range.end.min(trampolines.start);
        let above = range.start.max(trampolines.end)..range.end;
        [below, above].into_iter().filter(|rest| !rest.is_empty())
    };
    slots::free(taken, &reach).into_iter().flat_map(without).collect()
}

/// Where instructions begin, as far as reading on in a straight line tells.
pub(crate) fn sweep(bytes: &[u8], start: u64) -> Vec<u64> {
    let mut starts = Vec::with_capacity(bytes.len() / 4);
    let mut at = 0;
    while at < bytes.len() {
        let found = instructions(&bytes[at..], start + at as u64);
        let Some(&last) = found.last() else {
            at += 1;
            continue;
        };
        starts.extend(&found);
        // Behind the last one is something that is none.
        let rest = &bytes[(last - start) as usize..];
        let length = patch::displace(&rest[..rest.len().min(15)], last).map_or(1, |it| it.length());
        at = (last - start) as usize + length.max(1) + 1;
    }
    starts
}

/// Where the jump at a site ends. With that of another tactic than these it is the jump's last byte, as its processor remembers it.
pub(crate) fn end(shape: &Shape) -> u64 {
    shape.address
        + match shape.tactic {
            Tactic::Padded(prefixes) => 5 + u64::from(prefixes),
            Tactic::NeighbourEvicted | Tactic::InPadding => 2,
            // What it covers beside the instruction is executed by nobody.
            Tactic::OverPadding => shape.length as u64,
            Tactic::Plain | Tactic::Punned | Tactic::SuccessorEvicted | Tactic::Grouped => 5,
        }
}

/// What is written for a jump whose trampoline begins at `entry`: at the site, and elsewhere.
pub(crate) struct Written {
    pub(crate) changes: Vec<Change>,
    pub(crate) pad: Option<Write>,
}

impl Text {
    /// What is written for a planned jump.
    pub(crate) fn written(&self, shape: &Shape, entry: u64) -> Option<Written> {
        let changes = self.changes(shape.code(entry)?)?;
        let pad = match shape.pad {
            Some(_) => Some(shape.pad(entry)?),
            None => None,
        };
        Some(Written { changes, pad })
    }

    /// The change of a site that is to be trapped.
    pub(crate) fn trap(&self, address: u64) -> Option<Change> {
        Some(Change::new(address, self.at(address, 1)?, &[INT3]))
    }

    /// An instruction that is moved because it is in the way: its copy, as a site that nobody asked for.
    pub(crate) fn neighbour(&self, module: &Module, shape: &Shape) -> Result<Planned, String> {
        let bytes = self.at(shape.address, shape.length).ok_or("it is not in the code")?;
        let displaced =
            patch::displace_in(Mode::Bits64, bytes, shape.address).map_err(|refusal| refusal.to_string())?;
        Ok(Planned::new(module_key(module), displaced, Use::Neighbour))
    }
}

impl Space {
    /// Writes a trampoline without a handler: the displaced instruction alone.
    pub(crate) fn write_copy(
        &mut self,
        displaced: &patch::Displaced,
        tail: &[patch::Displaced],
    ) -> Result<Trampoline, String> {
        self.write_trampoline(Layout { displaced, handlers: Vec::new(), commit: None, tail })
    }

    /// Puts a trampoline where there is room for it.
    pub(crate) fn write_trampoline(&mut self, mut layout: Layout<'_>) -> Result<Trampoline, String> {
        let mut start = self.jumps.room.take(layout.size(), &layout.reach());
        if start.is_none() && !layout.tail.is_empty() {
            layout.tail = &[];
            start = self.jumps.room.take(layout.size(), &layout.reach());
        }
        let (start, size) = (start.ok_or("no memory for its trampoline is within reach")?, layout.size());
        let written = layout.at(start).map_err(|refusal| refusal.to_string());
        let written = written.and_then(|(trampoline, bytes)| {
            let written = self.code.memory.poke(start, &bytes);
            written.map(|()| trampoline).map_err(|error| format!("writing the trampoline: {error}"))
        });
        self.jumps.room.shrink(start, size, written.as_ref().map_or(0, Trampoline::size));
        written
    }

    /// Enters the ways from a site to its trampoline.
    pub(crate) fn enter_ways(&mut self, site: u64, trampoline: u64, written: &Written) {
        for at in ways(site, written) {
            self.jumps.add_way(at, site, trampoline);
        }
    }

    /// Takes sites out, of either kind, and with them what was moved for their sake. Those whose bytes others rely on stay, without
    /// a handler.
    pub(crate) fn take_out_planned(&mut self, addresses: &[u64], held: &Held) {
        let Some(planner) = &mut self.planner else { return self.take_out(addresses.iter().copied(), held) };
        let removal = planner.remove(addresses);
        for address in removal.kept.iter().chain(&removal.trapped) {
            if let Some(armed) = self.sites.get_mut(address) {
                *armed.uses_mut() = vec![Use::Neighbour];
            }
        }
        let mut gone = Vec::with_capacity(addresses.len());
        for write in &removal.restore {
            if self.sites.contains_key(&write.address) {
                gone.push(write.address);
            } else {
                // It fails only where the process is gone or has unmapped the page.
                let _ = self.code.memory.poke(write.address, &write.bytes);
            }
        }
        self.take_out(gone, held);
        let mut batch = Batch::default();
        let mut before = Vec::new();
        for address in removal.kept {
            let Some(armed) = self.sites.get(&address) else { continue };
            let Some(jump) = armed.jump().cloned() else { continue };
            let displaced = armed.site().displaced.clone();
            let Ok(trampoline) = self.write_copy(&displaced, &[]) else { continue };
            let Some(written) = again(&jump, trampoline.entry()) else { continue };
            if let Some(pad) = &written.pad
                && self.code.memory.poke(pad.address, &pad.bytes).is_err()
            {
                continue;
            }
            let start = trampoline.start();
            self.jumps.add([trampoline]);
            self.jumps.retire(jump.trampoline);
            self.enter_ways(address, start, &written);
            let Some(old) = self.sites.remove(&address) else { continue };
            let planned = Planned(old.site().clone());
            before.push(old);
            let jump = Jump {
                changes: written.changes,
                trampoline: start,
                tactic: jump.tactic,
                shape: jump.shape.clone(),
            };
            self.sites.insert(address, planned.arm_with(jump, &self.code, &mut batch));
        }
        let _ = site::write(batch, &self.code, held);
        drop(before);
    }
}

/// The jumps of a way from a site to its trampoline, but the site itself.
pub(crate) fn ways(site: u64, written: &Written) -> impl Iterator<Item = u64> {
    let changes = written.changes.iter().map(Change::address).filter(move |&at| at != site);
    changes.chain(written.pad.iter().map(|pad| pad.address))
}

/// What is written for a jump that is there, if it is to lead elsewhere.
fn again(jump: &Rc<Jump>, entry: u64) -> Option<Written> {
    let originals: HashMap<u64, &Change> =
        jump.changes.iter().map(|change| (change.address(), change)).collect();
    let change = |write: &Write| {
        let old = originals.get(&write.address).filter(|old| old.original().len() == write.bytes.len())?;
        Some(Change::new(write.address, old.original(), &write.bytes))
    };
    let changes = jump.shape.code(entry)?.iter().map(change).collect::<Option<Vec<_>>>()?;
    let pad = match jump.shape.pad {
        Some(_) => Some(jump.shape.pad(entry)?),
        None => None,
    };
    Some(Written { changes, pad })
}
