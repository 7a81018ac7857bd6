//! Writes the findings as a self-contained HTML page: no script, font or picture from elsewhere.

use std::fmt::Write;

use printable::markup;

use super::chart::{Series, lengths, over_time, spark};
use super::findings::{Findings, Probe};
use super::functions::Function;
use super::numbers::{count_of, duration, grouped, percent, rate};
use super::page::STYLE;
use super::plain::summary;
use super::timeline::Timeline;
use crate::text::Clock;

/// Number of probes with a colour of their own in the chart; the others share one.
const COLOURS: usize = 6;

/// The findings as a page. Shows `most` probes, places, histograms and processes, and says how many
/// more there are.
pub fn html(found: &Findings, most: usize) -> String {
    let mut out = String::new();
    let name = markup(&found.name);
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\
         <link rel=\"icon\" href=\"data:,\"><title>{name}</title><style>{STYLE}</style></head><body><main>\n"
    );
    head(&mut out, found);
    if found.records > 0 {
        timeline(&mut out, found);
    }
    probes(&mut out, found, most);
    if found.records > 0 {
        functions(&mut out, found, most);
        places(&mut out, found, most);
        latencies(&mut out, found, most);
        talkers(&mut out, found, most);
    }
    variables(&mut out, found, most);
    notes(&mut out, found, most);
    let _ = write!(
        out,
        "<footer>dprobes {} report; the trace was made by dprobes {}.</footer>\n</main></body></html>\n",
        env!("CARGO_PKG_VERSION"),
        markup(&found.about.version)
    );
    out
}

fn head(out: &mut String, found: &Findings) {
    let about = &found.about;
    let _ = write!(out, "<h1>{}</h1>", markup(&found.name));
    if !about.host.is_empty() {
        let _ = write!(
            out,
            "<p>{} &middot; {} &middot; <code>{}</code></p>",
            markup(&about.host),
            markup(&about.kernel),
            markup(&about.command_line())
        );
    }
    if let Some((least, _)) = found.times {
        let (mut clock, mut date) = (Clock::default(), Vec::new());
        clock.show(least, &mut date);
        let _ = write!(out, "<p>first record {}</p>", markup(&String::from_utf8_lossy(&date)));
    }
    out.push_str("<div class=\"tiles\">");
    let mut tile = |value: String, what: &str, class: &str| {
        let _ = write!(out, "<div class=\"tile {class}\"><b>{value}</b><span>{what}</span></div>");
    };
    tile(grouped(found.records), "records", "");
    tile(duration(found.length()), "from first to last record", "");
    tile(rate(found.rate(found.records)), "records per second", "");
    let fired = found.probes.iter().filter(|probe| probe.records > 0).count();
    tile(format!("{fired} of {}", found.probes.len()), "probes have logged", "");
    tile(grouped(found.processes.len() as u64), "processes", "");
    let class = if found.dropped > 0 { "warn" } else { "" };
    tile(grouped(found.dropped), "records dropped", class);
    out.push_str("</div>\n");
    if !found.complete {
        out.push_str(
            "<p class=\"warn\">The trace was cut short: hits, misses and variables are not known.</p>",
        );
    }
}

/// The colour of the probe at a position.
fn colour(place: usize) -> usize {
    place.min(COLOURS)
}

fn timeline(out: &mut String, found: &Findings) {
    let fired: Vec<&Probe> = found.probes.iter().filter(|probe| probe.records > 0).collect();
    let mut series: Vec<Series<'_>> =
        fired.iter().take(COLOURS).map(|probe| (probe.name.clone(), &probe.timeline)).collect();
    let mut rest = Timeline::default();
    for (part, count) in rest.0.iter_mut().enumerate() {
        let shown: u64 = series.iter().map(|(_, timeline)| timeline.0[part]).sum();
        *count = found.timeline.0[part].saturating_sub(shown);
    }
    if rest.greatest() > 0 {
        series.push(("others".to_owned(), &rest));
    }
    out.push_str("<section><h2>Records per second</h2><ul class=\"legend\">");
    for (place, (name, _)) in series.iter().enumerate() {
        let _ = write!(out, "<li><i class=\"s{}\"></i>{}</li>", colour(place), markup(name));
    }
    let first = found.times.map_or(found.axis.start, |(least, _)| least);
    let _ = writeln!(out, "</ul>{}</section>", over_time(&series, found.axis, first));
}

