//! Where the records of each program go, and the session's own messages.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use engine::{Note, Observer, Placed};
use trace::Record;
use trace::template::Templates;

use super::klog::KernelLog;
use crate::arguments::Shown;
use crate::recording::Recording;
use crate::spool::Spool;
use crate::templates::Live;

/// One program's records.
enum Sink {
    /// To a file, as text.
    Text {
        spool: Spool,
        text: Live,
        /// Whether a failure was told.
        failed: bool,
    },
    /// To the kernel log.
    KernelLog(KernelLog, Live),
    /// To the store in this file, which other programs may share.
    Store(PathBuf),
}

/// A store that is being filled.
struct Filled {
    recording: Recording,
    /// Whether a failure was told.
    failed: bool,
    /// Whether a program is about to have it: then it does not end with the last one that has it.
    expected: bool,
}

/// Where a program's records are to go.
pub(crate) enum Target {
    /// To the kernel log.
    KernelLog,
    /// To a file, as text.
    File(File),
    /// To a store: a new one, or one of this session.
    Store(PathBuf),
}

/// The session's observer.
pub(crate) struct Sinks {
    /// By the program's number.
    sinks: HashMap<usize, Sink>,
    /// The stores that are being filled, by their files.
    stores: HashMap<PathBuf, Filled>,
    log: File,
}

impl Sinks {
    pub(crate) fn new(log: File) -> Sinks {
        Sinks { sinks: HashMap::new(), stores: HashMap::new(), log }
    }

    /// Says where the records of a program go, which `shown` are to be seen, by these templates.
    pub(crate) fn direct(
        &mut self,
        program: usize,
        target: Target,
        shown: &Shown,
        templates: Option<Templates>,
    ) {
        let sink = match target {
            Target::KernelLog => Sink::KernelLog(KernelLog::open(), Live::new(shown, templates)),
            Target::File(file) => {
                Sink::Text { spool: Spool::new(file), text: Live::new(shown, templates), failed: false }
            }
            Target::Store(path) => {
                if let Some(filled) = self.stores.get_mut(&path) {
                    filled.expected = false;
                    filled.recording.templates(templates.as_ref());
                }
                Sink::Store(path)
            }
        };
        self.sinks.insert(program, sink);
    }

    /// Makes sure that there is a store for a program that is about to be inserted: says whether it is a new one.
    ///
    /// # Errors
    /// It cannot be made, or there is a file that is none of this session's stores.
    pub(crate) fn begin(&mut self, path: &Path) -> io::Result<bool> {
        if let Some(filled) = self.stores.get_mut(path) {
            filled.expected = true;
            return Ok(false);
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let filled = Filled { recording: Recording::start(file)?, failed: false, expected: true };
        self.stores.insert(path.to_owned(), filled);
        Ok(true)
    }

    /// The store of a program, if it has one.
    pub(crate) fn store(&mut self, program: usize) -> Option<&mut Recording> {
        match self.sinks.get(&program)? {
            Sink::Store(path) => self.stores.get_mut(path).map(|filled| &mut filled.recording),
            Sink::Text { .. } | Sink::KernelLog(..) => None,
        }
    }

    /// Lets what is kept be written; with `all`, waits until it is. What cannot be written is lost, which the log says once for each
    /// program or store.
    fn flush(&mut self, all: bool) {
        let mut failures = Vec::new();
        let mut note = |failed: &mut bool, what: String, error: io::Error| {
            if !std::mem::replace(failed, true) {
                failures.push(format!("warning: {what}: writing records: {error}; records are lost"));
            }
        };
        for (program, sink) in &mut self.sinks {
            if let Sink::Text { spool, failed, .. } = sink
                && let Err(error) = if all { spool.flush() } else { spool.idle() }
            {
                note(failed, format!("program {program}"), error);
            }
        }
        for (path, filled) in &mut self.stores {
            if let Err(error) = filled.recording.idle() {
                note(&mut filled.failed, path.display().to_string(), error);
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
            if let Sink::Text { text, .. } | Sink::KernelLog(_, text) = sink {
                text.refresh(|problem| told.push(problem.to_owned()));
            }
        }
        for problem in told {
            self.tell(&problem);
        }
    }

    /// Forgets a program, whose records are all written. A store that no other program has is brought to its end; the global
    /// variables are the last that it is told.
    pub(crate) fn forget(&mut self, program: usize, globals: &[u64]) {
        self.flush(true);
        let Some(Sink::Store(path)) = self.sinks.remove(&program) else { return };
        let shared = self.sinks.values().any(|sink| matches!(sink, Sink::Store(other) if *other == path));
        if shared || self.stores.get(&path).is_none_or(|filled| filled.expected) {
            return;
        }
        let Some(Filled { mut recording, .. }) = self.stores.remove(&path) else { return };
        recording.globals(globals);
        if let Err(error) = recording.finish() {
            self.tell(&format!("warning: {}: {error}; {} lost", path.display(), recording.lost()));
        }
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
        let mut sinks = self.0.borrow_mut();
        let Sinks { sinks, stores, .. } = &mut *sinks;
        let recording = match sinks.get_mut(&program) {
            Some(Sink::Text { spool, text, .. }) => {
                return spool.place().map(|place| text.append(record, place));
            }
            Some(Sink::KernelLog(log, text)) => return text.write(record, log),
            Some(Sink::Store(path)) => stores.get_mut(path),
            None => None,
        };
        match recording {
            Some(filled) => filled.recording.record(program, record),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn note(&mut self, note: &Note) {
        let text = crate::output::text(note);
        let mut sinks = self.0.borrow_mut();
        sinks.stores.values_mut().for_each(|filled| filled.recording.note(&text));
        sinks.tell(&text);
    }

    fn placed(&mut self, placed: &Placed<'_>) {
        if let Some(recording) = self.0.borrow_mut().store(placed.program) {
            recording.placed(placed);
        }
    }

    fn dropped(&mut self, program: usize, probe: usize, count: u64) {
        if let Some(recording) = self.0.borrow_mut().store(program) {
            recording.dropped(program, probe, count);
        }
    }

    fn is_ready(&mut self) -> bool {
        // One that is slow holds up all: their records come from the same memory.
        let is_ready = |sink: &Sink| !matches!(sink, Sink::Text { spool, .. } if !spool.is_ready());
        self.0.borrow().sinks.values().all(is_ready)
    }

    fn idle(&mut self) {
        let mut sinks = self.0.borrow_mut();
        sinks.flush(false);
        sinks.refresh();
    }
}
