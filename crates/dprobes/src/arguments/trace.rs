//! The arguments of `dprobes trace`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use trace::sink::Target;

use super::export::Export;
use super::processes::Processes;
use super::tracing::{Cost, Engine};
use super::values::{duration, targets_help, targets_long_help};

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
  dprobes trace --flame read.svg 'uprobe:libc:read { @[ustack] = sum(arg2); }' -- ls -lR /etc
  dprobes trace -f json -o sizes.json sizes.bt 4096 -- ./app    $1 is 4096 in the script
  dprobes trace -p 4711 'uprobe:a.out:serve { printf(\"%d %s\\n\", args.c->fd, str(args.c->name)); }'
  dprobes trace -p 4711 'uprobe:a.out:server.c:120 { @[ustack] = count(); }'
  dprobes trace -p 4711 --export prometheus:9464 'uprobe:libc:malloc { @bytes[comm] = hist(arg0); }'
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
    #[command(flatten)]
    pub(crate) printed: Printed,
    /// Look names and types up in this file too: a debug file of a probed program or library, or
    /// what it was before it was stripped; or the kernel's names in its System.map
    #[arg(short, long, value_name = "SYMFILE")]
    pub(crate) sym: Option<PathBuf>,
    /// Where what `printf` says goes, as records, instead of the output; a trace store as well if
    /// the name behind --output ends in .dpt
    #[arg(long, value_name = "TARGET", value_delimiter = ',', value_parser = Target::parse)]
    #[arg(help = targets_help(Target::ALL, "none"), long_help = targets_long_help(Target::ALL, "none"))]
    pub(crate) log_target: Vec<Target>,
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
    /// Stop this long after the probes are in: 10s, 500ms, 2m
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// Whether text shows the times of maps that are called `@ns` or `@..._us` with units: in
    /// scripts that come with the command.
    #[arg(skip)]
    pub(crate) durations: bool,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

impl Trace {
    /// The targets of what `printf` says; none: it is printed.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let store = self.printed.output.as_ref().filter(|path| is_store(path));
        self.log_target.iter().cloned().chain(store.cloned().map(Target::Store)).collect()
    }

    /// The file that text goes to; none: to standard output.
    pub(crate) fn text_file(&self) -> Option<&Path> {
        self.printed.output.as_deref().filter(|path| !is_store(path))
    }
}

fn is_store(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "dpt")
}

/// Where the output of a script goes, and how its probes fire.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Printed {
    /// The form of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: ScriptFormat,
    /// Write what is printed to a file; what `printf` says, to a trace store (read by `dprobes
    /// show`), if its name ends in .dpt
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Also draw a flame graph of the maps that have stacks as keys, when tracing ends
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) flame: Option<PathBuf>,
    /// Say nothing about the probes
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) export: Export,
    #[command(flatten)]
    pub(crate) firing: Firing,
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
    /// Do not verify opcodes and instruction boundaries; a probe inside an instruction breaks the
    /// program
    #[arg(long)]
    pub(crate) dont_verify_opcodes: bool,
    #[command(flatten)]
    pub(crate) cost: Cost,
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
