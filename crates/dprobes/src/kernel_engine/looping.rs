//! The session: attaches at the beginning, then reads rings and looks for new files and modules,
//! until a signal, a time limit, or the end of the process.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use engine::{Control, Note, Observer, Refused, Report};
use nix::poll::{PollTimeout, poll};
use process::Held;
use rpn::ModuleKind;

use super::attaching::{Outcome, Program};
use super::files::{Files, Found};
use super::in_kernel::{self, Kernel, LoadedModule, SystemMap};
use super::kernel_symbols::KernelSymbols;
use super::losses::Losses;
use super::records::Clock;
use super::taking::{Taken, Told};
use super::targets::Targets;
use super::{kinds, report, tracepoints};
use crate::Failure;
use crate::started_command::NOT_EXECUTABLE;

/// Time between two readings of the rings: while records come, and while none do.
pub(super) const BUSY: Duration = Duration::from_millis(10);
pub(super) const IDLE: Duration = Duration::from_millis(40);
/// Time between two looks for new files and modules.
const LOOK: Duration = Duration::from_millis(100);

/// A session of the kernel engine.
#[derive(Debug)]
pub(super) struct Session {
    programs: Vec<Program>,
    files: Files,
    /// What was found before the programs were attached.
    found: Vec<Found>,
    /// The processes that are probed; all if there is none.
    targets: Option<Targets>,
    /// A command that begins when the programs are attached.
    held: Option<Held>,
    /// Files of the command with watchpoints, which are set when it has executed its program.
    later: Vec<Found>,
    /// The kernel's symbols, if a file with them was named.
    system_map: Option<Arc<SystemMap>>,
    /// For each program of a kernel module, the module as it is loaded.
    modules: HashMap<usize, Option<LoadedModule>>,
    told: Told,
    /// Whether records came when the rings were last read.
    had_come: bool,
    /// Refusals that were told: program, probe, reason.
    refused: HashSet<(usize, usize, String)>,
    /// Records of several programs, by time, that wait for older ones of others.
    waiting: Vec<Taken>,
    losses: Losses,
    /// When the rings were last read, by the kernel's clock.
    settled: u64,
    looked: Instant,
}

impl Session {
    /// A session for programs with these modules, by number; `None` for what is no file. Without
    /// targets, all processes are probed. A command that is held is one of the targets.
    pub(super) fn new(targets: Option<Targets>, held: Option<Held>, modules: Vec<Option<String>>) -> Session {
        let names = modules.into_iter().map(Option::unwrap_or_default).collect();
        let mut files = Files::new(names, targets.as_ref().map(|targets| targets.named().collect()));
        files.hold(held.as_ref().map(Held::pid));
        let mut found = files.installed();
        found.extend(files.mapped());
        let now = Instant::now();
        Session {
            programs: Vec::new(),
            files,
            found,
            targets,
            held,
            later: Vec::new(),
            system_map: None,
            modules: HashMap::new(),
            told: Told::default(),
            had_come: false,
            refused: HashSet::new(),
            waiting: Vec::new(),
            losses: Losses::new(),
            settled: 0,
            looked: now,
        }
    }

    /// Takes the kernel's symbols from a file.
    pub(super) fn set_system_map(&mut self, map: Arc<SystemMap>) {
        self.system_map = Some(map);
    }

    /// The files that were found for a program before it is attached.
    pub(super) fn found(&self, program: usize) -> impl Iterator<Item = &Found> {
        self.found.iter().filter(move |found| found.name == program)
    }

    /// Adds a program. Programs are numbered in the order in which they are added.
    pub(super) fn add(&mut self, program: Program) {
        self.programs.push(program);
    }

