//! The hits of each process, in the summary.

use std::fmt::Write;

use engine::{OfProcess, OfProcesses};

use crate::messages::count;

/// Without `-v`, so many processes of a probe are shown.
const SHOWN: usize = 20;

/// The hits by process of the probes with these names, which had some: a heading for each, and a
/// line per process, most hits first.
pub(super) fn text(of: &OfProcesses, points: &[String], verbose: bool) -> String {
    let mut text = String::new();
    for (number, point) in points.iter().enumerate() {
        let hits = |process: &OfProcess| process.hits.get(number).copied().unwrap_or(0);
        let mut rows: Vec<(u64, &OfProcess)> =
            of.processes.iter().map(|it| (hits(it), it)).filter(|(hits, _)| *hits > 0).collect();
        rows.sort_by_key(|(hits, process)| (std::cmp::Reverse(*hits), process.pid));
        let unassigned = of.unassigned.get(number).copied().unwrap_or(0);
        let total = rows.iter().map(|(hits, _)| *hits).fold(unassigned, u64::saturating_add);
        if total == 0 {
            continue;
        }
        let shown = if verbose { rows.len() } else { rows.len().min(SHOWN) };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n{:>12} {:>7}  {:>7}  process of {point}", "hits", "%", "pid");
        let mut line = |hits: u64, pid: &str, name: &str| {
            let share = hits as f64 * 100.0 / total as f64;
            let _ = writeln!(text, "{hits:>12} {share:>7.2}  {pid:>7}  {name}");
        };
        for (hits, process) in &rows[..shown] {
            line(*hits, &process.pid.to_string(), &printable::text(&process.name));
        }
        let others = &rows[shown..];
        if !others.is_empty() {
            let hits = others.iter().map(|(hits, _)| *hits).fold(0, u64::saturating_add);
            let others = count(others.len() as u64, "more process");
            line(hits, "", &format!("{others}; -v shows all"));
        }
        if unassigned > 0 {
            line(unassigned, "", "processes for which there was no room");
        }
        let _ = writeln!(text, "{total:>12}          total");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_shown_by_probe_the_most_hits_first() {
        let process =
            |pid, name: &str, hits: [u64; 2]| OfProcess { pid, name: name.into(), hits: hits.into() };
        let processes =
            vec![process(7, "seven", [3, 0]), process(1, "\x1b[1m", [17, 0]), process(9, "nine", [0, 0])];
        let of = OfProcesses { processes, unassigned: vec![5, 0] };
        let points = ["libc:a".to_owned(), "libc:b".to_owned()];
        let expected = "
        hits       %      pid  process of libc:a
          17   68.00        1  \\x1b[1m
           3   12.00        7  seven
           5   20.00           processes for which there was no room
          25          total
";
        assert_eq!(text(&of, &points, false), expected);
    }

    #[test]
    fn many_processes_are_shown_if_asked_for() {
        let process = |pid| OfProcess { pid, name: "p".into(), hits: vec![2] };
        let of = OfProcesses { processes: (1..=30).map(process).collect(), unassigned: vec![0] };
        let points = ["libc:a".to_owned()];
        let short = text(&of, &points, false);
        assert!(
            short.contains("          20   33.33           10 more processes; -v shows all\n"),
            "{short}"
        );
        assert_eq!((short.lines().count(), text(&of, &points, true).lines().count()), (24, 33));
    }
}
