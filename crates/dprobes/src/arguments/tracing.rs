//! How a program is used: where its records go, how its probes fire, and what is told of it.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use trace::sink::Target;

use super::show::Shown;
use super::values::{plugin, size};

/// How a program is used.
#[derive(Debug, Args)]
pub(crate) struct Tracing {
    /// Look symbols up in this file: a debug file of the module, or the module before it was stripped
    #[arg(short, long, value_name = "SYMFILE")]
    pub(crate) sym: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) shown: Shown,
    #[allow(rustdoc::broken_intra_doc_links, reason = "the text is what `--help` says")]
    /// Where records go, several with commas between them or one after the other: stderr, KLOG, COM1, COM2, serial:DEVICE, LTT[:FILE],
    /// EVL, ctf:DIR, file:PATH, store:PATH.dpt [default: stderr]
    ///
    /// docs/targets.md has what each of them is, and what it promises.
    #[arg(long, value_name = "TARGET", value_delimiter = ',', value_parser = Target::parse)]
    pub(crate) log_target: Vec<Target>,
    /// Write records to a file instead of standard error; to a trace store where its name ends in .dpt (`dprobes show` reads it)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// What the file is, whatever its name ends in
    #[arg(long, value_name = "FORMAT", requires = "output")]
    pub(crate) format: Option<Format>,
    #[command(flatten)]
    pub(crate) buffering: Buffering,
    /// Do not verify opcodes and instruction boundaries; a probe inside an instruction breaks the program
    #[arg(long)]
    pub(crate) dont_verify_opcodes: bool,
    /// How probes fire
    #[arg(long, value_name = "ENGINE", default_value = "auto", overrides_with = "engine")]
    pub(crate) engine: Engine,
    /// Fail if anything was lost: a hit without a run of the handler, a record that was dropped, or that a target has lost
    ///
    /// What was lost is told in any case. The status is 125 of `run` and 1 of `attach` and `top`, whatever the command's was.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Write counts and variables to a file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// Load a plugin, a shared object that is called for records and by `callk`; may be given several times
    #[arg(long, value_name = "FILE.so[=ARGUMENT]", value_parser = plugin)]
    pub(crate) plugin: Vec<Plugin>,
}

/// What becomes of records that come faster than they are written; who shares variables.
#[derive(Debug, Default, Args)]
pub(crate) struct Buffering {
    /// Lose no record: where the buffer is full, the program waits until there is room
    ///
    /// Without it, records of jumps that find no room are dropped, and counted.
    #[arg(long)]
    pub(crate) lossless: bool,
    /// Bytes of records that may wait to be written, for each processor: 256K to 64M, a power of two [default: 16M]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) buffer: Option<u64>,
    /// Let all processes share variables and counters, also those of different users
    ///
    /// Without it, those share them that could trace one another: of the same users, groups, capabilities and namespaces. Whoever
    /// shares them can change what others count, and end their probes.
    #[arg(long)]
    pub(crate) share_variables: bool,
}

/// A plugin, and what it is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plugin {
    pub(crate) file: PathBuf,
    /// What stands behind the first `=`; empty if there is none.
    pub(crate) argument: String,
}

/// What a file of records is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text, as in the kernel's log
    Text,
    /// A trace store
    Dpt,
}

impl Format {
    /// The format of an output: the one that is asked for, else as its name ends.
    pub(crate) fn of(output: Option<&Path>, asked: Option<Format>) -> Format {
        let is_store = output.and_then(Path::extension).is_some_and(|extension| extension == "dpt");
        asked.unwrap_or(if is_store { Format::Dpt } else { Format::Text })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Engine {
    /// A jump wherever one can stand, a trap elsewhere
    Auto,
    /// A jump inside the process; where none can stand, the probe is refused
    Jump,
    /// A breakpoint that this command answers
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
