//! The findings as text.

use std::fmt::Write;

use super::histogram::Histogram;
use super::numbers::{duration, grouped, percent, power, rate};
use super::{Findings, Latency, Probe};
use crate::text::Clock;

/// Characters of the longest bar.
const BAR: usize = 52;

/// What a trace shows, in lines. `most` probes, places, histograms and processes are shown; what there is more is said.
pub fn text(found: &Findings, most: usize) -> String {
    let mut out = String::new();
    head(&mut out, found);
    if found.records == 0 {
        return out;
    }
    probes(&mut out, found, most);
    places(&mut out, found, most);
    timeline(&mut out, found, most);
    for latency in found.latencies.iter().take(most) {
        histogram(&mut out, latency);
    }
    more(&mut out, found.latencies.len(), most, "histogram");
    talkers(&mut out, found, most);
    if !found.variables.is_empty() {
        out.push_str("\nvariables at the end\n");
    }
    for (name, value) in &found.variables {
        line(&mut out, format!("  {} = {value} ({value:#x})", clean(name)));
    }
    if !found.remarks.is_empty() {
        out.push('\n');
    }
    for remark in &found.remarks {
        line(&mut out, format!("note: {}", clean(remark)));
    }
    out
}

fn line(out: &mut String, text: impl AsRef<str>) {
    out.push_str(text.as_ref().trim_end());
    out.push('\n');
}

fn more(out: &mut String, all: usize, most: usize, what: &str) {
    if all > most {
        line(out, format!("  and {} more {what}{}", all - most, if all - most == 1 { "" } else { "s" }));
    }
}

fn head(out: &mut String, found: &Findings) {
    let about = &found.about;
    line(out, format!("{}: {} records", clean(&found.name), grouped(found.records)));
    if !about.host.is_empty() {
        let command = about.command.join(" ");
        line(
            out,
            format!("  made on {}, {}, by: {}", clean(&about.host), clean(&about.kernel), clean(&command)),
        );
    }
    if let Some((least, greatest)) = found.times {
        let (mut clock, mut dates) = (Clock::default(), Vec::new());
        clock.show(least, &mut dates);
        dates.extend_from_slice(b" to ");
        clock.show(greatest, &mut dates);
        let dates = String::from_utf8_lossy(&dates).into_owned();
        line(
            out,
            format!("  {dates}: {}, {} records/s", duration(found.length()), rate(found.rate(found.records))),
        );
    }
    match found.dropped {
        0 => line(out, "  no record dropped"),
        dropped => line(out, format!("  {} records DROPPED while it was made", grouped(dropped))),
    }
    if !found.complete {
        line(out, "  the trace was cut short: hits, misses and variables are not known");
    }
}

fn width<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    names.map(|name| clean(name).chars().count()).max().unwrap_or(0).clamp(10, 60)
}

fn probes(out: &mut String, found: &Findings, most: usize) {
    let shown = || found.probes.iter().take(most);
    let width = width(shown().map(|probe| probe.name.as_str()));
    line(
        out,
        format!(
            "\n{:width$} {:>14} {:>6} {:>9} {:>14} {:>10} {:>12}",
            "probe", "records", "%", "records/s", "hits", "missed", "dropped"
        ),
    );
    for Probe { name, records, counts, .. } in shown() {
        let told = |count: fn(&trace::store::Counts) -> u64| {
            counts.as_ref().map_or_else(|| "?".to_owned(), |counts| grouped(count(counts)))
        };
        line(
            out,
            format!(
                "{:width$} {:>14} {:>6.2} {:>9} {:>14} {:>10} {:>12}",
                clean(name),
                grouped(*records),
                percent(*records, found.records),
                rate(found.rate(*records)),
                told(|counts| counts.hits),
                told(|counts| counts.missed),
                told(|counts| counts.dropped)
            ),
        );
    }
    more(out, found.probes.len(), most, "probe");
}

fn places(out: &mut String, found: &Findings, most: usize) {
    if found.places.is_empty() {
        return;
    }
    let width = width(found.places.iter().take(most).map(|place| place.name.as_str()));
    line(out, format!("\n{:width$} {:>14} {:>6}", "place", "records", "%"));
    for place in found.places.iter().take(most) {
        line(
            out,
            format!(
                "{:width$} {:>14} {:>6.2}",
                clean(&place.name),
                grouped(place.records),
                percent(place.records, found.records)
            ),
        );
    }
    more(out, found.places.len(), most, "place");
}

fn timeline(out: &mut String, found: &Findings, most: usize) {
    let shown = || found.probes.iter().filter(|probe| probe.records > 0).take(most);
    let width = width(shown().map(|probe| probe.name.as_str()));
    let part = duration(found.axis.part.saturating_mul(2));
    line(out, format!("\n{:width$} records over time, {part} a column", "timeline"));
    line(out, format!("{:width$} {}", "all", found.timeline.line(2)));
    if shown().count() > 1 {
        for probe in shown() {
            line(out, format!("{:width$} {}", clean(&probe.name), probe.timeline.line(2)));
        }
    }
}

fn histogram(out: &mut String, latency: &Latency) {
    let Latency { name, times, open } = latency;
    let unfinished = if *open > 0 { format!(", {} without an end", grouped(*open)) } else { String::new() };
    line(
        out,
        format!(
            "\n{}: {} times, {} in all{unfinished}",
            clean(name),
            grouped(times.count),
            duration(times.sum)
        ),
    );
    if times.count == 0 {
        return;
    }
    line(out, format!("  {}; buckets in nanoseconds:", summary(times)));
    let powers = times.powers();
    let greatest = powers.iter().map(|power| power.count).max().unwrap_or(1).max(1);
    for each in powers {
        let range = format!("[{}, {})", power(each.from), power(each.to()));
        let bar = "@".repeat((each.count as f64 * BAR as f64 / greatest as f64).round() as usize);
        line(out, format!("  {range:<16} {:>10} |{bar:<BAR$}|", each.count));
    }
}

/// The mean and the percentiles.
pub(super) fn summary(times: &Histogram) -> String {
    format!(
        "mean {}, least {}, median {}, 90% {}, 99% {}, greatest {}",
        duration(times.mean()),
        duration(times.least),
        duration(times.percentile(50.0)),
        duration(times.percentile(90.0)),
        duration(times.percentile(99.0)),
        duration(times.greatest)
    )
}

fn talkers(out: &mut String, found: &Findings, most: usize) {
    line(out, format!("\n{:28} {:>14} {:>6} {:>9}", "process, thread", "records", "%", "records/s"));
    let mut row = |name: String, records: u64| {
        let share = percent(records, found.records);
        // Writing to a string cannot fail.
        let _ =
            writeln!(out, "{name:28} {:>14} {share:>6.2} {:>9}", grouped(records), rate(found.rate(records)));
    };
    for process in found.processes.iter().take(most) {
        row(format!("{} {}", process.pid, clean(&process.name)), process.records);
        if process.threads.len() > 1 {
            for thread in process.threads.iter().take(most) {
                row(format!("  {} {}", thread.tid, clean(&thread.name)), thread.records);
            }
            let rest = process.threads.len().saturating_sub(most);
            if rest > 0 {
                row(
                    format!("  {rest} more"),
                    process.threads.iter().skip(most).map(|thread| thread.records).sum(),
                );
            }
        }
    }
    let rest = found.processes.iter().skip(most).map(|process| process.records).sum::<u64>() + found.others;
    if rest > 0 {
        row("others".to_owned(), rest);
    }
}

/// Text without what a terminal might obey.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '.' } else { letter }).collect()
}
