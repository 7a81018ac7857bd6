//! Inserts and removes programs while processes are followed.
//!
//! In: a compiled program. Out: its number, and address spaces that are stale: the next stop of a
//! thread looks for modules.
//!
//! An inserted program is placed in every followed process that it is for: one thread of each is
//! stopped briefly. A removed program is disarmed at once; threads in a slot continue, so slots
//! stay until the process is detached. The variables are in the tracer's memory, so reading and
//! resetting them does not disturb any process.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rpn::Object;

use crate::counts::{Counts, State};
use crate::detach::Leaving;
use crate::error::Error;
use crate::observer::Note;
use crate::program::{Options, Program};
use crate::reason::NotMapped;
use crate::report::OfUser;
use crate::site_hits::PlaceReport;
use crate::site_use::Use;
use crate::tables::{Tables, TablesPlan};
use crate::tracer::{Control, Tracer};
use crate::tracked::Tracked;
use crate::versions::Versions;

/// Selects variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variables {
    /// The local variables of a program, by its number.
    Local(usize),
    /// The global variables.
    Global,
}

/// An inserted program and its state.
#[derive(Debug)]
pub struct Inserted<'a> {
    /// Its number.
    pub number: usize,
    /// The version that reports show.
    pub object: &'a Object,
    /// All its versions.
    pub versions: &'a Versions,
    /// How it is used.
    pub options: Options,
    /// For each of its probes, in order: the first address where it was placed, its state, its
    /// counts.
    pub probes: Vec<(Option<u64>, State, Counts)>,
    /// For each of its probes with points of functions: where it was placed, and the hits there.
    pub places: Vec<Option<Vec<PlaceReport>>>,
    /// Whether it is for all followed processes.
    pub is_for_all: bool,
    /// The values of its local variables.
    pub locals: Vec<u64>,
    /// The counts of each user's processes; empty if all are of one domain.
    pub users: Vec<OfUser>,
}

