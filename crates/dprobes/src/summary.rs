//! The summary at the end of a session.

use std::fmt::Write;

use engine::Report;

/// `1 probe`, `2 probes`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// The summary as text: a line for each probepoint, then the variables that are not zero.
pub(crate) fn text(report: &Report) -> String {
    let mut text = String::new();
    let point = |probe: &engine::ProbeReport| format!("{}:{}", probe.module, probe.point);
    let width = report.probes.iter().map(|probe| point(probe).chars().count()).max().unwrap_or(0).max(10);
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{:width$}  {:>11}  {:>10} {:>10} {:>8} {:>7} {:>10} {:>8}  state",
        "probepoint", "major,minor", "hits", "runs", "ignored", "missed", "logged", "dropped"
    );
    for probe in &report.probes {
        let counts = &probe.counts;
        let _ = writeln!(
            text,
            "{:width$}  {:>11}  {:>10} {:>10} {:>8} {:>7} {:>10} {:>8}  {}",
            point(probe),
            format!("{},{}", probe.major, probe.minor),
            counts.hits,
            counts.runs,
            counts.ignored,
            counts.missed,
            counts.logged,
            counts.dropped,
            probe.state.name()
        );
    }
    for (name, values) in [("lv", &report.locals), ("gv", &report.globals)] {
        for (index, value) in values.iter().enumerate().filter(|(_, value)| **value != 0) {
            let _ = writeln!(text, "{name}[{index}] = {value} ({value:#x})");
        }
    }
    text
}
