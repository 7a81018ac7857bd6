//! The table of functions: their calls, their time with and without that of the calls in them.

use std::cmp::Reverse;
use std::fmt::Write;

use printable::text as clean;

use super::findings::Findings;
use super::histogram::Histogram;
use super::numbers::{aligned, count_of, grouped};

/// A function of which entries and returns were probed, and its calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Function {
    /// Its name.
    pub(crate) name: String,
    /// Number of calls that have returned.
    pub(crate) calls: u64,
    /// The time in it, in nanoseconds. The inner calls of a recursion are within the outermost one.
    pub(crate) total: u64,
    /// The time in it, without that in other calls.
    pub(crate) own: u64,
    /// The mean time of a call.
    pub(crate) mean: u64,
    /// The time that 99.9% of the calls do not exceed.
    pub(crate) slow: u64,
    /// The time of the longest call.
    pub(crate) greatest: u64,
}

impl Function {
    /// A function with calls of these times.
    pub(super) fn new(name: &str, times: &Histogram, total: u64, own: u64) -> Function {
        Function {
            name: name.to_owned(),
            calls: times.count,
            total,
            own,
            mean: times.mean(),
            slow: times.percentile(99.9),
            greatest: times.greatest,
        }
    }
}

/// The order of the table of functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// By the time in a function, descending.
    #[default]
    Total,
    /// By the time without that of calls in it, descending.
    Own,
    /// By the number of calls, descending.
    Calls,
    /// By the mean time of a call, descending.
    Mean,
    /// By the time of the longest call, descending.
    Max,
    /// By name.
    Name,
}

impl Sort {
    /// All orders, with their names.
    pub const ALL: [(&'static str, Sort); 6] = [
        ("total", Sort::Total),
        ("self", Sort::Own),
        ("calls", Sort::Calls),
        ("mean", Sort::Mean),
        ("max", Sort::Max),
        ("name", Sort::Name),
    ];

    fn key(self, function: &Function) -> Reverse<u64> {
        Reverse(match self {
            Sort::Total => function.total,
            Sort::Own => function.own,
            Sort::Calls => function.calls,
            Sort::Mean => function.mean,
            Sort::Max => function.greatest,
            Sort::Name => 0,
        })
    }
}

/// The table of functions, in an order. Shows `most` of them, and says how many more there are; and
/// the remarks on calls that are not in it.
pub fn functions(found: &Findings, sort: Sort, most: usize) -> String {
    let mut out = String::new();
    table(&mut out, &found.functions, sort, most);
    for remark in &found.remarks {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "note: {}", clean(remark));
    }
    out
}

/// Appends the table of functions; nothing, if there are none.
pub(super) fn table(out: &mut String, functions: &[Function], sort: Sort, most: usize) {
    if functions.is_empty() {
        return;
    }
    let mut sorted: Vec<&Function> = functions.iter().collect();
    sorted.sort_by(|one, other| (sort.key(one), &one.name).cmp(&(sort.key(other), &other.name)));
    let _ = writeln!(
        out,
        "{:>9} {:>9} {:>12} {:>9} {:>9} {:>9}  function",
        "total", "self", "calls", "mean", "99.9%", "max"
    );
    for function in sorted.iter().take(most) {
        let Function { name, calls, total, own, mean, slow, greatest } = function;
        let [total, own, mean, slow, greatest] =
            [total, own, mean, slow, greatest].map(|time| aligned(*time));
        let calls = grouped(*calls);
        let _ = writeln!(out, "{total} {own} {calls:>12} {mean} {slow} {greatest}  {}", clean(name));
    }
    if sorted.len() > most {
        let _ = writeln!(out, "  and {}", count_of((sorted.len() - most) as u64, "more function"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_aligned_sorted_and_cut() {
        let function = |name: &str, times: &[u64], total, own| {
            let mut histogram = Histogram::default();
            times.iter().for_each(|time| histogram.add(*time));
            Function::new(name, &histogram, total, own)
        };
        let found = Findings {
            functions: vec![
                function("main", &[3_000_000_000], 3_000_000_000, 500),
                function("fib\u{1b}", &[10_000, 20_000], 20_000, 20_000),
                function("leaf", &[1, 2, 3], 6, 6),
            ],
            remarks: vec!["a remark".to_owned()],
            ..Findings::default()
        };
        assert_eq!(
            functions(&found, Sort::Own, 2).lines().collect::<Vec<_>>(),
            [
                "    total      self        calls      mean     99.9%       max  function",
                "  20.0 µs   20.0 µs            2   15.0 µs   19.5 µs   20.0 µs  fib\\x1b",
                "  3.00 s     500 ns            1   3.00 s    3.00 s    3.00 s   main",
                "  and 1 more function",
                "note: a remark",
            ]
        );
        let first = |sort| {
            functions(&found, sort, 9)
                .lines()
                .nth(1)
                .map(|line| line.split_whitespace().last().map(str::to_owned))
        };
        for (sort, name) in [
            (Sort::Total, "main"),
            (Sort::Calls, "leaf"),
            (Sort::Mean, "main"),
            (Sort::Max, "main"),
            (Sort::Name, "fib\\x1b"),
        ] {
            assert_eq!(first(sort), Some(Some(name.to_owned())));
        }
    }
}
