//! This machine, and what this user may do on it.

use std::fs;

use bpf::Feature;

use super::finding::{Finding, State};
use crate::{debuginfod, kernel_engine};

/// Looks at the machine.
pub(super) fn findings() -> Vec<Finding> {
    let mut findings = vec![kernel(), proc(), others()];
    findings.extend(sandbox());
    match kernel_engine::rights() {
        Ok(()) => findings.extend(by_kernel()),
        Err(why) => findings.push(Finding::new(State::Lacking, "all processes", why)),
    }
    findings.push(debug_information());
    findings
}

fn kernel() -> Finding {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let processors = crate::messages::count(processors as u64, "processor");
    Finding::new(State::Note, "kernel", format!("Linux {}, {processors}", release.trim()))
}

fn proc() -> Finding {
    match ::process::check_proc() {
        Ok(()) => Finding::new(State::Works, "/proc", "mounted"),
        Err(error) => Finding::new(State::Fails, "/proc", error.to_string()),
    }
}

/// Which processes this user may trace.
fn others() -> Finding {
    /// CAP_SYS_PTRACE of linux/capability.h.
    const SYS_PTRACE: u64 = 1 << 19;
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
    let scope: u32 = scope.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let own = ::process::Credentials::read(std::process::id() as i32);
    let all = own.is_ok_and(|own| own.permitted & SYS_PTRACE != 0);
    let (state, text) = match (scope, all) {
        (3.., _) => (State::Fails, "none: kernel.yama.ptrace_scope is 3, until the machine is restarted"),
        (_, true) => (State::Works, "all"),
        (2, false) => (State::Fails, "none: kernel.yama.ptrace_scope is 2; try as root"),
        (1, false) => (
            State::Lacking,
            "only those that dprobes starts: kernel.yama.ptrace_scope is 1; as root all can be, \
             or set it to 0 with sysctl to probe your own",
        ),
        (_, false) => (State::Works, "your own; as root all"),
    };
    Finding::new(state, "processes", text)
}

/// Whether this process is itself in a sandbox.
fn sandbox() -> Option<Finding> {
    let status = ::process::Status::read(std::process::id() as i32).ok()?;
    (status.seccomp != 0).then(|| {
        let text =
            "system calls are filtered here (seccomp), as in a container: what fails may be allowed outside";
        Finding::new(State::Note, "sandbox", text)
    })
}

/// What the kernel's own probes can do here.
fn by_kernel() -> Vec<Finding> {
    let kernel = |subject, feature: Feature, works: &str, lacks: &str| match feature.is_available() {
        true => Finding::new(State::Works, subject, works),
        false => Finding::new(State::Lacking, subject, lacks),
    };
    let needed = [Feature::RingBuffer, Feature::Loop].into_iter().all(Feature::is_available);
    let all = match needed {
        true => Finding::new(State::Works, "all processes", "probed by the kernel"),
        false => Finding::new(
            State::Lacking,
            "all processes",
            "this kernel loads no such programs; Linux 5.17 or later does",
        ),
    };
    vec![
        all,
        kernel(
            "kernel functions",
            Feature::Kprobe,
            "probed by kprobes",
            "this kernel has no kprobes, or forbids them",
        ),
        kernel(
            "fentry",
            Feature::Fentry,
            "used by scripts of other tools",
            "refused by this kernel; kprobes do the same",
        ),
    ]
}

fn debug_information() -> Finding {
    let directory = fs::read_dir("/usr/lib/debug").is_ok_and(|mut entries| entries.next().is_some());
    let text = match directory {
        true => "/usr/lib/debug has debug files; programs compiled with -g have their own",
        false => {
            "only that of programs compiled with -g: /usr/lib/debug has none (packages *-dbgsym, *-debuginfo)"
        }
    };
    let servers = match (debuginfod::is_asked(), debuginfod::client()) {
        (true, Some(_)) => "; DEBUGINFOD_URLS names servers that are asked for others",
        (true, None) => "; DEBUGINFOD_URLS is set, but debuginfod-find (package debuginfod) is not installed",
        (false, _) => "",
    };
    Finding::new(State::Note, "debug information", format!("{text}{servers}"))
}
