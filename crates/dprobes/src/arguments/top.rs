//! The arguments of `dprobes top`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use super::probes::Probes;
use super::processes::Processes;
use super::{Engine, Select, Tracing, duration};

/// Show what probes count, live in the terminal
///
/// For a running process (-p), or a command that is started. Sorted by hits per second; `s` changes
/// the sort order, `p` pauses the screen but not the probes, `q` quits. Records are written only
/// with -o or --log-target. What the command writes to the terminal is not shown; its output to
/// files and pipes is not affected.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes top -p 4711 --at 'libc:mem*:entry'       which functions are called most, just now
  dprobes top -p 4711 malloc.rpn
  dprobes top count.rpn -- ./app --serve > app.log
  dprobes top -p 4711 --at '::malloc:entry' --interval 200ms --for 1m
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
    /// Time between two updates
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Duration,
    /// End after this time: 10s, 500ms, 2m
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) limit: Option<Duration>,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "pid", required_unless_present = "pid")]
    pub(crate) command: Vec<OsString>,
}

/// Parses the time between two updates.
fn interval(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        short if short < Duration::from_millis(50) => Err("it is 50ms at least".to_owned()),
        time => Ok(time),
    }
}
