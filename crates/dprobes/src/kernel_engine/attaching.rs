//! One program of the session: attaches its probes to files as they are found, or to the kernel,
//! and detaches those that are over.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use engine::reason::NotPlaced;
use engine::{Note, Options, Refused, SiteCounts, State, Versions};
use image::{Image, Machine, Pattern};
use kernel::session::{Attached, KernelSite, Site, Uprobes, attach_kernel};
use kernel::{
    AttachKind, Condition, Filter, Globals, Maps, MapsOptions, ProbeState, Processes, Refusal, Tables, cookie,
};
use rpn::{FunctionPoint, Location, Object, Sources};

use super::attempt::Attempt;
use super::core_dumps::CoreDumps;
use super::files::Found;
use super::handlers::{self, Bound, Handlers, Spot};
use super::in_kernel::Kernel;
use super::numbers::Numbers;
use super::records::Spare;
use super::refusals::{refusal_of_kprobe, refusal_of_uprobe};
use super::{kinds, places, report, semaphores, tracepoints};
use crate::Failure;
use crate::session::Loaded;

/// A program of the session.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) versions: Versions,
    pub(super) options: Options,
    pub(super) sources: Option<Sources>,
    pub(super) maps: Maps,
    pub(super) numbers: Numbers,
    pub(super) handlers: Handlers,
    /// The events of its probes, if that is what they are at.
    pub(super) events: Vec<bpf::Event>,
    pub(super) probes: Vec<Probe>,
    /// By number: what the upper half of a cookie means.
    pub(super) sites: Vec<SiteOfFile>,
    /// What writes core dumps, if a handler may ask for one.
    pub(super) dumps: Option<CoreDumps>,
    /// Memory for records.
    pub(super) spare: Spare,
}

/// What is known of a probe beside the kernel's counts.
#[derive(Debug, Default)]
pub(super) struct Probe {
    /// What it is attached to, in all processes or in one.
    attached: Vec<(Option<i32>, Attached)>,
    pub(super) sites: SiteCounts,
    /// The first address in the kernel, for a probe there.
    pub(super) address: Option<u64>,
    pub(super) refused: bool,
    /// Records that a target took.
    pub(super) logged: u64,
    /// Records that no target took.
    pub(super) untaken: u64,
    /// How it ended, if it did.
    over: Option<State>,
}

/// A file that has sites.
#[derive(Debug)]
pub(super) struct ModuleOfSites {
    pub(super) path: PathBuf,
    pub(super) image: Arc<Image>,
}

/// One site.
#[derive(Clone, Debug)]
pub(super) struct SiteOfFile {
    /// The file; `None`: the kernel.
    pub(super) module: Option<Arc<ModuleOfSites>>,
    /// The offset in the file, or the address in the kernel.
    pub(super) offset: u64,
}

impl SiteOfFile {
    /// The machine whose version of the program runs there; `None`: the main version does.
    pub(super) fn machine(&self) -> Option<Machine> {
        self.module.as_ref().map(|module| module.image.machine())
    }
}

/// What has come of attaching a program to a file, or to the kernel.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The probes that were attached.
    pub(super) attached: usize,
    pub(super) refused: Vec<Refused>,
    pub(super) notes: Vec<Note>,
}

impl Outcome {
    /// Adds that of other probes of the program.
    pub(super) fn add(&mut self, other: Outcome) {
        self.attached += other.attached;
        self.refused.extend(other.refused);
        self.notes.extend(other.notes);
    }
}

/// What a program is attached to.
#[derive(Clone, Copy, Debug)]
pub(super) struct To<'a> {
    pub(super) globals: &'a Arc<Globals>,
    /// The size of each processor's ring.
    pub(super) ring: u32,
    /// The processes that are probed; all if there is none.
    pub(super) processes: Option<&'a Arc<Processes>>,
    /// Which of their threads are.
    pub(super) only: Filter,
    /// Whether hits are counted by process, too.
    pub(super) by_process: bool,
    /// Whether handlers in the kernel may call its debugger or a crash dump.
    pub(super) allow_panic: bool,
    /// The maps and constants of a script.
    pub(super) tables: Option<&'a Arc<Tables>>,
    /// What of the script only the kernel can run; `None`: it is no script.
    pub(super) script: Option<Bound>,
    /// The events of its probes, if that is what they are at.
    pub(super) events: &'a [bpf::Event],
}

