//! Where the records of each program go, and the session's own messages.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::rc::Rc;

use engine::{Note, Observer};
use trace::{Form, Items, Record, Text};

use super::klog::KernelLog;
use crate::spool::Spool;

/// Where one program's records go.
enum Out {
    File(Spool),
    KernelLog(KernelLog),
}

/// One program's records.
struct Sink {
    out: Out,
    text: Text,
    /// Whether a failure was told.
    failed: bool,
}

impl Sink {
    fn is_ready(&self) -> bool {
        match &self.out {
            Out::File(spool) => spool.is_ready(),
            Out::KernelLog(_) => true,
        }
    }
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

    /// Says where the records of a program go: to a file, or the kernel log.
    pub(crate) fn direct(&mut self, program: usize, file: Option<File>, items: Items, form: Form) {
        let out = match file {
            Some(file) => Out::File(Spool::new(file)),
            None => Out::KernelLog(KernelLog::open()),
        };
        self.sinks.insert(program, Sink { out, text: Text::new(items, form), failed: false });
    }

    /// Lets what is kept be written. What cannot be written is lost, which the log says once for each program.
    fn idle(&mut self) {
        let numbers: Vec<usize> = self.sinks.keys().copied().collect();
        for program in numbers {
            if let Some(Sink { out: Out::File(spool), .. }) = self.sinks.get_mut(&program) {
                let result = spool.idle();
                self.look_at(program, result);
            }
        }
    }

    /// Tells, once, that records cannot be written.
    fn look_at(&mut self, program: usize, result: io::Result<()>) {
        if let Err(error) = result
            && let Some(sink) = self.sinks.get_mut(&program)
            && !std::mem::replace(&mut sink.failed, true)
        {
            self.tell(&format!("warning: program {program}: writing records: {error}; records are lost"));
        }
    }

    /// Waits until all is written.
    pub(crate) fn finish(&mut self) {
        let numbers: Vec<usize> = self.sinks.keys().copied().collect();
        numbers.into_iter().for_each(|program| self.forget(program));
    }

    /// Forgets a program, when its records are all written.
    pub(crate) fn forget(&mut self, program: usize) {
        if let Some(Sink { out: Out::File(spool), .. }) = self.sinks.get_mut(&program) {
            let result = spool.flush();
            self.look_at(program, result);
        }
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
            Some(Sink { out: Out::File(spool), text, .. }) => {
                spool.place().map(|place| text.append(record, place))
            }
            Some(Sink { out: Out::KernelLog(log), text, .. }) => text.write(record, log),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn note(&mut self, note: &Note) {
        self.0.borrow_mut().tell(&crate::output::text(note));
    }

    fn idle(&mut self) {
        self.0.borrow_mut().idle();
    }

    fn is_ready(&mut self) -> bool {
        let sinks = &self.0.borrow().sinks;
        // One that is slow holds up all: their records come from the same memory.
        sinks.values().all(Sink::is_ready)
    }
}
