//! Where records and messages go.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use engine::{Note, Observer, Placed, Report};
use trace::{Items, Record};

use crate::Failure;
use crate::arguments::{Format, Shown};
use crate::recording::Recording;
use crate::spool::Spool;
use crate::templates::{self, Live};

/// Writes records to a file or standard error, and messages to standard error.
pub(crate) struct Output {
    sink: Sink,
    /// Whether the armed probes are announced.
    tells_armed: bool,
    failed: bool,
}

/// Where records go.
enum Sink {
    /// To a file, as text.
    Text(Spool, Live),
    /// To standard error, as text, each at once.
    Terminal(io::Stderr, Live),
    /// To a store.
    Store(Box<Recording>),
}

impl Output {
    /// # Errors
    /// The file cannot be created, or there are no templates.
    pub(crate) fn open(
        path: Option<&Path>,
        format: Format,
        shown: &Shown,
        tells_armed: bool,
    ) -> Result<Output, Failure> {
        let templates = templates::open(shown)?;
        let sink = match (path, format) {
            (None, _) => Sink::Terminal(io::stderr(), Live::new(shown, templates)),
            (Some(path), Format::Text) => {
                let file = File::create(path).map_err(|error| failed(path, &error))?;
                Sink::Text(Spool::new(file), Live::new(shown, templates))
            }
            (Some(path), Format::Dpt) => {
                let recording = File::create(path).and_then(Recording::start);
                let mut recording = recording.map_err(|error| failed(path, &error))?;
                recording.templates(templates.as_ref());
                Sink::Store(Box::new(recording))
            }
        };
        Ok(Output { sink, tells_armed, failed: false })
    }

    /// Takes what is known of a program that is about to be inserted.
    pub(crate) fn program(&mut self, number: usize, name: &str, object: &rpn::Object, items: Items) {
        if let Sink::Store(recording) = &mut self.sink {
            recording.program(number, name, object, items);
        }
    }

    /// Writes out what is kept, and what was counted.
    pub(crate) fn end(&mut self, report: &Report) {
        let ended = match &mut self.sink {
            Sink::Text(spool, _) => spool.flush(),
            Sink::Terminal(..) => Ok(()),
            Sink::Store(recording) => {
                recording.report(report);
                recording.finish()
            }
        };
        if let Err(error) = ended {
            self.fail(&error);
        }
        if let Sink::Store(recording) = &self.sink
            && recording.lost() > 0
        {
            tell(&format!(
                "warning: {} could not be written",
                crate::summary::count(recording.lost(), "record")
            ));
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

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

impl Observer for Output {
    fn record(&mut self, program: usize, record: &Record) -> io::Result<()> {
        let result = match &mut self.sink {
            Sink::Text(spool, text) => spool.place().map(|place| text.append(record, place)),
            Sink::Terminal(stderr, text) => text.write(record, stderr),
            Sink::Store(recording) => recording.record(program, record),
        };
        if let Err(error) = &result {
            self.fail(error);
        }
        result
    }

    fn note(&mut self, note: &Note) {
        if let Sink::Store(recording) = &mut self.sink {
            recording.note(&text(note));
        }
        if self.tells_armed || !matches!(note, Note::Armed { .. }) {
            tell(&text(note));
        }
    }

    fn placed(&mut self, placed: &Placed<'_>) {
        if let Sink::Store(recording) = &mut self.sink {
            recording.placed(placed);
        }
    }

    fn dropped(&mut self, program: usize, probe: usize, count: u64) {
        if let Sink::Store(recording) = &mut self.sink {
            recording.dropped(program, probe, count);
        }
    }

    fn idle(&mut self) {
        let written = match &mut self.sink {
            Sink::Text(spool, text) => {
                text.refresh(tell);
                spool.idle()
            }
            Sink::Terminal(_, text) => {
                text.refresh(tell);
                Ok(())
            }
            Sink::Store(recording) => recording.idle(),
        };
        if let Err(error) = written {
            self.fail(&error);
        }
    }

    fn is_ready(&mut self) -> bool {
        !matches!(&self.sink, Sink::Text(spool, _) if !spool.is_ready())
    }

    fn waits(&self) -> bool {
        matches!(&self.sink, Sink::Store(recording) if recording.waits())
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
