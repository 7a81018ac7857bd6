//! The memory that jump probes need in an address space, beside their trampolines: all of it below 2 GiB.
//!
//! | what | protection | whose |
//! |---|---|---|
//! | the identity page | read, write | the process's own; zeros in a forked child |
//! | the cells | read, write | shared with the tracer and all its processes |
//! | the contexts and their rings | read, write | shared with the tracer and forked children |
//! | the agent | read, execute | the process's own |
//! | descriptions of handlers, and bytecode | read, execute | the process's own |

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::rc::Rc;

use agent::image::{Entry, Image, Settings, image};
use agent::layout::{CONTEXT_SIZE, Entries, HandlerInfo, LEAST_RING, LOW_END, PAGE};
use process::{Caller, Error, Mapping, Memory, Status, Stop, Stopped};
use rpn::Object;

use super::cells::{Cells, READER};
use super::contexts::Contexts;
use super::room::Room;
use super::write;
use crate::mapping::Called;
use crate::observer::Note;
use crate::tracer::Tracer;

/// Bytes for descriptions of handlers and bytecode; pages are taken when they are written first.
const TEXTS: u64 = 16 << 20;

/// Where an address space has it.
#[derive(Clone, Debug)]
pub(crate) struct Ground {
    /// The address of the identity page.
    pub(crate) identity: u64,
    /// The address of the shared words.
    pub(crate) cells: u64,
    /// The contexts: a forked child has its parent's.
    pub(crate) contexts: Rc<Contexts>,
    /// The agent's entries.
    pub(crate) entries: Entries,
    /// The agent's instructions that may fault, ascending, each with the place to go on at.
    faults: Rc<Vec<(u64, u64)>>,
    /// The agent's instructions: the first, and behind the last.
    code: (u64, u64),
    /// Where a thread goes on that faults in the agent where it must not.
    pub(crate) give_up: u64,
    /// Descriptions of handlers, and bytecode.
    texts: Rc<Texts>,
    /// Whether a thread that waits may make the system call nanosleep.
    pub(crate) sleeps: bool,
    /// What is mapped: addresses and sizes.
    mapped: Vec<(u64, u64)>,
}

/// Descriptions of handlers, bytecode and names: what is free for them, and which there are.
#[derive(Clone, Debug, Default)]
struct Texts {
    room: Room,
    /// The bytecode and the module's name of each program.
    programs: HashMap<usize, (u32, u32)>,
    /// The description of each probe, for records of one state, at one place of the module.
    handlers: HashMap<((usize, usize), u32, u64), u32>,
    /// What is still to be written, by address.
    pending: BTreeMap<u64, Vec<u8>>,
}

impl Texts {
    /// Finds a place for bytes: their address, at which they are to be written.
    fn put(&mut self, bytes: &[u8]) -> Result<u32, String> {
        let place = self.room.take(bytes.len().max(1) as u64, &(0..=LOW_END));
        let place = place.ok_or("there is no more room for descriptions of handlers")?;
        self.pending.insert(place, bytes.to_vec());
        Ok(place as u32)
    }
}

impl Ground {
    /// The address of the description of a probe's handler, to which the addresses of the bytecode and of the module's name
    /// are added. Unless it is there it is to be written: [`Ground::write`].
    pub(crate) fn describe(
        &mut self,
        probe: (usize, usize),
        object: &Object,
        mut info: HandlerInfo,
    ) -> Result<u32, String> {
        if let Some(&known) = self.texts.handlers.get(&(probe, info.record, info.point)) {
            return Ok(known);
        }
        let texts = Rc::make_mut(&mut self.texts);
        let (code, module) = match texts.programs.get(&probe.0) {
            Some(&known) => known,
            None => {
                let code = texts.put(&object.code)?;
                let module = texts.put(object.module.as_bytes())?;
                texts.programs.insert(probe.0, (code, module));
                (code, module)
            }
        };
        (info.code, info.module) = (code, module);
        let address = texts.put(&bytes_of(&info))?;
        texts.handlers.insert((probe, info.record, info.point), address);
        Ok(address)
    }