/// A table: its column heads, and its rows as HTML.
fn table(out: &mut String, heads: &[&str], rows: &str) {
    let heads: String = heads.iter().map(|head| format!("<th>{head}</th>")).collect();
    let _ = write!(
        out,
        "<div class=\"scroll\"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    );
}

fn more(out: &mut String, all: usize, most: usize, what: &str) {
    if all > most {
        let _ = write!(out, "<p>and {}</p>", count_of((all - most) as u64, &format!("more {what}")));
    }
}

/// Cells with a share of all, as a number and as a bar.
fn share(part: u64, all: u64) -> String {
    let share = percent(part, all);
    format!("<td>{share:.2}%</td><td class=\"meter\"><i style=\"width:{share:.1}%\"></i></td>")
}

fn probes(out: &mut String, found: &Findings, most: usize) {
    if found.probes.is_empty() {
        return;
    }
    out.push_str("<section><h2>Probes</h2>");
    let mut rows = String::new();
    for Probe { name, records, counts, timeline } in found.probes.iter().take(most) {
        let told = |count: fn(&trace::store::Counts) -> u64, bad: bool| match counts {
            Some(counts) if bad && count(counts) > 0 => {
                format!("<td class=\"warn\">{}</td>", grouped(count(counts)))
            }
            Some(counts) => format!("<td>{}</td>", grouped(count(counts))),
            None => "<td>?</td>".to_owned(),
        };
        let _ = write!(
            rows,
            "<tr><td><code>{}</code></td><td>{}</td><td>{:.2}%</td><td>{}</td>{}{}{}<td>{}</td></tr>",
            markup(name),
            grouped(*records),
            percent(*records, found.records),
            rate(found.rate(*records)),
            told(|counts| counts.hits, false),
            told(|counts| counts.missed, true),
            told(|counts| counts.dropped, true),
            spark(timeline)
        );
    }
    let heads = [
        "probe",
        "records",
        "share",
        "records/s",
        "hits",
        "missed",
        "dropped",
        "<span class=\"left\">over time</span>",
    ];
    table(out, &heads, &rows);
    more(out, found.probes.len(), most, "probe");
    out.push_str("</section>\n");
}

fn functions(out: &mut String, found: &Findings, most: usize) {
    if found.functions.is_empty() {
        return;
    }
    out.push_str("<section><h2>Functions</h2>");
    let own = |function: &Function| function.own;
    let all = found.functions.iter().map(own).fold(0, u64::saturating_add);
    let mut rows = String::new();
    for function in found.functions.iter().take(most) {
        let Function { name, calls, total, mean, slow, greatest, .. } = function;
        let _ = write!(rows, "<tr><td><code>{}</code></td><td>{}</td>", markup(name), grouped(*calls));
        for time in [total, mean, slow, greatest, &own(function)] {
            let _ = write!(rows, "<td>{}</td>", duration(*time));
        }
        let _ = write!(rows, "{}</tr>", share(own(function), all));
    }
    let heads = ["function", "calls", "total", "mean", "99.9%", "max", "self", "share of self", ""];
    table(out, &heads, &rows);
    more(out, found.functions.len(), most, "function");
    out.push_str("</section>\n");
}

fn places(out: &mut String, found: &Findings, most: usize) {
    if found.places.is_empty() {
        return;
    }
    out.push_str("<section><h2>Places</h2>");
    let mut rows = String::new();
    for place in found.places.iter().take(most) {
        let _ = write!(
            rows,
            "<tr><td><code>{}</code></td><td>{}</td>{}</tr>",
            markup(&place.name),
            grouped(place.records),
            share(place.records, found.records)
        );
    }
    table(out, &["function", "records", "share", ""], &rows);
    more(out, found.places.len(), most, "place");
    out.push_str("</section>\n");
}

fn latencies(out: &mut String, found: &Findings, most: usize) {
    if found.latencies.is_empty() {
        return;
    }
    out.push_str("<section><h2>Latency</h2>");
    let mut rows = String::new();
    for latency in found.latencies.iter().take(most) {
        let times = &latency.times;
        let _ = write!(
            rows,
            "<tr><td><code>{}</code></td><td>{}</td>",
            markup(&latency.name),
            grouped(times.count)
        );
        for value in [
            times.sum,
            times.mean(),
            times.least,
            times.percentile(50.0),
            times.percentile(90.0),
            times.percentile(99.0),
            times.percentile(99.9),
            times.greatest,
        ] {
            let _ = write!(rows, "<td>{}</td>", duration(value));
        }
        rows.push_str("</tr>");
    }
    let heads = ["between", "times", "total", "mean", "least", "median", "90%", "99%", "99.9%", "greatest"];
    table(out, &heads, &rows);
    for latency in found.latencies.iter().take(most).filter(|latency| latency.times.count > 0) {
        let open = if latency.open > 0 {
            format!("; {} without an end", grouped(latency.open))
        } else {
            String::new()
        };
        let _ = write!(
            out,
            "<h3>{}</h3><p>{}{open}</p>{}",
            markup(&latency.name),
            markup(&summary(&latency.times)),
            lengths(&latency.times, &latency.name)
        );
    }
    more(out, found.latencies.len(), most, "histogram");
    out.push_str("</section>\n");
}

fn talkers(out: &mut String, found: &Findings, most: usize) {
    out.push_str("<section><h2>Processes and threads</h2>");
    let mut rows = String::new();
    let named = |id: u32, name: &str| format!("{} <code>{id}</code>", markup(name));
    let mut row = |class: &str, label: &str, records: u64| {
        let _ = write!(
            rows,
            "<tr><td class=\"{class}\">{label}</td><td>{}</td><td>{}</td>{}</tr>",
            grouped(records),
            rate(found.rate(records)),
            share(records, found.records)
        );
    };
    for process in found.processes.iter().take(most) {
        row("", &named(process.pid, &process.name), process.records);
        let threads = if process.threads.len() > 1 { process.threads.as_slice() } else { &[] };
        for thread in threads.iter().take(most) {
            row("sub", &named(thread.tid, &thread.name), thread.records);
        }
        let rest = threads.len().saturating_sub(most);
        if rest > 0 {
            let records = threads.iter().skip(most).map(|thread| thread.records).sum();
            row("sub", &format!("{} more", grouped(rest as u64)), records);
        }
    }
    table(out, &["process, thread", "records", "records/s", "share", ""], &rows);
    more(out, found.processes.len(), most, "process");
    if found.others > 0 {
        let _ = write!(out, "<p>{} of other threads</p>", count_of(found.others, "record"));
    }
    out.push_str("</section>\n");
}

fn variables(out: &mut String, found: &Findings, most: usize) {
    if found.variables.is_empty() {
        return;
    }
    let rows: String = found
        .variables
        .iter()
        .take(most)
        .map(|(name, value)| {
            format!(
                "<tr><td><code>{}</code></td><td>{}</td><td><code>{value:#x}</code></td></tr>",
                markup(name),
                grouped(*value)
            )
        })
        .collect();
    out.push_str("<section><h2>Variables at the end</h2>");
    table(out, &["variable", "value", ""], &rows);
    more(out, found.variables.len(), most, "variable");
    out.push_str("</section>\n");
}

fn notes(out: &mut String, found: &Findings, most: usize) {
    if found.notes.is_empty() && found.remarks.is_empty() {
        return;
    }
    out.push_str("<section><h2>Messages</h2>");
    for remark in &found.remarks {
        let _ = write!(out, "<p>{}</p>", markup(remark));
    }
    for (time, note) in found.notes.iter().take(most) {
        let _ = write!(out, "<p><code>+{}</code> {}</p>", markup(&duration(*time)), markup(note));
    }
    more(out, found.notes.len(), most, "message");
    out.push_str("</section>\n");
}
