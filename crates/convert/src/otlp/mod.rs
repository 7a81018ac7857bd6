//! Calls of functions as spans of OpenTelemetry, in requests of OTLP as JSON.
//!
//! ```text
//! {"resourceSpans":[{"resource":PROCESS,"scopeSpans":[{"scope":{...},"spans":[SPAN, ...]}]}, ...]}
//!
//! trace    the outermost call that is known of a thread, and all calls in it
//! parent   the call in whose thread, and within which, a call begins
//! ```
//!
//! A span is made of an entry and its return ([`crate::spans`]); it is written when the call ends,
//! so spans come in the order of their ends. A call that was left otherwise ends where that becomes
//! visible, and has the attribute `dprobes.no_return`. Records that are no calls are left out, and
//! counted.
//!
//! The numbers of traces and spans are calculated from the name of the machine, the beginning of
//! the trace and the number of the record: who converts a trace twice gets the same spans.

mod attributes;
mod ids;

use std::fmt;
use std::io;

use trace::store::Gap;

use crate::event::{Event, Form};
use crate::facts::{Side, TraceFacts};
use crate::map::Map;
use crate::plural::counted;
use crate::spans::{Losses, Spans, Step};
use crate::text::{decimal, string};
use attributes::{number, of_record, text};
use ids::Ids;

/// The most spans of a request.
const SPANS: usize = 1024;
/// Bytes of spans that make a request.
const BYTES: usize = 1 << 20;
/// The most bytes of attributes of calls that have not returned.
const HELD: usize = 64 << 20;
/// The most names of processes that are remembered while a trace is made.
const MAX_NAMES: usize = 1 << 16;

/// A call that has not returned.
#[derive(Debug)]
struct Open {
    function: u32,
    start: u64,
    span: [u8; 8],
    trace: [u8; 16],
    /// The attributes that its entry gives, as JSON.
    attributes: Vec<u8>,
}

/// What a request carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Spans.
    pub spans: u64,
    /// The records that they are made of.
    pub records: u64,
}

/// What takes requests.
type Take<'a> = Box<dyn FnMut(&[u8], Carried) -> io::Result<()> + Send + 'a>;

/// Tells what is said of a process, by its name and number: a message `Resource` as JSON.
type Resource<'a> = Box<dyn Fn(&str, u32) -> String + Send + 'a>;

/// Makes requests of spans. Its fields are this many since it follows calls in all threads, and
/// gathers what it makes of them.
pub struct Otlp<'a> {
    take: Take<'a>,
    resource: Resource<'a>,
    functions: Vec<String>,
    processes: Map<u32, String>,
    ids: Ids,
    spans: Spans,
    open: Map<(u32, u32), Vec<Open>>,
    /// Bytes of attributes in `open`.
    held: usize,
    /// The spans of the next request, with their processes.
    made: Vec<(u32, Vec<u8>)>,
    /// Their bytes.
    bytes: usize,
    /// The records that they are made of.
    records: u64,
    /// The time of the last record.
    last: u64,
    /// Records that are no calls.
    others: u64,
    /// Calls without the values of their entry.
    bare: u64,
}

impl fmt::Debug for Otlp<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Otlp").field("spans", &self.spans).finish_non_exhaustive()
    }
}

