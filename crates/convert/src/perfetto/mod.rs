//! Writes Perfetto's protocol buffers, which ui.perfetto.dev and `trace_processor` read.
//!
//! ```text
//! Trace { packet... }
//! TracePacket { clock_snapshot }                       the clocks, and that times are those of the wall clock
//! TracePacket { track_descriptor }                     a process, a thread or a counter, when it is met first
//! TracePacket { timestamp, track_event, interned_data } a record
//! ```
//!
//! A record is the begin or end of a slice if its probe is at an entry or return of a function that
//! is probed at both (`Spans`), else an instant. The values of its template are the event's
//! annotations; a slice has those of both records. Fields that are counters also become points on a
//! counter track.

mod annotate;
mod field;
mod names;
mod tracks;
mod wire;

use std::io::{self, Write};

use trace::Record;
use trace::template::{Template, Value};

use crate::event::{Event, Form};
use crate::facts::TraceFacts;
use crate::map::Map;
use crate::plural::counted;
use crate::spans::{Losses, Spans, Step};
use annotate::{annotations, flag};
use field::{defaults, event, packet, snapshot, trace as whole};
use names::{Kind, Names};
use tracks::Tracks;
use wire::{bytes, double, message, number, signed};

/// Buffered bytes that trigger a write.
const FULL: usize = 1 << 16;

/// The only packet sequence.
const SEQUENCE: u64 = 1;

/// Selects the values that are counters.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Names of counter fields, besides those recognised by their names ([`Counters::is_one`]).
    pub names: Vec<String>,
}

impl Counters {
    /// Whether a field is a counter: it is listed, or its name has the word `counter` or `gauge`,
    /// as in `requests_counter`.
    pub fn is_one(&self, field: &str) -> bool {
        let is_word = |word: &str| word.eq_ignore_ascii_case("counter") || word.eq_ignore_ascii_case("gauge");
        self.names.iter().any(|name| name == field) || field.split('_').any(is_word)
    }
}

/// A counter without a process: its name and its points; a point without a time is placed at the
/// end.
type Total = (String, Vec<(Option<u64>, u64)>);

/// Writes records as a Perfetto trace.
#[derive(Debug)]
pub struct Perfetto<W: Write> {
    out: W,
    packets: Vec<u8>,
    functions: Vec<String>,
    tracks: Tracks,
    names: Names,
    spans: Spans,
    counters: Counters,
    /// The counter fields of a template, by its codes: position and track name.
    counted: Map<(u32, u32), Vec<(usize, String)>>,
    /// Whether the next event has to announce that interned names start anew.
    cleared: bool,
    /// The time of the last record.
    last: u64,
    /// Counters without a process, written at the end.
    totals: Vec<Total>,
    event: Vec<u8>,
}

impl<W: Write> Perfetto<W> {
    /// Writes to `out`, in large pieces.
    pub fn new(out: W, known: &TraceFacts, counters: Counters) -> Perfetto<W> {
        let mut perfetto = Perfetto {
            out,
            packets: Vec::with_capacity(2 * FULL),
            functions: known.function_names().to_vec(),
            tracks: Tracks::new(known.processes.clone()),
            names: Names::default(),
            spans: Spans::with(Losses::of(&known.gaps)),
            counters,
            counted: Map::default(),
            cleared: true,
            last: known.times.map_or(known.start, |(least, _)| least),
            totals: totals(known),
            event: Vec::new(),
        };
        perfetto.begin(known);
        perfetto
    }

    /// Writes the packets before the first record: the clocks.
    fn begin(&mut self, known: &TraceFacts) {
        let start = known.times.map_or(known.start, |(least, _)| least);
        let monotonic = start.wrapping_sub(known.monotonic.cast_unsigned());
        message(whole::PACKET, &mut self.packets, |out| {
            number(packet::SEQUENCE, SEQUENCE, out);
            message(packet::CLOCK_SNAPSHOT, out, |out| {
                for (clock, time) in [(snapshot::REALTIME, start), (snapshot::MONOTONIC, monotonic)] {
                    message(snapshot::CLOCKS, out, |out| {
                        number(snapshot::CLOCK_ID, clock, out);
                        number(snapshot::CLOCK_TIMESTAMP, time, out);
                    });
                }
                number(snapshot::PRIMARY, snapshot::REALTIME, out);
            });
        });
    }

