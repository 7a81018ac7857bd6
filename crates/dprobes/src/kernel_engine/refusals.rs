//! What the kernel's refusals mean, in words.

use bpf::{AttachError, Errno};

/// `ENOTSUPP`, which the kernel returns although programs should not see it.
const ENOTSUPP: i32 = 524;

/// Why the kernel refuses an instruction of a file.
pub(super) fn refusal_of_uprobe(error: AttachError) -> String {
    match error.errno() {
        Some(Errno::EOPNOTSUPP) => NO_UPROBE.to_owned(),
        Some(errno) if errno as i32 == ENOTSUPP || errno == Errno::UnknownErrno => NO_UPROBE.to_owned(),
        Some(Errno::EMFILE | Errno::ENFILE) => {
            "too many open files: each site takes one here; raise the limit (ulimit -n), or give fewer"
                .to_owned()
        }
        _ => refused_by_link(error),
    }
}

/// What the kernel's uprobes cannot execute elsewhere.
const NO_UPROBE: &str =
    "the kernel's uprobes do not take this instruction; with -p PID, the other engines may";

/// Why the kernel refuses a place in itself.
pub(super) fn refusal_of_kprobe(error: AttachError) -> String {
    match error.errno() {
        Some(Errno::EINVAL | Errno::EILSEQ | Errno::ENOENT | Errno::EADDRNOTAVAIL) => {
            "the kernel allows no kprobe there: it is no start of an instruction, or code that must not be instrumented".to_owned()
        }
        _ => refused_by_link(error),
    }
}

/// Why the kernel refuses to attach a program, whatever the place is.
fn refused_by_link(error: AttachError) -> String {
    match error.errno() {
        Some(Errno::EPERM | Errno::EACCES) => {
            "the kernel forbids it: CAP_BPF and CAP_PERFMON are needed, or root".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Why the kernel refuses a watchpoint.
pub(super) fn refusal_of_watchpoint(error: AttachError) -> String {
    match error.errno() {
        Some(Errno::ENOSPC) => {
            "no debug register is free: a processor has four, and a debugger or another tracer may use them"
                .to_owned()
        }
        Some(Errno::ENODEV | Errno::EOPNOTSUPP | Errno::ENOENT) => {
            "this machine gives no debug registers to programs (a virtual machine may hide them)".to_owned()
        }
        Some(Errno::ESRCH) => "the process has ended".to_owned(),
        Some(Errno::EINVAL) => {
            "the kernel does not watch this address; the execution of its own code only where kprobes may be, and if it has kprobes"
                .to_owned()
        }
        _ => refused_by_link(error),
    }
}

/// Why the kernel refuses a tracepoint.
pub(super) fn refusal_of_tracepoint(error: AttachError) -> String {
    match error.errno() {
        // Linux compares what the program reads with the record's size.
        Some(Errno::EACCES) => {
            "the kernel's record of it is shorter than it says, or the kernel forbids it".to_owned()
        }
        _ => refused_by_link(error),
    }
}
