//! What the engine reports, and the trait that receives it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use process::Module;
use trace::{Record, Records};
use vm::{Machine, RunAccess};

use crate::reason::NotProbed;
use crate::report::Report;

/// Receives the engine's records, messages and counts as they arise.
pub trait Observer {
    /// Receives a record of a program, given by its number. The probed instruction has completed.
    ///
    /// # Errors
    /// The record could not be written; it is counted as dropped.
    fn record(&mut self, program: usize, record: &Record) -> io::Result<()>;

    /// Receives records of a program, of which those are refused that could not be written.
    fn records(&mut self, program: usize, records: &mut Records) {
        records.each(|record| self.record(program, record));
    }

    /// Receives a message.
    fn note(&mut self, note: &Note);

    /// A handler has executed `callk`: calls the plugin registered for it.
    fn called(&mut self, _call: &mut Callk<'_>) {}

    /// Called once the probes in all processes followed so far are armed or wait for their modules.
    fn begun(&mut self) {}

    /// Receives an instruction at which a probe was armed.
    fn placed(&mut self, _placed: &Placed<'_>) {}

    /// Whether [`Observer::placed`] is used: there may be hundreds of thousands of calls.
    fn wants_placed(&self) -> bool {
        true
    }

    /// Receives how many records of a probe were dropped since the last call: about every second if
    /// there are any, and at the end. Includes records that [`Observer::record`] refused.
    fn dropped(&mut self, _program: usize, _probe: usize, _count: u64) {}

    /// Receives the time range in which records were lost; [`Observer::dropped`] tells of which
    /// probes. Every drop counted there is reported here before the end, except that of a handler
    /// that was aborted midway.
    fn lost(&mut self, _lost: &Lost) {}

    /// Called when there is nothing to do: buffers may be written out.
    fn idle(&mut self) {}

    /// Whether records can be taken without waiting for a slow device or reader. While they cannot,
    /// records of jumps stay in their rings, and the tracer has time for other work. At the end,
    /// and for records made by traps, records come regardless.
    fn is_ready(&mut self) -> bool {
        true
    }

    /// Whether the counts are wanted now. It is called after every event, so its cost is added to
    /// each trap.
    fn wants_counts(&self) -> bool {
        false
    }

    /// Receives the counts so far, if wanted. Probes continue to count meanwhile.
    fn counted(&mut self, _report: &Report) {}

    /// A process runs that the kernel engine probes. This is told again and again while it does.
    fn runs(&mut self, _pid: i32) {}

    /// Receives the modules of a process when they may have changed.
    fn mapped(&mut self, _pid: i32, _modules: &[Module]) {}

    /// A process has forked: its child has the same modules.
    fn forked(&mut self, _parent: i32, _child: i32) {}

    /// The addresses that are to be watched no longer, since this was asked last.
    fn unwatched(&mut self) -> Vec<u64> {
        Vec::new()
    }

    /// Whether buffered data is to be written out soon: then [`Observer::idle`] is called several
    /// times a second.
    fn waits(&self) -> bool {
        false
    }
}

/// Lost records, and when they were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The process that had no room for them. `None` if they were dropped after that, or are of
    /// several processes.
    pub pid: Option<i32>,
    /// No lost record is older: nanoseconds since 1970. 0: unknown.
    pub from: u64,
    /// No lost record is newer.
    pub to: u64,
    /// How many.
    pub count: u64,
}

/// An instruction at which a probe was armed in one process. Forked children have it too, without a
/// report.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    /// The process.
    pub pid: i32,
    /// The program's number.
    pub program: usize,
    /// The probe's index in it.
    pub probe: usize,
    /// The module of the instruction.
    pub module: &'a Module,
    /// Its address in the process.
    pub address: u64,
    /// How it fires: `jump`, `trap`, or the kind of a probe of the kernel's.
    pub engine: &'static str,
    /// The tactic of its jump; `None` if it is none.
    pub tactic: Option<&'static str>,
}

/// A `callk` of a handler: its place, and what the plugin may use.
pub struct Callk<'a> {
    /// The program's number.
    pub program: usize,
    /// The process that hit the probe.
    pub pid: i32,
    /// Its thread.
    pub tid: i32,
    /// The probe's codes.
    pub codes: (u32, u32),
    /// The module that the program names.
    pub module: &'a str,
    /// The probepoint's address.
    pub address: u64,
    /// The thread's registers and memory, as the handler may use them.
    pub machine: &'a mut dyn Machine,
    /// The handler's stack and log.
    pub run: &'a mut dyn RunAccess,
}

impl fmt::Debug for Callk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Callk { program, tid, codes, address, .. } = self;
        write!(f, "callk of program {program}, {codes:?} at {address:#x}, by thread {tid}")
    }
}

/// A message to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A probed module was mapped and its probes are armed.
    Armed {
        /// The process; `None`: all processes that map the file, now and later.
        pid: Option<i32>,
        /// The module's file.
        module: PathBuf,
        /// The number of probepoints.
        probes: usize,
    },
    /// A program's module is not mapped in a process; the tracer waits for it.
    Waiting {
        /// The process; `None`: all processes, and no file of that name is found either.
        pid: Option<i32>,
        /// The module's name in the program.
        module: String,
    },
    /// A remark about a probepoint that was placed.
    Remark {
        /// The probepoint.
        point: String,
        /// The remark.
        remark: String,
    },
    /// A followed process cannot be probed.
    NotProbed {
        /// The process.
        pid: i32,
        /// Why.
        reason: NotProbed,
    },
    /// The result of a handler's exit to another facility, in the form of the kernel's log:
    /// `DProbes(major,minor) ...`.
    Exit(String),
    /// Anything else worth a line.
    Other(String),
}
