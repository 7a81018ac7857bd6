//! The arguments of `dprobes convert`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::selection::Selection;

/// Convert a trace store to other forms
///
/// JSON lines and CSV for scripts and tables, the Common Trace Format for babeltrace2 and Trace Compass, Perfetto's protocol buffers for
/// ui.perfetto.dev, Parquet for DuckDB and Spark. Records come in the order of time. With templates, what was logged becomes named and typed values. docs/convert.md has the forms in full.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes convert trace.dpt --to json | jq 'select(.pid == 4711)'
  dprobes convert trace.dpt --to csv -t templates/ -o trace.csv
  dprobes convert trace.dpt --to perfetto -o trace.pftrace     then open it in ui.perfetto.dev
  dprobes convert trace.dpt --to ctf -o trace.ctf && babeltrace2 trace.ctf
  dprobes convert trace.dpt --to parquet -o trace.parquet      SELECT probe, count(*) FROM 'trace.parquet' GROUP BY 1
  dprobes convert trace.dpt --to json --from 1.5s --to-time 2s --probe malloc:entry")]
pub(crate) struct Convert {
    /// The store
    #[arg(value_name = "FILE.dpt")]
    pub(crate) file: PathBuf,
    /// What it becomes
    #[arg(long, value_name = "FORM")]
    pub(crate) to: To,
    /// Names and types for what was logged: a directory of template files
    #[arg(short, long, value_name = "DIR")]
    pub(crate) templates: Option<PathBuf>,
    /// Where to write it, - for standard output [default: standard output for JSON and CSV; the store's name with .ctf, .pftrace or .parquet]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// For perfetto: fields that are shown as counters, beside those with `counter` or `gauge` in their names
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    pub(crate) counter: Vec<String>,
    #[command(flatten)]
    pub(crate) selection: Selection,
}

/// The forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum To {
    /// JSON lines: an object for each record
    Json,
    /// Comma-separated values (RFC 4180), with a row of names
    Csv,
    /// The Common Trace Format 1.8, a directory: for babeltrace2 and Trace Compass
    Ctf,
    /// Perfetto's protocol buffers: a track for each thread, slices from entries and returns, counters
    Perfetto,
    /// Apache Parquet, a row for each record; not in every build of dprobes
    Parquet,
}

impl To {
    /// What the names of its files end in; none where it goes to standard output.
    pub(crate) fn extension(self) -> Option<&'static str> {
        match self {
            To::Json | To::Csv => None,
            To::Ctf => Some("ctf"),
            To::Perfetto => Some("pftrace"),
            To::Parquet => Some("parquet"),
        }
    }
}
