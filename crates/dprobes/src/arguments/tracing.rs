//! Arguments that say how a program is traced: where its records go, how its probes fire, and what
//! is reported.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use trace::sink::Target;

use super::show::Shown;
use super::values::{MaxOverhead, max_overhead, plugin, size, targets_help, targets_long_help};

/// How a program is traced.
#[derive(Debug, Args)]
pub(crate) struct Tracing {
    /// Look symbols up in this file: a debug file of the module, or the module before it was
    /// stripped; for `modtype = kernel`, the kernel's System.map
    #[arg(short, long, value_name = "SYMFILE")]
    pub(crate) sym: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) shown: Shown,
    /// Where records go.
    #[arg(long, value_name = "TARGET", value_delimiter = ',', value_parser = Target::parse)]
    #[arg(help = targets_help(Target::ALL, "stderr"), long_help = targets_long_help(Target::ALL, "stderr"))]
    pub(crate) log_target: Vec<Target>,
    /// Write records to a file instead of standard error; to a trace store (read by `dprobes show`)
    /// if its name ends in .dpt
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The file's format, whatever its name ends in
    #[arg(long, value_name = "FORMAT", requires = "output")]
    pub(crate) format: Option<Format>,
    #[command(flatten)]
    pub(crate) buffering: Buffering,
    /// Do not verify opcodes and instruction boundaries; a probe inside an instruction breaks the
    /// program
    #[arg(long)]
    pub(crate) dont_verify_opcodes: bool,
    /// Let each probe write up to N core dumps (`exit 3`), in the current directory
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_dumps: u32,
    #[command(flatten)]
    pub(crate) cost: Cost,
    /// Fail if anything was lost: a hit whose handler did not run, a record that was dropped, or a
    /// record that a target lost
    ///
    /// Losses are reported in any case. The exit status is then 125 for `run` and 1 for `attach`
    /// and `top`, whatever the command's was.
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) verbose: Verbose,
    /// Say nothing about the probes, and print no summary
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Write the summary to a file, - for standard error
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) summary: Option<PathBuf>,
    /// Write counts and variables to a file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// Load a plugin, a shared object that is called for records and by `callk`; may be given
    /// several times
    #[arg(long, value_name = "FILE.so[=ARGUMENT]", value_parser = plugin)]
    pub(crate) plugin: Vec<Plugin>,
}

/// What probing may cost.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Cost {
    /// The part of the time that hits of traps may take: 5%, or none for no limit [default: 5% for
    /// running processes, none for a command that is started]
    ///
    /// A trap stops the thread for some microseconds. If traps take more in the long run, the probe
    /// with the most hits is taken out, and a message says so.
    #[arg(long, value_name = "PERCENT", value_parser = max_overhead)]
    max_overhead: Option<MaxOverhead>,
}

impl Cost {
    /// The limit for a command that is started.
    pub(crate) fn of_command(self) -> Option<f64> {
        self.max_overhead.and_then(|limit| limit.0)
    }

    /// The limit for running processes, which others rely on.
    pub(crate) fn of_processes(self) -> Option<f64> {
        self.max_overhead.map_or(Some(0.05), |limit| limit.0)
    }

    /// Whether the option was given.
    pub(crate) fn is_given(self) -> bool {
        self.max_overhead.is_some()
    }

    /// The option as it was given, for another command line.
    pub(crate) fn words(self) -> Option<String> {
        let text = |limit: MaxOverhead| {
            limit.0.map_or_else(|| "none".to_owned(), |part| format!("{}%", part * 100.0))
        };
        self.max_overhead.map(|limit| format!("--max-overhead={}", text(limit)))
    }
}

/// How much the summary says.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Verbose {
    /// Show in the summary the codes of probes, the tactics of jumps, and why sites are trapped
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// How records are buffered, and which processes share variables.
#[derive(Debug, Default, Args)]
pub(crate) struct Buffering {
    /// Lose no record: if the buffer is full, the program waits until there is room
    ///
    /// Without it, records of jumps that find no room are dropped and counted.
    #[arg(long)]
    pub(crate) lossless: bool,
    /// Buffer size per processor, in bytes, for records waiting to be written: 256K to 64M, a power
    /// of two [default: 16M]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) buffer: Option<u64>,
    /// Let all processes share variables and counters, also those of different users
    ///
    /// Without it, only processes share them that could trace one another: of the same users,
    /// groups, capabilities and namespaces. A process that shares them can change what others
    /// count, and end their probes.
    #[arg(long)]
    pub(crate) share_variables: bool,
}

