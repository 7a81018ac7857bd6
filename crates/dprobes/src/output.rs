//! Where records and messages go.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use engine::{Note, Observer};
use trace::{Record, Text};

use crate::Failure;
use crate::arguments::Shown;
use crate::spool::Spool;

/// Where records go. On standard error each is written at once.
#[derive(Debug)]
enum Sink {
    File(Spool),
    Terminal(io::Stderr),
}

/// Writes records as text to a file or standard error, and messages to standard error.
#[derive(Debug)]
pub(crate) struct Output {
    sink: Sink,
    text: Text,
    /// Whether the armed probes are announced.
    tells_armed: bool,
    failed: bool,
}

impl Output {
    /// # Errors
    /// The file cannot be created.
    pub(crate) fn open(path: Option<&Path>, shown: &Shown, tells_armed: bool) -> Result<Output, Failure> {
        let sink = match path {
            None => Sink::Terminal(io::stderr()),
            Some(path) => {
                let file = File::create(path)
                    .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
                Sink::File(Spool::new(file))
            }
        };
        Ok(Output { sink, text: Text::new(shown.items(), shown.form()), tells_armed, failed: false })
    }

    /// Writes out what is kept.
    pub(crate) fn flush(&mut self) {
        if let Sink::File(spool) = &mut self.sink
            && let Err(error) = spool.flush()
        {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.failed, true) {
            tell(&match error.kind() {
                io::ErrorKind::Interrupted => {
                    "warning: nobody took the records; those that were not written yet are lost".to_owned()
                }
                _ => format!("warning: writing records: {error}; further records may be lost"),
            });
        }
    }
}

impl Observer for Output {
    fn record(&mut self, _program: usize, record: &Record) -> io::Result<()> {
        let result = match &mut self.sink {
            Sink::File(spool) => spool.place().map(|place| self.text.append(record, place)),
            Sink::Terminal(stderr) => self.text.write(record, stderr),
        };
        if let Err(error) = &result {
            self.fail(error);
        }
        result
    }

    fn is_ready(&mut self) -> bool {
        match &self.sink {
            Sink::File(spool) => spool.is_ready(),
            Sink::Terminal(_) => true,
        }
    }

    fn note(&mut self, note: &Note) {
        if self.tells_armed || !matches!(note, Note::Armed { .. }) {
            tell(&text(note));
        }
    }

    fn idle(&mut self) {
        if let Sink::File(spool) = &mut self.sink
            && let Err(error) = spool.idle()
        {
            self.fail(&error);
        }
    }
}

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
        Note::NotProbed { pid, reason } => format!("warning: process {pid} is not probed: {reason}"),
        Note::Exit(text) => text.clone(),
        Note::Other(text) => format!("warning: {text}"),
    }
}

/// Tells a message; a standard error that nobody reads any more is no reason to stop.
pub(crate) fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "dprobes: {text}");
}
