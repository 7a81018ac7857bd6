//! The arguments of `dprobes tools`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::processes::Processes;
use super::trace::{Firing, ScriptFormat};
use super::values::duration;

/// Run ready-made scripts: leaks, locks, opened files, TLS data and more
///
/// Without a subcommand, lists them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes tools                                what there is
  dprobes tools run memleak -p redis-server --for 1m
  dprobes tools run opens -- ls -l /
  dprobes tools show memleak > mine.bt         a beginning for one's own, for `dprobes trace`")]
pub(crate) struct Tools {
    #[command(subcommand)]
    pub(crate) action: Option<ToolsAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ToolsAction {
    /// List the tools
    List,
    /// Show a tool: its help, and its script
    Show {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Run a tool
    Run(RunTool),
}

/// How a tool is run.
#[derive(Debug, Args)]
pub(crate) struct RunTool {
    /// Its name, then its parameters, if it has some
    #[arg(value_name = "NAME", required = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) processes: Processes,
    /// Stop this long after the probes are in: 10s, 500ms, 2m
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// The form of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: ScriptFormat,
    /// Write what the tool prints to a file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Say nothing about the probes
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) firing: Firing,
    /// The command to start, and its arguments
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "pid")]
    pub(crate) command: Vec<OsString>,
}
