//! The arguments of `dprobes run` and `dprobes attach`, which probe a command or a process as long
//! as dprobes itself runs.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use super::only::Only;
use super::probes::{Probes, Select};
use super::processes::Processes;
use super::tracing::{AttachEngine, Engine, Tracing};
use super::values::duration;

/// Run a command with probes in it
///
/// The probes are in before the command's first instruction, and in the libraries it loads as soon
/// as they are mapped. Processes that it creates are probed too. The exit status is the command's
/// own; 125 if dprobes fails, 126 or 127 if the command cannot be executed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes run count.rpn -- ls -l /
  dprobes run --at 'libc.so.6:mem*:entry' -- ls            calls of functions, counted
  dprobes run --at a.out:main:return --do 'push retval; log 1' -- ./app
  dprobes run --at 'a.out:parse:*' -- ./app                 how often each instruction runs
  dprobes run -D LIMIT=4096 --log PID,TSC -o records.txt malloc.rpn -- python3 script.py
  dprobes run -o trace.dpt malloc.rpn -- ./app              a trace store, for `dprobes show`
  dprobes run --log-target stderr,ctf:trace malloc.rpn -- ./app   seen, and kept for babeltrace2")]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) probes: Probes,
    #[command(flatten)]
    pub(crate) select: Select,
    #[command(flatten)]
    pub(crate) tracing: Tracing,
    /// How probes fire
    #[arg(long, value_name = "ENGINE", default_value = "auto", overrides_with = "engine")]
    pub(crate) engine: Engine,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Probe running processes, or all processes
///
/// Until Ctrl-C, the end of the processes, or the end of the time given. Then every byte of them is
/// restored. Processes that they create meanwhile are probed too.
///
/// Without -p, all processes are probed, those that run and those that will: by the kernel, which
/// executes the handlers (`--engine kernel`; see `dprobes help kernel-engine`). It takes root, or
/// the capabilities CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE. With -p and `--engine kernel`, the
/// kernel probes these processes only, without their children.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes attach -p 4711 count.rpn
  dprobes attach -p 4711 --at '::malloc:entry' --at '::free:entry' --for 5s
  dprobes attach -p 4711 --at libc:malloc --do 'push arg, 0; log 1'
  dprobes attach -p redis-server count.rpn --for 10s --stats counts.json
  dprobes attach -p 4711 --log-target serial:/dev/ttyS0 app.rpn
  dprobes attach count.rpn --for 1m                        all processes
  dprobes attach --at libcrypto:EVP_*Init:entry --for 10s   calls of functions, in all processes
  dprobes attach --at libc:openat --user www-data          in all processes of a user
  dprobes attach --at libc:openat --by-process --for 10s   which processes call it how often
  dprobes attach --engine kernel -p 4711 count.rpn         one process, which is never stopped
  dprobes attach --engine kernel -p nginx count.rpn        all that run nginx now, likewise")]
pub(crate) struct Attach {
    #[command(flatten)]
    pub(crate) probes: Probes,
    #[command(flatten)]
    pub(crate) select: Select,
    #[command(flatten)]
    pub(crate) tracing: Tracing,
    /// How probes fire
    #[arg(long, value_name = "ENGINE", default_value = "auto", overrides_with = "engine")]
    pub(crate) engine: AttachEngine,
    #[command(flatten)]
    pub(crate) processes: Processes,
    #[command(flatten)]
    pub(crate) only: Only,
    /// Count hits by process, too: in the summary and in --stats (with the kernel engine)
    #[arg(long)]
    pub(crate) by_process: bool,
    /// Stop this long after the probes are in: 10s, 500ms, 2m
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// Let handlers of kernel probes call the kernel's debugger (`exit 1`) or crash the kernel for
    /// a dump (`exit 2`)
    #[arg(long)]
    pub(crate) allow_panic: bool,
}

impl Attach {
    /// The processes and their engine, if a tracer is to probe them; `None`: the kernel probes.
    pub(crate) fn by_tracer(&self) -> Option<(Vec<i32>, Engine)> {
        let pids = self.processes.ids();
        self.engine.of_tracer().filter(|_| !pids.is_empty()).map(|engine| (pids, engine))
    }
}