    /// Writes the buffered packets if there are enough.
    fn spill(&mut self) -> io::Result<()> {
        if self.packets.len() >= FULL {
            self.out.write_all(&self.packets)?;
            self.packets.clear();
        }
        Ok(())
    }

    /// Appends the event in `self.event`, preceded by new descriptors and names.
    fn put(&mut self, time: u64) {
        for track in self.tracks.new.drain(..) {
            message(whole::PACKET, &mut self.packets, |out| {
                number(packet::SEQUENCE, SEQUENCE, out);
                bytes(packet::TRACK_DESCRIPTOR, &track, out);
            });
        }
        let cleared = std::mem::take(&mut self.cleared);
        message(whole::PACKET, &mut self.packets, |out| {
            number(packet::TIMESTAMP, time, out);
            number(packet::SEQUENCE, SEQUENCE, out);
            number(packet::SEQUENCE_FLAGS, if cleared { packet::CLEARED } else { packet::NEEDED }, out);
            if cleared {
                message(packet::DEFAULTS, out, |out| number(defaults::CLOCK_ID, snapshot::REALTIME, out));
            }
            if !self.names.new.is_empty() {
                bytes(packet::INTERNED_DATA, &self.names.new, out);
                self.names.new.clear();
            }
            bytes(packet::TRACK_EVENT, &self.event, out);
        });
        self.event.clear();
        if self.names.is_full() {
            self.names.clear();
            self.cleared = true;
        }
    }

    /// Begins the body of an event.
    fn start(&mut self, kind: u64, track: u64) {
        self.event.clear();
        number(event::TYPE, kind, &mut self.event);
        number(event::TRACK, track, &mut self.event);
    }

    /// Ends the innermost `count` slices of a thread, whose functions were left without a return.
    fn close(&mut self, track: u64, count: usize, time: u64) {
        for _ in 0..count {
            self.start(event::END, track);
            flag("no_return", &mut self.names, &mut self.event);
            self.put(time);
        }
    }

    /// Appends points for the counters among the values of a record.
    fn count(&mut self, record: &Record, template: &Template) {
        let counters = &self.counters;
        let counted = self.counted.entry((template.major, template.minor)).or_insert_with(|| {
            let fields = template.fields().iter().enumerate();
            let own = fields.filter(|(_, field)| counters.is_one(&field.name));
            own.map(|(place, field)| (place, format!("{}: {}", template.description, field.name))).collect()
        });
        if counted.is_empty() {
            return;
        }
        let values: Vec<Value<'_>> = template.values(record).collect();
        let points: Vec<(u64, f64, Option<i64>)> = counted
            .iter()
            .filter_map(|(place, name)| {
                let (value, whole) = match values.get(*place)? {
                    Value::Unsigned(value) => (*value as f64, i64::try_from(*value).ok()),
                    Value::Signed(value) => (*value as f64, Some(*value)),
                    Value::Float(value) => (*value, None),
                    _ => return None,
                };
                Some((self.tracks.counter(record, name)?, value, whole))
            })
            .collect();
        for (track, value, whole) in points {
            self.counter_value(track, record.time, value, whole);
        }
    }

    /// Appends a point of a counter.
    fn counter_value(&mut self, track: u64, time: u64, value: f64, whole: Option<i64>) {
        self.start(event::COUNT, track);
        match whole {
            Some(whole) => signed(event::COUNTER, whole, &mut self.event),
            None => double(event::COUNTER_DOUBLE, value, &mut self.event),
        }
        self.put(time);
    }
}

