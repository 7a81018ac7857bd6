//! The same scripts with bpftrace, where it is installed and may load eBPF programs.
//!
//! Its probes are in a file, for all processes: it has a file of its own, and one trial at a time.

use super::case::Case;
use super::support::{find_program, run, variant};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{LazyLock, Mutex, PoisonError};

/// What skips are called.
const NAME: &str = "optional: trace: bpftrace";

/// Whether bpftrace can probe a function of a program here.
static WORKS: LazyLock<bool> = LazyLock::new(|| {
    let (Some(bpftrace), Some(program)) = (find_program("bpftrace"), program()) else {
        return false;
    };
    let script = format!("uprobe:{}:scripted_size {{ @ = count(); }}", program.display());
    let (_, stdout, _) = run(Command::new(bpftrace).args(["-e", &script, "-c"]).arg(&program));
    stdout.contains("@: 1")
});

/// Whether bpftrace can probe functions here.
pub(crate) fn works() -> bool {
    *WORKS
}

/// The lines, in the order of their text: entries of equal values have none in bpftrace, and its
/// releases differ in empty lines.
fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// The program under test, in a file that only bpftrace probes.
fn program() -> Option<PathBuf> {
    variant("scripted", "scripted-peer", &[])
}

/// Plays a case with bpftrace.
pub(crate) fn play(case: &Case) -> Result<(), String> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if !works() {
        testing::skipped(NAME, "bpftrace, and the right to load eBPF programs");
        return Ok(());
    }
    let program = program().expect("it was built before");
    let mut line = OsString::from(&program);
    case.arguments().iter().for_each(|word| line.extend([" ".as_ref(), std::ffi::OsStr::new(word)]));
    let mut command = Command::new("bpftrace");
    command.arg("-e").arg(case.script(&program)).arg("-c").arg(line).args(case.parameters());
    let (_, stdout, stderr) = run(&mut command);
    // Its first line says how many probes it attaches.
    let (first, rest) = stdout.split_once('\n').unwrap_or((&stdout, ""));
    let (seen, expected) = (sorted(rest), sorted(&case.expected(&program)));
    match first.starts_with("Attaching ") && seen == expected {
        true => Ok(()),
        false => Err(format!("bpftrace prints\n{seen}\nand not\n{expected}\nstandard error:\n{stderr}")),
    }
}
