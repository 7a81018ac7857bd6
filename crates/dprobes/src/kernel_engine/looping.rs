//! The session: attaches at the beginning, then reads rings and looks for new files and modules,
//! until a signal, a time limit, or the end of the process.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use engine::{Control, Error, Lost, Note, Observer, Refused, Report};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rpn::ModuleKind;

use super::attaching::{Outcome, Program};
use super::files::{Files, Found};
use super::in_kernel::{self, Kernel, LoadedModule};
use super::records::Clock;
use super::report;
use super::taking::{Taken, Told};
use super::tracepoints;
use crate::Failure;

/// Time between two readings of the rings: while records come, and while none do.
const BUSY: Duration = Duration::from_millis(10);
const IDLE: Duration = Duration::from_millis(40);
/// Time between two looks for new files and modules.
const LOOK: Duration = Duration::from_millis(100);
/// Time between two reports of losses.
const LOSSES: Duration = Duration::from_secs(1);

/// The process that is probed.
#[derive(Debug)]
struct Process {
    pid: i32,
    /// Readable once the process has ended.
    handle: OwnedFd,
}

/// A session of the kernel engine.
#[derive(Debug)]
pub(super) struct Session {
    programs: Vec<Program>,
    files: Files,
    /// What was found before the programs were attached.
    found: Vec<Found>,
    process: Option<Process>,
    /// For each program of a kernel module, the module as it is loaded.
    modules: HashMap<usize, Option<LoadedModule>>,
    told: Told,
    /// Refusals that were told: program, probe, reason.
    refused: HashSet<(usize, usize, String)>,
    /// Records of several programs, by time, that wait for older ones of others.
    waiting: Vec<Taken>,
    /// Dropped records that were told, by program and probe: all, and those that no target took.
    losses: HashMap<(usize, usize), (u64, u64)>,
    /// When the rings were last read, by the kernel's clock.
    settled: u64,
    looked: Instant,
    /// When losses were last told, also by the wall clock.
    reported: (Instant, u64),
}

impl Session {
    /// A session for programs with these modules, by number; `None` for what is no file.
    ///
    /// # Errors
    /// There is no such process.
    pub(super) fn new(pid: Option<i32>, modules: Vec<Option<String>>) -> Result<Session, Failure> {
        let process = pid
            .map(|pid| match process::handle(pid) {
                Ok(handle) => Ok(Process { pid, handle }),
                Err(error) => Err(Failure::new(format!("process {pid}: {error}"))),
            })
            .transpose()?;
        let names = modules.into_iter().map(Option::unwrap_or_default).collect();
        let mut files = Files::new(names, pid);
        let mut found = files.installed();
        found.extend(files.mapped());
        let now = Instant::now();
        Ok(Session {
            programs: Vec::new(),
            files,
            found,
            process,
            modules: HashMap::new(),
            told: Told::default(),
            refused: HashSet::new(),
            waiting: Vec::new(),
            losses: HashMap::new(),
            settled: 0,
            looked: now,
            reported: (now, wall()),
        })
    }

    /// The files that were found for a program before it is attached.
    pub(super) fn found(&self, program: usize) -> impl Iterator<Item = &Found> {
        self.found.iter().filter(move |found| found.name == program)
    }

    /// Adds a program. Programs are numbered in the order in which they are added.
    pub(super) fn add(&mut self, program: Program) {
        self.programs.push(program);
    }

    fn pid(&self) -> Option<i32> {
        self.process.as_ref().map(|process| process.pid)
    }

    /// Attaches the programs, and reads records until the end.
    ///
    /// # Errors
    /// Probes can be placed nowhere.
    pub(super) fn run(&mut self, observer: &mut dyn Observer, control: &Control) -> Result<(), Failure> {
        self.begin(observer)?;
        observer.begun();
        control.placed.store(true, Ordering::Relaxed);
        while !control.stop.load(Ordering::Relaxed) {
            let came = self.read(observer);
            if self.looked.elapsed() >= LOOK {
                self.looked = Instant::now();
                self.look(observer);
                observer.idle();
            } else if observer.waits() {
                // Something is due now.
                observer.idle();
            }
            self.tell_losses(observer, false);
            let is_over = !self.programs.is_empty() && self.programs.iter().all(Program::is_finished);
            if is_over || self.wait(if came { BUSY } else { IDLE }) {
                break;
            }
        }
        Ok(())
    }

