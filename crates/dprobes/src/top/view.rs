//! What `dprobes top` shows: counts, rates between two snapshots, and their order. Independent of
//! the terminal.

use std::collections::HashMap;

use super::feed::{Row, Snapshot};

/// The sort order of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Hits per second, descending.
    #[default]
    Rate,
    /// Hits, descending.
    Hits,
    /// Losses, that is, missed hits and dropped records, descending.
    Lost,
    /// Names, ascending.
    Name,
}

impl Sort {
    /// All orders, with the words for them on the command line.
    pub(crate) const ALL: [(&'static str, Sort); 4] =
        [("rate", Sort::Rate), ("hits", Sort::Hits), ("lost", Sort::Lost), ("name", Sort::Name)];

    fn next(self) -> Sort {
        match self {
            Sort::Rate => Sort::Hits,
            Sort::Hits => Sort::Lost,
            Sort::Lost => Sort::Name,
            Sort::Name => Sort::Rate,
        }
    }

    /// What a column is called.
    pub(super) fn name(self) -> &'static str {
        match self {
            Sort::Rate => "hits/s",
            Sort::Hits => "hits",
            Sort::Lost => "lost",
            Sort::Name => "name",
        }
    }
}

/// What the user asks for with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// End the program.
    Quit,
    /// Sort by the next column.
    Sort,
    /// Sort by a column.
    SortBy(Sort),
    /// Turn the order around.
    Reverse,
    /// Pause or resume the screen; probing goes on.
    Pause,
    /// Scroll down by so many rows.
    Move(isize),
    /// Show or leave the help.
    Help,
    /// Begin to type a filter.
    Filter,
    /// Add a character to the filter that is typed.
    Type(char),
    /// Take back the last character of it.
    Erase,
    /// Keep the filter that is typed.
    Accept,
    /// Drop the filter.
    Cancel,
}

/// A row with its rate.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) row: Row,
    /// Hits per second, since the previous snapshot.
    pub(super) rate: f64,
}

/// What is shown. It has this many fields since each is a thing that a key or a snapshot changes.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// What is probed.
    pub(super) title: String,
    pub(super) sort: Sort,
    pub(super) reversed: bool,
    pub(super) paused: bool,
    /// Whether the help is shown.
    pub(super) help: bool,
    /// Only rows whose names have this are shown; capitals and small letters are the same.
    pub(super) filter: String,
    /// Whether keys are typed into the filter.
    pub(super) typing: bool,
    /// The first line shown.
    pub(super) top: usize,
    /// Time since probing began, in microseconds.
    pub(super) time: u64,
    pub(super) lines: Vec<Line>,
    /// The last message.
    pub(super) note: String,
    /// The time of the previous snapshot, and its hits by name.
    before: Option<(u64, HashMap<String, u64>)>,
}

impl View {
    pub(super) fn new(title: String) -> View {
        View { title, ..View::default() }
    }

    /// Takes a new snapshot.
    pub(super) fn take(&mut self, snapshot: Snapshot) {
        if let Some(note) = snapshot.notes.last() {
            self.note.clone_from(note);
        }
        if self.paused {
            return;
        }
        let since = self.before.as_ref().map_or(0, |(time, _)| *time);
        let seconds = snapshot.time.saturating_sub(since) as f64 / 1e6;
        let before =
            |name: &str| self.before.as_ref().and_then(|(_, hits)| hits.get(name).copied()).unwrap_or(0);
        let rate = |row: &Row| match seconds > 0.0 {
            true => row.hits.saturating_sub(before(&row.name)) as f64 / seconds,
            false => 0.0,
        };
        self.lines = snapshot.rows.iter().map(|row| Line { rate: rate(row), row: row.clone() }).collect();
        self.time = snapshot.time;
        let hits = snapshot.rows.into_iter().map(|row| (row.name, row.hits)).collect();
        self.before = Some((snapshot.time, hits));
        self.order();
    }

    /// Does what the user asks for; the caller handles [`Action::Quit`].
    pub(super) fn wish(&mut self, wish: Action) {
        match wish {
            Action::Quit => {}
            Action::Sort => self.sort_by(self.sort.next()),
            Action::SortBy(sort) => self.sort_by(sort),
            Action::Reverse => {
                self.reversed = !self.reversed;
                self.sort_by(self.sort);
            }
            Action::Pause => self.paused = !self.paused,
            Action::Move(lines) => {
                let most = self.shown().count().saturating_sub(1);
                self.top = self.top.saturating_add_signed(lines).min(most);
            }
            Action::Help => self.help = !self.help,
            Action::Filter => {
                self.filter.clear();
                self.typing = true;
            }
            Action::Type(letter) => {
                self.filter.push(letter);
                self.top = 0;
            }
            Action::Erase => {
                self.filter.pop();
                self.top = 0;
            }
            Action::Accept => self.typing = false,
            Action::Cancel => {
                self.filter.clear();
                self.typing = false;
            }
        }
    }

    /// The lines that the filter lets through.
    pub(super) fn shown(&self) -> impl Iterator<Item = &Line> {
        let wanted = self.filter.to_lowercase();
        self.lines.iter().filter(move |line| line.row.name.to_lowercase().contains(&wanted))
    }

