//! The options of benches that measure dprobes beside other tracers.

use std::path::PathBuf;

use clap::Args;

/// How often, with which dprobes, and what is measured.
#[derive(Args, Debug)]
pub struct Beside {
    /// How often each way is measured
    #[arg(default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub repetitions: u64,
    /// The dprobes to measure, instead of building it from these sources
    #[arg(long, value_name = "COMMAND")]
    pub dprobes: Option<PathBuf>,
    /// Only the rows whose names contain this
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
}