    /// Waits. Returns whether the process has ended.
    fn wait(&self, time: Duration) -> bool {
        let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::ZERO);
        let handle = self.process.as_ref().map(|process| process.handle.as_fd());
        let mut wanted: Vec<PollFd<'_>> =
            handle.into_iter().map(|handle| PollFd::new(handle, PollFlags::POLLIN)).collect();
        // A signal ends the wait early.
        matches!(poll(&mut wanted, timeout), Ok(1..))
    }

    /// Attaches the programs to what there is.
    fn begin(&mut self, observer: &mut dyn Observer) -> Result<(), Failure> {
        let mut refused = Vec::new();
        for found in std::mem::take(&mut self.found) {
            refused.extend(self.attach(&found, observer));
        }
        for number in 0..self.programs.len() {
            match self.programs[number].versions.main().kind {
                ModuleKind::User => {}
                ModuleKind::Kernel => {
                    let program = &mut self.programs[number];
                    let needed = tracepoints::needs_symbols(program.versions.main());
                    let kernel = needed.then(|| Kernel::read(None)).transpose().map_err(Failure::new)?;
                    let mut outcome =
                        kernel.as_ref().map_or_else(Outcome::default, |it| program.attach_kernel(it));
                    outcome.add(program.attach_tracepoints(kernel.as_ref()));
                    refused.extend(self.tell(number, outcome, "the kernel", observer));
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
            let refused = refused.into_iter().map(|(_, refused)| refused).collect();
            return Err(Failure::new(Error::Refused(refused)));
        }
        for number in 0..self.programs.len() {
            let object = self.programs[number].versions.main();
            let module = object.module.clone();
            match object.kind {
                ModuleKind::User if !self.files.has(number) => {
                    observer.note(&Note::Waiting { pid: self.pid(), module });
                }
                ModuleKind::KernelModule if self.modules.get(&number).is_some_and(Option::is_none) => {
                    let remark = "the kernel has not loaded this module; waiting for it".to_owned();
                    observer.note(&Note::Remark { point: module, remark });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Attaches a program to a file. Returns what was refused.
    fn attach(&mut self, found: &Found, observer: &mut dyn Observer) -> Vec<(usize, Refused)> {
        let outcome = self.programs[found.name].attach_file(found);
        self.tell(found.name, outcome, &found.path.display().to_string(), observer)
    }

    /// Tells what has come of attaching. Returns what was refused.
    fn tell(
        &mut self,
        program: usize,
        outcome: Outcome,
        module: &str,
        observer: &mut dyn Observer,
    ) -> Vec<(usize, Refused)> {
        outcome.notes.iter().for_each(|note| observer.note(note));
        if outcome.attached > 0 {
            let (pid, module) = (self.pid(), module.into());
            observer.note(&Note::Armed { pid, module, probes: outcome.attached });
        }
        outcome.refused.into_iter().map(|refused| (program, refused)).collect()
    }

    /// Looks for files that were mapped, and for modules that were loaded, since the last look.
    fn look(&mut self, observer: &mut dyn Observer) {
        let mut found = self.files.appeared();
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

    /// Attaches to a kernel module that was loaded, or forgets one that was unloaded.
    fn look_for_module(&mut self, program: usize, observer: &mut dyn Observer) -> Vec<(usize, Refused)> {
        let loaded = in_kernel::loaded_module(self.programs[program].versions.main());
        if self.modules.get(&program) == Some(&loaded) {
            return Vec::new();
        }
        self.programs[program].leave();
        self.modules.insert(program, loaded.clone());
        let Some(loaded) = loaded else { return Vec::new() };
        match Kernel::read(Some(&loaded)) {
            Ok(kernel) => {
                let outcome = self.programs[program].attach_kernel(&kernel);
                self.tell(program, outcome, &loaded.name, observer)
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

    /// Tells of records that were lost since it was last told, if that was long enough ago.
    fn tell_losses(&mut self, observer: &mut dyn Observer, now: bool) {
        if !now && self.reported.0.elapsed() < LOSSES {
            return;
        }
        let (_, since) = std::mem::replace(&mut self.reported, (Instant::now(), wall()));
        if let Some((from, to, count)) = self.told.untaken.take() {
            observer.lost(&Lost { pid: None, from, to, count });
        }
        for (number, program) in self.programs.iter().enumerate() {
            let counted = program.maps.counts();
            for probe in 0..program.probes.len() {
                let (all, untaken) = report::dropped(program, &counted, probe);
                let told = self.losses.entry((number, probe)).or_default();
                let more = all.saturating_sub(told.0);
                let in_rings = more.saturating_sub(untaken.saturating_sub(told.1));
                *told = (all, untaken);
                if in_rings > 0 {
                    observer.lost(&Lost { pid: None, from: since, to: self.reported.1, count: in_rings });
                }
                if more > 0 {
                    observer.dropped(number, probe, more);
                }
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
        self.tell_losses(observer, true);
        report::report(&self.programs, globals())
    }
}

/// Nanoseconds since 1970.
fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}