    /// The greatest rate of a line, which has the longest bar. The sums of several functions are
    /// not among them: beside one, all others would be short.
    pub(super) fn greatest(&self) -> f64 {
        self.shown().filter(|line| !line.row.is_sum).map(|line| line.rate).fold(0.0, f64::max)
    }

    fn sort_by(&mut self, sort: Sort) {
        self.sort = sort;
        self.top = 0;
        self.order();
    }

    fn order(&mut self) {
        let lost =
            |line: &Line| line.row.counts.map_or(0, |counts| counts.missed.saturating_add(counts.dropped));
        let (sort, reversed) = (self.sort, self.reversed);
        self.lines.sort_by(|one, other| {
            let first = match sort {
                Sort::Rate => other.rate.total_cmp(&one.rate),
                Sort::Hits => other.row.hits.cmp(&one.row.hits),
                Sort::Lost => lost(other).cmp(&lost(one)),
                Sort::Name => std::cmp::Ordering::Equal,
            };
            let order = first.then_with(|| one.row.name.cmp(&other.row.name));
            if reversed { order.reverse() } else { order }
        });
    }

    /// Hits per second, hits, misses and dropped records of all probes. Rows of functions are
    /// skipped: their probe's row includes them.
    pub(super) fn totals(&self) -> (f64, u64, u64, u64) {
        let probes = || self.lines.iter().filter_map(|line| Some((line, line.row.counts?)));
        (
            // Not `sum`, which returns -0 for no elements.
            probes().fold(0.0, |sum, (line, _)| sum + line.rate),
            probes().map(|(line, _)| line.row.hits).fold(0, u64::saturating_add),
            probes().map(|(_, counts)| counts.missed).fold(0, u64::saturating_add),
            probes().map(|(_, counts)| counts.dropped).fold(0, u64::saturating_add),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::feed::Others;
    use super::*;

    fn snapshot(time: u64, hits: [u64; 3]) -> Snapshot {
        let names = ["a.out:one:entry", "a.out:two:entry", "libc.so.6:three"];
        let rows = names.iter().zip(hits).map(|(name, hits)| Row {
            name: (*name).to_owned(),
            hits,
            counts: Some(Others { logged: hits, missed: hits / 10, dropped: 0 }),
            ..Row::default()
        });
        Snapshot { time, rows: rows.collect(), notes: Vec::new() }
    }

    fn names(view: &View) -> Vec<&str> {
        view.lines.iter().map(|line| line.row.name.as_str()).collect()
    }

    #[test]
    fn rates_are_of_the_time_between_two_looks() {
        let mut view = View::new("ls".to_owned());
        view.take(snapshot(1_000_000, [100, 50, 0]));
        view.take(snapshot(1_500_000, [100, 100, 5]));
        let rates: Vec<f64> = view.lines.iter().map(|line| line.rate).collect();
        assert_eq!((names(&view)[0], rates), ("a.out:two:entry", vec![100.0, 10.0, 0.0]));
        assert_eq!(view.totals(), (110.0, 205, 20, 0));
    }

    #[test]
    fn a_filter_is_typed_kept_and_dropped() {
        let mut view = View::new("ls".to_owned());
        view.take(snapshot(1_000_000, [100, 50, 200]));
        view.wish(Action::Filter);
        assert!(view.typing);
        for letter in "ENTRYx".chars() {
            view.wish(Action::Type(letter));
        }
        assert_eq!(view.shown().count(), 0);
        view.wish(Action::Erase);
        view.wish(Action::Accept);
        let shown = |view: &View| view.shown().map(|line| line.row.name.clone()).collect::<Vec<_>>();
        assert_eq!(
            (shown(&view), view.typing),
            (vec!["a.out:one:entry".into(), "a.out:two:entry".into()], false)
        );
        view.wish(Action::Move(10));
        assert_eq!(view.top, 1, "of the rows that are shown");
        // The greatest is not among them.
        assert_eq!((view.greatest(), view.totals().1), (100.0, 350));
        view.wish(Action::Cancel);
        assert_eq!((shown(&view).len(), view.greatest()), (3, 200.0));
        view.wish(Action::SortBy(Sort::Name));
        view.wish(Action::Reverse);
        assert_eq!(names(&view), ["libc.so.6:three", "a.out:two:entry", "a.out:one:entry"]);
    }

    #[test]
    fn keys_sort_and_pause_and_move() {
        let mut view = View::new("ls".to_owned());
        view.take(snapshot(1_000_000, [100, 50, 200]));
        view.wish(Action::Sort);
        assert_eq!((view.sort, names(&view)[0]), (Sort::Hits, "libc.so.6:three"));
        view.wish(Action::Sort);
        view.wish(Action::Sort);
        assert_eq!((view.sort, names(&view)[0]), (Sort::Name, "a.out:one:entry"));
        view.wish(Action::Pause);
        view.take(snapshot(2_000_000, [900, 900, 900]));
        assert_eq!((view.time, view.lines[0].row.hits), (1_000_000, 100));
        view.wish(Action::Pause);
        view.take(snapshot(3_000_000, [900, 900, 900]));
        assert_eq!(view.lines[0].rate, 400.0, "of all the time since the last look that was shown");
        view.wish(Action::Move(10));
        assert_eq!(view.top, 2);
        view.wish(Action::Move(-1));
        assert_eq!(view.top, 1);
    }
}
