//! All that a page in a browser shows of a trace, as one JSON object.

use std::io;

use trace::store::Info;

use super::Report;
use super::findings::Findings;
use super::heat::Heat;
use crate::event::{Event, Form};
use crate::facts::TraceFacts;
use crate::graph::CallGraph;
use crate::spans::Losses;
use crate::text::{decimal, string};

/// Most ways to functions in the graph.
const MAX_WAYS: usize = 4000;

/// Reads a trace once for a page: its report, call graph and heat maps.
#[derive(Debug)]
pub struct Overview {
    report: Report,
    graph: CallGraph,
    heat: Heat,
}

impl Overview {
    /// Of a trace with this name; `range` is the selected time range, if not all.
    pub fn new(name: &str, info: &Info, known: &TraceFacts, range: (Option<u64>, Option<u64>)) -> Overview {
        let report = Report::new(name, info, known, Vec::new(), range);
        let heat = Heat::new(report.found.axis, Losses::of(&info.gaps()));
        Overview { report, graph: CallGraph::new(known), heat }
    }

    /// The overview, once all records are read, with up to `most` of each kind.
    ///
    /// ```json
    /// {"name":"trace.dpt","host":"","command":"","records":2,"dropped":0,"complete":true,"length":5,
    ///  "since":0,"part":1,"parts":120,
    ///  "probes":[{"name":"a.out:f (entry, return)","records":2,"hits":2,"missed":0,"dropped":0,"timeline":[1,1]}],
    ///  "functions":[{"name":"f","calls":1,"total":5,"self":5,"mean":5,"slow":5,"max":5,"heat":[[1,2,1]]}],
    ///  "graph":[[-1,"f",1,5,5]],
    ///  "processes":[{"pid":1,"name":"app","records":2,"threads":[{"tid":1,"name":"app","records":2}]}],
    ///  "notes":["a sentence"]}
    /// ```
    ///
    /// Times are nanoseconds; `since` is that of the first part since the trace began. A cell of
    /// `heat` is a part, the binary logarithm of a call's time, and how many calls; a row of
    /// `graph` the row of the caller, then function, calls, total and own time.
    pub fn json(mut self, most: usize) -> Vec<u8> {
        let names = self.report.functions.clone();
        let found = self.report.findings();
        let mut out = Vec::new();
        head(&found, &mut out);
        list("probes", found.probes.iter().take(most), &mut out, |probe, out| {
            text("name", &probe.name, out);
            number("records", probe.records, out);
            if let Some(counts) = &probe.counts {
                number("hits", counts.hits, out);
                number("missed", counts.missed, out);
                number("dropped", counts.dropped, out);
            }
            key("timeline", out);
            array(probe.timeline.0.iter(), out, |count, out| decimal(*count, out));
        });
        list("functions", found.functions.iter().take(most), &mut out, |function, out| {
            text("name", &function.name, out);
            for (name, value) in [
                ("calls", function.calls),
                ("total", function.total),
                ("self", function.own),
                ("mean", function.mean),
                ("slow", function.slow),
                ("max", function.greatest),
            ] {
                number(name, value, out);
            }
            key("heat", out);
            let own = names.iter().position(|name| *name == function.name);
            let own = own.and_then(|number| u32::try_from(number).ok());
            array(own.into_iter().flat_map(|own| self.heat.cells(own)), out, |cell, out| {
                let numbers = [cell.part as u64, cell.power as u64, cell.count.into()];
                array(numbers.iter(), out, |number, out| decimal(*number, out));
            });
        });
        key("graph", &mut out);
        let mut is_first = true;
        out.push(b'[');
        for way in self.graph.ways(MAX_WAYS) {
            if !std::mem::take(&mut is_first) {
                out.push(b',');
            }
            out.push(b'[');
            match way.caller {
                Some(caller) => decimal(caller as u64, &mut out),
                None => out.extend_from_slice(b"-1"),
            }
            out.push(b',');
            string(way.function.as_bytes(), &mut out);
            for value in [way.calls, way.total, way.own] {
                out.push(b',');
                decimal(value, &mut out);
            }
            out.push(b']');
        }
        out.push(b']');
        list("processes", found.processes.iter().take(most), &mut out, |process, out| {
            text("name", &process.name, out);
            number("pid", process.pid.into(), out);
            number("records", process.records, out);
            list("threads", process.threads.iter().take(most), out, |thread, out| {
                text("name", &thread.name, out);
                number("tid", thread.tid.into(), out);
                number("records", thread.records, out);
            });
        });
        key("notes", &mut out);
        let notes = found.remarks.iter().chain(found.notes.iter().map(|(_, note)| note)).take(most);
        array(notes, &mut out, |note, out| string(note.as_bytes(), out));
        out.push(b'}');
        out
    }
}