    /// Writes the descriptions that are new, once the ground is mapped.
    pub(crate) fn write(&mut self, memory: &Memory) -> io::Result<()> {
        if self.texts.pending.is_empty() {
            return Ok(());
        }
        let pending = std::mem::take(&mut Rc::make_mut(&mut self.texts).pending);
        write::all(memory, pending.iter().map(|(&address, bytes)| (address, &bytes[..])))
    }

    /// What is mapped: addresses and sizes.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = (u64, u64)> {
        self.mapped.iter().copied()
    }

    /// Whether an address is of the agent's own code.
    pub(crate) fn is_agent(&self, address: u64) -> bool {
        (self.code.0..self.code.1).contains(&address)
    }

    /// Where a thread goes on that has faulted at this instruction of the agent.
    pub(crate) fn repair(&self, address: u64) -> Option<u64> {
        let found = self.faults.binary_search_by_key(&address, |&(from, _)| from).ok()?;
        Some(self.faults[found].1)
    }
}

impl Tracer<'_> {
    /// Finds places for all of it in a process with these mappings. Nothing is mapped, and nothing written.
    pub(crate) fn choose_ground(
        &mut self,
        number: u32,
        tid: i32,
        mappings: &[Mapping],
    ) -> Result<Ground, String> {
        if let Some(missing) = process::missing_instructions() {
            return Err(format!("the processor has no `{missing}`"));
        }
        let cells = self.cells.as_ref().ok_or("there is no memory to share with the process")?;
        let (processors, size) = (cells.processors(), cells.shared().size() as u64);
        let heap = process::heap_start(tid);
        let place = |ring_size: u64| {
            Some((places(mappings, heap, size, Contexts::size(processors, ring_size))?, ring_size))
        };
        // As large as was asked for, or as there is room.
        let sizes = std::iter::successors(Some(self.ring_size), |size| Some(size / 2));
        let found = sizes.take_while(|&size| size >= LEAST_RING).find_map(place);
        let (places, ring_size) = found.ok_or("the process has no room below 2 GiB")?;
        if ring_size < self.ring_size {
            let note = format!("process {tid} has room for buffers of {} KiB only", ring_size >> 10);
            self.tell_once(Note::Other(note));
        }
        let contexts = Contexts::new(places.contexts, processors, ring_size)
            .map_err(|error| format!("memory to share with the process: {error}"))?;
        let image: &Image = image();
        let mut texts = Texts::default();
        texts.room.add(places.texts, TEXTS);
        let mapped = vec![
            (places.identity, PAGE),
            (places.cells, size),
            (places.contexts, contexts.shared().size() as u64),
            (places.agent, agent_size()),
            (places.texts, TEXTS),
        ];
        Ok(Ground {
            identity: places.identity,
            cells: places.cells,
            contexts: Rc::new(contexts),
            entries: Entries {
                resume: image.entry(Entry::Resume, places.agent) as u32,
                wait: image.entry(Entry::Wait, places.agent) as u32,
            },
            faults: Rc::new(image.faults(places.agent).collect()),
            code: (places.agent, places.agent + image.code_size() as u64),
            give_up: image.entry(Entry::GiveUp, places.agent),
            texts: Rc::new(texts),
            sleeps: self.may_all_sleep(number),
            mapped,
        })
    }

    /// Whether no thread of an address space is in a seccomp sandbox, which may forbid what a handler calls to wait.
    fn may_all_sleep(&self, number: u32) -> bool {
        let mut threads = self.threads.values().filter(|tracked| tracked.space == Some(number));
        // One that is gone does not matter.
        threads.all(|tracked| Status::read(tracked.identity.tid).map_or(true, |status| status.seccomp == 0))
    }

    /// Maps all of a chosen ground, or nothing. The reason why not is in the result; the space keeps it, unless a place was taken
    /// meanwhile: then the ground is to be chosen anew.
    pub(crate) fn map_ground(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        ground: &Ground,
    ) -> Called<()> {
        let (thread, stop, made) = self.lay_ground(number, thread, stop, ground)?;
        if let Some(space) = self.spaces.get_mut(&number) {
            match &made {
                Ok(()) => {
                    self.drain.add(Rc::clone(&ground.contexts));
                    space.mappings += ground.mapped.len();
                    space.ground = Some(ground.clone());
                }
                Err(Failed::Taken(_)) => {}
                Err(Failed::For(reason)) => space.groundless = Some(reason.clone()),
            }
        }
        let reason = |failed| match failed {
            Failed::Taken(reason) | Failed::For(reason) => reason,
        };
        Ok((thread, stop, made.map_err(reason)))
    }

    /// Maps it.
    fn lay_ground(&mut self, number: u32, thread: Stopped, stop: Stop, ground: &Ground) -> Laid {
        let tid = thread.tid();
        let failed = |reason: &str| Err(Failed::For(reason.to_owned()));
        let Some(cells) = self.cells.as_ref().map(|cells| Rc::clone(cells.shared())) else {
            return Ok((thread, stop, failed("there is no memory to share with the process")));
        };
        let mappings = match process::maps(tid) {
            Ok(mappings) => mappings,
            Err(error) => return Ok((thread, stop, failed(&error.to_string()))),
        };
        let syscall = match self.find_syscall(number, &thread, &mappings)? {
            Ok(syscall) => syscall,
            Err(reason) => return Ok((thread, stop, Err(Failed::For(reason)))),
        };
        let mut caller = match Caller::begin(thread, stop, syscall) {
            Ok(caller) => caller,
            Err((_, error)) if error.is_gone() => return Err(error),
            Err((thread, error)) => return Ok((thread, Stop::Other, failed(&error.to_string()))),
        };
        use Kind::{Own, Shared};
        let (read, write, execute) = (libc::PROT_READ, libc::PROT_WRITE, libc::PROT_EXEC);
        // In the order of `mapped`.
        let kinds: [Kind<'_>; 5] = [
            Own(read | write),
            Shared(&cells),
            Shared(ground.contexts.shared()),
            Own(read | execute),
            Own(read | execute),
        ];
        let mut mapped = Vec::new();
        let mut result = Ok(());
        for (&(place, size), memory) in ground.mapped.iter().zip(&kinds) {
            let (next, done) = match memory {
                Own(protection) => caller.map(place, size, *protection)?,
                Shared(shared) => caller.share(shared.descriptor(), place, size, read | write)?,
            };
            caller = next;
            if done.is_err() {
                result = done;
                break;
            }
            mapped.push((place, size));
        }
        if result.is_ok() {
            (caller, result) = caller.wipe_on_fork(ground.identity, PAGE)?;
        }
        let mut result = result.map_err(|error| match &error {
            Error::Remote { cause, .. } if cause.raw_os_error() == Some(libc::EEXIST) => {
                Failed::Taken(error.to_string())
            }
            _ => Failed::For(error.to_string()),
        });
        if result.is_ok() {
            let reader = (ground.cells + READER as u64) as u32;
            let settings = Settings { identity: ground.identity as u32, yields: ground.sleeps, reader };
            let bytes = image().at(ground.code.0, settings);
            let written = self.spaces.get(&number).map(|space| space.code.memory.poke(ground.code.0, &bytes));
            if !matches!(written, Some(Ok(()))) {
                result = failed("the memory mapped for probes cannot be written");
            }
        }
        if result.is_err() {
            for (place, size) in mapped.drain(..) {
                caller = caller.unmap(place, size)?.0;
            }
        }
        let (thread, stop) = caller.end()?;
        Ok((thread, stop, result))
    }
}

