//! A place in the records that a page has come to: the next page goes on there, and the store is
//! not read again from its beginning.
//!
//! ```text
//! thread: Reader -> Order -> JSON -> [ a few lines ] -> the page that asks
//!                                    waits here between two pages, until the cursor is dropped
//! ```

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;

use convert::{Event, Form, Json, TemplateSet, TraceFacts, convert};
use trace::line::{Functions, LoggedForms};
use trace::store::{Filter, Info, Reader};
use trace::stored;

use super::http::Refused;

/// The most lines that are made before they are asked for.
const AHEAD: usize = 64;

/// A line of JSON, or why there is none.
type Line = Result<Vec<u8>, Refused>;

/// A place in the records.
#[derive(Debug)]
pub(super) struct Cursor {
    /// What selects the records.
    pub(super) question: String,
    /// The file that is read: its inode and its length when it was opened.
    pub(super) file: (u64, u64),
    /// How many records were given or skipped.
    pub(super) next: u64,
    lines: Receiver<Line>,
    /// A line that was looked at.
    ahead: Option<Vec<u8>>,
}

impl Cursor {
    /// Begins to read: the records that `filter` selects of a store and whose JSON has a text, in
    /// small letters, without the first `skip`.
    pub(super) fn begin(
        path: PathBuf,
        file: (u64, u64),
        question: String,
        filter: Filter,
        text: Vec<u8>,
        skip: u64,
    ) -> Result<Cursor, Refused> {
        let (sender, lines) = sync_channel(AHEAD);
        let read = move || {
            if let Err(refused) = read(&path, filter, text, skip, &sender) {
                // Fails if nobody asks any more.
                let _ = sender.send(Err(refused));
            }
        };
        Builder::new().spawn(read).map_err(unreadable)?;
        Ok(Cursor { question, file, next: skip, lines, ahead: None })
    }

    /// The next records, so many at most, and whether there are more.
    pub(super) fn page(&mut self, most: usize) -> Result<(Vec<Vec<u8>>, bool), Refused> {
        let mut page = Vec::new();
        while page.len() < most {
            match self.ahead.take().map(Ok).or_else(|| self.lines.recv().ok()) {
                Some(line) => page.push(line?),
                None => return Ok((page, false)),
            }
            self.next += 1;
        }
        self.ahead = self.lines.recv().ok().transpose()?;
        Ok((page, self.ahead.is_some()))
    }
}

/// What cannot be read, as an answer.
pub(super) fn unreadable(error: impl std::fmt::Display) -> Refused {
    Refused("500 Internal Server Error", printable::text(&error.to_string()).into_owned())
}

fn read(
    path: &std::path::Path,
    filter: Filter,
    text: Vec<u8>,
    skip: u64,
    sender: &SyncSender<Line>,
) -> Result<(), Refused> {
    let mut reader = Reader::open(path).map_err(unreadable)?;
    let mut known = TraceFacts::new(reader.info());
    let sheet = TemplateSet::new(None, reader.info());
    let out = Shared::default();
    let values = Values::new(reader.info());
    let mut lines = Lines { skip, text, json: Json::new(out.clone()), out, values, sender };
    reader.select(filter).map_err(unreadable)?;
    match convert(&mut reader, &mut known, &sheet, &mut lines, |_| {}) {
        Ok(_) => Ok(()),
        // Nobody asks any more.
        Err(convert::Failure::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(unreadable(error)),
    }
}

/// What was written last.
#[derive(Clone, Debug, Default)]
struct Shared(Rc<RefCell<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What records have logged, as text.
#[derive(Debug)]
struct Values {
    /// By program and probe.
    logged: HashMap<(u32, u32), LoggedForms>,
    functions: Arc<dyn Functions>,
}

impl Values {
    fn new(info: &Info) -> Values {
        let form = |probe: &trace::store::Probe| {
            Some(((probe.program, probe.number), LoggedForms::parse(probe.logged.as_deref()?)))
        };
        Values { logged: info.probes.iter().filter_map(form).collect(), functions: stored::functions(info) }
    }

    /// Adds them as a last member, `values`, to a line of JSON.
    fn add(&self, event: &Event<'_>, line: &mut Vec<u8>) {
        let logged = self.logged.get(&(event.place.program, event.place.probe));
        let values = logged.unwrap_or(&LoggedForms::UNKNOWN).values(event.record, Some(&*self.functions));
        let text = String::from_utf8_lossy(values.trim_ascii());
        // Text is always valid.
        let text = serde_json::to_string(&text).unwrap_or_default();
        if let Some(end) = line.iter().rposition(|byte| *byte == b'}') {
            line.splice(end.., format!(",\"values\":{text}}}").into_bytes());
        }
    }
}

/// Records as JSON, each a line.
struct Lines<'a> {
    /// How many are skipped.
    skip: u64,
    /// Only those whose JSON has this text, in small letters.
    text: Vec<u8>,
    /// Writes records to `out`.
    json: Json<Shared>,
    out: Shared,
    values: Values,
    sender: &'a SyncSender<Line>,
}

impl Form for Lines<'_> {
    fn record(&mut self, event: &Event<'_>) -> io::Result<()> {
        if self.text.is_empty() && self.skip > 0 {
            self.skip -= 1;
            return Ok(());
        }
        self.json.record(event)?;
        self.json.finish()?;
        let mut line = self.out.0.take();
        self.values.add(event, &mut line);
        let small = line.to_ascii_lowercase();
        if !self.text.is_empty() && !small.windows(self.text.len()).any(|part| part == self.text) {
            return Ok(());
        }
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(());
        }
        self.sender.send(Ok(line.trim_ascii().to_vec())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn finish(&mut self) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }
}
