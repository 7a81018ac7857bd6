//! Where records and messages go.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use engine::{Note, Observer};
use trace::{Record, Text};

use crate::Failure;
use crate::arguments::Shown;
use crate::templates::{self, Refresh};

/// Bytes of records that are kept before they are written to a file; on standard error each is written at once.
const BUFFER: usize = 1 << 16;

/// Writes records as text to a file or standard error, and messages to standard error.
pub(crate) struct Output {
    sink: Box<dyn Write>,
    text: Text,
    refresh: Refresh,
    /// Whether the armed probes are announced.
    tells_armed: bool,
    failed: bool,
}

impl Output {
    /// # Errors
    /// The file cannot be created, or there are no templates.
    pub(crate) fn open(path: Option<&Path>, shown: &Shown, tells_armed: bool) -> Result<Output, Failure> {
        let text = templates::text(shown)?;
        let sink: Box<dyn Write> = match path {
            None => Box::new(io::stderr()),
            Some(path) => {
                let file = File::create(path)
                    .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
                Box::new(BufWriter::with_capacity(BUFFER, file))
            }
        };
        Ok(Output { sink, text, refresh: Refresh::default(), tells_armed, failed: false })
    }

    /// Writes out what is kept.
    pub(crate) fn flush(&mut self) {
        if let Err(error) = self.sink.flush() {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.failed, true) {
            tell(&format!("warning: writing records: {error}; further records may be lost"));
        }
    }
}

impl Observer for Output {
    fn record(&mut self, _program: usize, record: &Record) -> io::Result<()> {
        let result = self.text.write(record, &mut self.sink);
        if let Err(error) = &result {
            self.fail(error);
        }
        result
    }

    fn note(&mut self, note: &Note) {
        if self.tells_armed || !matches!(note, Note::Armed { .. }) {
            tell(&text(note));
        }
    }

    fn idle(&mut self) {
        self.flush();
        self.refresh.turn(&mut self.text, tell);
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