impl<'a> Otlp<'a> {
    /// Gives requests to `take`, each a whole one. `host` is the name of the machine.
    pub fn new(
        known: &TraceFacts,
        host: &str,
        resource: impl Fn(&str, u32) -> String + Send + 'a,
        take: impl FnMut(&[u8], Carried) -> io::Result<()> + Send + 'a,
    ) -> Otlp<'a> {
        Otlp {
            take: Box::new(take),
            resource: Box::new(resource),
            functions: known.function_names().to_vec(),
            processes: known.processes.clone(),
            ids: Ids::new(host, known),
            spans: Spans::with(Losses::of(&known.gaps)),
            open: Map::default(),
            held: 0,
            made: Vec::new(),
            bytes: 0,
            records: 0,
            last: 0,
            others: 0,
            bare: 0,
        }
    }

    /// More has become known of the trace: its functions have the numbers that they had.
    pub(crate) fn learn(&mut self, known: &TraceFacts) {
        self.functions
            .extend_from_slice(known.function_names().get(self.functions.len()..).unwrap_or_default());
    }

    /// Something was lost, which no call spans.
    pub(crate) fn lost(&mut self, gap: &Gap) {
        self.spans.losses.add(gap);
    }

    /// A process is called so from now on.
    pub(crate) fn name_process(&mut self, pid: u32, name: &str) {
        if self.processes.get(&pid).is_some_and(|known| known == name) {
            return;
        }
        if self.processes.len() >= MAX_NAMES {
            self.processes.clear();
        }
        self.processes.insert(pid, name.to_owned());
    }

    /// Whether the name of a process is known.
    pub(crate) fn names(&self, pid: u32) -> bool {
        self.processes.contains_key(&pid)
    }

    /// Ends the calls of threads that have made no record since a time.
    pub(crate) fn end_silent(&mut self, since: u64) -> io::Result<()> {
        let open = self.spans.end_silent(since);
        open.iter().try_for_each(|(left, last)| self.end_without_return((left.pid, left.tid), 1, *last))
    }

    /// A thread enters a function.
    fn begin(&mut self, event: &Event<'_>, function: u32) {
        let thread = (event.record.pid, event.record.tid);
        let mut attributes = Vec::new();
        string_of(self.functions.get(function as usize), "code.function.name", &mut attributes);
        string_of(
            Some(&event.place.module).filter(|module| !module.is_empty()),
            "dprobes.module",
            &mut attributes,
        );
        number("thread.id", i64::from(event.record.tid), &mut attributes);
        if !event.record.name.is_empty() {
            text("thread.name", event.record.name.as_bytes(), &mut attributes);
        }
        let mut values = Vec::new();
        of_record("entry", event, &mut values);
        match self.held + attributes.len() + values.len() <= HELD {
            true => attributes.extend(values),
            false => self.bare += 1,
        }
        self.held += attributes.len();
        let stack = self.open.entry(thread).or_default();
        let trace = stack.last().map_or_else(|| self.ids.trace(event.number), |outer| outer.trace);
        let span = self.ids.span(event.number);
        stack.push(Open { function, start: event.record.time, span, trace, attributes });
    }

    /// The innermost call of a thread ends, with these more attributes. So many records say so.
    fn end(&mut self, thread: (u32, u32), time: u64, more: &[u8], records: u64) -> io::Result<()> {
        let Some(stack) = self.open.get_mut(&thread) else { return Ok(()) };
        let Some(call) = stack.pop() else { return Ok(()) };
        let parent = stack.last().map(|outer| outer.span);
        if stack.is_empty() {
            self.open.remove(&thread);
        }
        self.held -= call.attributes.len();
        let mut out = Vec::with_capacity(256 + call.attributes.len() + more.len());
        out.extend_from_slice(b"{\"traceId\":\"");
        crate::text::hex(&call.trace, &mut out);
        out.extend_from_slice(b"\",\"spanId\":\"");
        crate::text::hex(&call.span, &mut out);
        if let Some(parent) = parent {
            out.extend_from_slice(b"\",\"parentSpanId\":\"");
            crate::text::hex(&parent, &mut out);
        }
        out.extend_from_slice(b"\",\"name\":");
        let name = self.functions.get(call.function as usize).map_or("?", String::as_str);
        string(name.as_bytes(), &mut out);
        // SPAN_KIND_INTERNAL.
        out.extend_from_slice(b",\"kind\":1,\"startTimeUnixNano\":\"");
        decimal(call.start, &mut out);
        out.extend_from_slice(b"\",\"endTimeUnixNano\":\"");
        decimal(time.max(call.start), &mut out);
        out.extend_from_slice(b"\",\"attributes\":[");
        let both = [&call.attributes, more].concat();
        // Each begins with a comma.
        out.extend_from_slice(both.strip_prefix(b",").unwrap_or(&both));
        out.extend_from_slice(b"]}");
        self.bytes += out.len();
        self.made.push((thread.0, out));
        self.records += records;
        match self.made.len() >= SPANS || self.bytes >= BYTES {
            true => self.send(),
            false => Ok(()),
        }
    }

    /// Calls of a thread that were left without a return, the innermost first.
    fn end_without_return(&mut self, thread: (u32, u32), count: usize, time: u64) -> io::Result<()> {
        let mut left = Vec::new();
        attributes::flag("dprobes.no_return", &mut left);
        (0..count).try_for_each(|_| self.end(thread, time, &left, 1))
    }

    /// Gives the spans that are made, if any.
    pub(crate) fn send(&mut self) -> io::Result<()> {
        let mut made = std::mem::take(&mut self.made);
        self.bytes = 0;
        let carried = Carried { spans: made.len() as u64, records: std::mem::take(&mut self.records) };
        // Stable: the spans of a process stay in their order.
        made.sort_by_key(|(pid, _)| *pid);
        let mut out = b"{\"resourceSpans\":[".to_vec();
        for (place, spans) in made.chunk_by(|(one, _), (other, _)| one == other).enumerate() {
            let pid = spans[0].0;
            if place > 0 {
                out.push(b',');
            }
            out.extend_from_slice(b"{\"resource\":");
            let name = self.processes.get(&pid).map_or("dprobes", String::as_str);
            out.extend_from_slice((self.resource)(name, pid).as_bytes());
            out.extend_from_slice(b",\"scopeSpans\":[{\"scope\":{\"name\":\"dprobes\",\"version\":\"");
            out.extend_from_slice(env!("CARGO_PKG_VERSION").as_bytes());
            out.extend_from_slice(b"\"},\"spans\":[");
            for (place, (_, span)) in spans.iter().enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                out.extend_from_slice(span);
            }
            out.extend_from_slice(b"]}]}");
        }
        out.extend_from_slice(b"]}");
        if made.is_empty() { Ok(()) } else { (self.take)(&out, carried) }
    }
}

