//! The arguments of `dprobes convert`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use export::{Target, Url};

use crate::selection::Selection;

/// Convert a trace store to other forms
///
/// JSON lines and CSV for scripts and tables, the Common Trace Format for babeltrace2 and Trace
/// Compass, Perfetto's protocol buffers for ui.perfetto.dev, spans for OpenTelemetry, Parquet for
/// DuckDB and Spark. Records come in order of time. With templates, logged bytes become named and
/// typed values. See `dprobes help convert` for the forms in full.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes convert trace.dpt --to json | jq 'select(.pid == 4711)'
  dprobes convert trace.dpt --to csv --templates templates/ -o trace.csv
  dprobes convert trace.dpt --to perfetto -o trace.pftrace     then open it in ui.perfetto.dev
  dprobes convert trace.dpt --to ctf -o trace.ctf && babeltrace2 trace.ctf
  dprobes convert trace.dpt --to parquet -o trace.parquet      SELECT probe, count(*) FROM 'trace.parquet' GROUP BY 1
  dprobes convert trace.dpt --to parquet --partition -o /data/traces    for traces of many machines
  dprobes convert trace.dpt --to parquet --partition -o s3://traces/db    into an object store
  dprobes convert trace.dpt --to otlp --export otlp:http://localhost:4318
  dprobes convert trace.dpt --to json --from 1.5s --until 2s --probe malloc:entry")]
pub(crate) struct Convert {
    /// The trace store
    #[arg(value_name = "FILE.dpt")]
    pub(crate) file: PathBuf,
    /// The form to convert to
    #[arg(long, value_name = "FORM")]
    pub(crate) to: To,
    /// Directory of template files, which give names and types to logged data
    #[arg(long, value_name = "DIR")]
    pub(crate) templates: Option<PathBuf>,
    /// The file to write, - for standard output [default: standard output for JSON, CSV and OTLP;
    /// the store's name with .ctf, .pftrace or .parquet]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// For perfetto: fields shown as counters, besides those with `counter` or `gauge` in their
    /// names
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    pub(crate) counter: Vec<String>,
    /// For parquet: write a file for each hour to the directory that -o names, below
    /// host=NAME/hour=HOUR, beside those of other traces; or to an object store, -o
    /// s3://BUCKET/PREFIX (AWS_ENDPOINT_URL and a key in the environment: `dprobes help fleet`)
    #[arg(long)]
    pub(crate) partition: bool,
    /// With --partition, the machine that the trace is of [default: the one that the trace names]
    #[arg(long, value_name = "NAME", requires = "partition")]
    pub(crate) host: Option<String>,
    /// For otlp: send the spans to a collector instead, otlp:http://HOST:PORT
    #[arg(long, value_name = "TARGET", conflicts_with = "output", value_parser = collector)]
    pub(crate) export: Option<Url>,
    #[command(flatten)]
    pub(crate) selection: Selection,
}

/// Parses the address of a collector.
fn collector(text: &str) -> Result<Url, String> {
    match text.parse()? {
        Target::Otlp(url) => Ok(url),
        Target::Prometheus(_) => {
            Err("spans go to `otlp:URL`, such as `otlp:http://localhost:4318`".to_owned())
        }
    }
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
    /// Spans of OpenTelemetry, from entries and returns: requests of OTLP as JSON, one in each line
    Otlp,
    /// Apache Parquet, a row per record: for DuckDB, Spark, ClickHouse and pandas
    Parquet,
}

impl To {
    /// The file name extension of the form; `None` if it goes to standard output.
    pub(crate) fn extension(self) -> Option<&'static str> {
        match self {
            To::Json | To::Csv | To::Otlp => None,
            To::Ctf => Some("ctf"),
            To::Perfetto => Some("pftrace"),
            To::Parquet => Some("parquet"),
        }
    }
}
