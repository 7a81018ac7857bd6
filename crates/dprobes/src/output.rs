//! Where records and messages of `run` and `attach` go.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use engine::{Lost, Note, Observer, Placed, Report};
use trace::sink::{Target, View};
use trace::{Items, Record};

use crate::messages::{WARNING, count, tell};
use crate::targets::{How, Open, Refused, Taken, several};
use crate::{Failure, targets};

/// Gives records to all targets, and writes messages to standard error.
pub(crate) struct Output {
    targets: Vec<Open>,
    view: View,
    refused: Refused,
    /// Whether the armed probes are announced.
    tells_armed: bool,
    /// The process in which each module was announced last: a library that comes and goes is announced once.
    announced: HashMap<PathBuf, i32>,
}

impl Output {
    /// # Errors
    /// A target cannot be opened.
    pub(crate) fn open(
        targets: &[Target],
        view: View,
        lossless: bool,
        tells_armed: bool,
    ) -> Result<Output, Failure> {
        let how = How { is_shared: false, lossless };
        let open = |target| {
            let open = Open::new(target, how).map_err(Failure::new)?;
            targets::caveat(target).iter().for_each(|text| tell(&format!("{WARNING}{text}")));
            Ok(open)
        };
        let targets = targets.iter().map(open).collect::<Result<Vec<Open>, Failure>>()?;
        Ok(Output { targets, view, refused: Refused::default(), tells_armed, announced: HashMap::new() })
    }

    /// Takes what is known of a program that is about to be inserted.
    pub(crate) fn program(&mut self, number: usize, name: &str, object: &rpn::Object, items: Items) {
        for target in &mut self.targets {
            target.recording.program(number, name, object, items, &self.view);
        }
    }

    /// Whether a message is for standard error.
    fn is_told(&mut self, note: &Note) -> bool {
        match note {
            Note::Armed { pid, module, .. } => {
                self.tells_armed && self.announced.insert(module.clone(), *pid) != Some(*pid)
            }
            _ => true,
        }
    }

    /// Writes out what is kept, and what was counted. Gives what each target has made of its records.
    pub(crate) fn end(&mut self, report: &Report) -> Vec<Taken> {
        for target in &mut self.targets {
            target.recording.report(report);
            target.finish().iter().for_each(|text| tell(text));
        }
        self.targets.iter().map(Open::taken).collect()
    }
}

impl Observer for Output {
    fn record(&mut self, program: usize, record: &Record) -> io::Result<()> {
        let result = several::record(self.targets.iter_mut(), program, record, tell);
        result.inspect_err(|_| self.refused.note(program, record.probe))
    }

    fn note(&mut self, note: &Note) {
        let text = text(note);
        self.targets.iter_mut().for_each(|target| target.recording.note(&text));
        if self.is_told(note) {
            tell(&text);
        }
    }

    fn begun(&mut self) {
        self.targets.iter_mut().filter_map(Open::settle).for_each(|text| tell(&text));
    }

    fn placed(&mut self, placed: &Placed<'_>) {
        self.targets.iter_mut().for_each(|target| target.recording.placed(placed));
    }

    fn wants_placed(&self) -> bool {
        self.targets.iter().any(|target| target.recording.keeps_facts())
    }

    fn lost(&mut self, lost: &Lost) {
        self.targets.iter_mut().for_each(|target| target.recording.gap(lost));
    }

    fn dropped(&mut self, program: usize, probe: usize, count: u64) {
        let refused = self.refused.take(program, probe, count);
        self.targets.iter_mut().for_each(|target| target.recording.dropped(program, probe, count, refused));
    }

    fn idle(&mut self) {
        several::idle(self.targets.iter_mut(), tell);
    }

    fn is_ready(&mut self) -> bool {
        several::are_ready(self.targets.iter_mut())
    }

    fn waits(&self) -> bool {
        self.targets.iter().any(|target| target.recording.waits())
    }
}

/// A message as text.
pub(crate) fn text(note: &Note) -> String {
    match note {
        Note::Armed { pid, module, probes } => {
            format!(
                "{} armed in {} of process {pid}",
                count(*probes as u64, "probe"),
                printable::path(module)
            )
        }
        Note::Waiting { pid, module } => {
            let module = printable::text(module);
            format!(
                "`{module}` is not mapped in process {pid}; waiting for it to be loaded (`dprobes list -p {pid}` shows what is)"
            )
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
        let mut output = Output::open(&[], View::default(), false, true).map_err(|_| ()).expect("no targets");
        let armed = |pid, module: &str| Note::Armed { pid, module: module.into(), probes: 1 };
        let mut is_told = |note: &Note| output.is_told(note);
        assert!(is_told(&armed(1, "/lib/a.so")) && is_told(&armed(1, "/lib/b.so")));
        assert!(!is_told(&armed(1, "/lib/a.so")) && !is_told(&armed(1, "/lib/b.so")));
        assert!(is_told(&armed(2, "/lib/a.so")));
        let warning = Note::Other("something".to_owned());
        assert!(is_told(&warning) && is_told(&warning));
    }
}
