//! The calls of a trace, summed by who called whom.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::fmt::Write;
use std::io;

use crate::event::{Event, Form};
use crate::facts::TraceFacts;
use crate::map::Map;
use crate::remarks::on_calls;
use crate::report::{aligned, count_of, grouped, percent};
use crate::spans::{Losses, Spans, Step};

/// Most functions in the tree, each counted once for each way to it.
const MAX_NODES: usize = 1 << 17;
/// The node of calls without one: there are too many.
const NONE: u32 = u32::MAX;

/// A function, as it is called in one way.
#[derive(Clone, Debug, Default)]
struct Node {
    function: u32,
    calls: u64,
    /// Its time, in nanoseconds.
    total: u64,
    /// Its time without that of the calls in it.
    own: u64,
    children: Vec<u32>,
}

/// Sums calls by the way to them.
#[derive(Debug)]
pub struct CallGraph {
    functions: Vec<String>,
    spans: Spans,
    /// The first is the root, of no function.
    nodes: Vec<Node>,
    /// The nodes by caller and function.
    numbers: Map<(u32, u32), u32>,
    /// Calls without a node.
    uncounted: u64,
}

impl CallGraph {
    /// For a trace.
    pub fn new(known: &TraceFacts) -> CallGraph {
        CallGraph {
            functions: known.function_names().to_vec(),
            spans: Spans::with(Losses::of(&known.gaps)),
            nodes: vec![Node::default()],
            numbers: Map::default(),
            uncounted: 0,
        }
    }

    /// The node of a function that is called from another node.
    fn node(&mut self, caller: u32, function: u32) -> u32 {
        if let Some(&number) = self.numbers.get(&(caller, function)) {
            return number;
        }
        if caller == NONE || self.nodes.len() >= MAX_NODES {
            return NONE;
        }
        let number = self.nodes.len() as u32;
        self.nodes.push(Node { function, ..Node::default() });
        self.nodes[caller as usize].children.push(number);
        self.numbers.insert((caller, function), number);
        number
    }

    /// Whether a call was counted.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    /// The graph as a tree of text, with functions up to a depth, and up to `most` below each.
    pub fn text(&mut self, depth: usize, most: usize) -> String {
        let weights = self.sort();
        let all = weights[0];
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{:>9} {:>9} {:>6} {:>12}  function", "total", "self", "%", "calls");
        // A stack of its own: a trace may nest calls as deeply as it likes.
        let mut left: Vec<Row> = self.rows(0, "", most);
        while let Some(row) = left.pop() {
            let Row { number, prefix, branch, inner } = row;
            let Some(node) = number.map(|number| &self.nodes[number as usize]) else {
                let _ = writeln!(out, "{:>39}  {prefix}{branch}", "");
                continue;
            };
            let weight = weights[number.unwrap_or(0) as usize];
            let name = self.functions.get(node.function as usize).map_or("?", String::as_str);
            let [total, own] = match node.calls {
                // None has returned.
                0 => ["        -".to_owned(), "        -".to_owned()],
                _ => [aligned(node.total), aligned(node.own)],
            };
            let _ = writeln!(
                out,
                "{total} {own} {:>6.2} {:>12}  {prefix}{branch}{}",
                percent(weight, all),
                grouped(node.calls),
                printable::text(name)
            );
            let below = format!("{prefix}{inner}");
            let is_shown = below.chars().count() / 3 < depth;
            match (is_shown, node.children.len()) {
                (_, 0) => {}
                (true, _) => left.extend(self.rows(number.unwrap_or(0), &below, most)),
                (false, count) => {
                    let more = count_of(count as u64, "function");
                    let _ = writeln!(out, "{:>39}  {below}└─ {more} below; --depth shows them", "");
                }
            }
        }
        out
    }

    /// The ways to functions, callers first: those with the fewest callers, and among these those
    /// that take longest; up to `most`.
    pub(crate) fn ways(&mut self, most: usize) -> Vec<Way<'_>> {
        self.sort();
        let mut ways: Vec<Way<'_>> = Vec::new();
        let below = |node: &Node, caller| node.children.iter().map(move |&child| (child, caller)).collect();
        let mut left: VecDeque<(u32, Option<usize>)> = below(&self.nodes[0], None);
        while let Some((number, caller)) = left.pop_front().filter(|_| ways.len() < most) {
            let node = &self.nodes[number as usize];
            left.extend(below(node, Some(ways.len())));
            let function = self.functions.get(node.function as usize).map_or("?", String::as_str);
            let Node { calls, total, own, .. } = *node;
            ways.push(Way { caller, function, calls, total, own });
        }
        ways
    }

    /// Sorts the functions that each calls by their time; gives the time of each node.
    fn sort(&mut self) -> Vec<u64> {
        let weights = self.weights();
        for node in &mut self.nodes {
            node.children.sort_by_key(|&child| Reverse(weights[child as usize]));
        }
        weights
    }

    /// The rows below a node, the last first.
    fn rows(&self, number: u32, prefix: &str, most: usize) -> Vec<Row> {
        let children = &self.nodes[number as usize].children;
        let rest = children.len().saturating_sub(most);
        let shown = children.iter().take(most).map(|&child| Some(child));
        let mut rows: Vec<Row> = shown
            .chain((rest > 0).then_some(None))
            .map(|number| Row {
                number,
                prefix: prefix.to_owned(),
                branch: "├─ ".to_owned(),
                inner: "│  ".to_owned(),
            })
            .collect();
        if let Some(last) = rows.last_mut() {
            last.branch = "└─ ".to_owned();
            last.inner = "   ".to_owned();
        }
        if let Some(last) = rows.last_mut().filter(|row| row.number.is_none()) {
            last.branch = format!("└─ and {}", count_of(rest as u64, "more function"));
        }
        rows.reverse();
        rows
    }

    /// The time of each node; of one without a call that has returned, that of the calls in it.
    fn weights(&self) -> Vec<u64> {
        let mut weights: Vec<u64> = self.nodes.iter().map(|node| node.total).collect();
        // Nodes come after their callers.
        for number in (0..self.nodes.len()).rev() {
            let children = self.nodes[number].children.iter();
            let inner = children.map(|&child| weights[child as usize]).fold(0, u64::saturating_add);
            weights[number] = weights[number].max(inner);
        }
        weights
    }
}

