//! Handler memory: the memory that jump probes need in an address space beside trampolines. All of
//! it is below 2 GiB, except for the rings.
//!
//! | what | protection | whose |
//! |---|---|---|
//! | the identity page | read, write | the process's own; zeros in a forked child |
//! | the reader's sign of life, behind it, where threads may wait | read | shared with the tracer and all its processes |
//! | the cells, as far as there are some | read, write | shared with the tracer and the processes of one domain |
//! | the agent | read, execute | the process's own |
//! | the directory of the tables for walking stacks, behind it descriptions of handlers, and bytecode | read, execute | the process's own |
//! | the contexts | read, write | the process's own; zeros in a forked child |
//! | the rings | read, write | shared with the tracer; not there in a forked child |
//!
//! The last three exist only where a handler works in a context; counting alone does not need them.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ops::Range;
use std::rc::Rc;

use agent::image::image;
use layout::{CONTEXT_SIZE, Entries, HandlerInfo, LOW_END, PAGE};
use maps::MapInfo;
use process::{Mapping, Memory};
use rpn::Object;

use super::cells::Cells;
use super::contexts::Contexts;
use super::trampoline_allocator::TrampolineAllocator;
use super::write;
use crate::reason::NoJump;
use crate::tables::Tables;

mod choose;

/// Bytes for descriptions of handlers and bytecode; pages are allocated on first write.
const TEXTS: u64 = 16 << 20;
/// The first of them are the directory of the tables for walking stacks.
const STACKS: u64 = PAGE;
/// Bytes of the identity page, and of the next page, for the reader's sign of life.
const IDENTITY: u64 = 2 * PAGE;

/// The places of all parts in an address space.
#[derive(Clone, Debug)]
pub(crate) struct HandlerMemory {
    pub(crate) identity: u64,
    pub(crate) cells: u64,
    /// Where the contexts are, or would be.
    pub(crate) contexts: Contexts,
    /// Bytes of a ring.
    pub(crate) ring_size: u64,
    /// Whether a handler works in a context: contexts and rings are mapped, or will be before that
    /// handler is armed.
    pub(crate) claims: bool,
    pub(crate) entries: Entries,
    /// The agent's instructions that may fault, ascending, each with the address at which a thread
    /// goes on.
    faults: Rc<Vec<(u64, u64)>>,
    /// The agent's code: start and end.
    pub(super) code: (u64, u64),
    /// Where a thread goes on that faults in the agent at any other instruction.
    pub(crate) give_up: u64,
    texts: Rc<Texts>,
    /// The address of the table of hidden memory ([`Hidden`](super::Hidden)); 0 if no handler
    /// accesses memory.
    pub(crate) hidden: u64,
    /// The greatest size of the cells.
    cells_size: u64,
}

/// Descriptions of handlers, bytecode and names: those that exist, and the room for more.
#[derive(Clone, Debug, Default)]
struct Texts {
    /// A hash of everything added and removed, in order; 0 if there was nothing yet. Equal states
    /// have equal contents.
    state: u64,
    room: TrampolineAllocator,
    programs: HashMap<usize, Described>,
    /// What is still to be written, by address.
    pending: BTreeMap<u64, Vec<u8>>,
}

/// The descriptions of one program.
#[derive(Clone, Debug, Default)]
struct Described {
    /// The addresses of its bytecode and of its module's name.
    code: (u32, u32),
    /// The addresses of the descriptions of its maps, and of its constants.
    tables: (u32, u32),
    /// The address of each description, by probe, initial record state, and place in the module.
    handlers: HashMap<(usize, u32, u64), u32>,
    /// All memory that it takes: addresses and sizes.
    taken: Vec<(u64, u64)>,
}

impl Texts {
    /// No descriptions yet; their memory begins where the contexts end.
    fn behind(contexts: &Contexts) -> Texts {
        let (base, size) = contexts.span();
        let mut texts = Texts::default();
        texts.room.add(base + size + STACKS, TEXTS - STACKS);
        texts
    }

    /// Finds an address for bytes, at which they will be written.
    fn put(&mut self, bytes: &[u8]) -> Result<u32, NoJump> {
        let place = self.room.take(bytes.len().max(1) as u64, &(0..=LOW_END));
        let place = place.ok_or(NoJump::DescriptionsFull)?;
        self.pending.insert(place, bytes.to_vec());
        Ok(place as u32)
    }

    /// The same for bytes of a program.
    fn put_for(&mut self, program: usize, bytes: &[u8]) -> Result<u32, NoJump> {
        let place = self.put(bytes)?;
        self.programs.entry(program).or_default().taken.push((place.into(), bytes.len().max(1) as u64));
        self.changed(bytes);
        Ok(place)
    }