    /// Attaches the programs, and reads records until the end. `refusal` is that of [`start`].
    ///
    /// [`start`]: Session::start
    ///
    /// # Errors
    /// Probes can be placed nowhere, or the command cannot be executed.
    pub(super) fn run(
        &mut self,
        observer: &mut dyn Observer,
        control: &Control,
        refusal: impl FnOnce(Vec<(usize, Refused)>) -> Failure,
    ) -> Result<(), Failure> {
        self.start(observer, refusal)?;
        observer.begun();
        control.placed.store(true, Ordering::Relaxed);
        while !control.stop.load(Ordering::Relaxed) {
            let came = self.turn(observer);
            if self.is_finished() || self.wait(if came { BUSY } else { IDLE }) {
                break;
            }
        }
        Ok(())
    }

    /// Attaches the programs, and has the command begin. `refusal` says that probes of programs,
    /// by number, are refused.
    ///
    /// # Errors
    /// Probes can be placed nowhere, or the command cannot be executed.
    pub(super) fn start(
        &mut self,
        observer: &mut dyn Observer,
        refusal: impl FnOnce(Vec<(usize, Refused)>) -> Failure,
    ) -> Result<(), Failure> {
        let mut refused = self.begin(observer)?;
        if refused.is_empty()
            && let Some(held) = self.held.take()
        {
            refused = self.release(held, observer)?;
        }
        if refused.is_empty() { Ok(()) } else { Err(refusal(refused)) }
    }

