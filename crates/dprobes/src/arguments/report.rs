//! The arguments of `dprobes report`.

use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::{ArgGroup, Args};
use convert::report::Sort;

use super::values::one_of;
use crate::selection::Selection;

/// Report on a trace store: functions, calls, rates, latencies, top talkers
///
/// Shows how often each probe fired and when, what was lost, how long functions took whose entry
/// and return were probed, the times from one point to another, and the processes and threads of
/// the records; as text, or with --html as a self-contained page. With --functions, --graph or
/// --replay it shows the calls of these functions instead: as a table, summed by who called whom,
/// or one by one.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("calls").args(["functions", "graph", "replay"]))]
#[command(after_help = "\
Examples:
  dprobes run --at a.out:parse:entry --at a.out:parse:return --do 'log 1' -o trace.dpt -- ./app
  dprobes report trace.dpt                                   the times of parse are there by themselves
  dprobes report trace.dpt --functions --sort self           a table of functions, by their own time
  dprobes report trace.dpt --graph                           who called whom: calls and times
  dprobes report trace.dpt --replay --tid 4711 --depth 3     the calls of a thread, one by one
  dprobes report trace.dpt --html report.html                the same as a page with charts
  dprobes report trace.dpt --between read:entry write:entry  from one to the next in the same thread
  dprobes report stacks.folded --flame stacks.svg            a flame graph of folded stacks
  dprobes report trace.dpt --from 1.5s --to-time 2s --pid 4711")]
pub(crate) struct Report {
    /// The trace store
    #[arg(value_name = "FILE.dpt")]
    pub(crate) file: PathBuf,
    /// Show a table of functions instead: total time, own time, calls
    #[arg(long)]
    pub(crate) functions: bool,
    /// Show a call graph instead, summed over calls: who called whom, and the times
    #[arg(long)]
    pub(crate) graph: bool,
    /// Show the calls of each thread instead, one by one, with their durations and what was logged
    #[arg(long)]
    pub(crate) replay: bool,
    /// Order of the table of functions
    #[arg(long, value_name = "COLUMN", default_value = "total", requires = "functions", value_parser = sort())]
    pub(crate) sort: Sort,
    /// Levels of calls that --graph and --replay show
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) depth: u32,
    /// Times from a record of A to the next of B in the same thread; A and B are named as for
    /// --probe; may be given several times
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "calls")]
    pub(crate) between: Vec<String>,
    /// Also write an HTML page; with - it goes to standard output instead of the text
    #[arg(long, value_name = "FILE", conflicts_with = "calls")]
    pub(crate) html: Option<PathBuf>,
    /// Draw a flame graph of stacks instead: FILE.dpt is a file of lines as -f folded has them
    #[arg(long, value_name = "FILE.svg", conflicts_with_all = ["between", "html", "calls"])]
    pub(crate) flame: Option<PathBuf>,
    /// Number of probes, functions, places, histograms, processes and threads shown; with --graph,
    /// of functions that one calls
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
    pub(crate) top: usize,
    #[command(flatten)]
    pub(crate) selection: Selection,
}

/// Parses the order of a table.
fn sort() -> impl TypedValueParser<Value = Sort> {
    one_of(&Sort::ALL)
}