    /// Updates the state after an addition or a removal.
    fn changed(&mut self, what: impl Hash) {
        let mut hasher = DefaultHasher::new();
        (self.state, what).hash(&mut hasher);
        self.state = hasher.finish();
    }

    /// Frees the memory of a program's descriptions.
    fn forget(&mut self, program: usize) {
        self.changed(program);
        for (place, size) in self.programs.remove(&program).unwrap_or_default().taken {
            self.pending.remove(&place);
            self.room.give_back(place, size);
        }
    }
}

impl HandlerMemory {
    /// The address of the description of a probe's handler; adds the addresses of bytecode and
    /// module name to `info`. A new one has to be written by [`HandlerMemory::write`].
    pub(crate) fn describe(
        &mut self,
        probe: (usize, usize),
        object: &Object,
        tables: Option<&Tables>,
        mut info: HandlerInfo,
    ) -> Result<u32, NoJump> {
        let (program, probe) = probe;
        let which = (probe, info.record, info.point);
        if let Some(&known) = self.texts.programs.get(&program).and_then(|known| known.handlers.get(&which)) {
            return Ok(known);
        }
        let texts = Rc::make_mut(&mut self.texts);
        if !texts.programs.contains_key(&program) {
            let code = texts.put_for(program, &object.code)?;
            let module = texts.put_for(program, object.module.as_bytes())?;
            let (infos, constants) = match tables {
                Some(tables) => (map_bytes(&tables.infos), &*tables.constants),
                None => (Vec::new(), &[][..]),
            };
            let (maps, constants) = (texts.put_for(program, &infos)?, texts.put_for(program, constants)?);
            let described = texts.programs.entry(program).or_default();
            (described.code, described.tables) = ((code, module), (maps, constants));
        }
        (info.code, info.module) = texts.programs[&program].code;
        if let Some(tables) = tables {
            (info.maps, info.constants) = texts.programs[&program].tables;
            info.map_count = tables.infos.len() as u32;
            info.constants_length = tables.constants.len() as u32;
        }
        let address = texts.put_for(program, &bytes_of(&info))?;
        texts.programs.entry(program).or_default().handlers.insert(which, address);
        Ok(address)
    }

    /// Frees a program's descriptions, when it has no handler any more and will get none.
    pub(crate) fn forget(&mut self, program: usize) {
        if self.texts.programs.contains_key(&program) {
            Rc::make_mut(&mut self.texts).forget(program);
        }
    }

    /// Writes new descriptions, once handler memory is mapped.
    pub(crate) fn write(&mut self, memory: &Memory) -> io::Result<()> {
        if self.texts.pending.is_empty() {
            return Ok(());
        }
        let pending = std::mem::take(&mut Rc::make_mut(&mut self.texts).pending);
        write::all(memory, pending.iter().map(|(&address, bytes)| (address, &bytes[..])))
    }

    /// A number for which handlers are described where: equal in two processes if their
    /// descriptions are the same.
    pub(super) fn described(&self) -> u64 {
        self.texts.state
    }

    /// Takes over the descriptions of another handler memory, whose state before it added some was
    /// `before`; those that it still has to write must be written here, too. Returns false, with
    /// nothing done, if this handler memory's state or contexts differ.
    pub(super) fn describe_as(&mut self, other: &HandlerMemory, before: u64) -> bool {
        let takes = self.described() == before && self.contexts == other.contexts;
        if takes {
            self.texts = Rc::clone(&other.texts);
        }
        takes
    }

    /// The address of the reader's sign of life.
    pub(crate) fn sign(&self) -> u64 {
        self.identity + PAGE
    }

    /// The address of the directory of the tables for walking stacks.
    pub(crate) fn stacks(&self) -> u64 {
        let (base, size) = self.contexts.span();
        base + size
    }

    /// What is mapped first, with so many bytes of cells: addresses and sizes.
    pub(crate) fn mapped(&self, cells: u64) -> [(u64, u64); 3] {
        [(self.identity, IDENTITY), (self.cells, cells), (self.code.0, agent_size())]
    }

    /// The same with the cells at their greatest size: nothing else may be put there.
    pub(super) fn reserved(&self) -> [(u64, u64); 3] {
        self.mapped(self.cells_size)
    }

    /// What is mapped for handlers that work in a context, but for the rings: the contexts, and
    /// behind them the descriptions.
    pub(crate) fn claimed(&self) -> [(u64, u64); 2] {
        let (base, size) = self.contexts.span();
        [(base, size), (base + size, TEXTS)]
    }

    pub(crate) fn is_agent(&self, address: u64) -> bool {
        (self.code.0..self.code.1).contains(&address)
    }

    /// Where a thread goes on that has faulted at this instruction of the agent, if the instruction
    /// may fault.
    pub(crate) fn repair(&self, address: u64) -> Option<u64> {
        let found = self.faults.binary_search_by_key(&address, |&(from, _)| from).ok()?;
        Some(self.faults[found].1)
    }
}