/// Why a ground could not be laid.
enum Failed {
    /// One of its places was taken meanwhile.
    Taken(String),
    /// It never can be.
    For(String),
}

/// As [`Called`], with the failure.
type Laid = Result<(Stopped, Stop, Result<(), Failed>), Error>;

/// Memory to be mapped.
enum Kind<'a> {
    /// Private, with this protection.
    Own(i32),
    /// The tracer's.
    Shared(&'a super::shared::Shared),
}

/// Where everything is to be.
struct Places {
    identity: u64,
    cells: u64,
    contexts: u64,
    agent: u64,
    texts: u64,
}

/// Where all of it would be in an address space with these mappings; none if there is no room.
pub(crate) fn low_memory(
    mappings: &[process::Mapping],
    heap: Option<u64>,
) -> Option<Vec<std::ops::Range<u64>>> {
    let (cells, processors) = Cells::extent();
    let contexts = Contexts::size(processors, agent::layout::RING_SIZE);
    let places = places(mappings, heap, cells, contexts)?;
    let all = [
        (places.identity, PAGE),
        (places.cells, cells.next_multiple_of(PAGE)),
        (places.contexts, contexts),
        (places.agent, agent_size()),
        (places.texts, TEXTS),
    ];
    Some(all.into_iter().map(|(start, size)| start..start + size).collect())
}