/// Places of one probe that share a handler.
type Groups<T> = BTreeMap<(usize, Option<Condition>, u64), Vec<T>>;

impl Program {
    /// A program that is not attached yet.
    ///
    /// # Errors
    /// A handler cannot run in the kernel, or the kernel gives no memory.
    pub(super) fn new(
        loaded: Loaded,
        sources: Option<Sources>,
        numbers: Numbers,
        to: To<'_>,
    ) -> Result<Program, Failure> {
        let To { globals, ring, processes, only, by_process, allow_panic, tables, script, events } = to;
        let object = loaded.program.main();
        let more = numbers.capacity().saturating_sub(object.probes.len()) as u32;
        let entries = if by_process { report::PROCESSES } else { 0 };
        let options = MapsOptions { ring, more_probes: more, by_process: entries, ..MapsOptions::default() };
        let failed = |error: &dyn std::fmt::Display| {
            Failure::new(format!("memory for handlers in the kernel: {error}"))
        };
        let maps = match tables {
            None => Maps::create(object, globals, &options),
            Some(tables) => Maps::with_tables(object, globals, &options, Arc::clone(tables)),
        };
        let mut maps = maps.map_err(|error| failed(&error))?;
        processes.into_iter().for_each(|processes| maps.share_processes(processes));
        let dumps = CoreDumps::begin(object, &maps, loaded.options.max_dumps)?;
        let program = Program {
            probes: object.probes.iter().map(|_| Probe::default()).collect(),
            handlers: Handlers::new(processes.is_some(), only, by_process, allow_panic, script),
            events: events.to_vec(),
            versions: loaded.program,
            options: loaded.options,
            sources,
            maps,
            numbers,
            sites: Vec::new(),
            dumps,
            spare: Spare::default(),
        };
        program.check()?;
        Ok(program)
    }

    /// Checks that the kernel can run all handlers of the main version.
    fn check(&self) -> Result<(), Failure> {
        let object = self.versions.main();
        for probe in &object.probes {
            let spot = Spot::of(object, probe);
            if kinds::is_typed(object) {
                self.check_typed(object, probe)?;
            } else if tracepoints::is_one(probe) {
                self.check_tracepoint(object, probe)?;
            } else if let Err(refusal) = self.handlers.compile(object, probe, spot, &self.maps) {
                return Err(self.refused(&refusal, object, probe, None));
            }
        }
        Ok(())
    }

    /// The message that a handler cannot run in the kernel.
    pub(super) fn refused(
        &self,
        refusal: &Refusal,
        object: &Object,
        probe: &rpn::Probe,
        help: Option<String>,
    ) -> Failure {
        let colour = std::io::IsTerminal::is_terminal(&std::io::stderr());
        let others = self.handlers.others(object.kind);
        let shown = handlers::diagnostic(refusal, object, self.sources.as_ref(), help, &others, colour);
        let plain = || Failure::new(format!("{}:{}: {refusal}", object.module, probe.point));
        shown.map_or_else(plain, Failure::complete)
    }

    /// A site by the number in a record.
    pub(super) fn site(&self, number: u32) -> Option<&SiteOfFile> {
        self.sites.get(number as usize)
    }

