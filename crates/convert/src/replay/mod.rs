//! The calls of each thread as a tree of text, in order of time.
//!
//! ```text
//! # duration  thread      function
//!            app[4711]   | serve("/index") {
//!   1.23 µs  app[4711]   |   parse(12) = 0;
//!  12.3  µs  app[4711]   | } /* serve = 200 */
//! ```
//!
//! A call in which nothing else was hit is one line; that is known when its thread's next record
//! comes, and until then its line waits in a [`Queue`], with those after it. Calls are put together
//! by [`Spans`], which never does so across a loss; what was lost is a line of its own.

mod losses;
mod names;
mod queue;

use std::io::{self, Write};

use trace::Record;
use trace::store::{Filter, Info};

use crate::event::{Event, Form};
use crate::facts::{Side, TraceFacts};
use crate::plural::counted;
use crate::remarks::on_calls;
use crate::report::aligned;
use crate::spans::{Losses as Lost, Spans, Step};
use losses::Losses;
use names::Names;
use queue::{Line, Queue};

/// Most levels that a line is indented by.
const MAX_INDENT: usize = 128;

/// Writes the calls of a trace as a tree.
#[derive(Debug)]
pub struct Replay<W> {
    out: W,
    functions: Vec<String>,
    /// Most levels of calls shown.
    depth: usize,
    spans: Spans,
    queue: Queue,
    names: Names,
    losses: Losses,
    /// Calls not shown, since they are too deep.
    deeper: u64,
    begun: bool,
}

impl<W: Write> Replay<W> {
    /// For a trace, with calls up to this depth. Of what was lost, that within the filter is told.
    pub fn new(out: W, info: &Info, known: &TraceFacts, filter: &Filter, depth: usize) -> Replay<W> {
        Replay {
            out,
            functions: known.function_names().to_vec(),
            depth,
            spans: Spans::with(Lost::of(&info.gaps())),
            queue: Queue::default(),
            names: Names::new(info),
            losses: Losses::new(info, filter),
            deeper: 0,
            begun: false,
        }
    }

    fn begin(&mut self) -> io::Result<()> {
        if !std::mem::replace(&mut self.begun, true) {
            writeln!(
                self.out,
                "{:>9}  {:width$} | function",
                "duration",
                "thread",
                width = self.names.width()
            )?;
        }
        Ok(())
    }

    fn function(&self, number: u32) -> String {
        printable::text(self.functions.get(number as usize).map_or("?", String::as_str)).into_owned()
    }

    /// A line of a record's thread.
    fn line(&self, record: &Record, depth: usize, text: String) -> Line {
        let indent = depth.min(MAX_INDENT);
        let skipped = if depth > indent { format!("[+{}] ", depth - indent) } else { String::new() };
        Line {
            duration: None,
            head: format!("{} | {:2$}{skipped}", self.names.thread(record), "", 2 * indent),
            text,
        }
    }

    /// Adds a line at a depth, unless it is too deep. So the call around it has something in it.
    fn say(&mut self, record: &Record, depth: usize, duration: Option<u64>, text: String) {
        if depth < self.depth {
            self.queue.decide((record.pid, record.tid), " {");
            let line = self.line(record, depth, text);
            self.queue.push(Line { duration, ..line });
        }
    }

    /// Tells of the functions that the last step showed to be left without a return, but for the
    /// outermost `but`. Before it, the thread was in `before` functions.
    fn left(&mut self, record: &Record, before: usize, but: usize) {
        let left = self.spans.left();
        let left = &left[..left.len().saturating_sub(but)];
        let functions: Vec<u32> = left.iter().map(|call| call.function).collect();
        for (function, depth) in functions.into_iter().zip((0..before).rev()) {
            let text = format!("}} /* {}: left without a return */", self.function(function));
            self.say(record, depth, None, text);
        }
    }

    /// Shows an entry or a return.
    fn step(&mut self, event: &Event<'_>, function: u32, before: usize, step: Step) {
        let record = event.record;
        let thread = (record.pid, record.tid);
        self.left(record, before, usize::from(step == Step::Unsure));
        let depth = self.spans.depth(thread);
        let name = self.function(function);
        let values = self.names.values(event);
        let result = if values.is_empty() { String::new() } else { format!(" ={values}") };
        match step {
            Step::Begin if depth > self.depth => self.deeper += 1,
            Step::Begin => {
                self.queue.decide(thread, " {");
                let line = self.line(record, depth - 1, format!("{name}({})", values.trim_start()));
                self.queue.wait(thread, depth - 1, line);
            }
            Step::End(span) => {
                if !self.queue.end(thread, depth, span.length, &format!("{result};")) {
                    self.say(record, depth, Some(span.length), format!("}} /* {name}{result} */"));
                }
            }
            Step::Unsure => {
                let text = format!("}} /* {name}{result}: records were lost since an entry */");
                self.say(record, depth, None, text);
            }
            Step::Lone if event.place.side == Side::Return => {
                self.say(record, depth, None, format!("/* {name}{result}: its entry is not in the trace */"));
            }
            Step::Lone => {
                let text = format!("{name}({}) /* not followed: too many calls */", values.trim_start());
                self.say(record, depth, None, text);
            }
        }
    }
}

impl<W: Write> Form for Replay<W> {
    fn record(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.begin()?;
        while let Some(text) = self.losses.next(event.record.time) {
            self.queue.push(Line { duration: None, head: String::new(), text });
        }
        let before = self.spans.depth((event.record.pid, event.record.tid));
        match (self.spans.step(event), event.place.function) {
            (Some(step), Some(function)) => self.step(event, function, before, step),
            _ => {
                let name = printable::text(&event.place.probe_name()).into_owned();
                let text = format!("* {name}{}", self.names.values(event));
                self.say(event.record, before, None, text);
            }
        }
        self.queue.write(&mut self.out, false)
    }

    fn finish(&mut self) -> io::Result<Vec<String>> {
        self.begin()?;
        self.queue.decide_all(" {");
        while let Some(text) = self.losses.next(u64::MAX) {
            self.queue.push(Line { duration: None, head: String::new(), text });
        }
        self.queue.write(&mut self.out, true)?;
        self.out.flush()?;
        let open = self.spans.end().len();
        let mut remarks = on_calls(&self.spans, open, 0, 0);
        if self.deeper > 0 {
            remarks.push(counted(
                self.deeper,
                "call is deeper than --depth and is not shown",
                "calls are deeper than --depth and are not shown",
            ));
        }
        Ok(remarks)
    }
}

/// A duration in its column.
fn column(duration: Option<u64>) -> String {
    duration.map_or_else(|| " ".repeat(9), aligned)
}

#[cfg(test)]
mod tests;