/// The end of the addresses that code reaches by absolute ones.
const LOW: u64 = 1 << 31;

/// Bytes of the agent, in whole pages.
fn agent_size() -> u64 {
    (image().size() as u64).next_multiple_of(PAGE)
}

/// Finds room for everything in what is free. A program whose own code is there needs the lower addresses for its landing pads.
fn places(mappings: &[Mapping], heap: Option<u64>, cells: u64, contexts: u64) -> Option<Places> {
    let mut gaps = process::low_gaps(mappings, heap);
    let is_low = mappings.iter().any(|mapping| mapping.executable && mapping.end <= LOW);
    let mut place = |size: u64, align: u64| {
        let places = process::low_places(&gaps, size, align);
        let place = *if is_low { places.iter().max() } else { places.first() }?;
        let gap = gaps.iter().position(|gap| gap.start <= place && place + size <= gap.end)?;
        let gap = gaps.remove(gap);
        // The pieces have nothing between them: they are all the tracer's.
        gaps.extend([gap.start..place, place + size..gap.end].into_iter().filter(|rest| !rest.is_empty()));
        gaps.sort_by_key(|gap| gap.start);
        Some(place)
    };
    Some(Places {
        contexts: place(contexts, CONTEXT_SIZE)?,
        cells: place(cells.next_multiple_of(PAGE), PAGE)?,
        agent: place(agent_size(), PAGE)?,
        texts: place(TEXTS, PAGE)?,
        identity: place(PAGE, PAGE)?,
    })
}

/// The bytes of a description, as the agent reads them.
fn bytes_of(info: &HandlerInfo) -> Vec<u8> {
    let words = [
        info.code,
        info.code_length,
        info.entry,
        info.jmpmax,
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
        info.probe,
        info.record,
        info.lossless,
        info.dropped,
        info.removed,
    ];
    let words = words.iter().flat_map(|word| word.to_le_bytes());
    let mut bytes: Vec<u8> = info.point.to_le_bytes().into_iter().chain(words).collect();
    bytes.resize(size_of::<HandlerInfo>(), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn a_description_is_read_as_it_is_written() {
        let info = HandlerInfo {
            point: 1,
            code: 2,
            mask: 3,
            globals: 4,
            probe: 5,
            removed: 6,
            ..HandlerInfo::default()
        };
        let bytes = bytes_of(&info);
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        assert_eq!(bytes.len(), size_of::<HandlerInfo>());
        let fields = [
            (offset_of!(HandlerInfo, point), 1),
            (offset_of!(HandlerInfo, code), 2),
            (offset_of!(HandlerInfo, mask), 3),
            (offset_of!(HandlerInfo, globals), 4),
            (offset_of!(HandlerInfo, probe), 5),
            (offset_of!(HandlerInfo, removed), 6),
        ];
        for (at, value) in fields {
            assert_eq!(word(at), value);
        }
    }

    #[test]
    fn what_is_needed_finds_room_in_an_empty_process() {
        let places = places(&[], None, 40 << 20, 80 << 20).expect("room");
        assert!(places.contexts.is_multiple_of(CONTEXT_SIZE));
        for place in [places.identity, places.cells, places.contexts, places.agent, places.texts] {
            assert!((PAGE..LOW_END).contains(&place));
        }
    }
}
