//! The arguments of `dprobes convert`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::selection::Selection;

/// Convert a trace store to other forms
///
/// JSON lines and CSV for scripts and tables, the Common Trace Format for babeltrace2 and Trace
/// Compass, Perfetto's protocol buffers for ui.perfetto.dev, Parquet for DuckDB and Spark. Records
/// come in order of time. With templates, logged bytes become named and typed values. See
/// docs/convert.md for the forms in full.
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
    /// The trace store
    #[arg(value_name = "FILE.dpt")]
    pub(crate) file: PathBuf,
    /// The form to convert to
    #[arg(long, value_name = "FORM")]
    pub(crate) to: To,
    /// Directory of template files, which give names and types to logged data
    #[arg(short, long, value_name = "DIR")]
    pub(crate) templates: Option<PathBuf>,
    /// The file to write, - for standard output
    /// [default: standard output for JSON and CSV; the store's name with .ctf, .pftrace or .parquet]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// For perfetto: fields shown as counters, besides those with `counter` or `gauge` in their
    /// names
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    pub(crate) counter: Vec<String>,
    #[command(flatten)]
    pub(crate) selection: Selection,
}

/// The output forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum To {
    /// JSON lines: one object per record
    Json,
    /// Comma-separated values (RFC 4180), with a header row
    Csv,
    /// The Common Trace Format 1.8, a directory: for babeltrace2 and Trace Compass
    Ctf,
    /// Perfetto's protocol buffers: a track per thread, slices from entries and returns, counters
    Perfetto,
    /// Apache Parquet, a row per record; not in every build of dprobes
    Parquet,
}

impl To {
    /// The file name extension of the form; `None` if it goes to standard output.
    pub(crate) fn extension(self) -> Option<&'static str> {
        match self {
            To::Json | To::Csv => None,
            To::Ctf => Some("ctf"),
            To::Perfetto => Some("pftrace"),
            To::Parquet => Some("parquet"),
        }
    }
}
