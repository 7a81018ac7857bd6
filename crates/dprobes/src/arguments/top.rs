//! The arguments of `dprobes top`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use clap::builder::TypedValueParser;

use super::probes::Probes;
use super::processes::Processes;
use super::values::one_of;
use super::{Engine, Select, Tracing, duration};
use crate::top::Sort;

/// Show what probes count, live in the terminal
///
/// For a running process (-p), or a command that is started. Sorted by hits per second; `s` changes
/// the sort order, `/` shows only some names, `p` pauses the screen but not the probes, `h` shows
/// all keys, `q` quits. Records are written only with -o or --log-target. What the command writes
/// to the terminal is not shown; its output to files and pipes is not affected.
///
/// With -b, with -n, and where there is no terminal, a table is printed at each interval instead,
/// as plain text.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes top -p 4711 --at 'libc:mem*:entry'       which functions are called most, just now
  dprobes top -p 4711 malloc.rpn
  dprobes top count.rpn -- ./app --serve > app.log
  dprobes top -p 4711 --at '::malloc:entry' --interval 200ms --for 1m
  dprobes top -b -d 1 -n 5 -p 4711 --at 'libc:mem*' > table.txt   five tables, as text
  dprobes top -p 4711 app.rpn -o trace.dpt         and keep the records")]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) probes: Probes,
    #[command(flatten)]
    pub(crate) select: Select,
    #[command(flatten)]
    pub(crate) tracing: Tracing,
    /// How probes fire
    #[arg(long, value_name = "ENGINE", default_value = "auto", overrides_with = "engine")]
    pub(crate) engine: Engine,
    #[command(flatten)]
    pub(crate) processes: Processes,
    /// Time between two updates: 2, 0.5 (seconds), 200ms
    #[arg(short = 'd', long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Duration,
    /// Print tables as text, for pipes and files; without a terminal, that is the default
    #[arg(short, long)]
    pub(crate) batch: bool,
    /// Print so many tables as text, and end
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// The order of the rows at first
    #[arg(long, value_name = "COLUMN", default_value = "rate", value_parser = sort())]
    pub(crate) sort: Sort,
    /// Show only rows whose names have this text; capitals and small letters are the same
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// End after this time: 10s, 500ms, 2m
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) limit: Option<Duration>,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "pid", required_unless_present = "pid")]
    pub(crate) command: Vec<OsString>,
}

/// Parses the time between two updates.
fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match seconds.map_or_else(|| duration(text), Ok)? {
        short if short < Duration::from_millis(50) => Err("it is 50ms at least".to_owned()),
        time => Ok(time),
    }
}

/// Parses the order of rows.
fn sort() -> impl TypedValueParser<Value = Sort> {
    one_of(&Sort::ALL)
}
