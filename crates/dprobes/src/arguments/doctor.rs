//! The arguments of `dprobes doctor`.

use clap::Args;

use super::processes::one;

/// Say what can be probed here, and what to do about the rest
///
/// `ok` works, `--` does not, and most can be done without; `NO` does not, and the exit status is 1
/// then. A small program is started and probed to see it; no other process is changed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes doctor                       this machine, and what this user may do
  dprobes doctor -p redis-server       a process: whether it can be probed, and how")]
pub(crate) struct Doctor {
    /// Look at a process instead: its id, or the name of its program
    #[arg(short, long, value_name = "PID|NAME", value_parser = one)]
    pub(crate) pid: Option<i32>,
}