/// Appends the name and the module of an event.
fn name(name: &str, module: &str, names: &mut Names, out: &mut Vec<u8>) {
    if !module.is_empty() {
        number(event::CATEGORY, names.number(Kind::Category, module.as_bytes()), out);
    }
    number(event::NAME, names.number(Kind::Event, name.as_bytes()), out);
}

/// Counters of the trace itself: dropped records, and the variables at the end.
fn totals(known: &TraceFacts) -> Vec<Total> {
    let mut totals = Vec::new();
    let mut dropped = 0_u64;
    // They are in order of time.
    let gaps = known.gaps.iter().filter(|gap| gap.dropped > 0);
    let points: Vec<(Option<u64>, u64)> = gaps
        .map(|gap| {
            dropped = dropped.saturating_add(gap.dropped);
            (Some(gap.to), dropped)
        })
        .collect();
    if !points.is_empty() {
        totals.push(("records dropped".to_owned(), points));
    }
    for variables in &known.variables {
        for (index, &value) in variables.values.iter().enumerate().filter(|(_, value)| **value != 0) {
            let name = match variables.program {
                None => format!("gv[{index}]"),
                Some(program) => format!("{} lv[{index}]", known.program(program).unwrap_or("?")),
            };
            totals.push((name, vec![(None, value)]));
        }
    }
    totals
}

impl<W: Write> Form for Perfetto<W> {
    fn record(&mut self, event: &Event<'_>) -> io::Result<()> {
        let Event { record, place, template, .. } = *event;
        let time = record.time;
        self.last = self.last.max(time);
        let track = self.tracks.thread(record);
        let step = self.spans.step(event);
        if step.is_some() {
            self.close(track, self.spans.left().len(), time);
        }
        match step {
            Some(Step::Begin) => {
                self.start(event::BEGIN, track);
                let function = place.function.and_then(|number| self.functions.get(number as usize));
                let function = function.map_or("?", String::as_str);
                name(function, &place.module, &mut self.names, &mut self.event);
            }
            Some(Step::End(_)) => self.start(event::END, track),
            Some(Step::Unsure | Step::Lone) | None => {
                self.start(event::INSTANT, track);
                let described = template.map(|template| template.description.as_str());
                let called = described.unwrap_or_else(|| place.name());
                name(called, &place.module, &mut self.names, &mut self.event);
            }
        }
        annotations(record, template, &mut self.names, &mut self.event);
        self.put(time);
        if let Some(template) = template {
            self.count(record, template);
        }
        self.spill()
    }

    fn finish(&mut self) -> io::Result<Vec<String>> {
        let open = self.spans.end();
        for left in &open {
            let track = self.tracks.known(left.pid, left.tid);
            self.close(track, 1, self.last);
            self.spill()?;
        }
        for (name, points) in std::mem::take(&mut self.totals) {
            let track = self.tracks.global(&name);
            for (time, value) in points {
                let time = time.unwrap_or(self.last);
                self.counter_value(track, time, value as f64, i64::try_from(value).ok());
                self.spill()?;
            }
        }
        self.out.write_all(&self.packets)?;
        self.packets.clear();
        self.out.flush()?;
        let mut remarks = Vec::new();
        let mut remark = |count: u64, one: &str, many: &str| {
            if count > 0 {
                remarks.push(counted(count, one, many));
            }
        };
        remark(
            self.spans.entries,
            "call ended without a return hit; its slice ends where that was noticed",
            "calls ended without a return hit; their slices end where that was noticed",
        );
        remark(
            open.len() as u64,
            "call had not returned when the trace ended; its slice ends there",
            "calls had not returned when the trace ended; their slices end there",
        );
        remark(
            self.spans.returns,
            "return has no entry in the trace; it is shown as an instant",
            "returns have no entry in the trace; they are shown as instants",
        );
        remark(
            self.spans.beyond,
            "call exceeded the limit of open calls; it is shown as an instant",
            "calls exceeded the limit of open calls; they are shown as instants",
        );
        Ok(remarks)
    }
}
