//! The maps that the programs of one RPN program work in.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bpf::{LoadError, Map as BpfMap, MapError, MapSpec, Program, ProgramKind, ProgramSpec, Shared};
use rpn::Object;

use crate::by_process::{self, ProcessHits};
use crate::compile::Compiled;
use crate::dump_requests::{DumpMaps, DumpRequests};
use crate::handler::{AttachKind, Handler, Size};
use crate::layout::{Field, Layout, MAPS, Map, count, state};
use crate::processes::Processes;
use crate::rings::Rings;
use crate::tables::Tables;

/// Nanoseconds that a record waits for older ones.
const LONGEST_WAIT: u64 = 1_000_000_000;

/// How large the maps of a program are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapsOptions {
    /// Contexts for each processor, 1 to 32: as many handlers can be at work there at a time, since
    /// a thread can be preempted in one, or sleep.
    pub contexts: u32,
    /// Bytes of each processor's ring: a power of two, at least a page.
    pub ring: u32,
    /// Numbers of probes beyond those of the program, to count hits apart that one probe has at
    /// several places. They have no limits.
    pub more_probes: u32,
    /// The most processes that [`Maps::set_pids`] takes.
    pub processes: u32,
    /// The most entries of processes and probes whose hits are counted apart.
    pub by_process: u32,
}

impl Default for MapsOptions {
    /// Eight contexts, rings of 1 MiB, no further numbers, 4096 processes, none counted apart.
    fn default() -> MapsOptions {
        MapsOptions { contexts: 8, ring: 1 << 20, more_probes: 0, processes: 4096, by_process: 0 }
    }
}

impl MapsOptions {
    /// How much the maps of a program with so many probes hold, for [`crate::Target`].
    ///
    /// # Errors
    /// If sysfs does not say how many processors there can be.
    pub fn size(&self, probes: usize) -> Result<Size, MapError> {
        let processors = bpf::possible_processors().map_err(MapError::Create)? as u32;
        let contexts = self.contexts.clamp(1, 32);
        Ok(Size { probes: probes.max(1) as u32, processors, contexts, ring: self.ring })
    }
}

/// The global variables, which all programs of a session share.
#[derive(Debug)]
pub struct Globals {
    map: BpfMap,
    values: Shared,
}

impl Globals {
    /// This many variables, all 0.
    ///
    /// # Errors
    /// If the kernel refuses the map.
    pub fn create(count: usize) -> Result<Arc<Globals>, MapError> {
        let (map, values) = shared("dp_globals", 8 * count.max(1))?;
        Ok(Arc::new(Globals { map, values }))
    }

    /// The variables; at least one.
    pub fn values(&self) -> &[AtomicU64] {
        &self.values
    }
}

/// What was counted at a probe. `hits = runs + ignored + missed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times the probe was reached while it fired.
    pub hits: u64,
    /// Hits passed over by `ignore`.
    pub ignored: u64,
    /// Hits for which no context was free.
    pub missed: u64,
    /// Times the handler ran.
    pub runs: u64,
    /// Records written into the rings.
    pub logged: u64,
    /// Records for which the ring had no room.
    pub dropped: u64,
    /// Runs that an exception ended.
    pub exceptions: u64,
    /// Hits that were to be counted by process, and for which there was no room.
    pub unassigned: u64,
}

/// Whether a probe fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeState {
    /// It fires.
    Armed,
    /// It was hit `maxhits` times, or disabled.
    Disabled,
    /// Its handler has removed it.
    Removed,
}

/// The maps of a program. Both versions of a program, of 4-byte and of 8-byte words, may use the
/// same.
///
/// It has this many fields since what this process reads is there twice: as a map of the kernel's,
/// and as the memory that it has in common with the kernel.
#[derive(Debug)]
pub struct Maps {
    size: Size,
    layout: Layout,
    contexts: BpfMap,
    /// The contexts' words.
    busy: Shared,
    rings: Rings,
    probes: BpfMap,
    states: Shared,
    counts: BpfMap,
    counted: Shared,
    locals: BpfMap,
    local_values: Shared,
    local_count: usize,
    globals: Arc<Globals>,
    processes: Arc<Processes>,
    tables: Arc<Tables>,
    by_process: BpfMap,
    dumps: DumpMaps,
}

/// A mappable array of one value.
fn shared(name: &str, bytes: usize) -> Result<(BpfMap, Shared), MapError> {
    let bytes = u32::try_from(bytes).map_err(|_| MapError::Create(bpf::Errno::E2BIG))?;
    let map = BpfMap::create(&MapSpec { mappable: true, ..MapSpec::array(name, bytes, 1) })?;
    let values = map.share()?;
    Ok((map, values))
}

impl Maps {
    /// The maps of a program.
    ///
    /// # Errors
    /// If the kernel refuses them, for want of rights or memory.
    pub fn create(object: &Object, globals: &Arc<Globals>, options: &MapsOptions) -> Result<Maps, MapError> {
        Maps::with_tables(object, globals, options, Tables::create(Vec::new(), 0, Vec::new())?)
    }