/// Appends an attribute, if there is a text.
fn string_of(value: Option<&String>, name: &str, out: &mut Vec<u8>) {
    if let Some(value) = value {
        text(name, value.as_bytes(), out);
    }
}

impl Form for Otlp<'_> {
    fn record(&mut self, event: &Event<'_>) -> io::Result<()> {
        let Event { record, place, .. } = *event;
        let (time, thread) = (record.time, (record.pid, record.tid));
        self.last = self.last.max(time);
        let (Some(function), Side::Entry | Side::Return) = (place.function, place.side) else {
            self.others += 1;
            return Ok(());
        };
        let step = match place.side {
            Side::Entry => self.spans.enter(thread, function, time, record.esp),
            _ => self.spans.end_call(thread, function, time, record.esp),
        };
        self.end_without_return(thread, self.spans.left().len(), time)?;
        match step {
            Step::Begin => self.begin(event, function),
            Step::End(_) => {
                let mut values = Vec::new();
                of_record("return", event, &mut values);
                self.end(thread, time, &values, 2)?;
            }
            Step::Unsure | Step::Lone => {}
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<Vec<String>> {
        let open = self.spans.end();
        for left in &open {
            self.end_without_return((left.pid, left.tid), 1, self.last)?;
        }
        self.send()?;
        let mut remarks = Vec::new();
        let mut remark = |count: u64, one: &str, many: &str| {
            if count > 0 {
                remarks.push(counted(count, one, many));
            }
        };
        remark(self.others, "record is no call, and left out", "records are no calls, and left out");
        let ended = self.spans.entries + self.spans.unsure + open.len() as u64;
        remark(
            ended,
            "call has no return in the trace; its span ends where that was noticed",
            "calls have no return in the trace; their spans end where that was noticed",
        );
        let left = self.spans.returns;
        remark(left, "return has no entry, and is left out", "returns have no entry, and are left out");
        let beyond = self.spans.beyond;
        remark(beyond, "call exceeded the limit of open calls", "calls exceeded the limit of open calls");
        remark(
            self.bare,
            "call is without the values of its entry",
            "calls are without the values of their entries",
        );
        Ok(remarks)
    }
}

#[cfg(test)]
mod tests;