    /// Attaches its probes to a file.
    pub(super) fn attach_file(&mut self, found: &Found) -> Outcome {
        let mut outcome = Outcome::default();
        let object = match self.versions.of(found.image.machine()) {
            Ok(object) => object.clone(),
            Err(reason) => {
                let text = format!("{} is not probed: {reason}", printable::path(&found.path));
                outcome.notes.push(Note::Other(text));
                return outcome;
            }
        };
        let verify = self.options.verify_opcodes;
        let symbols = self.options.symbols.clone();
        let plan =
            places::plan(&object, &found.image, symbols.as_deref(), verify, |probe| self.is_over(probe));
        outcome.refused = plan.refused;
        let remark = |(probe, remark): (usize, String)| Note::Remark {
            point: object.probes[probe].point.clone(),
            remark,
        };
        outcome.notes.extend(plan.remarks.into_iter().map(remark));
        let module = Arc::new(ModuleOfSites { path: found.path.clone(), image: Arc::clone(&found.image) });
        let name = found.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let apart = Handlers::name_their_place(&object);
        let (counters, remark) = semaphores::counters(&found.image, &self.options.semaphores);
        outcome.notes.extend(remark.map(Note::Other));
        let mut groups: Groups<(String, Site)> = BTreeMap::new();
        for place in plan.places {
            let number = self.numbers.number(place.probe, &name, &place.function, place.offset);
            let site = self.new_site(Some(&module), place.offset);
            let key = (place.probe, place.condition, if apart { place.offset } else { 0 });
            let counter = counters.get(&place.offset).copied().unwrap_or(0);
            let site = Site { offset: place.offset, counter, cookie: cookie(number, site) };
            groups.entry(key).or_default().push((place.function, site));
        }
        let uprobes = Uprobes::new(found.process.map(|pid| pid as u32));
        let multi = uprobes.is_together();
        let mut by_probe: BTreeMap<usize, Attempt> = BTreeMap::new();
        for ((probe, condition, offset), sites) in groups {
            let attempt = by_probe.entry(probe).or_default();
            let spot = Spot { multi, condition, offset, ..Spot::at(AttachKind::Uprobe) };
            let (functions, sites): (Vec<String>, Vec<Site>) = sites.into_iter().unzip();
            let definition = &object.probes[probe];
            match self.handlers.load(&object, definition, spot, &self.maps, self.sources.as_ref()) {
                Ok(program) => {
                    let attached = uprobes.attach(&program, &found.file, &sites);
                    attached.refused.iter().for_each(|(place, _)| {
                        self.numbers.leave_out(sites[*place].cookie as u32);
                    });
                    attempt.note(&functions, attached, uprobes.name(), refusal_of_uprobe);
                    attempt.process = found.process;
                }
                Err(reason) => attempt.failed(&functions, &reason),
            }
        }
        self.conclude(&object, by_probe, &found.path.display().to_string(), &mut outcome);
        outcome
    }

    /// Attaches its probes to the kernel, or to a module of it.
    pub(super) fn attach_kernel(&mut self, kernel: &Kernel) -> Outcome {
        let mut outcome = Outcome::default();
        let mut object = self.versions.main().clone();
        if let Err(reason) = kernel.link(&mut object) {
            let refused = |(probe, definition): (usize, &rpn::Probe)| Refused {
                module: object.module.clone(),
                point: definition.point.clone(),
                probe,
                reason: NotPlaced::Other(reason.clone()),
            };
            outcome.refused = object.probes.iter().enumerate().map(refused).collect();
            return outcome;
        }
        let plan = kernel.plan(&object, self.options.verify_opcodes, |probe| self.is_over(probe));
        outcome.refused = plan.refused;
        let remark = |(probe, remark): (usize, String)| Note::Remark {
            point: object.probes[probe].point.clone(),
            remark,
        };
        outcome.notes.extend(plan.remarks.into_iter().map(remark));
        let apart = Handlers::name_their_place(&object);
        let module = object.module.clone();
        let mut groups: BTreeMap<(usize, bool, u64), Vec<(String, KernelSite)>> = BTreeMap::new();
        for place in plan.places {
            let number = self.numbers.number(place.probe, &module, &place.function, place.address);
            let site = self.new_site(None, place.address);
            self.probes[place.probe].address.get_or_insert(place.address);
            let key = (place.probe, place.on_return, if apart { place.address } else { 0 });
            let (address, on_return) = (place.address, place.on_return);
            let site = KernelSite { address, on_return, cookie: cookie(number, site) };
            groups.entry(key).or_default().push((place.function, site));
        }
        let mut by_probe: BTreeMap<usize, Attempt> = BTreeMap::new();
        for ((probe, on_return, offset), sites) in groups {
            let attempt = by_probe.entry(probe).or_default();
            let (place, name) =
                if on_return { (AttachKind::Kretprobe, "kretprobe") } else { (AttachKind::Kprobe, "kprobe") };
            let spot = Spot { offset, ..Spot::at(place) };
            let (functions, sites): (Vec<String>, Vec<KernelSite>) = sites.into_iter().unzip();
            let definition = &object.probes[probe];
            match self.handlers.load(&object, definition, spot, &self.maps, self.sources.as_ref()) {
                Ok(program) => {
                    let attached = attach_kernel(&program, &sites);
                    attached.refused.iter().for_each(|(place, _)| {
                        self.numbers.leave_out(sites[*place].cookie as u32);
                    });
                    attempt.note(&functions, attached, name, refusal_of_kprobe);
                }
                Err(reason) => attempt.failed(&functions, &reason),
            }
        }
        self.conclude(&object, by_probe, &module, &mut outcome);
        outcome.add(self.watch_all(kernel, &object));
        outcome
    }