    /// The maps of a program that works on the maps of a script.
    ///
    /// # Errors
    /// If the kernel refuses them, for want of rights or memory.
    pub fn with_tables(
        object: &Object,
        globals: &Arc<Globals>,
        options: &MapsOptions,
        tables: Arc<Tables>,
    ) -> Result<Maps, MapError> {
        let layout = match object.probes.first() {
            Some(probe) => Layout::of(&Handler { tables: tables.shape(), ..Handler::of(object, probe, 0) }),
            None => return Err(MapError::Kind),
        };
        let probes = object.probes.len() + options.more_probes as usize;
        let maps = Maps::with(layout, probes, object.vars.into(), globals, options, tables)?;
        for (number, probe) in object.probes.iter().enumerate() {
            maps.limit(number, probe.ignore, probe.maxhits);
        }
        Ok(maps)
    }

    /// The maps for handlers of one layout.
    pub(crate) fn with(
        layout: Layout,
        probes: usize,
        locals: usize,
        globals: &Arc<Globals>,
        options: &MapsOptions,
        tables: Arc<Tables>,
    ) -> Result<Maps, MapError> {
        let size = options.size(probes)?;
        let contexts = size.processors * size.contexts;
        let contexts = MapSpec { mappable: true, ..MapSpec::array("dp_contexts", layout.size, contexts) };
        let contexts = BpfMap::create(&contexts)?;
        let (probes, states) = shared("dp_probes", size.probes as usize * state::SIZE as usize)?;
        let lines = size.probes as usize * size.processors as usize;
        let (counts, counted) = shared("dp_counts", lines * count::SIZE as usize)?;
        let (local_map, local_values) = shared("dp_locals", 8 * locals.max(1))?;
        Ok(Maps {
            size,
            layout,
            busy: contexts.share()?,
            contexts,
            rings: Rings::create(&size)?,
            probes,
            states,
            counts,
            counted,
            locals: local_map,
            local_values,
            local_count: locals,
            globals: Arc::clone(globals),
            processes: Processes::create(options.processes)?,
            tables,
            by_process: by_process::create(options.by_process)?,
            dumps: DumpMaps::create()?,
        })
    }

    /// How much they hold, for [`crate::Target`].
    pub fn size(&self) -> Size {
        self.size
    }

    /// The maps and constants of the script.
    pub fn tables(&self) -> &Arc<Tables> {
        &self.tables
    }

    /// Loads a compiled handler. `multi` says whether it will be attached to many places at once.
    ///
    /// # Errors
    /// If the kernel refuses it; `EINVAL` without a log if it was compiled for other maps.
    pub fn load(&self, compiled: &Compiled, multi: bool) -> Result<Program, LoadError> {
        if (compiled.layout, compiled.target.size) != (self.layout, self.size) {
            return Err(LoadError { errno: bpf::Errno::EINVAL, log: String::new(), insn: None });
        }
        let sleepable = compiled.target.sleepable;
        let kind = match (compiled.target.place, multi) {
            (AttachKind::Uprobe, false) => ProgramKind::Uprobe { sleepable },
            (AttachKind::Uprobe, true) => ProgramKind::UprobeMulti { sleepable },
            (AttachKind::Kprobe | AttachKind::Kretprobe, false) => ProgramKind::Kprobe,
            (AttachKind::Kprobe | AttachKind::Kretprobe, true) => ProgramKind::KprobeMulti,
            (AttachKind::Tracepoint, _) => ProgramKind::Tracepoint,
            (AttachKind::RawTracepoint, _) => ProgramKind::RawTracepoint,
            (AttachKind::Fentry(function), _) => ProgramKind::Tracing { function, on_return: false },
            (AttachKind::Fexit(function), _) => ProgramKind::Tracing { function, on_return: true },
            (AttachKind::UserBreakpoint | AttachKind::KernelBreakpoint | AttachKind::Event, _) => {
                ProgramKind::PerfEvent
            }
        };
        let maps: [&BpfMap; MAPS] = [
            &self.contexts,
            self.rings.map(),
            &self.probes,
            &self.counts,
            &self.locals,
            &self.globals.map,
            &self.processes.map,
            &self.tables.map,
            &self.by_process,
            &self.dumps.words,
            &self.dumps.requests,
        ];
        debug_assert_eq!(Map::Requests as usize, MAPS - 1);
        Program::load(&ProgramSpec { kind, name: "dp_handler", code: &compiled.code, maps: &maps })
    }

    /// A word of a probe's state; `None` for a probe that there is not.
    fn state_word(&self, probe: usize, place: u32) -> Option<&AtomicU64> {
        self.states.get(probe * (state::SIZE / 8) as usize..)?.get((place / 8) as usize)
    }

