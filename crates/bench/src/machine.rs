//! The machine, for reports, and used processor time.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};

/// The number and the name of the processors.
pub fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{count} x {}", name.map_or("unknown processor", |(_, name)| name))
}

/// The kernel's version.
pub fn kernel() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {}", text.trim())
}

/// The processor time of all child processes that were waited for, including those that they waited
/// for.
pub(crate) fn processor_time() -> Duration {
    let time = |time: TimeVal| Duration::from_micros(time.num_microseconds().unsigned_abs());
    getrusage(UsageWho::RUSAGE_CHILDREN)
        .map_or(Duration::ZERO, |usage| time(usage.user_time()) + time(usage.system_time()))
}
