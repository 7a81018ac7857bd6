//! The answers to the page: JSON made of the store, which may have grown since.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use convert::report::Overview;
use convert::{TemplateSet, TraceFacts, convert};
use trace::store::{Filter, Info, Reader};

use super::cursor::{Cursor, unreadable};
use super::http::{Refused, Request};
use super::kept::{Answer, Kept};
use crate::arguments::moment;
use crate::selection::named;

/// Most probes, functions, processes and threads in an answer.
const MOST: usize = 100;
/// Most records of an answer.
const MAX_RECORDS: usize = 500;
/// Most places in the records that pages have come to.
const MAX_CURSORS: usize = 4;

/// Reads a store, and keeps the latest answers. Who asks for what must be read waits for others
/// that do: reading one store several times at once takes no less time.
pub(super) struct Answers {
    file: PathBuf,
    overviews: Mutex<Kept>,
    pages: Mutex<Pages>,
}

/// Pages of records.
#[derive(Default)]
struct Pages {
    kept: Kept,
    cursors: Vec<Cursor>,
}

/// The state of a file: another if anything was written.
struct State {
    name: String,
    inode: u64,
    length: u64,
}

impl Answers {
    pub(super) fn new(file: PathBuf) -> Answers {
        Answers { file, overviews: Mutex::default(), pages: Mutex::default() }
    }

    /// What a report says of the selected records. If nothing was written since the state of the
    /// file that the parameter `seen` names, just that.
    pub(super) fn data(&self, request: &Request) -> Result<Vec<u8>, Refused> {
        let state = self.state()?.name;
        let unchanged = |state: &str| format!("{{\"seen\":\"{state}\"}}").into_bytes();
        if request.get("seen") == Some(&state) {
            return Ok(unchanged(&state));
        }
        let question = question(request, &["seen"]);
        let mut kept = lock(&self.overviews);
        if let Some(answer) = kept.find(&question, &state) {
            let is_seen = request.get("seen") == Some(&answer.state);
            return Ok(if is_seen { unchanged(&answer.state) } else { answer.body.to_vec() });
        }
        let begun = Instant::now();
        let mut reader = self.open()?;
        let filter = filter(request, reader.info())?;
        let mut known = TraceFacts::new(reader.info());
        let name = self.file.file_name().unwrap_or_default().to_string_lossy();
        let mut overview = Overview::new(&name, reader.info(), &known, (filter.from, filter.to));
        let sheet = TemplateSet::new(None, reader.info());
        reader.select(filter).map_err(unreadable)?;
        convert(&mut reader, &mut known, &sheet, &mut overview, |_| {}).map_err(unreadable)?;
        let overview = overview.json(MOST);
        let body = [format!("{{\"seen\":\"{state}\",\"overview\":").as_bytes(), &overview, b"}"].concat();
        kept.put(question, Answer::begun(begun, state, &body));
        Ok(body)
    }

    /// The selected records from the number `skip` on that have the text `text`, and whether there
    /// are more.
    pub(super) fn records(&self, request: &Request) -> Result<Vec<u8>, Refused> {
        let state = self.state()?;
        let asked = question(request, &[]);
        let mut pages = lock(&self.pages);
        if let Some(answer) = pages.kept.find(&asked, &state.name) {
            return Ok(answer.body.to_vec());
        }
        let begun = Instant::now();
        let mut cursor = pages.cursor(request, &state, self)?;
        let (mut records, mut has_more) = cursor.page(MAX_RECORDS)?;
        if !has_more && cursor.file.1 < state.length {
            // It has come to what was the end when it was opened.
            cursor = begin(request, &state, self)?;
            (records, has_more) = cursor.page(MAX_RECORDS)?;
        }
        if has_more {
            pages.cursors.push(cursor);
        }
        let records = records.join(&b","[..]);
        let body = [b"{\"records\":[", &records[..], format!("],\"more\":{has_more}}}").as_bytes()].concat();
        pages.kept.put(asked, Answer::begun(begun, state.name, &body));
        Ok(body)
    }

    fn open(&self) -> Result<Reader, Refused> {
        Reader::open(&self.file).map_err(unreadable)
    }

    fn state(&self) -> Result<State, Refused> {
        let about = std::fs::metadata(&self.file).map_err(unreadable)?;
        let (inode, length) = (about.ino(), about.len());
        let name = format!("{inode}.{length}.{}.{}", about.mtime(), about.mtime_nsec());
        Ok(State { name, inode, length })
    }
}

impl Pages {
    /// The place that the page before has come to, or one to which is read.
    fn cursor(&mut self, request: &Request, state: &State, of: &Answers) -> Result<Cursor, Refused> {
        let selecting = question(request, &["skip"]);
        let skip = number(request, "skip")?.unwrap_or(0);
        let is_there = |cursor: &Cursor| {
            let (inode, length) = cursor.file;
            // What is appended to a store comes behind.
            inode == state.inode
                && length <= state.length
                && cursor.question == selecting
                && cursor.next == skip
        };
        if let Some(place) = self.cursors.iter().position(is_there) {
            return Ok(self.cursors.remove(place));
        }
        if self.cursors.len() >= MAX_CURSORS {
            self.cursors.remove(0);
        }
        begin(request, state, of)
    }
}

/// Begins to read the records that a request selects.
fn begin(request: &Request, state: &State, of: &Answers) -> Result<Cursor, Refused> {
    let filter = filter(request, of.open()?.info())?;
    let text = request.get("text").unwrap_or_default().as_bytes().to_ascii_lowercase();
    let skip = number(request, "skip")?.unwrap_or(0);
    let file = (state.inode, state.length);
    Cursor::begin(of.file.clone(), file, question(request, &["skip"]), filter, text, skip)
}

/// What is asked for, but for these parameters.
fn question(request: &Request, without: &[&str]) -> String {
    let is_of_it = |(name, _): &&(String, String)| name != "key" && !without.contains(&name.as_str());
    format!("{:?}", request.parameters.iter().filter(is_of_it).collect::<Vec<_>>())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A parameter that is a number.
fn number(request: &Request, name: &str) -> Result<Option<u64>, Refused> {
    let parsed = |text: &str| {
        text.trim().parse().map_err(|_| Refused("400 Bad Request", format!("{name}: a number is expected")))
    };
    request.get(name).map(parsed).transpose()
}

/// The records that a request selects.
fn filter(request: &Request, info: &Info) -> Result<Filter, Refused> {
    let bad = |name: &str, why: &str| Refused("400 Bad Request", format!("{name}: {why}"));
    let time = |name: &str| {
        let parsed = |text| moment(text).map(|moment| moment.time(info.about.start));
        request.get(name).map(parsed).transpose().map_err(|why| bad(name, &why))
    };
    let id = |name: &str| {
        let id = number(request, name)?.map(u32::try_from).transpose();
        id.map(Vec::from_iter).map_err(|_| bad(name, "no such number"))
    };
    let probes = match request.get("probe") {
        Some(probe) => named(probe.trim(), info).map_err(|error| bad("probe", error.message()))?,
        None => Vec::new(),
    };
    Ok(Filter {
        from: time("from")?,
        to: time("until")?,
        pids: id("pid")?,
        tids: id("tid")?,
        probes,
        ..Filter::default()
    })
}
