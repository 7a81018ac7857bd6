//! The arguments of `dprobes trace`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::processes::Processes;
use super::tracing::Engine;
use super::values::duration;

/// Run a script in the language of bpftrace on processes, or in the kernel
///
/// Without -p and without a command, all processes are probed, by the kernel: those that run and
/// those that will.
#[derive(Debug, Default, Args)]
#[command(after_help = "\
Examples:
  dprobes trace -p $(pidof -s redis-server) 'uprobe:a.out:zmalloc { @bytes = hist(arg0); }'
  dprobes trace 'uprobe:libc:malloc /arg0 > 1e6/ { @[ustack] = count(); }' -- ls -l /
  dprobes trace -p 4711 'uprobe:a.out:f { @t[tid] = nsecs; }
      uretprobe:a.out:f /@t[tid]/ { @ns = hist(nsecs - @t[tid]); delete(@t, tid); }'
  dprobes trace -p 4711 'interval:s:1 { print(@); clear(@); } uprobe:libc:read { @ = count(); }'
  dprobes trace 'uprobe:libssl:SSL_write { @[comm] = sum(arg2); }'     all processes
  dprobes trace 'tracepoint:syscalls:sys_enter_openat { printf(\"%s %s\\n\", comm, str(args.filename)); }'
  dprobes trace -f json -o sizes.json sizes.bt 4096 -- ./app    $1 is 4096 in the script
  dprobes trace -p 4711 'uprobe:a.out:serve { printf(\"%d %s\\n\", args.c->fd, str(args.c->name)); }'
  dprobes trace -p 4711 'uprobe:a.out:server.c:120 { @[ustack] = count(); }'
  dprobes trace -l 'uprobe:libc:mem*'                           what would be probed
  dprobes trace -lv 'uprobe:./app:serve*'                       and the arguments of functions")]
pub(crate) struct Trace {
    /// The script: its text, or a file; then its parameters $1, $2, ...
    #[arg(value_name = "SCRIPT")]
    pub(crate) script: Vec<String>,
    /// The script's text
    #[arg(short = 'e', value_name = "TEXT")]
    pub(crate) text: Option<String>,
    #[command(flatten)]
    pub(crate) processes: Processes,
    /// Start this command, with its arguments in one word
    #[arg(short, long = "cmd", value_name = "COMMAND", conflicts_with = "command")]
    pub(crate) cmd: Option<String>,
    /// The form of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: ScriptFormat,
    /// Write what the script prints to a file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Say nothing about the probes
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// List the places that the script, or an attach point, would probe
    #[arg(short, long)]
    pub(crate) list: bool,
    /// With --list, tell the arguments of functions, with their types
    #[arg(short, long, requires = "list")]
    pub(crate) verbose: bool,
    /// Compile the script and find its places, but probe nothing
    #[arg(short, long)]
    pub(crate) dry_run: bool,
    /// Allow functions that change the process or start commands
    #[arg(long = "unsafe")]
    pub(crate) allow_unsafe: bool,
    /// A directory with files that the script names
    #[arg(short = 'I', long, value_name = "DIR")]
    pub(crate) include: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) firing: Firing,
    /// Stop this long after the probes are in: 10s, 500ms, 2m
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// How probes fire, and what becomes of what they print.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Firing {
    /// How probes fire
    #[arg(long, value_name = "ENGINE", default_value = "auto")]
    pub(crate) engine: Engine,
    /// Let a thread wait until there is room for what it prints, instead of losing it
    #[arg(long)]
    pub(crate) lossless: bool,
    /// Bytes of the buffer for each processor: 1M, 256K
    #[arg(long, value_name = "BYTES", value_parser = super::values::size)]
    pub(crate) buffer: Option<u64>,
}

/// The form of what a script prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScriptFormat {
    /// As bpftrace prints it
    #[default]
    Text,
    /// A JSON object in each line
    Json,
    /// Maps by stacks as lines for flame graphs, all else as text
    Folded,
}
