//! The arguments of the background session's commands: insert, remove and inspect probes.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use trace::sink::Target;

use super::export::Export;
use super::probes::{Probes, Select};
use super::processes::Processes;
use super::show::Shown;
use super::tracing::{Buffering, Cost, Format, InsertEngine, Plugin};
use super::values::{kept_target, plugin, range, targets_help, targets_long_help};

/// Where records go if nothing else is said, in the help.
const FILE: &str = "a file, whose name is printed";

/// Insert probes and return; a background session keeps them
///
/// Without -p, the probes are for every process that maps the module, now or later. For root, or
/// with the capabilities CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE, these are the processes of all
/// users, and the kernel runs the probes (see `dprobes help kernel-engine`). Else, with --engine
/// tracer, and where the kernel cannot run them, they are your own: children of probed processes at
/// once, others within a tenth of a second of their start (a second, if they load the module late).
/// Records go to a file, whose name is printed, or to where --log-target and -o say.
///
/// Programs for the kernel (`modtype = kernel` and `kmod`), and watchpoints, are always run by the
/// kernel.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes insert count.rpn
  dprobes --insert count.rpn --merge             the same command, as the original spelled it
  dprobes insert -p 4711 -o records.txt malloc.rpn
  dprobes insert --sym app.debug --log PID TSC app.rpn
  dprobes insert --log-target KLOG,evl app.rpn             several targets: `dprobes help targets`
  dprobes insert -p 4711 --at a.out:main_loop:entry
  dprobes insert opens.rpn                                 a tracepoint, or a function of the kernel
  dprobes insert --engine tracer count.rpn                 by jumps, in your own processes")]
pub(crate) struct Insert {
    #[command(flatten)]
    pub(crate) probes: Probes,
    /// Look symbols up in this file: a debug file of the module, or the module before it was
    /// stripped; for `modtype = kernel`, the kernel's System.map
    #[arg(short, long, value_name = "SYMFILE")]
    pub(crate) sym: Option<PathBuf>,
    /// Let no thread of a process pass a probe before all of them are in; this is always so
    #[arg(long)]
    pub(crate) stop_cpus: bool,
    #[command(flatten)]
    pub(crate) placing: Placing,
}

/// Insert the probes of a PPDF and return
///
/// Like `insert`, for a file made by `build-ppdf`. Symbols and macros were given when it was built.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes apply-ppdf app.ppdf
  dprobes --apply-ppdf app.ppdf --group process memory --type leave")]
pub(crate) struct ApplyPpdf {
    /// The PPDF
    #[arg(value_name = "PROG.ppdf")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) placing: Placing,
}

/// How probes are inserted.
#[derive(Debug, Args)]
pub(crate) struct Placing {
    #[command(flatten)]
    pub(crate) select: Select,
    /// Add to the module's inserted probes; a probepoint that both have is taken from the file
    #[arg(short, long, conflicts_with = "replace")]
    pub(crate) merge: bool,
    /// Replace the module's inserted probes by these
    #[arg(short = 'c', long)]
    pub(crate) replace: bool,
    #[command(flatten)]
    pub(crate) processes: Processes,
    #[command(flatten)]
    pub(crate) shown: Shown,
    /// Where records go.
    #[arg(long, value_name = "TARGET", value_delimiter = ',', value_parser = kept_target)]
    #[arg(help = targets_help(Target::KEPT, FILE), long_help = targets_long_help(Target::KEPT, FILE))]
    pub(crate) log_target: Vec<Target>,
    /// Append records to a file; write a new trace store if its name ends in .dpt
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The file's format, whatever its name ends in
    #[arg(long, value_name = "FORMAT", requires = "output")]
    pub(crate) format: Option<Format>,
    #[command(flatten)]
    pub(crate) buffering: Buffering,
    /// Do not verify opcodes and instruction boundaries
    #[arg(long)]
    pub(crate) dont_verify_opcodes: bool,
    /// Let each probe write up to N core dumps (`exit 3`), in /, the session's directory
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_dumps: u32,
    /// How probes fire
    #[arg(long, value_name = "ENGINE", default_value = "auto", overrides_with = "engine")]
    pub(crate) engine: InsertEngine,
    /// Let handlers of kernel probes call the kernel's debugger (`exit 1`) or crash the kernel for
    /// a dump (`exit 2`)
    #[arg(long)]
    pub(crate) allow_panic: bool,
    /// Load a plugin into the session, where it stays; may be given several times
    #[arg(long, value_name = "FILE.so[=ARGUMENT]", value_parser = plugin)]
    pub(crate) plugin: Vec<Plugin>,
}

/// Remove inserted probes
#[derive(Debug, Args)]
pub(crate) struct Remove {
    #[command(flatten)]
    pub(crate) which: Which,
}

/// Show the inserted probes
#[derive(Debug, Args)]
pub(crate) struct Query {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Show the programs' code and variables too
    #[arg(short = 'x', long)]
    pub(crate) extended: bool,
}

/// Show or reset the variables of inserted programs
///
/// Does not stop any process.
#[derive(Debug, Args)]
pub(crate) struct GetVars {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Local variables only
    #[arg(long)]
    pub(crate) local: bool,
    /// Global variables only
    #[arg(long)]
    pub(crate) global: bool,
    /// Only variables with an index in this range, inclusive
    #[arg(short, long, value_name = "FROM-TO", value_parser = range)]
    pub(crate) index: Option<(usize, usize)>,
    /// Set the variables to zero
    #[arg(long)]
    pub(crate) reset: bool,
}

/// The programs that a command applies to.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Which {
    /// The programs of this module
    #[arg(short, long, value_name = "MODULE")]
    pub(crate) name: Option<String>,
    /// All programs
    #[arg(short, long)]
    pub(crate) all: bool,
}

/// Start, show or stop the background session
///
/// The first `insert` starts it too.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes session start --export prometheus:9464     hits and variables as metrics
  dprobes session status
  dprobes session stop
  systemctl start dprobes                 root's session as a service, where a package has installed it")]
pub(crate) struct Session {
    #[command(subcommand)]
    pub(crate) action: SessionAction,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SessionAction {
    /// Start the session, unless there is one, and say what it does
    Start {
        /// Be the session until it is stopped, as a service; messages go to standard error
        ///
        /// Fails if there is a session. SIGTERM removes all probes and ends it.
        #[arg(long)]
        foreground: bool,
        #[command(flatten)]
        export: Export,
        #[command(flatten)]
        cost: Cost,
    },
    /// Say whether there is a session
    Status,
    /// Remove all probes and end the session
    Stop,
}
