//! Makes the animated picture that README shows, of commands that are run now.
//!
//!     cargo run --release -p dprobes-bench --bin recording -- [TEXT] [--output FILE.svg]
//!
//! TEXT is docs/recording.txt: [`recording`] has its form. The programs that it probes are those of
//! examples/services. `dprobes` is the release build.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use dprobes_bench::{build, recording, status};

/// Makes an animated picture of commands and what they print.
#[derive(Parser)]
#[command(after_help = "\
Examples:
  recording                                     docs/recording.txt to docs/recording.svg
  recording mine.txt --output mine.svg          another text")]
struct Options {
    /// The commands
    text: Option<PathBuf>,
    /// The picture
    #[arg(short, long, value_name = "FILE.svg")]
    output: Option<PathBuf>,
    /// The dprobes to run, instead of building it from these sources
    #[arg(long, value_name = "COMMAND")]
    dprobes: Option<PathBuf>,
}

fn make() -> io::Result<bool> {
    let Options { text, output, dprobes } = Options::parse();
    let docs = build::repository().join("docs");
    let text = std::fs::read_to_string(text.unwrap_or_else(|| docs.join("recording.txt")))?;
    // Its name is in what the commands print.
    let folder = std::env::temp_dir().join("dprobes-recording");
    std::fs::create_dir_all(&folder)?;
    for service in ["svc", "slow", "leak", "lock"] {
        let source = build::repository().join(format!("examples/services/{service}.c"));
        build::c_program(&[source], &["-O2", "-g", "-pthread"], &[], &folder.join(service))?;
    }
    let dprobes = build::given(dprobes.as_deref(), true)?;
    let directory = dprobes.canonicalize()?.parent().map(PathBuf::from).unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path =
        std::env::join_paths([folder.clone(), directory].into_iter().chain(std::env::split_paths(&path)))
            .map_err(io::Error::other)?;
    let lines = recording::record(&text, &folder, &path)?;
    let output = output.unwrap_or_else(|| docs.join("recording.svg"));
    std::fs::write(&output, recording::svg(&lines))?;
    println!("{}: {} lines", output.display(), lines.len());
    Ok(true)
}

fn main() -> ExitCode {
    status("recording", make())
}
