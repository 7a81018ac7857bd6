//! A program as it is used: its variables, and what has become of each of its probepoints.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use process::Image;
use rpn::{Location, Object};
use trace::Items;

use crate::places::{PlaceReport, Places};
use crate::versions::Versions;

/// How a program is used.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether opcodes and instruction boundaries are verified.
    pub verify_opcodes: bool,
    /// The header items of records.
    pub items: Items,
    /// The file whose symbols are meant, if that is not the module's own: a debug file, or the module before it was
    /// stripped. It has to be of the module's build.
    pub symbols: Option<Arc<Image>>,
}

/// A compiled program with its variables and counters. All processes share them.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) versions: Versions,
    pub(crate) options: Options,
    pub(crate) locals: Box<[AtomicU64]>,
    pub(crate) probes: Vec<Probe>,
    /// The sites of the probes that have many. They are noted while the program is only looked at.
    pub(crate) places: RefCell<Places>,
    /// The processes it is for, with their descendants; `None`: all that are followed.
    pub(crate) only: Option<HashSet<i32>>,
    /// Whether it is inserted; a program that was removed keeps its number and its counts.
    pub(crate) inserted: bool,
}

/// The values of variables now.
pub(crate) fn values_of(variables: &[AtomicU64]) -> Vec<u64> {
    variables.iter().map(|variable| variable.load(Ordering::Relaxed)).collect()
}

/// The global variables: one array for all programs. It grows to the largest number that a program has asked for
/// and keeps its values as long as the tracer lives.
#[derive(Debug, Default)]
pub(crate) struct Globals {
    values: Vec<AtomicU64>,
}

impl Globals {
    /// Makes sure that there are this many.
    pub(crate) fn grow(&mut self, count: u16) {
        let count = usize::from(count).max(self.values.len());
        self.values.resize_with(count, AtomicU64::default);
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[AtomicU64] {
        &self.values
    }

    /// Those that a program can use.
    pub(crate) fn of(&self, program: &Object) -> &[AtomicU64] {
        &self.values[..usize::from(program.gvars).min(self.values.len())]
    }
}

/// One probepoint of a program, in all processes together.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    pub(crate) state: State,
    pub(crate) counts: Counts,
    /// Where it was placed first.
    pub(crate) address: Option<u64>,
    /// The place in the module's file of where it was placed first.
    pub(crate) offset: Option<u64>,
}

/// What has become of a probepoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Its module is not mapped yet.
    #[default]
    Waiting,
    /// It fires.
    Armed,
    /// It has been hit `maxhits` times.
    Disabled,
    /// Its handler has removed it.
    Removed,
    /// It could not be placed.
    Refused,
}

impl State {
    /// The state's name, as reports show it.
    pub fn name(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Armed => "armed",
            State::Disabled => "disabled",
            State::Removed => "removed",
            State::Refused => "refused",
        }
    }

    /// Whether the probepoint will never fire again.
    pub fn is_over(self) -> bool {
        matches!(self, State::Disabled | State::Removed)
    }
}

/// What has been counted at a probepoint. `hits = runs + ignored + missed`; of the runs that ended with a
/// record, `logged` records were written and `dropped` were not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times the probepoint was reached.
    pub hits: u64,
    /// Times its handler ran.
    pub runs: u64,
    /// Hits passed over by `ignore`.
    pub ignored: u64,
    /// Hits passed over for want of something else.
    pub missed: u64,
    /// Records written.
    pub logged: u64,
    /// Records dropped: the probed instruction faulted, or the record could not be written.
    pub dropped: u64,
}

impl Program {
    pub(crate) fn new(versions: Versions, options: Options, only: Option<HashSet<i32>>) -> Program {
        let object = versions.main();
        Program {
            locals: (0..object.vars).map(|_| AtomicU64::new(0)).collect(),
            probes: object.probes.iter().map(|_| Probe::default()).collect(),
            places: RefCell::default(),
            versions,
            options,
            only,
            inserted: true,
        }
    }

    /// The name of its module.
    pub(crate) fn module(&self) -> &str {
        &self.versions.main().module
    }

    /// For each probe that has points of functions, where it was placed, and the hits there.
    pub(crate) fn places(&self) -> Vec<Option<Vec<PlaceReport>>> {
        let places = self.places.borrow();
        let probes = self.versions.main().probes.iter().enumerate();
        let is_points = |probe: &rpn::Probe| matches!(probe.location, Location::Points { .. });
        probes.map(|(number, probe)| is_points(probe).then(|| places.report(number))).collect()
    }

    /// Whether it is to be placed in a process.
    pub(crate) fn is_for(&self, pid: i32) -> bool {
        self.inserted && self.only.as_ref().is_none_or(|only| only.contains(&pid))
    }

    /// The values of a set of variables now.
    pub(crate) fn values(&self, variables: &[AtomicU64]) -> Vec<u64> {
        let word = self.versions.widest_word();
        variables.iter().map(|variable| word.truncate(variable.load(Ordering::Relaxed))).collect()
    }
}
