//! Shared by the tests: sessions of the kernel engine, and programs to probe.

#[path = "../../system/support/elf.rs"]
#[allow(dead_code, reason = "it is written for all tests of the command")]
mod elf;
#[path = "../../system/support/metrics.rs"]
#[allow(dead_code, reason = "it is written for all tests of the command")]
mod metrics;
#[path = "../../system/support/run.rs"]
#[allow(dead_code, reason = "it is written for all tests of the command")]
mod run;
#[path = "../../system/support/server.rs"]
#[allow(dead_code, reason = "it is written for all tests of the command")]
mod server;
#[path = "../../system/support/stats.rs"]
#[allow(dead_code, reason = "it is written for all tests of the command")]
mod stats;

mod background;
mod session;

use std::path::{Path, PathBuf};

pub(crate) use background::Background;
pub(crate) use elf::{is_traced, text_differences};
pub(crate) use metrics::{Metrics, value};
pub(crate) use run::{FORGED, Outcome, Run, dprobes, run};
pub(crate) use server::Server;
pub(crate) use session::{Session, mount_tracefs, start, start_file, start_traced, watch};
pub(crate) use stats::Stats;
pub(crate) use testing::{Scratch, need, repository, target, variant};

/// Ends a test as skipped, `bpf: NAME`, unless this machine runs probes by the kernel for this user.
macro_rules! needs_kernel {
    ($name:literal) => {
        $crate::support::need!(
            concat!("bpf: ", $name),
            $crate::support::can_run(),
            "root, and a kernel with uprobes that runs eBPF programs"
        )
    };
}
pub(crate) use needs_kernel;

/// Whether this machine runs probes by the kernel for this user.
pub(crate) fn can_run() -> Option<()> {
    let is_able = testing::is_root()
        && bpf::Feature::RingBuffer.is_available()
        && bpf::Feature::Loop.is_available()
        && Path::new("/sys/bus/event_source/devices/uprobe/type").exists();
    is_able.then_some(())
}

/// A copy of a program in a scratch directory, so that only its own processes are probed.
pub(crate) fn copy(scratch: &Scratch, program: &Path, name: &str) -> PathBuf {
    let path = scratch.path().join(name);
    std::fs::copy(program, &path).expect("there is room");
    path
}

/// A program that counts, and logs nothing: point number i (from 0) has minor code i + 1 and counts
/// in local variable i.
pub(crate) fn counting(module: &str, points: &[&str]) -> String {
    let points = points.iter().enumerate();
    let handlers: String = points
        .map(|(number, point)| format!("offset = {point}\nminor = {}\ninc lv, {number}\nexit\n", number + 1))
        .collect();
    format!(
        "name = \"{module}\"\nmodtype = user\nmajor = 1\nlogmax = 0\nvars = 8\nmaxhits = 0xffffffffffffffff\n{handlers}"
    )
}

/// Builds a C program in a scratch directory; `None` without gcc, or if it does not build it so.
pub(crate) fn build(scratch: &Scratch, source: &str, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let gcc = testing::find_program("gcc")?;
    let source = scratch.file(&format!("{name}.c"), source);
    let program = scratch.path().join(name);
    let built = std::process::Command::new(gcc).args(flags).arg("-o").arg(&program).arg(source).output();
    built.is_ok_and(|output| output.status.success()).then_some(program)
}