/// A plugin and its argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plugin {
    pub(crate) file: PathBuf,
    /// The text after the first `=`; empty if there is none.
    pub(crate) argument: String,
}

/// The format of a file of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text, as in the kernel's log
    Text,
    /// A trace store
    Dpt,
}

impl Format {
    /// The format of an output: the one asked for, else by the file name's extension.
    pub(crate) fn of(output: Option<&Path>, asked: Option<Format>) -> Format {
        let is_store = output.and_then(Path::extension).is_some_and(|extension| extension == "dpt");
        asked.unwrap_or(if is_store { Format::Dpt } else { Format::Text })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Engine {
    /// A jump wherever possible, a trap elsewhere
    #[default]
    Auto,
    /// A jump inside the process; refuse probes where none is possible
    Jump,
    /// A breakpoint that dprobes handles
    Trap,
}

impl From<Engine> for engine::Engine {
    fn from(engine: Engine) -> engine::Engine {
        match engine {
            Engine::Auto => engine::Engine::Auto,
            Engine::Jump => engine::Engine::Jump,
            Engine::Trap => engine::Engine::Trap,
        }
    }
}

/// How the probes of `insert` fire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum InsertEngine {
    /// For the kernel, to watch memory, and without -p: as `kernel`, if you may; else as `tracer`
    #[default]
    Auto,
    /// A jump wherever possible, a trap elsewhere; without -p, in your own processes
    Tracer,
    /// A jump inside the process; refuse probes where none is possible
    Jump,
    /// A breakpoint that dprobes handles
    Trap,
    /// A breakpoint that the kernel handles: no process is stopped, and all can be probed
    Kernel,
}

/// What is to run a program that is inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runner {
    /// The session's tracer.
    Tracer(Engine),
    Kernel,
    /// The kernel if it can, else the tracer.
    KernelOrTracer,
}

impl InsertEngine {
    /// What runs a program. `kernel_only`: only the kernel can. `is_for_all`: no process was named.
    ///
    /// # Errors
    /// It cannot run by the engine that was asked for.
    pub(crate) fn runner(self, kernel_only: bool, is_for_all: bool) -> Result<Runner, String> {
        let engine = match self {
            InsertEngine::Kernel => return Ok(Runner::Kernel),
            InsertEngine::Auto if kernel_only => return Ok(Runner::Kernel),
            InsertEngine::Auto if is_for_all => return Ok(Runner::KernelOrTracer),
            InsertEngine::Auto | InsertEngine::Tracer => Engine::Auto,
            InsertEngine::Jump => Engine::Jump,
            InsertEngine::Trap => Engine::Trap,
        };
        match kernel_only {
            false => Ok(Runner::Tracer(engine)),
            true => {
                let name = self.to_possible_value().map_or_else(String::new, |name| name.get_name().into());
                Err(format!(
                    "--engine {name}: only the kernel engine probes the kernel, and watches memory; leave --engine out"
                ))
            }
        }
    }
}

/// How the probes of `attach` fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AttachEngine {
    /// With -p, a jump wherever possible, a trap elsewhere; without, the kernel
    Auto,
    /// A jump inside the process; refuse probes where none is possible
    Jump,
    /// A breakpoint that dprobes handles
    Trap,
    /// A breakpoint that the kernel handles: no process is stopped, and all can be probed
    Kernel,
}

impl AttachEngine {
    /// The engine if a tracer is to probe a process; `None`: the kernel.
    pub(crate) fn of_tracer(self) -> Option<Engine> {
        match self {
            AttachEngine::Auto => Some(Engine::Auto),
            AttachEngine::Jump => Some(Engine::Jump),
            AttachEngine::Trap => Some(Engine::Trap),
            AttachEngine::Kernel => None,
        }
    }

    /// Its name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}
