//! The observer of `run` and `attach`: passes records to targets and messages to standard error.
//!
//! In: records and notes of the engine. Out: records to targets; notes to targets and to standard
//! error.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use engine::{Lost, Note, Observer, Placed, Report};
use process::Module;
use trace::sink::{Target, View};
use trace::{Items, Record, Records};

use crate::Failure;
use crate::addresses::SharedAddresses;
use crate::messages::{WARNING, count, tell};
use crate::targets::{How, Open, TargetCounts, Targets};

/// Which messages go to standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// All.
    All,
    /// All but that probes are armed.
    AllButArmed,
    /// Warnings, and what handlers have said.
    Warnings,
}

/// What was said of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announced {
    /// That it is waited for.
    Waits,
    /// That it has probes, in a process or in all.
    In(Option<i32>),
}

/// Passes records to all targets, and writes messages to standard error.
pub(crate) struct Output {
    targets: Targets,
    view: View,
    /// The modules of processes, for the functions in lines.
    addresses: SharedAddresses,
    lossless: bool,
    /// Which messages are told.
    told: Told,
    /// What was said last of each module: a library that is unloaded and loaded again is announced
    /// once.
    announced: HashMap<PathBuf, Announced>,
}

impl Output {
    /// # Errors
    /// A target cannot be opened.
    pub(crate) fn open(
        targets: &[Target],
        view: View,
        addresses: SharedAddresses,
        lossless: bool,
        told: Told,
    ) -> Result<Output, Failure> {
        let mut all = Targets::default();
        for target in targets {
            let how = How { is_shared: false, lossless };
            let (open, told) = Open::new(target, how).map_err(Failure::new)?;
            told.iter().for_each(|text| tell(&format!("{WARNING}{text}")));
            all.add(open);
        }
        Ok(Output { targets: all, view, addresses, lossless, told, announced: HashMap::new() })
    }

    /// Registers a program that is about to be inserted.
    pub(crate) fn program(&mut self, number: usize, name: &str, object: &rpn::Object, items: Items) {
        let places = 0..self.targets.all().count();
        self.targets.set_targets(number, places.collect(), self.lossless);
        self.targets.all().for_each(|target| target.program(number, name, object, items, &self.view));
    }

    /// Whether a message goes to standard error.
    fn is_told(&mut self, note: &Note) -> bool {
        match note {
            Note::Armed { pid, module, .. } => {
                self.told == Told::All
                    && self.announced.insert(module.clone(), Announced::In(*pid)) != Some(Announced::In(*pid))
            }
            Note::Remark { .. } => self.told != Told::Warnings,
            // Once for all processes.
            Note::Waiting { module, .. } => {
                self.told != Told::Warnings
                    && self.announced.insert(module.into(), Announced::Waits).is_none()
            }
            _ => true,
        }
    }

    /// Flushes the targets, tells them the counts, and returns what became of each target's
    /// records.
    pub(crate) fn end(&mut self, report: &Report) -> Vec<TargetCounts> {
        let end = |target: &mut Open| {
            target.report(report);
            target.finish().iter().for_each(|text| tell(text));
            target.taken()
        };
        self.targets.all().map(end).collect()
    }
}

impl Observer for Output {
    #[inline]
    fn record(&mut self, program: usize, record: &Record) -> io::Result<()> {
        self.targets.record(program, record, tell)
    }

    fn records(&mut self, program: usize, records: &mut Records) {
        self.targets.records(program, records, tell);
    }

    fn note(&mut self, note: &Note) {
        let text = text(note);
        self.targets.note(&text);
        if self.is_told(note) {
            tell(&text);
        }
    }

    fn begun(&mut self) {
        self.targets.all().filter_map(Open::settle).for_each(|text| tell(&text));
    }

    fn placed(&mut self, placed: &Placed<'_>) {
        self.targets.placed(placed);
    }

    fn wants_placed(&self) -> bool {
        self.targets.wants_placed()
    }

    fn mapped(&mut self, pid: i32, modules: &[Module]) {
        if self.view.lines.is_some() {
            self.addresses.with(|addresses| addresses.learn(pid as u32, modules));
        }
    }

    fn forked(&mut self, parent: i32, child: i32) {
        if self.view.lines.is_some() {
            self.addresses.with(|addresses| addresses.inherit(parent as u32, child as u32));
        }
    }

    fn lost(&mut self, lost: &Lost) {
        self.targets.gap(lost);
    }

    fn dropped(&mut self, program: usize, probe: usize, count: u64) {
        self.targets.dropped(program, probe, count);
    }

    fn idle(&mut self) {
        self.targets.idle(tell);
    }

    fn is_ready(&mut self) -> bool {
        self.targets.are_ready()
    }

    fn waits(&self) -> bool {
        self.targets.wait()
    }
}

/// A message as text.
pub(crate) fn text(note: &Note) -> String {
    match note {
        Note::Armed { pid, module, probes } => {
            let of = pid.map_or_else(|| ", for all processes".to_owned(), |pid| format!(" of process {pid}"));
            format!("{} armed in {}{of}", count(*probes as u64, "probe"), printable::path(module))
        }
        Note::Waiting { pid, module } => {
            let module = printable::text(module);
            match pid {
                Some(pid) => format!(
                    "`{module}` is not mapped in process {pid}; waiting for it to be loaded (`dprobes list -p {pid}` shows what is)"
                ),
                None => format!(
                    "`{module}` is not found: no process has it mapped, and the library directories do not have it; waiting for a process to map it"
                ),
            }
        }
        Note::Remark { point, remark } => {
            format!("note: {}: {remark}", printable::text(point))
        }
        Note::NotProbed { pid, reason } => format!("{WARNING}process {pid} is not probed: {reason}"),
        Note::Exit(text) => text.clone(),
        Note::Other(text) => format!("{WARNING}{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_comes_and_goes_is_announced_once() {
        let mut output = Output::open(&[], View::default(), SharedAddresses::default(), false, Told::All)
            .map_err(|_| ())
            .expect("no targets");
        let armed = |pid, module: &str| Note::Armed { pid: Some(pid), module: module.into(), probes: 1 };
        let mut is_told = |note: &Note| output.is_told(note);
        assert!(is_told(&armed(1, "/lib/a.so")) && is_told(&armed(1, "/lib/b.so")));
        assert!(!is_told(&armed(1, "/lib/a.so")) && !is_told(&armed(1, "/lib/b.so")));
        assert!(is_told(&armed(2, "/lib/a.so")));
        let waiting = |pid, module: &str| Note::Waiting { pid: Some(pid), module: module.to_owned() };
        assert!(
            is_told(&waiting(1, "libz")) && !is_told(&waiting(2, "libz")) && is_told(&waiting(2, "liby"))
        );
        // What is waited for comes, in all processes.
        assert!(is_told(&Note::Armed { pid: None, module: "libz".into(), probes: 1 }));
        let warning = Note::Other("something".to_owned());
        assert!(is_told(&warning) && is_told(&warning));
    }
}
