//! `dprobes top` as plain text, for pipes and files: a table for each snapshot, without control of
//! a terminal.

use std::fmt::Write as _;
use std::io::{self, PipeReader, Write};
use std::thread::Builder;

use convert::report::{grouped, rate};
use printable::text as clean;

use super::draw::how;
use super::screen::{end, snapshots};
use super::view::View;

/// Prints the counts until the tracer has ended; asks it to after `most` tables, or when nobody
/// reads them any more. The caller must then call the returned function.
pub(super) fn show(mut view: View, counts: PipeReader, tracer: i32, most: Option<u64>) -> Box<dyn FnOnce()> {
    let mut printed = 0;
    let printer = Builder::new().spawn(move || {
        let mut is_first = true;
        snapshots(counts, |snapshot| {
            view.take(snapshot);
            // It has the counts of no time; rates are of the time since.
            if std::mem::take(&mut is_first) {
                return true;
            }
            let written = io::stdout().write_all(text(&view).as_bytes()).and_then(|()| io::stdout().flush());
            printed += 1;
            let goes_on = written.is_ok() && most.is_none_or(|most| printed < most);
            if !goes_on {
                end(tracer);
            }
            goes_on
        });
    });
    match printer {
        Ok(printer) => Box::new(move || drop(printer.join())),
        Err(error) => {
            end(tracer);
            Box::new(move || crate::messages::tell(&format!("error: a thread cannot be started: {error}")))
        }
    }
}

/// A table of all rows.
fn text(view: &View) -> String {
    let mut out = String::new();
    let (seconds, (all, hits, missed, dropped)) = (view.time as f64 / 1e6, view.totals());
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{}  {seconds:.1} s  {} hits/s  {} hits  {} missed  {} records dropped",
        clean(&view.title),
        rate(all),
        grouped(hits),
        grouped(missed),
        grouped(dropped)
    );
    let _ = writeln!(
        out,
        "{:>9} {:>14} {:>14} {:>9} {:>9} {:<12} probe",
        "hits/s", "hits", "logged", "missed", "dropped", "engine"
    );
    for line in view.shown() {
        let counts = line.row.counts;
        let [logged, missed, dropped] = match counts {
            Some(counts) => [counts.logged, counts.missed, counts.dropped].map(grouped),
            None => Default::default(),
        };
        let indent = if counts.is_some() { "" } else { "  " };
        let _ = writeln!(
            out,
            "{:>9} {:>14} {logged:>14} {missed:>9} {dropped:>9} {:<12} {indent}{}",
            rate(line.rate),
            grouped(line.row.hits),
            how(line),
            clean(&line.row.name)
        );
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::super::feed::{Others, Row, Snapshot};
    use super::*;

    #[test]
    fn a_table_is_plain_text_with_whole_names() {
        let mut view = View::new("ls".to_owned());
        view.take(Snapshot::default());
        let long = "n".repeat(300);
        let row = |name: &str, hits| Row {
            name: name.to_owned(),
            hits,
            counts: Some(Others { logged: 1, missed: 2, dropped: 3 }),
            engine: "jump".to_owned(),
            state: "armed".to_owned(),
            ..Row::default()
        };
        let rows = vec![row(&long, 10), row("a.out:f\u{1b}[2J", 1_500_000)];
        view.take(Snapshot { time: 1_500_000, rows, notes: Vec::new() });
        let shown = text(&view);
        assert_eq!(
            shown.lines().collect::<Vec<_>>(),
            [
                "ls  1.5 s  1.00 M hits/s  1,500,010 hits  4 missed  6 records dropped",
                "   hits/s           hits         logged    missed   dropped engine       probe",
                "   1.00 M      1,500,000              1         2         3 jump         a.out:f\\x1b[2J",
                &format!("      6.7             10              1         2         3 jump         {long}"),
                "",
            ]
        );
    }
}
