//! The arguments of `dprobes report`.

use std::path::PathBuf;

use clap::Args;

use crate::selection::Selection;

/// Report on a trace store: rates, latencies, top talkers
///
/// Shows how often each probe fired and when, what was lost, how long functions took whose entry
/// and return were probed, the times from one point to another, and the processes and threads of
/// the records; as text, or with --html as a self-contained page.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes run --at a.out:parse:entry --at a.out:parse:return --do 'log 1' -o trace.dpt -- ./app
  dprobes report trace.dpt                                   the times of parse are there by themselves
  dprobes report trace.dpt --html report.html                the same as a page with charts
  dprobes report trace.dpt --between read:entry write:entry  from one to the next in the same thread
  dprobes report trace.dpt --from 1.5s --to-time 2s --pid 4711")]
pub(crate) struct Report {
    /// The trace store
    #[arg(value_name = "FILE.dpt")]
    pub(crate) file: PathBuf,
    /// Times from a record of A to the next of B in the same thread; A and B are named as for
    /// --probe; may be given several times
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    pub(crate) between: Vec<String>,
    /// Also write an HTML page; with - it goes to standard output instead of the text
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Number of probes, places, histograms, processes and threads shown
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
    pub(crate) top: usize,
    #[command(flatten)]
    pub(crate) selection: Selection,
}
