//! A program as it is used: its variables, and what has become of each of its probepoints.

use std::sync::atomic::{AtomicU64, Ordering};

use rpn::Object;

/// A compiled program with its variables and counters. All processes share them.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) object: Object,
    pub(crate) locals: Box<[AtomicU64]>,
    pub(crate) globals: Box<[AtomicU64]>,
    pub(crate) probes: Vec<Probe>,
}

/// One probepoint of a program, in all processes together.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    pub(crate) state: State,
    pub(crate) counts: Counts,
    /// Where it was placed first.
    pub(crate) address: Option<u64>,
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
    pub(crate) fn is_over(self) -> bool {
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
    pub(crate) fn new(object: Object) -> Program {
        let variables = |count: u16| (0..count).map(|_| AtomicU64::new(0)).collect();
        Program {
            locals: variables(object.vars),
            globals: variables(object.gvars),
            probes: object.probes.iter().map(|_| Probe::default()).collect(),
            object,
        }
    }

    /// The values of a set of variables now.
    pub(crate) fn values(&self, variables: &[AtomicU64]) -> Vec<u64> {
        let word = self.object.word;
        variables.iter().map(|variable| word.truncate(variable.load(Ordering::Relaxed))).collect()
    }
}
