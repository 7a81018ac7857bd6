//! The final report as Markdown.

use super::{End, Tally};
use std::fmt::Write;

/// The head of a report.
#[derive(Clone, Debug)]
pub struct Head {
    /// The command line.
    pub command: String,
    /// The kernel version.
    pub kernel: String,
    /// The processors.
    pub processor: String,
    /// Minutes per server.
    pub minutes: u64,
}

/// How many faults to show for each server.
const SHOWN: usize = 20;

/// The report.
pub fn report(head: &Head, tallies: &[Tally], skipped: &[String]) -> String {
    let mut text = format!(
        "`{}`; {}; {}; {} minutes a server.\n\n",
        head.command, head.kernel, head.processor, head.minutes
    );
    text += "| server | rounds by jumps | by traps | tracer or front killed | hits | records | signals | requests | errors |\n";
    text += "|---|---|---|---|---|---|---|---|---|\n";
    for tally in tallies {
        let rounds = |is: &dyn Fn(&str, End) -> bool| {
            tally
                .rounds
                .iter()
                .filter(|((engine, end), _)| is(engine, *end))
                .map(|(_, count)| count)
                .sum::<u64>()
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            tally.name,
            rounds(&|engine, _| engine != "trap"),
            rounds(&|engine, _| engine == "trap"),
            rounds(&|_, end| matches!(end, End::KillTracer | End::KillFront)),
            tally.hits,
            tally.records,
            tally.signals,
            tally.requests,
            tally.wrong.len(),
        );
    }
    for tally in tallies.iter().filter(|tally| !tally.wrong.is_empty()) {
        let _ = writeln!(text, "\n{}:\n", tally.name);
        for wrong in tally.wrong.iter().take(SHOWN) {
            let _ = writeln!(text, "- {wrong}");
        }
    }
    for skipped in skipped {
        let _ = writeln!(text, "\nNot run: {skipped}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_added_up_by_engine_and_end() {
        let mut tally = Tally { name: "redis".into(), hits: 5, ..Tally::default() };
        tally.rounds.insert(("trap", End::KillFront), 2);
        tally.rounds.insert(("auto", End::Time), 3);
        tally.rounds.insert(("jump", End::KillTracer), 4);
        let head = Head { command: "c".into(), kernel: "k".into(), processor: "p".into(), minutes: 1 };
        let text = report(&head, &[tally], &["nginx is not installed".into()]);
        assert!(text.contains("| redis | 7 | 2 | 6 | 5 | 0 | 0 | 0 | 0 |"), "{text}");
        assert!(text.contains("Not run: nginx is not installed"));
    }
}
