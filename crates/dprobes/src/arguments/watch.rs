//! The arguments of `dprobes watch`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::Tracing;
use super::processes::one;
use super::values::duration;

#[allow(rustdoc::broken_intra_doc_links, reason = "the text is what `--help` says")]
/// Show who changes a variable of a running process, and what it becomes
///
/// Each write is a line: the time, the thread, the function that wrote, the value before and after.
/// The process is not stopped: the processor watches the memory, and the kernel runs the handler
/// (see `dprobes help watch`). It takes root, or the capabilities CAP_BPF, CAP_PERFMON and
/// CAP_SYS_PTRACE.
///
/// VARIABLE is the name of a global or static variable, or of a part of one, as in the program's
/// source: counter, config.limits[2].soft, main::calls, server.c:state. Or an address: 0x404028.
/// Parts are known by debug information, whole variables by the symbol table too; `dprobes list
/// --data -p PID` lists those.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes watch -p 4711 counter
  dprobes watch -p 4711 server.clients_paused --for 10s
  dprobes watch -p 4711 'table[3].state' --access rw
  dprobes watch -p 4711 0x7f3a5c001040 --length 4
  dprobes watch -p 4711 counter -o writes.dpt               a trace store, for `dprobes report`")]
pub(crate) struct Watch {
    /// The variable, a part of one, or an address in hexadecimal
    #[arg(value_name = "VARIABLE")]
    pub(crate) variable: String,
    /// The process: its id, or the name of its program
    #[arg(short, long, value_name = "PID|NAME", value_parser = one)]
    pub(crate) pid: i32,
    /// The module that has the variable: a file's name or its path [default: the program, then its
    /// libraries]
    #[arg(long, value_name = "MODULE")]
    pub(crate) module: Option<String>,
    /// Which accesses are shown
    #[arg(long, value_name = "ACCESS", default_value = "w")]
    pub(crate) access: WatchAccess,
    /// Bytes that are watched: 1, 2, 4 or 8 [default: the variable's]
    #[arg(long, value_name = "BYTES", value_parser = length)]
    pub(crate) length: Option<u8>,
    #[command(flatten)]
    pub(crate) tracing: Tracing,
    /// Stop after this time: 10s, 500ms, 2m
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
}

/// Which accesses to memory are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WatchAccess {
    /// Writes
    W,
    /// Reads and writes: the processor does not tell them apart
    Rw,
}

fn length(text: &str) -> Result<u8, String> {
    match text {
        "1" | "2" | "4" | "8" => Ok(text.as_bytes()[0] - b'0'),
        _ => Err("the processor watches 1, 2, 4 or 8 bytes".to_owned()),
    }
}
