//! The table that is printed.

use super::measure::Sample;
use super::rows::{Bar, Row};
use crate::Figures;

/// All repetitions of one row.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// Nanoseconds of wall clock time per hit.
    pub wall: Figures,
    /// Nanoseconds of processor time per hit.
    pub cpu: Figures,
    /// Hits per second.
    pub rate: Figures,
    /// Calls made.
    pub calls: u64,
    /// Calls seen.
    pub seen: u64,
    /// The first thing that was wrong, if anything.
    pub wrong: Option<String>,
    /// How it worked.
    pub how: Option<String>,
    /// Why it could not be measured.
    pub failed: Option<String>,
}

impl Results {
    /// Adds a repetition.
    pub fn add(&mut self, sample: Sample) {
        self.wall.add(sample.wall);
        self.cpu.add(sample.cpu);
        self.rate.add(sample.rate);
        self.calls += sample.calls;
        self.seen += sample.seen;
        if self.wrong.is_none() {
            self.wrong = sample.wrong;
        }
        if sample.how.is_some() {
            self.how = sample.how;
        }
    }

    /// Whether nothing was wrong or lost.
    pub fn sound(&self) -> bool {
        self.failed.is_none() && self.wrong.is_none() && self.seen == self.calls
    }

    /// Whether it was measured and its reports are right. Reported losses are allowed, since they
    /// depend on the machine.
    pub fn is_right(&self) -> bool {
        self.failed.is_none() && self.wrong.is_none()
    }

    /// Whether the row meets its bar; `None` if it has none.
    pub fn passes(&self, bar: Option<Bar>) -> Option<bool> {
        bar.map(|bar| {
            self.sound()
                && match bar {
                    Bar::Wall(most) => self.wall.median() <= most,
                    Bar::Processor(most) => self.cpu.median() <= most,
                    // A late call is followed by an early one, so the mean is the rate.
                    Bar::Sustained(least) => self.rate.median() >= least * 0.99,
                }
        })
    }
}

fn spread(figures: &Figures) -> String {
    let digits = |value: f64| match value.abs() {
        value if value < 100.0 => 1,
        _ => 0,
    };
    let [median, min, max] = [figures.median(), figures.min(), figures.max()];
    format!("{median:.*} ({min:.*} {max:.*})", digits(median), digits(min), digits(max))
}

/// The table's header.
pub fn head(repetitions: u64) -> String {
    format!(
        "ns per hit over the unprobed call: median (min max) of {repetitions} interleaved repetitions\n{:42} {:>24} {:>24}  {}\n",
        "", "wall clock", "processor time", "seen"
    )
}

/// One row of the table.
pub fn line(row: &Row, results: &Results) -> String {
    if let Some(failed) = &results.failed {
        let failed: String =
            failed.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect();
        return format!("{:42} failed: {failed}", row.name);
    }
    let count = match results.calls.checked_sub(results.seen) {
        Some(0) => "all".to_owned(),
        Some(lost) => format!("{:.2}% lost", 100.0 * lost as f64 / results.calls as f64),
        None => "too many".to_owned(),
    };
    let mut line =
        format!("{:42} {:>24} {:>24}  {count}", row.name, spread(&results.wall), spread(&results.cpu));
    if row.shape.gap > 0 || !row.counts && row.shape.burst == 0 {
        line += &format!(", {:.2} million per s", results.rate.median() / 1e6);
    }
    if let Some(how) = &results.how {
        line += &format!(", by {how}");
    }
    let bar = match row.bar {
        Some(Bar::Wall(most)) => format!("<= {most} ns"),
        Some(Bar::Processor(most)) => format!("<= {most} ns of processor time"),
        Some(Bar::Sustained(_)) => "no loss at that rate".to_owned(),
        None => String::new(),
    };
    match results.passes(row.bar) {
        Some(true) => line += &format!("  [{bar}: PASS]"),
        Some(false) => {
            // Processor time is what the process itself pays; the wall clock adds other processes'
            // work.
            let busy = matches!(row.bar, Some(Bar::Wall(most))
                if results.sound() && results.how.as_deref().is_some_and(|how| how.starts_with("jump"))
                    && results.cpu.median() <= most);
            let but = if busy { ", though not in processor time: a busy machine" } else { "" };
            line += &format!("  [{bar}: over{but}]");
        }
        None => {}
    }
    if let Some(wrong) = &results.wrong {
        line += &format!("  ({wrong})");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::{Bar, Results};
    use crate::jump::Sample;

    #[test]
    fn a_bar_is_missed_by_time_or_by_loss() {
        let mut results = Results::default();
        results.add(Sample { wall: 4.0, cpu: 9.0, rate: 2e6, calls: 10, seen: 10, ..Sample::default() });
        assert_eq!(results.passes(Some(Bar::Wall(5.0))), Some(true));
        assert_eq!(results.passes(Some(Bar::Processor(8.0))), Some(false));
        assert_eq!(results.passes(Some(Bar::Sustained(2e6))), Some(true));
        assert_eq!(results.passes(None), None);
        results.add(Sample { wall: 4.0, calls: 10, seen: 9, ..Sample::default() });
        assert_eq!(results.passes(Some(Bar::Wall(5.0))), Some(false));
    }

    #[test]
    fn what_is_wrong_once_is_wrong() {
        let mut results = Results::default();
        results.add(Sample { calls: 10, seen: 9, ..Sample::default() });
        assert!(results.is_right(), "one is lost, and that is told");
        results.add(Sample { wrong: Some("3 lost silently".to_owned()), ..Sample::default() });
        results.add(Sample::default());
        assert!(!results.is_right());
        assert!(!Results { failed: Some("it ended".to_owned()), ..Results::default() }.is_right());
    }
}
