//! The machine, as reports name it, and what it has spent.

use std::time::Duration;

/// The processors: how many, and what they call themselves.
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

/// The processor time of all processes that were waited for, and of those that they waited for.
pub(crate) fn processor_time() -> Duration {
    // SAFETY: all zeros are a rusage, and it is valid for the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}
