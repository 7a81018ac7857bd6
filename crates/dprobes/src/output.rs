//! Where records and messages of `run` and `attach` go.

use std::io::{self, Write};

use engine::{Note, Observer, Placed, Report};
use trace::sink::{Target, View};
use trace::{Items, Record};

use crate::Failure;
use crate::targets::{How, Open, Refused, several};

/// Gives records to all targets, and writes messages to standard error.
pub(crate) struct Output {
    targets: Vec<Open>,
    view: View,
    refused: Refused,
    /// Whether the armed probes are announced.
    tells_armed: bool,
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
        let open = |target| Open::new(target, how).map_err(Failure::new);
        let targets = targets.iter().map(open).collect::<Result<Vec<Open>, Failure>>()?;
        Ok(Output { targets, view, refused: Refused::default(), tells_armed })
    }

    /// Takes what is known of a program that is about to be inserted.
    pub(crate) fn program(&mut self, number: usize, name: &str, object: &rpn::Object, items: Items) {
        for target in &mut self.targets {
            target.recording.program(number, name, object, items, &self.view);
        }
    }

    /// Writes out what is kept, and what was counted.
    pub(crate) fn end(&mut self, report: &Report) {
        for target in &mut self.targets {
            target.recording.report(report);
            target.finish().iter().for_each(|text| tell(text));
        }
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
        if self.tells_armed || !matches!(note, Note::Armed { .. }) {
            tell(&text);
        }
    }

    fn placed(&mut self, placed: &Placed<'_>) {
        self.targets.iter_mut().for_each(|target| target.recording.placed(placed));
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

/// What a note begins with that somebody should look at.
pub(crate) const WARNING: &str = "warning: ";

/// A message as text.
pub(crate) fn text(note: &Note) -> String {
    match note {
        Note::Armed { pid, module, probes } => {
            format!(
                "{} armed in {} of process {pid}",
                crate::summary::count(*probes as u64, "probe"),
                module.display()
            )
        }
        Note::Waiting { pid, module } => {
            format!("`{module}` is not mapped in process {pid}; waiting for it to be loaded")
        }
        Note::Remark { point, remark } => format!("note: {point}: {remark}"),
        Note::NotProbed { pid, reason } => format!("{WARNING}process {pid} is not probed: {reason}"),
        Note::Exit(text) => text.clone(),
        Note::Other(text) => format!("{WARNING}{text}"),
    }
}

/// Tells a message; a standard error that nobody reads any more is no reason to stop.
pub(crate) fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "dprobes: {text}");
}
