//! `dprobes watch`: who writes to a variable of a process, and what.
//!
//! ```text
//! counter --image::variable--> address, size --text--> a program with one watchpoint
//!                                                       |  kernel engine
//!         a line each  <--lines--  records  <-----------+
//! ```
//!
//! The handler logs the value after the access. The value before it is the one that was logged
//! last, or that of the beginning: between two accesses nothing can change it unseen.

mod lines;
mod variable;

use std::process::ExitCode;

use engine::{Lost, Note, Observer, Placed, Report};
use trace::{Items, Record};

use crate::arguments::{Program, Select, Watch, WatchAccess};
use crate::at_programs::Text;
use crate::messages::tell;
use crate::output::Output;
use crate::{Failure, kernel_engine, session, targets};
use lines::Lines;
use variable::Watched;

/// Watches a variable.
pub(crate) fn watch(arguments: &Watch) -> Result<ExitCode, Failure> {
    let Watch { pid, tracing, .. } = arguments;
    session::is_not_itself(*pid)?;
    let watched = variable::find(arguments)?;
    let program = Program {
        file: Text::path_of_watch(),
        preprocessor: Default::default(),
        text: Some(Text::of_watch(program(&watched, arguments.access))),
    };
    let has_targets = tracing.output.is_some() || !tracing.log_target.is_empty();
    let lines = (!has_targets).then(|| Lines::new(*pid, &watched));
    let told = format!("watching {}", watched.description(*pid));
    let given = if has_targets { session::targets_of(tracing) } else { Vec::new() };
    // A line shows the time, the thread's name and the instruction.
    let items = if has_targets { targets::items(&given, &tracing.shown) } else { Items::ALL };
    let with = kernel_engine::With {
        tracing,
        pids: &[*pid],
        only: kernel::Filter::default(),
        by_process: false,
        duration: arguments.duration,
        items: Some(items),
        allow_panic: false,
    };
    kernel_engine::run(vec![program], &Select::default(), with, |programs| {
        let inner = session::open_targets(tracing, &given, programs, false)?;
        Ok(WatchOutput { inner, lines, told: Some(told) })
    })
}

/// The program that watches a variable.
fn program(watched: &Watched, access: WatchAccess) -> String {
    let Watched { address, length, module, .. } = watched;
    let access = match access {
        WatchAccess::W => "w",
        WatchAccess::Rw => "rw",
    };
    let module = module.replace('\\', "\\\\").replace('"', "\\\"");
    let bits = 8 * u32::from(*length);
    format!(
        "name = \"{module}\"\naddress = {address:#x}:{:#x}\nwatchpoint = {access}\n\
         push {address:#x}\npush mem, u{bits}\nlog 1\nexit\n",
        address + u64::from(*length) - 1,
    )
}

/// The observer: writes a line for each record, or passes records to the targets that were named.
struct WatchOutput {
    inner: Output,
    lines: Option<Lines>,
    /// What is told once the watchpoint is set.
    told: Option<String>,
}

impl kernel_engine::HasOutput for WatchOutput {
    fn output(&mut self) -> &mut Output {
        &mut self.inner
    }
}

impl Observer for WatchOutput {
    fn record(&mut self, program: usize, record: &Record) -> std::io::Result<()> {
        match &mut self.lines {
            Some(lines) => lines.write(record).inspect_err(|_| lines.flush()),
            None => self.inner.record(program, record),
        }
    }

    fn note(&mut self, note: &Note) {
        match (note, self.told.take()) {
            (Note::Armed { .. }, Some(told)) => {
                tell(&told);
                self.lines.iter_mut().for_each(Lines::armed);
            }
            (_, told) => {
                self.told = told;
                self.inner.note(note);
            }
        }
    }

    fn begun(&mut self) {
        self.inner.begun();
    }

    fn placed(&mut self, placed: &Placed<'_>) {
        self.inner.placed(placed);
    }

    fn wants_placed(&self) -> bool {
        self.lines.is_none() && self.inner.wants_placed()
    }

    fn dropped(&mut self, program: usize, probe: usize, count: u64) {
        self.inner.dropped(program, probe, count);
    }

    fn lost(&mut self, lost: &Lost) {
        if let Some(lines) = &mut self.lines {
            lines.lost(lost);
        }
        self.inner.lost(lost);
    }

    fn idle(&mut self) {
        self.lines.iter_mut().for_each(Lines::flush);
        self.inner.idle();
    }

    fn is_ready(&mut self) -> bool {
        self.inner.is_ready()
    }

    fn wants_counts(&self) -> bool {
        self.inner.wants_counts()
    }

    fn counted(&mut self, report: &Report) {
        self.inner.counted(report);
    }

    fn waits(&self) -> bool {
        // Then it is soon noticed that nobody reads.
        self.lines.is_some() || self.inner.waits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::ValueKind;

    #[test]
    fn the_program_compiles_for_each_size() {
        for (length, end) in [(1, "0x404020"), (2, "0x404021"), (4, "0x404023"), (8, "0x404027")] {
            let module = "/opt/a \"b\"".to_owned();
            let watched =
                Watched { name: "c".to_owned(), module, address: 0x40_4020, length, kind: ValueKind::Signed };
            let text = program(&watched, WatchAccess::W);
            assert!(text.contains(&format!("address = 0x404020:{end}\n")), "{text}");
            let object =
                rpn::compile_text("watch", &text, &rpn::Options::default()).expect("it compiles").object;
            let watch = object.probes[0].watch.expect("it is a watchpoint");
            assert_eq!((watch.access, watch.length), (rpn::Access::Write, length));
        }
    }
}
