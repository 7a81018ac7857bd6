//! Programs of the session that the kernel runs.
//!
//! In: a program to insert. Out: the same as others show it, with the counts that it has said last.
//! Each has a thread of its own (`kernel_engine::InKernel`). The session's main thread, which
//! traces, never waits for one: an answer that depends on a thread is given when the thread has
//! said what is needed (`said`).

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use engine::{Inserted, Lost, Observer, Options, Report, Versions};
use kernel::Globals;

use super::observer::{Opened, Shared};
use super::protocol::{Insert, Mode, Reply, Request};
use crate::Failure;
use crate::hooks::WithHooks;
use crate::kernel_engine::{self, InKernel, Said, ToInsert};

/// Time between two reports of records that no target took.
const LOSSES: Duration = Duration::from_secs(1);

/// What the session's main thread gets.
pub(super) enum Event {
    /// A request, and the channel for its answer.
    Call(Request, Sender<Reply>),
    /// What the thread of a program says, with the program's number.
    Said(usize, Said),
}

/// The programs that the kernel runs, by ascending number.
pub(super) struct KernelPrograms {
    pub(super) programs: Vec<KernelProgram>,
    /// Where their threads say what they say.
    events: Sender<Event>,
    /// Their global variables, once there is a program, and how many are used.
    globals: Option<Arc<Globals>>,
    gvars: usize,
    /// Clients whose answers depend on threads.
    pub(super) waiting: Vec<Waiting>,
    /// How many clients have asked for counts.
    pub(super) asked: u64,
    pub(super) observer: WithHooks<Shared>,
    /// When it was last told which records no target took.
    told: Instant,
}

/// A program that the kernel runs.
pub(super) struct KernelProgram {
    pub(super) number: usize,
    pub(super) program: Versions,
    options: Options,
    is_for_all: bool,
    /// `None` when it was asked to end.
    pub(super) thread: Option<InKernel>,
    /// Its counts when it last said them.
    pub(super) report: Report,
    /// For each probe, records that no target took, and how many of them were told.
    pub(super) untaken: Vec<(u64, u64)>,
    /// The wall-clock times of the first and the last that was not told.
    pub(super) untaken_times: Option<(u64, u64)>,
    pub(super) stage: Stage,
}

/// How far a program is.
pub(super) enum Stage {
    Starting(Box<Starting>),
    Inserted,
    /// It was asked to end, and is no more shown.
    Ending,
    /// Everything is detached, and the session is ending, too.
    Ended,
}

/// What is needed when a program is attached, or refused.
pub(super) struct Starting {
    pub(super) answer: Sender<Reply>,
    /// The targets that were opened for it.
    pub(super) opened: Vec<Opened>,
    /// Warnings so far.
    pub(super) warnings: Vec<String>,
    /// Programs of the same module, and what is to become of them.
    pub(super) old: Vec<usize>,
    pub(super) mode: Mode,
    /// What its thread has told.
    pub(super) lines: Vec<String>,
    pub(super) refused: Option<Failure>,
    /// What the tracer is to run if the kernel refuses it.
    pub(super) or_tracer: Option<Insert>,
}

impl Starting {
    pub(super) fn new(answer: Sender<Reply>, opened: Vec<Opened>, old: Vec<usize>, mode: Mode) -> Starting {
        Starting {
            answer,
            opened,
            warnings: Vec::new(),
            old,
            mode,
            lines: Vec::new(),
            refused: None,
            or_tracer: None,
        }
    }
}

/// A client that waits for programs.
pub(super) struct Waiting {
    pub(super) answer: Sender<Reply>,
    pub(super) on: HashSet<usize>,
    /// Its number, if it waits for counts; `None`: it waits for ends.
    pub(super) who: Option<u64>,
    pub(super) then: Then,
}

/// What a client gets that has waited.
pub(super) enum Then {
    Reply(Reply),
    /// The answer to this request, which is one that can be given at once.
    Answer(Request),
}

/// A program that is about to be inserted.
pub(super) struct New {
    pub(super) number: usize,
    pub(super) program: Versions,
    pub(super) options: Options,
    pub(super) to_insert: ToInsert,
    pub(super) starting: Starting,
}

impl KernelPrograms {
    pub(super) fn new(events: Sender<Event>, observer: WithHooks<Shared>) -> KernelPrograms {
        KernelPrograms {
            programs: Vec::new(),
            events,
            globals: None,
            gvars: 0,
            waiting: Vec::new(),
            asked: 0,
            observer,
            told: Instant::now(),
        }
    }

    /// The global variables of all these programs.
    ///
    /// # Errors
    /// The kernel gives no memory for them.
    pub(super) fn globals(&mut self) -> Result<Arc<Globals>, Failure> {
        match &self.globals {
            Some(globals) => Ok(Arc::clone(globals)),
            None => Ok(Arc::clone(self.globals.insert(kernel_engine::globals()?))),
        }
    }

    /// The values of those that programs have used.
    pub(super) fn global_values(&self) -> Vec<u64> {
        let values = |globals: &Arc<Globals>| kernel_engine::values(globals, self.gvars);
        self.globals.as_ref().map_or_else(Vec::new, values)
    }