impl Tracer<'_> {
    /// Inserts a program, each version in the processes of its machine. Returns its number. `only`
    /// names the processes it is for, including their later descendants; `None` means all followed
    /// processes. This does not attach to processes ([`Tracer::attach`]).
    pub fn insert(&mut self, program: Versions, options: Options, only: Option<Vec<i32>>) -> usize {
        self.sharing.globals.grow(program.gvars());
        let only = only.map(|only| only.into_iter().collect());
        let inserted = self.programs.push(Program::new(program, options, only, self.sharing.cells.as_mut()));
        let spaces: Vec<u32> = self.followed.spaces.keys().copied().collect();
        for number in spaces {
            if let Some(space) = self.followed.spaces.get_mut(&number) {
                space.modules.stale = true;
            }
            self.session.waiting = true;
            self.followed.ask_one(&mut self.messages, number);
        }
        inserted
    }

    /// A number for a program that others run: none of the tracer's will have it.
    pub fn reserve(&mut self) -> usize {
        self.programs.reserve()
    }

    /// Makes all processes followed from now on share variables and counters, regardless of their
    /// users.
    pub fn share_variables(&mut self) {
        self.sharing.everybody = true;
    }

    /// Makes the maps and constants of a script, all 0. Returns their number for the options of
    /// programs, and a view of them. From now on all processes share variables and maps.
    ///
    /// # Errors
    /// There is not enough memory to share.
    pub fn add_tables(&mut self, plan: TablesPlan) -> Result<(usize, Tables), NotMapped> {
        self.sharing.add_tables(plan)
    }

    /// Checks whether a program could be placed in a followed process. Nothing is changed.
    ///
    /// # Errors
    /// The process is gone, or probes cannot be placed.
    pub fn check(&mut self, program: &Versions, options: Options, pid: i32) -> Result<(), Error> {
        let number = self.programs.push(Program::new(program.clone(), options, Some([pid].into()), None));
        let refused = self.placer().refusals_of(number, pid);
        self.programs.pop();
        let refused = refused?;
        if refused.is_empty() { Ok(()) } else { Err(Error::Refused(refused)) }
    }

    /// Removes a program from all processes. Its number stays reserved, and its counts are kept
    /// until [`Tracer::forget`].
    pub fn remove(&mut self, number: usize) {
        let Some(program) = self.programs.get_mut(number) else { return };
        program.inserted = false;
        let probes = 0..program.probes.len();
        let uses: HashSet<Use> = probes.map(|probe| Use::Probe { program: number, probe }).collect();
        self.disarmer().retire(&uses, None);
        for space in self.followed.spaces.values_mut() {
            space.modules.placed.retain(|(placed, _)| *placed != number);
        }
    }

    /// Removes some probes of a program from all processes, as `remove` in their handlers does.
    pub fn remove_probes(&mut self, number: usize, probes: &[usize]) {
        let Some(program) = self.programs.get_mut(number) else { return };
        let mut uses = HashSet::with_capacity(probes.len());
        for &probe in probes {
            if let Some(state) = program.probes.get_mut(probe) {
                state.state = State::Removed;
                uses.insert(Use::Probe { program: number, probe });
            }
        }
        self.disarmer().retire(&uses, None);
    }

    /// The wait status of a process that was started by this tracer and has ended.
    pub fn status(&self, pid: i32) -> Option<i32> {
        self.session.started.get(&pid).copied().flatten()
    }

    /// Limits the part of the time that hits by traps may take, from 0 to 1. A probe that makes it
    /// more is taken out, and a message says so. Without a limit, which is the default, they may
    /// take any.
    pub fn set_max_overhead(&mut self, limit: Option<f64>) {
        self.budget.set_limit(limit);
    }

    /// Now and then accounts for the hits by traps, and takes out a probe if they cost too much.
    pub(crate) fn keep_budget(&mut self) {
        if !self.budget.is_due() {
            return;
        }
        let Some(over) = self.budget.look(self.programs.traps()) else { return };
        let (number, probe) = over.probe;
        let object = self.programs[number].versions.main();
        let name = object.probes.get(probe).map_or("?", |definition| &definition.point);
        // The point of a script's probe has the module already.
        let module = if name.contains(&object.module) { "" } else { &object.module };
        let colon = if module.is_empty() { "" } else { ":" };
        let text = format!("{module}{colon}{name} is taken out: {over} (--max-overhead)");
        self.remove_probes(number, &[probe]);
        self.messages.observer.note(&Note::Other(printable::text(&text).into_owned()));
    }

    /// Frees everything of a removed program as soon as possible. Its number is never used again.
    pub fn forget(&mut self, number: usize) {
        self.drainer().forget(number);
    }

    /// Handles events until the programs are placed in all followed processes, or time is up.
    /// Returns whether they are.
    pub fn settle(&mut self, control: &Control, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        loop {
            if self.followed.spaces.values().all(|space| !space.modules.stale) {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            if !self.step(control, false) {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    /// Handles events until everything logged so far was passed on or dropped, or nothing was read
    /// for the given time.
    pub fn complete(&mut self, control: &Control, patience: Duration) {
        let mut mark = self.drainer().mark();
        let (mut end, mut read) = (Instant::now() + patience, self.reader.drain.read());
        loop {
            self.slot_watcher().look_at_slots();
            self.drainer().drain(false);
            let waiting = self.followed.threads.values().any(Tracked::has_records);
            if self.reader.drain.read() != read {
                (end, read) = (Instant::now() + patience, self.reader.drain.read());
            }
            if (!waiting && self.drainer().is_past(&mut mark)) || Instant::now() >= end {
                self.messages.tell_losses(&self.programs);
                return;
            }
            if !self.step(control, false) && !self.reader.drain.is_busy() {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    /// Whether an inserted program is for all followed processes.
    pub fn serves_all(&self) -> bool {
        self.programs.values().any(|program| program.inserted && program.only.is_none())
    }

    /// The inserted programs, the latest first.
    pub fn inserted(&self) -> Vec<Inserted<'_>> {
        let programs = self.programs.iter().rev().filter(|(_, program)| program.inserted);
        programs.filter_map(|(number, _)| self.program(number)).collect()
    }

    /// A program by its number, unless it was forgotten; it may be removed.
    pub fn program(&self, number: usize) -> Option<Inserted<'_>> {
        let program = self.programs.get(number)?;
        Some(Inserted {
            number,
            object: program.versions.main(),
            versions: &program.versions,
            options: program.options.clone(),
            probes: program
                .probes
                .iter()
                .enumerate()
                .map(|(number, probe)| (probe.address, probe.state(), program.counts(number)))
                .collect(),
            places: program.places(),
            is_for_all: program.only.is_none(),
            locals: program.values(None),
            users: self.report_sources().of_users(&[number]),
        })
    }

    /// The variables whose index is in the range: indices and values.
    pub fn values(&self, which: Variables, range: RangeInclusive<usize>) -> Vec<(usize, u64)> {
        let values = match which {
            Variables::Local(number) => {
                self.programs.get(number).map_or_else(Vec::new, |program| program.values(None))
            }
            Variables::Global => self.sharing.globals.values(None),
        };
        let values = values.into_iter().enumerate();
        values.filter(|(index, _)| range.contains(index)).collect()
    }

    /// Sets variables to zero.
    pub fn reset(&self, which: Variables, range: RangeInclusive<usize>) {
        match which {
            Variables::Local(number) => {
                let Some(program) = self.programs.get(number) else { return };
                (0..program.locals.len())
                    .filter(|index| range.contains(index))
                    .for_each(|index| program.reset(index));
            }
            Variables::Global => {
                let all = 0..self.sharing.globals.values(None).len();
                all.filter(|index| range.contains(index)).for_each(|index| self.sharing.globals.reset(index));
            }
        }
    }

    /// How often an arming was copied from another process, without planning it anew.
    pub fn copied(&self) -> u64 {
        self.cache.armings.copied
    }

    /// The processes that are followed.
    pub fn followed(&self) -> Vec<i32> {
        let mut processes: Vec<i32> =
            self.followed.threads.values().map(|thread| thread.identity.pid).collect();
        processes.sort_unstable();
        processes.dedup();
        processes
    }

    /// Whether any process is followed.
    pub fn follows_any(&self) -> bool {
        !self.followed.threads.is_empty()
    }

    /// For a tracer that serves requests: it never ends by itself, wants regular interrupts, and
    /// reports what cannot be probed instead of ending.
    pub fn serve(&mut self) {
        self.session.serving = true;
    }

    /// Handles one event, or returns after an interrupt. Returns at once if nothing is followed.
    pub fn turn(&mut self, control: &Control) {
        if self.followed.threads.is_empty() {
            self.messages.observer.idle();
            control.wants_ticks.store(false, Ordering::Relaxed);
            control.wants_rare_ticks.store(false, Ordering::Relaxed);
            control.wants_quick_ticks.store(false, Ordering::Relaxed);
        } else {
            self.step(control, true);
        }
    }

    /// Detaches from all processes, with every byte restored. The programs stay inserted, and the
    /// tracer can be used further.
    pub fn let_go(&mut self, control: &Control) {
        self.detach_all(control);
        self.messages.tell_losses(&self.programs);
        self.followed.departure.who = Leaving::Nobody;
    }

    /// Detaches from the processes that have no probe, except those that a program names by process
    /// id: their modules may still be mapped. For use after [`Tracer::remove`].
    pub fn let_go_unprobed(&mut self, control: &Control) {
        self.leave_unprobed(control);
    }
}