    /// Sets the limits of a probe that is not attached yet: hits to ignore, and runs after which it
    /// is disabled.
    pub(crate) fn limit(&self, probe: usize, ignore: u64, maxhits: u64) {
        /// What `maxhits` is without a statement, and means no limit: no hit needs a number.
        const UNLIMITED: u64 = 0x7fff_ffff;
        let last = ignore.saturating_add(maxhits);
        let limited = u64::from(ignore > 0 || maxhits < UNLIMITED);
        for (place, value) in [(state::IGNORE, ignore), (state::LAST, last), (state::LIMITED, limited)] {
            if let Some(word) = self.state_word(probe, place) {
                word.store(value, Ordering::Relaxed);
            }
        }
    }

    /// Disables a probe: its handler runs no more.
    pub fn disable(&self, probe: usize) {
        if let Some(word) = self.state_word(probe, state::OVER) {
            let _ = word.compare_exchange(0, state::DISABLED as u64, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Lets a probe fire that was disabled or removed.
    pub fn enable(&self, probe: usize) {
        if let Some(word) = self.state_word(probe, state::OVER) {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Whether a probe fires.
    pub fn state(&self, probe: usize) -> ProbeState {
        let over = self.state_word(probe, state::OVER).map_or(0, |word| word.load(Ordering::Relaxed));
        match over as i32 {
            0 => ProbeState::Armed,
            state::REMOVED => ProbeState::Removed,
            _ => ProbeState::Disabled,
        }
    }

    /// What was counted, for each probe.
    pub fn counts(&self) -> Vec<Counts> {
        let probes = self.size.probes as usize;
        let line = (count::SIZE / 8) as usize;
        let sum = |probe: usize, place: u32| {
            let words = (0..self.size.processors as usize)
                .filter_map(|cpu| self.counted.get((cpu * probes + probe) * line + (place / 8) as usize));
            words.fold(0, |sum: u64, word| sum.wrapping_add(word.load(Ordering::Relaxed)))
        };
        let counts = (0..probes).map(|probe| Counts {
            hits: [count::IGNORED, count::MISSED, count::RUNS].map(|place| sum(probe, place)).iter().sum(),
            ignored: sum(probe, count::IGNORED),
            missed: sum(probe, count::MISSED),
            runs: sum(probe, count::RUNS),
            logged: sum(probe, count::LOGGED),
            dropped: sum(probe, count::DROPPED),
            exceptions: sum(probe, count::EXCEPTIONS),
            unassigned: sum(probe, count::UNASSIGNED),
        });
        counts.collect()
    }

    /// The hits of each process, of handlers with [`crate::Target::by_process`].
    ///
    /// # Errors
    /// If the kernel refuses to read them.
    pub fn by_process(&self) -> Result<Vec<ProcessHits>, MapError> {
        by_process::read(&self.by_process)
    }

    /// The reader of handlers' requests for core dumps.
    ///
    /// # Errors
    /// If there is one already, or the kernel refuses.
    pub fn dump_requests(&self) -> Result<DumpRequests, MapError> {
        self.dumps.reader(&self.probes)
    }

    /// The local variables.
    pub fn locals(&self) -> &[AtomicU64] {
        &self.local_values[..self.local_count]
    }

    /// The global variables, with those of the session's other programs.
    pub fn globals(&self) -> &[AtomicU64] {
        self.globals.values()
    }

    /// Sets the processes that programs with [`crate::Target::filtered`] probe.
    ///
    /// # Errors
    /// If they are too many, or the kernel refuses.
    pub fn set_pids(&self, pids: &[u32]) -> Result<(), MapError> {
        self.processes.set(pids)
    }

    /// Has these processes be those that filtered programs probe. Programs that are loaded already
    /// keep their own.
    pub fn share_processes(&mut self, processes: &Arc<Processes>) {
        self.processes = Arc::clone(processes);
    }

    /// The words of the contexts, by context.
    pub(crate) fn contexts(&self) -> impl Iterator<Item = &[AtomicU64]> {
        self.busy.chunks_exact(self.layout.size as usize / 8)
    }

    /// Gives the records that have come, in the order of their times over all processors. One that
    /// is newer than a record that may still come stays until the next call, but for a second at
    /// most: a process can make a handler that reads its memory wait as long as it likes.
    ///
    /// Returns how many were given.
    pub fn drain(&mut self, give: &mut dyn FnMut(crate::RawRecord<'_>)) -> usize {
        let now = crate::rings::now();
        let words = self.contexts().filter_map(|context| context.first());
        let busy = words.map(|word| word.load(Ordering::Acquire)).filter(|&since| since != 0).min();
        debug_assert_eq!(Field::Busy.at(), 0);
        let before = busy.unwrap_or(now).clamp(now.saturating_sub(LONGEST_WAIT), now);
        self.rings.drain(before, give)
    }

    /// Gives all records that have come, when nothing is attached any more.
    pub fn drain_all(&mut self, give: &mut dyn FnMut(crate::RawRecord<'_>)) -> usize {
        self.rings.drain(u64::MAX, give)
    }
}
