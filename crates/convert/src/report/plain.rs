//! Writes the findings as text.

use std::fmt::Write;

use super::histogram::Histogram;
use printable::text as clean;

use super::findings::{Findings, Probe};
use super::functions::{self, Sort};
use super::latency::Latency;
use super::numbers::{aligned, count_of, duration, grouped, percent, rate};
use crate::text::Clock;

/// Characters of the longest bar.
const BAR: usize = 52;

/// The findings in lines. Shows `most` probes, places, histograms and processes, and says how many
/// more there are.
pub fn text(found: &Findings, most: usize) -> String {
    let mut out = String::new();
    head(&mut out, found);
    // Also without records: probes may have fired without logging, and their hits are shown.
    probes(&mut out, found, most);
    if found.records > 0 {
        if !found.functions.is_empty() {
            out.push('\n');
            functions::table(&mut out, &found.functions, Sort::Total, most);
        }
        places(&mut out, found, most);
        timeline(&mut out, found, most);
        for latency in found.latencies.iter().take(most) {
            histogram(&mut out, latency);
        }
        more(&mut out, found.latencies.len(), most, "histogram");
        talkers(&mut out, found, most);
    }
    variables(&mut out, found, most);
    notes(&mut out, found, most);
    out
}

fn variables(out: &mut String, found: &Findings, most: usize) {
    if !found.variables.is_empty() {
        out.push_str("\nvariables at the end\n");
    }
    for (name, value) in found.variables.iter().take(most) {
        line(out, format!("  {} = {value} ({value:#x})", clean(name)));
    }
    more(out, found.variables.len(), most, "variable");
}

fn notes(out: &mut String, found: &Findings, most: usize) {
    if !(found.remarks.is_empty() && found.notes.is_empty()) {
        out.push('\n');
    }
    for remark in &found.remarks {
        line(out, format!("note: {}", clean(remark)));
    }
    for (time, note) in found.notes.iter().take(most) {
        line(out, format!("+{}: {}", duration(*time), clean(note)));
    }
    more(out, found.notes.len(), most, "message");
}

fn line(out: &mut String, text: impl AsRef<str>) {
    out.push_str(text.as_ref().trim_end());
    out.push('\n');
}

fn more(out: &mut String, all: usize, most: usize, what: &str) {
    if all > most {
        line(out, format!("  and {}", count_of((all - most) as u64, &format!("more {what}"))));
    }
}

fn head(out: &mut String, found: &Findings) {
    let about = &found.about;
    line(out, format!("{}: {}", clean(&found.name), count_of(found.records, "record")));
    if !about.host.is_empty() {
        let command = about.command_line();
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
        0 => line(out, "  no records dropped"),
        dropped => line(out, format!("  {} DROPPED while it was made", count_of(dropped, "record"))),
    }
    if !found.complete {
        line(out, "  the trace was cut short: hits, misses and variables are not known");
    }
}

fn width<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    names.map(|name| clean(name).chars().count()).max().unwrap_or(0).clamp(10, 60)
}

fn probes(out: &mut String, found: &Findings, most: usize) {
    if found.probes.is_empty() {
        return;
    }
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
    line(out, format!("\n{:width$} records over time, {part} per column", "timeline"));
    line(out, format!("{:width$} {}", "all", found.timeline.line(2)));
    if shown().count() > 1 {
        for probe in shown() {
            line(out, format!("{:width$} {}", clean(&probe.name), probe.timeline.line(2)));
        }
        let fired = found.probes.iter().filter(|probe| probe.records > 0).count();
        more(out, fired, most, "probe");
    }
}