impl Form for Overview {
    fn record(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.report.record(event)?;
        self.graph.record(event)?;
        self.heat.record(event);
        Ok(())
    }

    fn finish(&mut self) -> io::Result<Vec<String>> {
        self.graph.finish()?;
        self.report.finish()
    }
}

/// The numbers of the whole trace; begins the object.
fn head(found: &Findings, out: &mut Vec<u8>) {
    out.push(b'{');
    text("name", &found.name, out);
    text("host", &found.about.host, out);
    text("command", &found.about.command_line(), out);
    number("records", found.records, out);
    number("dropped", found.dropped, out);
    key("complete", out);
    out.extend_from_slice(if found.complete { b"true" } else { b"false" });
    number("length", found.length(), out);
    number("since", found.axis.start.saturating_sub(found.about.start), out);
    number("part", found.axis.part, out);
    number("parts", found.timeline.0.len() as u64, out);
}

/// Appends the name of a member.
fn key(name: &str, out: &mut Vec<u8>) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    string(name.as_bytes(), out);
    out.push(b':');
}

fn text(name: &str, value: &str, out: &mut Vec<u8>) {
    key(name, out);
    string(value.as_bytes(), out);
}

fn number(name: &str, value: u64, out: &mut Vec<u8>) {
    key(name, out);
    decimal(value, out);
}

/// Appends an array.
fn array<T>(values: impl Iterator<Item = T>, out: &mut Vec<u8>, mut each: impl FnMut(T, &mut Vec<u8>)) {
    out.push(b'[');
    for (place, value) in values.enumerate() {
        if place > 0 {
            out.push(b',');
        }
        each(value, out);
    }
    out.push(b']');
}

/// Appends a member with an array of objects.
fn list<T>(
    name: &str,
    values: impl Iterator<Item = T>,
    out: &mut Vec<u8>,
    mut each: impl FnMut(T, &mut Vec<u8>),
) {
    key(name, out);
    array(values, out, |value, out| {
        out.push(b'{');
        each(value, out);
        out.push(b'}');
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{END, F, MAIN, info, play};

    #[test]
    fn the_object_is_as_the_page_reads_it() {
        let mut info = info();
        info.times = Some((0, 1190));
        let mut known = TraceFacts::new(&info);
        let mut overview = Overview::new("a\"</script>\u{1b}", &info, &known, (None, None));
        let hits: &[crate::sample::Hit<'_>] = &[
            (1, MAIN, 0, 1000, &[]),
            (1, F, 100, 900, &[]),
            (1, F + END, 200, 900, &[]),
            (1, MAIN + END, 1190, 1000, &[]),
        ];
        play(&mut overview, &mut known, hits);
        let json = String::from_utf8(overview.json(20)).expect("text");
        assert!(json.starts_with("{\"name\":\"a\\\"</script>\\u001b\",\"host\":\"\""), "{json}");
        assert!(json.contains("\"records\":4,") && json.contains("\"part\":10,\"parts\":120"), "{json}");
        let main = "{\"name\":\"main\",\"calls\":1,\"total\":1190,\"self\":1090,\"mean\":1190,\"slow\":1190,\"max\":1190,\"heat\":[[119,10,1]]}";
        assert!(json.contains(main), "{json}");
        assert!(json.contains("\"graph\":[[-1,\"main\",1,1190,1090],[0,\"f\",1,100,100]]"), "{json}");
        assert!(json.ends_with("\"notes\":[]}"), "{json}");
    }
}
