//! Programs that come and go while processes are followed.
//!
//! A program that is inserted is placed in every followed process that it is for: one thread of each is stopped for
//! a moment. A program that is removed is taken out at once; threads that are in a slot just then run on, so the slots
//! stay until the process is let go. The variables are the tracer's, so they are read and reset without any process
//! noticing.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rpn::Object;

use crate::error::Error;
use crate::leave::Leaving;
use crate::places::PlaceReport;
use crate::program::{Counts, Options, Program, State};
use crate::report::OfUser;
use crate::site::Use;
use crate::tracer::{Control, Tracer};
use crate::tracked::Tracked;
use crate::versions::Versions;

/// Which variables are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variables {
    /// The local variables of a program, by its number.
    Local(usize),
    /// The global variables.
    Global,
}

/// A program that is inserted, and what has become of it.
#[derive(Debug)]
pub struct Inserted<'a> {
    /// Its number.
    pub number: usize,
    /// The program: the version that reports show.
    pub object: &'a Object,
    /// All its versions.
    pub versions: &'a Versions,
    /// How it is used.
    pub options: Options,
    /// For each of its probes, in order: where it was placed first, its state, its counts.
    pub probes: Vec<(Option<u64>, State, Counts)>,
    /// For each of its probes that has points of functions: where it was placed, and the hits there.
    pub places: Vec<Option<Vec<PlaceReport>>>,
    /// Whether it is for all processes that are followed, and not for some only.
    pub is_for_all: bool,
    /// The values of its local variables.
    pub locals: Vec<u64>,
    /// What each of several users' processes has counted; empty where all are of one.
    pub users: Vec<OfUser>,
}

impl Tracer<'_> {
    /// Inserts a program, each version in the processes of its machine: its number. `only` names the processes it is for, which include their later descendants;
    /// `None` means all that are followed. Processes are not followed by this ([`Tracer::attach`]).
    pub fn insert(&mut self, program: Versions, options: Options, only: Option<Vec<i32>>) -> usize {
        self.sharing.globals.grow(program.gvars());
        let only = only.map(|only| only.into_iter().collect());
        let inserted = self.programs.push(Program::new(program, options, only, self.sharing.cells.as_mut()));
        let spaces: Vec<u32> = self.spaces.keys().copied().collect();
        for number in spaces {
            if let Some(space) = self.spaces.get_mut(&number) {
                space.stale = true;
            }
            self.session.waiting = true;
            self.ask_one(number);
        }
        inserted
    }

    /// Whether a program could be placed in a process that is followed already; what could not is in the error.
    /// Nothing is changed.
    ///
    /// # Errors
    /// The process is gone, or probes cannot be placed.
    pub fn check(&mut self, program: &Versions, options: Options, pid: i32) -> Result<(), Error> {
        let number = self.programs.push(Program::new(program.clone(), options, Some([pid].into()), None));
        let refused = self.refusals_of(number, pid);
        self.programs.pop();
        let refused = refused?;
        if refused.is_empty() { Ok(()) } else { Err(Error::Refused(refused)) }
    }

    /// Takes a program out of all processes. Its number stays its own, and its counts until it is forgotten ([`Tracer::forget`]).
    pub fn remove(&mut self, number: usize) {
        let Some(program) = self.programs.get_mut(number) else { return };
        program.inserted = false;
        let probes = 0..program.probes.len();
        let uses: HashSet<Use> = probes.map(|probe| Use::Probe { program: number, probe }).collect();
        self.retire(&uses, None);
        for space in self.spaces.values_mut() {
            space.placed.retain(|(placed, _)| *placed != number);
        }
    }

    /// Takes some probes of a program out of all processes, as their handlers' `remove` does.
    pub fn remove_probes(&mut self, number: usize, probes: &[usize]) {
        let Some(program) = self.programs.get_mut(number) else { return };
        let mut uses = HashSet::with_capacity(probes.len());
        for &probe in probes {
            if let Some(state) = program.probes.get_mut(probe) {
                state.state = State::Removed;
                uses.insert(Use::Probe { program: number, probe });
            }
        }
        self.retire(&uses, None);
    }

    /// Goes on until the programs are placed in all processes that are followed, or the time is over. Says whether they are.
    pub fn settle(&mut self, control: &Control, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        loop {
            if self.spaces.values().all(|space| !space.stale) {
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

    /// Goes on until all that handlers have logged so far is written or dropped, or nothing was written for that time.
    pub fn complete(&mut self, control: &Control, patience: Duration) {
        let mut mark = self.mark();
        let (mut end, mut read) = (Instant::now() + patience, self.reader.drain.read());
        loop {
            self.look_at_slots();
            self.drain(false);
            let waiting = self.threads.values().any(Tracked::has_records);
            if self.reader.drain.read() != read {
                (end, read) = (Instant::now() + patience, self.reader.drain.read());
            }
            if (!waiting && self.is_past(&mut mark)) || Instant::now() >= end {
                self.tell_losses();
                return;
            }
            if !self.step(control, false) && !self.reader.drain.is_busy() {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    /// Whether a program is inserted that is for all processes that are followed.
    pub fn serves_all(&self) -> bool {
        self.programs.values().any(|program| program.inserted && program.only.is_none())
    }

    /// The programs that are inserted, the latest first.
    pub fn inserted(&self) -> Vec<Inserted<'_>> {
        let programs = self.programs.iter().rev().filter(|(_, program)| program.inserted);
        programs.filter_map(|(number, _)| self.program(number)).collect()
    }

    /// A program by its number, also one that was removed and is not forgotten.
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
            users: self.of_users(&[number]),
        })
    }

    /// The values of variables, with their indices, as far as there are any in the range.
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

    /// How often a module was armed in a process as it had been in another one, without its being planned anew.
    pub fn copied(&self) -> u64 {
        self.cache.armings.copied
    }

    /// The processes that are followed.
    pub fn followed(&self) -> Vec<i32> {
        let mut processes: Vec<i32> = self.threads.values().map(|thread| thread.identity.pid).collect();
        processes.sort_unstable();
        processes.dedup();
        processes
    }

    /// Whether any process is followed.
    pub fn follows_any(&self) -> bool {
        !self.threads.is_empty()
    }

    /// Makes the tracer one that serves requests: it never ends by itself, wants to be interrupted regularly, and
    /// what cannot be probed is told and not an end.
    pub fn serve(&mut self) {
        self.session.serving = true;
    }

    /// Answers one event, or returns after an interruption. With nothing to follow it returns at once.
    pub fn turn(&mut self, control: &Control) {
        if self.threads.is_empty() {
            self.observer.idle();
            control.wants_ticks.store(false, Ordering::Relaxed);
            control.wants_rare_ticks.store(false, Ordering::Relaxed);
            control.wants_quick_ticks.store(false, Ordering::Relaxed);
        } else {
            self.step(control, true);
        }
    }

    /// Lets all processes go, with every byte as before. The programs stay inserted; the tracer can go on.
    pub fn let_go(&mut self, control: &Control) {
        self.leave_all(control);
        self.tell_losses();
        self.departure.who = Leaving::Nobody;
    }

    /// Lets the processes go that have no probe, but for those that a program was inserted for by number: its module may come
    /// yet. Others stay as they are. For use after [`Tracer::remove`].
    pub fn let_go_unprobed(&mut self, control: &Control) {
        self.leave_unprobed(control);
    }
}