fn histogram(out: &mut String, latency: &Latency) {
    let Latency { name, times, open } = latency;
    let unfinished = if *open > 0 { format!(", {} without an end", grouped(*open)) } else { String::new() };
    line(
        out,
        format!(
            "\n{}: {}, {} total{unfinished}",
            clean(name),
            count_of(times.count, "time"),
            duration(times.sum)
        ),
    );
    if times.count == 0 {
        return;
    }
    line(out, format!("  {}; the lengths of the bars are logarithmic:", summary(times)));
    let powers = times.powers();
    let greatest = powers.iter().map(|power| power.count).max().unwrap_or(1).max(1);
    let length = |count: u64| (count as f64 + 1.0).ln() / (greatest as f64 + 1.0).ln() * BAR as f64;
    for each in powers {
        let bar = "@".repeat(length(each.count).round() as usize);
        let [from, to] = [each.from, each.to()].map(aligned);
        line(out, format!("  {from} ..{to} {:>12} |{bar:<BAR$}|", grouped(each.count)));
    }
}

/// The mean and the percentiles.
pub(super) fn summary(times: &Histogram) -> String {
    format!(
        "mean {}, least {}, median {}, 90% {}, 99% {}, 99.9% {}, greatest {}",
        duration(times.mean()),
        duration(times.least),
        duration(times.percentile(50.0)),
        duration(times.percentile(90.0)),
        duration(times.percentile(99.0)),
        duration(times.percentile(99.9)),
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

#[cfg(test)]
mod tests {
    use trace::store::Counts;

    use super::super::talkers::{Process, Talker};
    use super::super::timeline::Axis;
    use super::*;

    fn probe(number: u64, records: u64) -> Probe {
        let counts = Counts { hits: 1234 + number, missed: 5, ..Counts::default() };
        Probe { name: format!("a.out:f{number}"), records, counts: Some(counts), ..Probe::default() }
    }

    #[test]
    fn a_trace_without_records_tells_all_that_is_known() {
        let found = Findings {
            name: "empty.dpt".to_owned(),
            complete: true,
            dropped: 7,
            probes: (0..3).map(|number| probe(number, 0)).collect(),
            variables: (0..3).map(|number| (format!("gv[{number}]"), 41 + number)).collect(),
            notes: vec![(1500, "a\u{1b}message".to_owned()), (1, String::new()), (2, String::new())],
            ..Findings::default()
        };
        assert_eq!(
            text(&found, 2).lines().collect::<Vec<_>>(),
            [
                "empty.dpt: 0 records",
                "  7 records DROPPED while it was made",
                "",
                "probe             records      % records/s           hits     missed      dropped",
                "a.out:f0                0   0.00         0          1,234          5            0",
                "a.out:f1                0   0.00         0          1,235          5            0",
                "  and 1 more probe",
                "",
                "variables at the end",
                "  gv[0] = 41 (0x29)",
                "  gv[1] = 42 (0x2a)",
                "  and 1 more variable",
                "",
                "+1.50 µs: a\\x1bmessage",
                "+1 ns:",
                "  and 1 more message",
            ]
        );
        let page = super::super::html(&found, 2);
        assert!(
            page.contains("1,234") && page.contains("gv[1]") && page.contains("<p>and 1 more variable</p>")
        );
    }

    #[test]
    fn what_is_cut_says_how_much_more_there_is() {
        let thread = |tid| Talker { tid, name: "t".to_owned(), records: 1 };
        let process = |pid| Process {
            pid,
            records: 3,
            threads: vec![thread(pid), thread(pid + 1), thread(pid + 2)],
            ..Process::default()
        };
        let found = Findings {
            records: 9,
            times: Some((0, 1_000_000_000)),
            axis: Axis::new(0, 1_000_000_000),
            probes: (0..3).map(|number| probe(number, 3)).collect(),
            processes: [10, 20, 30].map(process).to_vec(),
            ..Findings::default()
        };
        let shown = text(&found, 2);
        let after = |heading: &str| {
            let lines = shown
                .lines()
                .skip_while(|line| !line.starts_with(heading))
                .take_while(|line| !line.is_empty());
            lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(after("probe ").last().map(String::as_str), Some("and 1 more probe"));
        assert_eq!(after("timeline").last().map(String::as_str), Some("and 1 more probe"));
        let talkers = after("process, thread");
        assert_eq!(talkers[4], "1 more 1 11.11 1.0");
        assert_eq!(talkers[9], "others 3 33.33 3.0");
        assert!(super::super::html(&found, 2).contains("1 more</td><td>1</td>"));
    }
}