    /// Sets global variables to zero.
    pub(super) fn reset_globals(&self, range: &std::ops::RangeInclusive<usize>) {
        let all = self.globals.iter().flat_map(|globals| globals.values()).enumerate();
        let wanted = all.filter(|(index, _)| range.contains(index));
        wanted.for_each(|(_, value)| value.store(0, std::sync::atomic::Ordering::Relaxed));
    }

    /// Whether a program is one of these.
    pub(super) fn has(&self, number: usize) -> bool {
        self.programs.iter().any(|program| program.number == number)
    }

    /// Whether a program of a module is being attached.
    pub(super) fn is_starting(&self, module: &str) -> bool {
        let mut starting = self.programs.iter().filter(|program| matches!(program.stage, Stage::Starting(_)));
        starting.any(|program| program.program.main().module == module)
    }

    /// Those that are inserted.
    pub(super) fn inserted(&self) -> impl Iterator<Item = Inserted<'_>> {
        let inserted = self.programs.iter().filter(|program| program.is_shown());
        inserted.map(KernelProgram::shown)
    }

    /// One of them, also if it has ended.
    pub(super) fn program(&self, number: usize) -> Option<Inserted<'_>> {
        self.programs.iter().find(|program| program.number == number).map(KernelProgram::shown)
    }

    /// What a program is attached to, in words.
    pub(super) fn attached(&self, number: usize) -> Option<String> {
        self.programs.iter().find(|program| program.number == number).map(KernelProgram::attached)
    }

    /// Starts the thread of a program.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn start(&mut self, new: New) -> Result<(), Failure> {
        let New { number, program, options, to_insert, starting } = new;
        self.gvars = self.gvars.max(program.gvars().into());
        let (is_for_all, events) = (to_insert.pids.is_empty(), self.events.clone());
        let say = move |said| {
            // Fails if the session has ended.
            let _ = events.send(Event::Said(number, said));
        };
        let thread = InKernel::start(to_insert, say)?;
        self.programs.push(KernelProgram {
            number,
            untaken: vec![(0, 0); program.main().probes.len()],
            program,
            options,
            is_for_all,
            thread: Some(thread),
            report: Report::default(),
            untaken_times: None,
            stage: Stage::Starting(Box::new(starting)),
        });
        Ok(())
    }

    /// Asks programs to end.
    pub(super) fn end(&mut self, numbers: &HashSet<usize>) {
        for program in self.programs.iter_mut().filter(|program| numbers.contains(&program.number)) {
            // Its thread sees that nobody asks any more.
            program.thread = None;
            if matches!(program.stage, Stage::Inserted) {
                program.stage = Stage::Ending;
            }
        }
    }

    /// Tells threads whether there is room for records, and targets which records none of them
    /// took.
    pub(super) fn turn(&mut self) {
        if self.programs.is_empty() {
            return;
        }
        let is_ready = self.observer.is_ready();
        self.programs.iter().filter_map(|program| program.thread.as_ref()).for_each(|it| it.open(is_ready));
        if self.told.elapsed() >= LOSSES {
            self.told = Instant::now();
            let KernelPrograms { programs, observer, .. } = self;
            programs.iter_mut().for_each(|program| program.tell_untaken(observer));
        }
    }

    /// The numbers of those that are inserted, for which it is true.
    pub(super) fn numbers(&self, is_wanted: impl Fn(&KernelProgram) -> bool) -> HashSet<usize> {
        let wanted = self.programs.iter().filter(|program| program.is_shown() && is_wanted(program));
        wanted.map(|program| program.number).collect()
    }
}

impl KernelProgram {
    fn is_shown(&self) -> bool {
        matches!(self.stage, Stage::Inserted | Stage::Ended)
    }

    /// As reports show it.
    fn shown(&self) -> Inserted<'_> {
        let probes = self.report.probes.iter().zip(&self.untaken).map(|(probe, (untaken, _))| {
            let mut counts = probe.counts;
            counts.logged = counts.logged.saturating_sub(*untaken);
            counts.dropped = counts.dropped.saturating_add(*untaken);
            (probe.address, probe.state, counts)
        });
        Inserted {
            number: self.number,
            object: self.program.main(),
            versions: &self.program,
            options: self.options.clone(),
            probes: probes.collect(),
            places: self.report.probes.iter().map(|probe| probe.places.clone()).collect(),
            is_for_all: self.is_for_all,
            locals: self.report.locals.clone(),
            users: Vec::new(),
        }
    }

    /// What it is attached to: how many sites, by kind.
    fn attached(&self) -> String {
        let mut kinds = std::collections::BTreeMap::new();
        for (kind, count) in self.report.probes.iter().flat_map(|probe| &probe.sites.kernel) {
            *kinds.entry(*kind).or_insert(0) += count;
        }
        let kinds: Vec<String> = kinds.into_iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        if kinds.is_empty() { "nowhere yet".to_owned() } else { kinds.join(", ") }
    }

    /// Tells which records no target took since this was last told.
    pub(super) fn tell_untaken(&mut self, observer: &mut impl Observer) {
        let Some((from, to)) = self.untaken_times.take() else { return };
        let untold: Vec<u64> = self.untaken.iter().map(|(all, told)| all - told).collect();
        observer.lost(&Lost { pid: None, from, to, count: untold.iter().sum() });
        for (probe, count) in untold.into_iter().enumerate().filter(|(_, count)| *count > 0) {
            observer.dropped(self.number, probe, count);
            self.untaken[probe].1 = self.untaken[probe].0;
        }
    }
}
