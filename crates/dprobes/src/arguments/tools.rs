//! The arguments of `dprobes tools`.

use clap::{Args, Subcommand};

use super::shortcut::Traced;
use super::trace::Printed;

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
    Run(Box<RunTool>),
}

/// How a tool is run.
#[derive(Debug, Args)]
pub(crate) struct RunTool {
    /// Its name, then its parameters, if it has some
    #[arg(value_name = "NAME", required = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) traced: Traced,
    #[command(flatten)]
    pub(crate) printed: Printed,
}