/// A way to a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way<'a> {
    /// The place of the caller among the ways.
    pub(crate) caller: Option<usize>,
    /// The function.
    pub(crate) function: &'a str,
    /// Number of calls that have returned.
    pub(crate) calls: u64,
    /// Their time.
    pub(crate) total: u64,
    /// Their time without that of the calls in them.
    pub(crate) own: u64,
}

/// A line of the tree.
#[derive(Debug)]
struct Row {
    /// The node; none for a line that says how many more there are.
    number: Option<u32>,
    /// The lines of the callers.
    prefix: String,
    branch: String,
    /// What is below `branch` in the rows of what it calls.
    inner: String,
}

impl Form for CallGraph {
    fn record(&mut self, event: &Event<'_>) -> io::Result<()> {
        let thread = (event.record.pid, event.record.tid);
        match (self.spans.step(event), event.place.function) {
            (Some(Step::Begin), Some(function)) => {
                let caller = self.spans.innermost(thread).and_then(|(_, caller)| caller).unwrap_or(0);
                let node = self.node(caller, function);
                if let Some((tag, _)) = self.spans.innermost(thread) {
                    *tag = node;
                }
            }
            (Some(Step::End(span)), _) => match self.nodes.get_mut(span.tag as usize) {
                Some(node) => {
                    node.calls += 1;
                    node.total = node.total.saturating_add(span.length);
                    node.own = node.own.saturating_add(span.own);
                }
                None => self.uncounted += 1,
            },
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<Vec<String>> {
        let open = self.spans.end().len();
        Ok(on_calls(&self.spans, open, 0, self.uncounted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{END, F, G, Hit, MAIN, info, play};
    use trace::store::Gap;

    fn graph(gaps: &[Gap], depth: usize, most: usize, hits: &[Hit<'_>]) -> Vec<String> {
        let mut info = info();
        info.gaps_told.extend_from_slice(gaps);
        let mut known = TraceFacts::new(&info);
        let mut graph = CallGraph::new(&known);
        play(&mut graph, &mut known, hits);
        graph.text(depth, most).lines().skip(1).map(str::to_owned).collect()
    }

    const HITS: &[Hit<'_>] = &[
        (1, MAIN, 0, 1000, &[]),
        (1, F, 100, 900, &[]),
        (1, G, 120, 800, &[]),
        (1, G + END, 150, 800, &[]),
        (1, F + END, 200, 900, &[]),
        (2, F, 200, 5000, &[]),
        (2, F, 210, 4900, &[]),
        (2, F + END, 220, 4900, &[]),
        (2, F + END, 400, 5000, &[]),
        (1, G, 300, 900, &[]),
        (1, G + END, 500, 900, &[]),
        (1, F, 600, 900, &[]),
        (1, F + END, 650, 900, &[]),
        (1, MAIN + END, 1000, 1000, &[]),
    ];

    #[test]
    fn calls_are_summed_by_the_way_to_them() {
        assert_eq!(
            graph(&[], 64, 20, HITS),
            [
                "  1.00 µs    650 ns  83.33            1  ├─ main",
                "   200 ns    200 ns  16.67            1  │  ├─ g",
                "   150 ns    120 ns  12.50            2  │  └─ f",
                "    30 ns     30 ns   2.50            1  │     └─ g",
                "   200 ns    190 ns  16.67            1  └─ f",
                "    10 ns     10 ns   0.83            1     └─ f",
            ]
        );
        assert_eq!(
            graph(&[], 1, 1, HITS),
            [
                "  1.00 µs    650 ns  83.33            1  ├─ main",
                "                                         │  └─ 2 functions below; --depth shows them",
                "                                         └─ and 1 more function",
            ]
        );
    }

    #[test]
    fn a_caller_that_has_not_returned_has_no_time() {
        let rows = graph(&[], 64, 20, &HITS[..HITS.len() - 1]);
        assert_eq!(rows[0], "        -         -  63.64            0  ├─ main");
        // Between the two ends of main and of one f, records were lost.
        let rows = graph(&[Gap { from: 110, to: 115, pid: 0, dropped: 1 }], 64, 20, HITS);
        assert_eq!(rows[2], "    50 ns     50 ns  11.11            1  │  └─ f", "{rows:?}");
    }
}
