//! Arguments that say how a program is traced: where its records go, how its probes fire, and what
//! is reported.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use trace::sink::Target;

use super::show::Shown;
use super::values::{plugin, size};

/// How a program is traced.
#[derive(Debug, Args)]
pub(crate) struct Tracing {
    /// Look symbols up in this file: a debug file of the module, or the module before it was
    /// stripped
    #[arg(short, long, value_name = "SYMFILE")]
    pub(crate) sym: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) shown: Shown,
    #[allow(rustdoc::broken_intra_doc_links, reason = "the text is what `--help` says")]
    /// Where records go, separated by commas or given several times: stderr, KLOG, COM1, COM2,
    /// serial:DEVICE, LTT[:FILE], EVL, ctf:DIR, file:PATH, store:PATH.dpt [default: stderr]
    ///
    /// See docs/targets.md for what each target is and guarantees.
    #[arg(long, value_name = "TARGET", value_delimiter = ',', value_parser = Target::parse)]
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
    /// Fail if anything was lost: a hit whose handler did not run, a record that was dropped, or a
    /// record that a target lost
    ///
    /// Losses are reported in any case. The exit status is then 125 for `run` and 1 for `attach`
    /// and `top`, whatever the command's was.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Write counts and variables to a file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// Load a plugin, a shared object that is called for records and by `callk`; may be given
    /// several times
    #[arg(long, value_name = "FILE.so[=ARGUMENT]", value_parser = plugin)]
    pub(crate) plugin: Vec<Plugin>,
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
