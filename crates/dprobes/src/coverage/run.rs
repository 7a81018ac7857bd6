//! Runs a command, or attaches to processes, with the probes of plans.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use engine::{Note, Observer, StartOptions, Tracer};
use trace::Record;

use super::{Module, end, modules, program};
use crate::arguments::Coverage;
use crate::control::{self, Watch};
use crate::front::Front;
use crate::messages::tell;
use crate::session::is_not_itself;
use crate::started_command::{FAILED, RunCommand, end_as_command, run_command};
use crate::{Failure, front, output, progress};

/// Passes on warnings. There are no records, and it is of no interest how many probes there are.
struct Warnings;

impl Observer for Warnings {
    fn record(&mut self, _program: usize, _record: &Record) -> io::Result<()> {
        Ok(())
    }

    fn note(&mut self, note: &Note) {
        if matches!(note, Note::NotProbed { .. } | Note::Other(_)) {
            tell(&output::text(note));
        }
    }

    fn wants_placed(&self) -> bool {
        false
    }
}

/// A tracer with the probes.
fn tracer<'a>(modules: &[Module], front: &Front, observer: &'a mut Warnings) -> Tracer<'a> {
    let mut tracer = Tracer::new(Some(front.ledger.clone()), observer);
    for module in modules {
        tracer.insert(program::program(module), program::options(), None);
    }
    tracer
}

/// Measures a command.
pub(super) fn command(arguments: &Coverage, command: &[OsString]) -> Result<ExitCode, Failure> {
    // What is not found has a status of its own.
    let own = |failure: Failure| match failure.status() {
        1 => failure.with_status(FAILED),
        _ => failure,
    };
    let modules = modules(arguments, &[]).map_err(own)?;
    let mask = control::inherited_mask();
    let front = front::split().map_err(own)?;
    progress::begin("putting the probes in");
    let watch = Watch::start(None, front.ledger.pulse()).map_err(own)?;
    let mut observer = Warnings;
    let mut tracer = tracer(&modules, &front, &mut observer);
    let options = StartOptions { signal_mask: mask, group: Some(front.group) };
    let RunCommand { pid, report, ended } = run_command(&mut tracer, &watch, command, &options)?;
    drop(watch);
    end(arguments, &modules, &report).map_err(own)?;
    end_as_command(pid, ended, &front)
}

/// Measures running processes.
pub(super) fn processes(arguments: &Coverage, pids: &[i32]) -> Result<ExitCode, Failure> {
    pids.iter().try_for_each(|&pid| is_not_itself(pid))?;
    let modules = modules(arguments, pids)?;
    let front = front::split()?;
    progress::begin("putting the probes in");
    let watch = Watch::start(arguments.traced.duration, front.ledger.pulse())?;
    let mut observer = Warnings;
    let mut tracer = tracer(&modules, &front, &mut observer);
    let result =
        pids.iter().try_for_each(|&pid| tracer.attach(pid)).and_then(|()| tracer.run(&watch.control));
    let report = tracer.finish(&watch.control);
    drop(watch);
    result.map_err(Failure::new)?;
    end(arguments, &modules, &report).map(|()| ExitCode::SUCCESS)
}
