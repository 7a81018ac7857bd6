//! What the engine tells its user.

use std::fmt;
use std::io;
use std::path::PathBuf;

use process::Module;
use trace::Record;
use vm::{Lent, Machine};

use crate::report::Report;

/// Takes what the engine has to say, as it happens.
pub trait Observer {
    /// Takes a record of a program, by its number, whose instruction has completed.
    ///
    /// # Errors
    /// The record could not be written; it is counted as dropped.
    fn record(&mut self, program: usize, record: &Record) -> io::Result<()>;

    /// Takes a message.
    fn note(&mut self, note: &Note);

    /// A handler has executed `callk`: whoever has registered for it is called.
    fn called(&mut self, _call: &mut Callk<'_>) {}

    /// The probes are in, in all processes that are followed now, or are still to be waited for: what was asked for has begun.
    fn begun(&mut self) {}

    /// Takes what is known of an instruction at which a probe was armed.
    fn placed(&mut self, _placed: &Placed<'_>) {}

    /// Whether [`Observer::placed`] does anything: there may be hundreds of thousands to be told of.
    fn wants_placed(&self) -> bool {
        true
    }

    /// Takes how many more records of a probe were dropped since it was told last: about every second while there are some, and at
    /// the end. Records that [`Observer::record`] did not take are among them.
    fn dropped(&mut self, _program: usize, _probe: usize, _count: u64) {}

    /// Takes between which two moments records were lost; of which probes, [`Observer::dropped`] is told. Each that is counted there has been told
    /// here before the end, but for one whose handler was given up in the middle.
    fn lost(&mut self, _lost: &Lost) {}

    /// Called when there is nothing to do: a buffer may be written out.
    fn idle(&mut self) {}

    /// Whether records can be taken now without waiting for a slow device or reader. As long as they cannot, those of jumps
    /// stay in the memory that they were logged to, and the tracer has time for all else; at the end, and where a
    /// breakpoint has made one, records come all the same.
    fn is_ready(&mut self) -> bool {
        true
    }

    /// Whether the counts so far are wanted now. It is asked after every event: what it costs is paid for each trap.
    fn wants_counts(&self) -> bool {
        false
    }

    /// Takes the counts so far, when they are wanted. Probes go on counting meanwhile.
    fn counted(&mut self, _report: &Report) {}

    /// Whether something is kept that is to be written out before long: then [`Observer::idle`] is called several times a second.
    fn waits(&self) -> bool {
        false
    }
}

/// Records that were lost, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The process that had no room for them; none: it had, and they were dropped later, or they are of several.
    pub pid: Option<i32>,
    /// None of them is of before this time: nanoseconds since 1970. 0: nothing is known of that.
    pub from: u64,
    /// None of them is of after this time.
    pub to: u64,
    /// How many.
    pub count: u64,
}

/// An instruction at which a probe was armed, in one process. A child that is forked has it, too, without its being told.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    /// The process.
    pub pid: i32,
    /// The program's number.
    pub program: usize,
    /// The probe's number in it.
    pub probe: usize,
    /// The module that the instruction is in.
    pub module: &'a Module,
    /// Its address in the process.
    pub address: u64,
    /// How a jump was made to fit there; none where it traps.
    pub tactic: Option<&'static str>,
}

/// A `callk` of a handler: where it is, and what it lends.
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
    pub run: &'a mut dyn Lent,
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
    /// A module that is probed is mapped now, and its probes are armed.
    Armed {
        /// The process.
        pid: i32,
        /// The module's file.
        module: PathBuf,
        /// How many probepoints.
        probes: usize,
    },
    /// A program's module is not mapped in a process; it is waited for.
    Waiting {
        /// The process.
        pid: i32,
        /// The module's name in the program.
        module: String,
    },
    /// A probepoint is placed, and something about it should be known.
    Remark {
        /// The probepoint.
        point: String,
        /// What.
        remark: String,
    },
    /// A process that is followed cannot be probed.
    NotProbed {
        /// The process.
        pid: i32,
        /// Why.
        reason: String,
    },
    /// What came of a handler's exit to another facility, in the form of the kernel's log: `DProbes(major,minor) ...`.
    Exit(String),
    /// Anything else worth a line.
    Other(String),
}
