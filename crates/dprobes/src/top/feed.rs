//! Sends counts from the tracer to the screen: a line of JSON per snapshot, over a pipe.
//!
//! The screen is in another process, the front. The tracer never waits for it: data that the pipe
//! does not take is kept, and no newer counts are sent until it is gone.

use std::io::{self, ErrorKind, PipeWriter, Write};
use std::time::{Duration, Instant};

use engine::{Lost, Note, Observer, Placed, ProbeReport, Report};
use nix::fcntl::FcntlArg::{F_GETFL, F_SETFL};
use nix::fcntl::{OFlag, fcntl};
use serde::{Deserialize, Serialize};
use trace::Record;

use crate::output::{Output, text};

/// Most functions of a probe shown individually.
const MAX_FUNCTIONS: usize = 500;
/// Most messages sent with a snapshot; the latest are kept.
const MAX_NOTES: usize = 8;

/// The counts at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Snapshot {
    /// Microseconds since probing began.
    pub(super) time: u64,
    /// The probes, in the order of the programs.
    pub(super) rows: Vec<Row>,
    /// Messages since the last snapshot.
    pub(super) notes: Vec<String>,
}

/// The counts of a probe, or of one function of a probe with several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) hits: u64,
    /// `None` for a function, for which only hits are counted.
    pub(super) counts: Option<Others>,
    /// Whether the next rows are of this probe's functions, and this one their sum.
    pub(super) is_sum: bool,
    pub(super) engine: String,
    pub(super) tactic: String,
    pub(super) state: String,
}

/// Counts other than hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Others {
    pub(super) logged: u64,
    pub(super) missed: u64,
    pub(super) dropped: u64,
}

/// The rows of a report: one per probe, and for a probe in several functions one per function with
/// hits.
pub(super) fn rows(report: &Report) -> Vec<Row> {
    report.probes.iter().flat_map(rows_of).collect()
}

fn rows_of(probe: &ProbeReport) -> Vec<Row> {
    let counts = &probe.counts;
    let row = |name: String, hits: u64, others: Option<Others>| Row {
        name,
        hits,
        counts: others,
        is_sum: false,
        engine: probe.engine.to_owned(),
        tactic: probe.tactic.unwrap_or_default().to_owned(),
        state: probe.state.name().to_owned(),
    };
    let others = Others { logged: counts.logged, missed: counts.missed, dropped: counts.dropped };
    let whole = row(format!("{}:{}", probe.module, probe.point), counts.hits, Some(others));
    match probe.places.as_deref() {
        Some(places) if places.len() > 1 => {
            let hit = places.iter().filter(|place| place.hits > 0).take(MAX_FUNCTIONS);
            let functions =
                hit.map(|place| row(format!("{}:{}", place.module, place.function), place.hits, None));
            std::iter::once(Row { is_sum: true, ..whole }).chain(functions).collect()
        }
        _ => vec![whole],
    }
}

/// The observer of `top`: sends counts to the screen, and passes everything else to the output.
pub(super) struct Feed {
    /// Where records go, if any are wanted.
    pub(super) output: Option<Output>,
    pipe: PipeWriter,
    /// Data that the pipe has not taken yet.
    pending: Vec<u8>,
    interval: Duration,
    began: Instant,
    last: Option<Instant>,
    notes: Vec<String>,
}

impl Feed {
    /// A feed that sends counts at this interval. Makes the pipe non-blocking.
    pub(super) fn new(output: Option<Output>, pipe: PipeWriter, interval: Duration) -> Feed {
        if let Ok(flags) = fcntl(&pipe, F_GETFL) {
            let _ = fcntl(&pipe, F_SETFL(OFlag::from_bits_retain(flags) | OFlag::O_NONBLOCK));
        }
        Feed {
            output,
            pipe,
            pending: Vec::new(),
            interval,
            began: Instant::now(),
            last: None,
            notes: Vec::new(),
        }
    }

    /// Writes as much pending data as the pipe takes. If the screen is gone, drops it and goes on.
    fn push(&mut self) {
        while !self.pending.is_empty() {
            match self.pipe.write(&self.pending) {
                Ok(0) => return,
                Ok(written) => drop(self.pending.drain(..written)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.pending.clear(),
            }
        }
    }
}

impl Observer for Feed {
    fn record(&mut self, program: usize, record: &Record) -> io::Result<()> {
        self.output.as_mut().map_or(Ok(()), |output| output.record(program, record))
    }

    fn mapped(&mut self, pid: i32, modules: &[process::Module]) {
        self.output.iter_mut().for_each(|output| output.mapped(pid, modules));
    }

    fn forked(&mut self, parent: i32, child: i32) {
        self.output.iter_mut().for_each(|output| output.forked(parent, child));
    }

    fn note(&mut self, note: &Note) {
        if let Some(output) = &mut self.output {
            output.note(note);
        }
        if self.notes.len() >= MAX_NOTES {
            self.notes.remove(0);
        }
        self.notes.push(text(note));
    }

    fn begun(&mut self) {
        if let Some(output) = &mut self.output {
            output.begun();
        }
    }

    fn placed(&mut self, placed: &Placed<'_>) {
        if let Some(output) = &mut self.output {
            output.placed(placed);
        }
    }

    fn wants_placed(&self) -> bool {
        self.output.as_ref().is_some_and(Observer::wants_placed)
    }

    fn lost(&mut self, lost: &Lost) {
        if let Some(output) = &mut self.output {
            output.lost(lost);
        }
    }

    fn dropped(&mut self, program: usize, probe: usize, count: u64) {
        if let Some(output) = &mut self.output {
            output.dropped(program, probe, count);
        }
    }

    fn idle(&mut self) {
        self.push();
        if let Some(output) = &mut self.output {
            output.idle();
        }
    }

    fn is_ready(&mut self) -> bool {
        self.output.as_mut().is_none_or(Output::is_ready)
    }

    fn waits(&self) -> bool {
        // So that the time is checked even when nothing else happens.
        true
    }

    fn wants_counts(&self) -> bool {
        self.pending.is_empty() && self.last.is_none_or(|last| last.elapsed() >= self.interval)
    }

    fn counted(&mut self, report: &Report) {
        self.last = Some(Instant::now());
        let snapshot = Snapshot {
            time: u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX),
            rows: rows(report),
            notes: std::mem::take(&mut self.notes),
        };
        if let Ok(text) = serde_json::to_vec(&snapshot) {
            self.pending = text;
            self.pending.push(b'\n');
            self.push();
        }
    }
}
