//! Where the records of each program go, and the session's own messages.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::rc::Rc;

use engine::{Note, Observer};
use trace::{Record, Text};

use super::klog::KernelLog;
use crate::templates::Refresh;

/// One program's records.
struct Sink {
    out: Box<dyn Write>,
    text: Text,
    refresh: Refresh,
    /// Whether a failure was told.
    failed: bool,
}

/// The session's observer.
pub(crate) struct Sinks {
    /// By the program's number.
    sinks: HashMap<usize, Sink>,
    log: File,
}

impl Sinks {
    pub(crate) fn new(log: File) -> Sinks {
        Sinks { sinks: HashMap::new(), log }
    }

    /// Says where the records of a program go, as text: to a file, or the kernel log.
    pub(crate) fn direct(&mut self, program: usize, file: Option<File>, text: Text) {
        let out: Box<dyn Write> = match file {
            Some(file) => Box::new(BufWriter::new(file)),
            None => Box::new(KernelLog::open()),
        };
        self.sinks.insert(program, Sink { out, text, refresh: Refresh::default(), failed: false });
    }

    /// Writes out what is kept. What cannot be written is lost, which the log says once for each program.
    fn flush(&mut self) {
        let mut failures = Vec::new();
        for (program, sink) in &mut self.sinks {
            if let Err(error) = sink.out.flush()
                && !std::mem::replace(&mut sink.failed, true)
            {
                failures
                    .push(format!("warning: program {program}: writing records: {error}; records are lost"));
            }
        }
        for failure in failures {
            self.tell(&failure);
        }
    }

    /// Reads templates again that have been changed.
    fn refresh(&mut self) {
        let mut told = Vec::new();
        for sink in self.sinks.values_mut() {
            sink.refresh.turn(&mut sink.text, |problem| told.push(problem.to_owned()));
        }
        for problem in told {
            self.tell(&problem);
        }
    }

    /// Forgets a program, whose records are all written.
    pub(crate) fn forget(&mut self, program: usize) {
        self.flush();
        self.sinks.remove(&program);
    }

    /// Writes a line to the session's own log.
    pub(crate) fn tell(&mut self, text: &str) {
        // There is nobody to tell that it failed.
        let _ = writeln!(self.log, "{text}");
    }
}

/// Opens a file for records: a new one, or the end of one that is there.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// The sinks, shared by the tracer, which fills them, and the session, which directs them.
#[derive(Clone)]
pub(crate) struct Shared(pub(crate) Rc<RefCell<Sinks>>);

impl Observer for Shared {
    fn record(&mut self, program: usize, record: &Record) -> io::Result<()> {
        match self.0.borrow_mut().sinks.get_mut(&program) {
            Some(sink) => sink.text.write(record, &mut sink.out),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn note(&mut self, note: &Note) {
        self.0.borrow_mut().tell(&crate::output::text(note));
    }

    fn idle(&mut self) {
        let mut sinks = self.0.borrow_mut();
        sinks.flush();
        sinks.refresh();
    }
}