    pub(super) fn new_site(&mut self, module: Option<&Arc<ModuleOfSites>>, offset: u64) -> u32 {
        self.sites.push(SiteOfFile { module: module.cloned(), offset });
        (self.sites.len() - 1) as u32
    }

    /// Tells what has come of the probes. What a pattern matches is left out if it is refused;
    /// another probe is refused as a whole.
    pub(super) fn conclude(
        &mut self,
        object: &Object,
        by_probe: BTreeMap<usize, Attempt>,
        module: &str,
        outcome: &mut Outcome,
    ) {
        for (probe, attempt) in by_probe {
            let definition = &object.probes[probe];
            let lenient = match &definition.location {
                Location::Points { function, point } => {
                    Pattern::is_one(function) || *point == FunctionPoint::Each
                }
                Location::Tracepoint { name, .. } => Pattern::is_one(name),
                _ => false,
            };
            let point = definition.point.clone();
            let line = attempt.left_out.line();
            if let Some(line) = line.as_ref().filter(|_| !lenient || attempt.attached.is_empty()) {
                // What was attached is detached again.
                let reason = attempt.only.unwrap_or_else(|| line.clone());
                outcome.refused.push(Refused {
                    module: module.to_owned(),
                    point,
                    probe,
                    reason: NotPlaced::Other(reason),
                });
                continue;
            }
            outcome.attached += 1;
            outcome.notes.extend(line.map(|remark| Note::Remark { point, remark }));
            for (attached, count, kind) in attempt.attached {
                self.probes[probe].keep(attempt.process, attached, count, kind);
            }
        }
        outcome.refused.sort_by_key(|refused| refused.probe);
        for refused in &outcome.refused {
            self.probes[refused.probe].refused = true;
        }
    }

    /// Whether a probe is over.
    pub(super) fn is_over(&self, probe: usize) -> bool {
        self.probes[probe].over.is_some() || self.maps.state(probe) != ProbeState::Armed
    }

    /// Detaches the probes that are over.
    pub(super) fn retire(&mut self) {
        for (number, probe) in self.probes.iter_mut().enumerate() {
            let over = match self.maps.state(number) {
                ProbeState::Armed => continue,
                ProbeState::Disabled => State::Disabled,
                ProbeState::Removed => State::Removed,
            };
            probe.over = Some(over);
            probe.attached.clear();
        }
    }

    /// Whether all probes are over.
    pub(super) fn is_finished(&self) -> bool {
        !self.probes.is_empty() && self.probes.iter().all(|probe| probe.over.is_some())
    }

    /// Detaches everything, as from a kernel module that is gone.
    pub(super) fn detach_all(&mut self) {
        self.probes.iter_mut().for_each(|probe| probe.attached.clear());
    }

    /// Detaches what was attached in a process that has ended.
    pub(super) fn forget(&mut self, process: i32) {
        let probes = self.probes.iter_mut();
        probes.for_each(|probe| probe.attached.retain(|(of, _)| *of != Some(process)));
    }

    /// Detaches everything at the end.
    pub(super) fn detach(&mut self) {
        self.retire();
        self.detach_all();
    }
}

impl Probe {
    /// Detaches it for good.
    pub(super) fn end(&mut self) {
        self.over = Some(State::Removed);
        self.attached.clear();
    }

    /// Keeps what was attached to so many sites, by this kind of probe.
    pub(super) fn keep(
        &mut self,
        process: Option<i32>,
        attached: Attached,
        count: usize,
        kind: &'static str,
    ) {
        self.sites.watched_by_kernel(kind, count);
        self.attached.push((process, attached));
    }

    /// Whether it is attached in a process, or in all.
    pub(super) fn is_attached(&self, process: Option<i32>) -> bool {
        self.attached.iter().any(|(of, _)| *of == process)
    }

    /// Its state.
    pub(super) fn state(&self) -> State {
        match self.over {
            Some(over) => over,
            None if !self.sites.kernel.is_empty() => State::Armed,
            None if self.refused => State::Refused,
            None => State::Waiting,
        }
    }
}