/// Where everything goes.
struct Places {
    identity: u64,
    cells: u64,
    contexts: u64,
    agent: u64,
}

/// The ranges that handler memory would take in an address space with these mappings; none if there
/// is no room.
pub(crate) fn low_memory(
    mappings: &[process::Mapping],
    heap: Option<u64>,
) -> Option<Vec<std::ops::Range<u64>>> {
    let (cells, processors) = Cells::extent();
    let contexts = Contexts::size(processors) + TEXTS;
    let places = places(mappings, heap, cells, contexts)?;
    let all = [
        (places.identity, IDENTITY),
        (places.cells, cells.next_multiple_of(PAGE)),
        (places.contexts, contexts),
        (places.agent, agent_size()),
    ];
    Some(all.into_iter().map(|(start, size)| start..start + size).collect())
}

/// The end of the addresses that fit a 32-bit absolute operand.
const LOW: u64 = 1 << 31;

fn agent_size() -> u64 {
    (image().size() as u64).next_multiple_of(PAGE)
}

fn is_low(mappings: &[Mapping]) -> bool {
    mappings.iter().any(|mapping| mapping.executable && mapping.end <= LOW)
}

/// The best place for so many bytes.
fn low_place(gaps: &[Range<u64>], size: u64, align: u64, is_low: bool) -> Option<u64> {
    let places = process::low_places(gaps, size, align);
    if is_low { places.iter().max() } else { places.first() }.copied()
}

/// The gaps that remain if `taken` is in use.
fn without(gaps: Vec<Range<u64>>, taken: Range<u64>) -> Vec<Range<u64>> {
    let parts = gaps.into_iter().flat_map(|gap| {
        let before = gap.start..gap.end.min(taken.start);
        let behind = gap.start.max(taken.end)..gap.end;
        if gap.end <= taken.start || taken.end <= gap.start { [gap, 0..0] } else { [before, behind] }
    });
    parts.filter(|part| !part.is_empty()).collect()
}

/// Finds places for everything. If the program's own code is below 2 GiB, the low addresses are
/// left for its landing pads.
fn places(mappings: &[Mapping], heap: Option<u64>, cells: u64, contexts: u64) -> Option<Places> {
    let mut gaps = process::low_gaps(mappings, heap);
    let is_low = is_low(mappings);
    let mut place = |size: u64, align: u64| {
        let place = low_place(&gaps, size, align, is_low)?;
        let gap = gaps.iter().position(|gap| gap.start <= place && place + size <= gap.end)?;
        let gap = gaps.remove(gap);
        // No space is left between the pieces: all belong to the tracer.
        gaps.extend([gap.start..place, place + size..gap.end].into_iter().filter(|rest| !rest.is_empty()));
        gaps.sort_by_key(|gap| gap.start);
        Some(place)
    };
    Some(Places {
        contexts: place(contexts, CONTEXT_SIZE)?,
        cells: place(cells.next_multiple_of(PAGE), PAGE)?,
        agent: place(agent_size(), PAGE)?,
        identity: place(IDENTITY, PAGE)?,
    })
}

/// Descriptions of maps as the agent reads them.
fn map_bytes(infos: &[MapInfo]) -> Vec<u8> {
    let each = |info: &MapInfo| {
        let MapInfo { kind, signed, key, value, entries, copies, place, words, evicts, a, b, c } = *info;
        // The numbers behind them begin at a multiple of 8.
        let words = [kind, signed, key, value, entries, copies, place, words, evicts, 0];
        let numbers = [a, b, c].into_iter().flat_map(i64::to_le_bytes);
        words.into_iter().flat_map(u32::to_le_bytes).chain(numbers).collect::<Vec<u8>>()
    };
    infos.iter().flat_map(each).collect()
}

/// A description as the agent reads it.
fn bytes_of(info: &HandlerInfo) -> Vec<u8> {
    let words = [
        info.code,
        info.code_length,
        info.entry,
        info.jmpmax,
        info.insmax,
        info.logmax,
        info.excpt_log,
        info.heap,
        info.mask,
        info.autostacktrace,
        info.locals,
        info.local_count,
        info.globals,
        info.global_count,
        info.module,
        info.module_length,
        info.id,
        info.major,
        info.minor,
        info.record,
        info.lossless,
        info.dropped,
        info.over,
        info.hidden,
        info.maps,
        info.map_count,
        info.tables,
        info.table_words,
        info.threads,
        info.constants,
        info.constants_length,
    ];
    let words = words.iter().flat_map(|word| word.to_le_bytes());
    let mut bytes: Vec<u8> = info.point.to_le_bytes().into_iter().chain(words).collect();
    bytes.resize(size_of::<HandlerInfo>(), 0);
    bytes
}

#[cfg(test)]
mod tests;
