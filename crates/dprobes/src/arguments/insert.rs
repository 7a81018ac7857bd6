//! The commands of the background session: what puts probes in, what takes them out, and what looks at them.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use trace::sink::Target;

use super::probes::{Probes, Select};
use super::show::Shown;
use super::tracing::{Buffering, Engine, Format, Plugin};
use super::values::{kept_target, plugin, range};

/// Put probes in and return; a background session keeps them
///
/// Without -p they are for every process of yours that maps the module, now or later: children of probed processes at
/// once, others within a tenth of a second of their start (a second, if they load the module late). Records go to a
/// file that is told, or where --log-target and -o say.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes insert count.rpn
  dprobes --insert count.rpn --merge             the same command, as the original spelled it
  dprobes insert -p 4711 -o records.txt malloc.rpn
  dprobes insert --sym app.debug --log PID TSC app.rpn
  dprobes insert --log-target KLOG,evl app.rpn             several targets: docs/targets.md
  dprobes insert -p 4711 --at a.out:main_loop:entry")]
pub(crate) struct Insert {
    #[command(flatten)]
    pub(crate) probes: Probes,
    /// Look symbols up in this file: a debug file of the module, or the module before it was stripped
    #[arg(short, long, value_name = "SYMFILE")]
    pub(crate) sym: Option<PathBuf>,
    /// Let no thread of a process past a probe before all of them are in; so it always is
    #[arg(long)]
    pub(crate) stop_cpus: bool,
    #[command(flatten)]
    pub(crate) placing: Placing,
}

/// Put the probes of a PPDF in and return
///
/// As `insert` does it, for a file that `build-ppdf` has made. Symbols and macros were given when it was built.
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
    /// Add to the probes that the module has; a probepoint that both have is taken from the file
    #[arg(short, long, conflicts_with = "replace")]
    pub(crate) merge: bool,
    /// Put these in the place of the probes that the module has
    #[arg(short = 'c', long)]
    pub(crate) replace: bool,
    /// For these processes only, and the children that they have from now on
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: Vec<i32>,
    #[command(flatten)]
    pub(crate) shown: Shown,
    #[allow(rustdoc::broken_intra_doc_links, reason = "the text is what `--help` says")]
    /// Where records go, several with commas between them or one after the other: KLOG, COM1, COM2, serial:DEVICE, LTT[:FILE], EVL,
    /// ctf:DIR, file:PATH, store:PATH.dpt [default: a file, which is told]
    ///
    /// docs/targets.md has what each of them is, and what it promises.
    #[arg(long, value_name = "TARGET", value_delimiter = ',', value_parser = kept_target)]
    pub(crate) log_target: Vec<Target>,
    /// Write records to the end of a file; to a new trace store where its name ends in .dpt
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// What the file is, whatever its name ends in
    #[arg(long, value_name = "FORMAT", requires = "output")]
    pub(crate) format: Option<Format>,
    #[command(flatten)]
    pub(crate) buffering: Buffering,
    /// Do not verify opcodes and instruction boundaries
    #[arg(long)]
    pub(crate) dont_verify_opcodes: bool,
    /// How probes fire
    #[arg(long, value_name = "ENGINE", default_value = "auto", overrides_with = "engine")]
    pub(crate) engine: Engine,
    /// Load a plugin into the session, where it stays; may be given several times
    #[arg(long, value_name = "FILE.so[=ARGUMENT]", value_parser = plugin)]
    pub(crate) plugin: Vec<Plugin>,
}

/// Take probes out that were inserted
#[derive(Debug, Args)]
pub(crate) struct Remove {
    #[command(flatten)]
    pub(crate) which: Which,
}

/// Show the probes that are inserted
#[derive(Debug, Args)]
pub(crate) struct Query {
    #[command(flatten)]
    pub(crate) which: Which,
    /// With the programs' code and variables
    #[arg(short = 'x', long)]
    pub(crate) extended: bool,
}

/// Show or reset the variables of inserted programs
///
/// Processes are not stopped for it.
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
    /// Those of this range of indices, both included
    #[arg(short, long, value_name = "FROM-TO", value_parser = range)]
    pub(crate) index: Option<(usize, usize)>,
    /// Set them to zero
    #[arg(long)]
    pub(crate) reset: bool,
}

/// Which programs are meant.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Which {
    /// Those of this module
    #[arg(short, long, value_name = "MODULE")]
    pub(crate) name: Option<String>,
    /// All
    #[arg(short, long)]
    pub(crate) all: bool,
}

/// Show or stop the background session
#[derive(Debug, Args)]
pub(crate) struct Session {
    #[command(subcommand)]
    pub(crate) action: SessionAction,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum SessionAction {
    /// Say whether there is a session
    Status,
    /// Take all probes out and end the session
    Stop,
}