    /// Reads the rings, and looks now and then for what is new. Returns whether records came.
    pub(super) fn turn(&mut self, observer: &mut dyn Observer) -> bool {
        let came = self.read(observer);
        self.programs
            .iter()
            .filter_map(|program| program.dumps.as_ref())
            .for_each(|dumps| dumps.tell(observer));
        for address in observer.unwatched() {
            self.programs.iter_mut().for_each(|program| program.unwatch(address));
        }
        // Their files are known while they live.
        self.targets.iter().flat_map(Targets::alive).for_each(|pid| observer.runs(pid));
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            self.look(observer);
            observer.idle();
        } else if observer.waits() || (self.had_come && !came) {
            // Something may be due now, or can be written out.
            observer.idle();
        }
        self.had_come = came;
        self.losses.tell(&self.programs, &mut self.told, observer, false);
        came
    }

    /// Whether all probes are over.
    pub(super) fn is_finished(&self) -> bool {
        !self.programs.is_empty() && self.programs.iter().all(Program::is_finished)
    }

    /// Has the command begin. Returns the watchpoints in it that are refused; it has ended then.
    fn release(&mut self, held: Held, observer: &mut dyn Observer) -> Result<Vec<(usize, Refused)>, Failure> {
        let failed = |error| Failure::new(error).with_status(NOT_EXECUTABLE);
        let (pid, later) = (held.pid(), std::mem::take(&mut self.later));
        self.files.hold(None);
        if later.is_empty() {
            return held.release().map(|()| Vec::new()).map_err(failed);
        }
        let executed = held.execute().map_err(failed)?;
        let mut refused = Vec::new();
        for found in later {
            let outcome = self.programs[found.name].watch_in(pid, &found);
            let place = (Some(pid), &*found.path.display().to_string());
            refused.extend(self.tell(found.name, outcome, place, observer));
        }
        if refused.is_empty() {
            executed.release();
        }
        Ok(refused)
    }

    /// Waits. Returns whether the processes have ended.
    pub(super) fn wait(&mut self, time: Duration) -> bool {
        if let Some(targets) = &mut self.targets {
            return targets.wait(time);
        }
        // A signal ends the wait early.
        let _ = poll(&mut [], PollTimeout::try_from(time).unwrap_or(PollTimeout::ZERO));
        false
    }

    /// Attaches the programs to what there is. Returns what is refused everywhere.
    fn begin(&mut self, observer: &mut dyn Observer) -> Result<Vec<(usize, Refused)>, Failure> {
        let mut refused = Vec::new();
        for found in std::mem::take(&mut self.found) {
            refused.extend(self.attach(&found, observer));
        }
        for number in 0..self.programs.len() {
            match self.programs[number].versions.main().kind {
                ModuleKind::User => {}
                ModuleKind::Kernel => {
                    let program = &mut self.programs[number];
                    let object = program.versions.main();
                    let (has_events, is_typed) = (kinds::has_events(object), kinds::is_typed(object));
                    if has_events || is_typed {
                        let outcome =
                            if has_events { program.attach_events() } else { program.attach_typed() };
                        refused.extend(self.tell(number, outcome, (None, "the kernel"), observer));
                        continue;
                    }
                    let needed = tracepoints::needs_symbols(program.versions.main());
                    let symbols = KernelSymbols::new(self.system_map.as_deref());
                    let kernel = needed.then(|| symbols.kernel()).transpose().map_err(Failure::new)?;
                    let mut outcome =
                        kernel.as_ref().map_or_else(Outcome::default, |it| program.attach_kernel(it));
                    outcome.add(program.attach_tracepoints(kernel.as_ref()));
                    refused.extend(self.tell(number, outcome, (None, "the kernel"), observer));
                }
                ModuleKind::KernelModule => {
                    self.modules.insert(number, None);
                    refused.extend(self.look_for_module(number, observer));
                }
            }
        }
        // What is refused in one file may be in another.
        refused.retain(|(program, refused)| {
            self.programs[*program].probes[refused.probe].sites.kernel.is_empty()
        });
        if !refused.is_empty() {
            return Ok(refused);
        }
        for number in 0..self.programs.len() {
            let object = self.programs[number].versions.main();
            let module = object.module.clone();
            match object.kind {
                ModuleKind::User if !self.files.has(number) => {
                    let pid = self.targets.as_ref().and_then(|targets| targets.alive().next());
                    observer.note(&Note::Waiting { pid, module });
                }
                ModuleKind::KernelModule if self.modules.get(&number).is_some_and(Option::is_none) => {
                    let remark = "the kernel has not loaded this module; waiting for it".to_owned();
                    observer.note(&Note::Remark { point: module, remark });
                }
                _ => {}
            }
        }
        Ok(refused)
    }

    /// Attaches a program to a file. Returns what was refused.
    fn attach(&mut self, found: &Found, observer: &mut dyn Observer) -> Vec<(usize, Refused)> {
        let program = &mut self.programs[found.name];
        let mut outcome = program.attach_file(found);
        match found.process {
            // It has another address space when it executes the command.
            Some(pid) if self.held.as_ref().is_some_and(|held| held.pid() == pid) => {
                self.later.extend(program.watches().then(|| found.clone()));
            }
            Some(pid) => outcome.add(program.watch_in(pid, found)),
            None => {}
        }
        self.tell(found.name, outcome, (found.process, &found.path.display().to_string()), observer)
    }

    /// Tells what has come of attaching. Returns what was refused.
    fn tell(
        &mut self,
        program: usize,
        outcome: Outcome,
        (pid, module): (Option<i32>, &str),
        observer: &mut dyn Observer,
    ) -> Vec<(usize, Refused)> {
        outcome.notes.iter().for_each(|note| observer.note(note));
        if outcome.attached > 0 {
            // What is in the kernel fires for the processes that are probed.
            let target = self.targets.as_ref().and_then(|targets| targets.alive().next());
            let (pid, module) = match (pid, target) {
                (None, Some(target)) => (Some(target), format!("{module}, on behalf").into()),
                _ => (pid, PathBuf::from(module)),
            };
            observer.note(&Note::Armed { pid, module, probes: outcome.attached });
        }
        outcome.refused.into_iter().map(|refused| (program, refused)).collect()
    }

    /// Looks for files that were mapped, and for modules that were loaded, since the last look.
    fn look(&mut self, observer: &mut dyn Observer) {
        let mut found = self.look_for_processes();
        found.extend(self.files.appeared());
        found.extend(self.files.mapped());
        let mut refused = Vec::new();
        for found in found {
            refused.extend(self.attach(&found, observer));
        }
        let modules: Vec<usize> = self.modules.keys().copied().collect();
        for program in modules {
            refused.extend(self.look_for_module(program, observer));
        }
        for (program, refused) in refused {
            if self.refused.insert((program, refused.probe, refused.reason.to_string())) {
                observer.note(&Note::Other(refused.to_string()));
            }
        }
        self.programs.iter_mut().for_each(Program::retire);
    }

    /// Looks which processes have come and which have left. Returns the files to probe in new ones.
    fn look_for_processes(&mut self) -> Vec<Found> {
        let change = self.targets.as_mut().map(Targets::look).unwrap_or_default();
        for pid in change.left {
            self.files.forget(pid);
            self.programs.iter_mut().for_each(|program| program.forget(pid));
        }
        change.came.into_iter().flat_map(|pid| self.files.follow(pid)).collect()
    }

    /// Attaches to a kernel module that was loaded, or forgets one that was unloaded.
    fn look_for_module(&mut self, program: usize, observer: &mut dyn Observer) -> Vec<(usize, Refused)> {
        let loaded = in_kernel::loaded_module(self.programs[program].versions.main());
        if self.modules.get(&program) == Some(&loaded) {
            return Vec::new();
        }
        self.programs[program].detach_all();
        self.modules.insert(program, loaded.clone());
        let Some(loaded) = loaded else { return Vec::new() };
        match Kernel::read(Some(&loaded)) {
            Ok(kernel) => {
                let outcome = self.programs[program].attach_kernel(&kernel);
                self.tell(program, outcome, (None, &loaded.name), observer)
            }
            Err(reason) => {
                observer.note(&Note::Other(reason));
                Vec::new()
            }
        }
    }

    /// Reads the rings, unless the observer has no room. Returns whether records came.
    fn read(&mut self, observer: &mut dyn Observer) -> bool {
        if !observer.is_ready() {
            return false;
        }
        // Before the rings are read: what comes from now on may still be older than what another
        // program has given.
        let (clock, settled) = (Clock::now(), std::mem::replace(&mut self.settled, Clock::stamp()));
        let mut taken = std::mem::take(&mut self.waiting);
        let before = taken.len();
        for (number, program) in self.programs.iter_mut().enumerate() {
            program.take(number, clock, false, &mut taken);
        }
        let came = taken.len() > before;
        if self.programs.len() > 1 {
            taken.sort_by_key(|taken| taken.time);
            let ready = taken.partition_point(|taken| taken.time < settled);
            self.waiting = taken.split_off(ready);
        }
        self.hand(taken, observer);
        came
    }

    fn hand(&mut self, taken: Vec<Taken>, observer: &mut dyn Observer) {
        for taken in taken {
            if let Some(program) = self.programs.get_mut(taken.program) {
                program.hand(taken, observer, &mut self.told);
            }
        }
    }

    /// Detaches the programs, takes the last records, and reports.
    pub(super) fn finish(&mut self, observer: &mut dyn Observer, globals: impl Fn() -> Vec<u64>) -> Report {
        self.programs.iter_mut().for_each(Program::detach);
        let clock = Clock::now();
        let mut taken = std::mem::take(&mut self.waiting);
        for (number, program) in self.programs.iter_mut().enumerate() {
            program.take(number, clock, true, &mut taken);
        }
        if self.programs.len() > 1 {
            taken.sort_by_key(|taken| taken.time);
        }
        self.hand(taken, observer);
        for dumps in self.programs.iter_mut().filter_map(|program| program.dumps.as_mut()) {
            dumps.finish(observer);
        }
        self.losses.tell(&self.programs, &mut self.told, observer, true);
        self.report(globals())
    }

    /// The counts and variables so far.
    pub(super) fn report(&self, globals: Vec<u64>) -> Report {
        report::report(&self.programs, globals)
    }

    /// The programs, by number.
    pub(super) fn programs(&mut self) -> &mut [Program] {
        &mut self.programs
    }
}
