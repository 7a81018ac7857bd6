//! Properties of threads and processes, from /proc and system calls.

use std::fs;
use std::io;
use std::sync::OnceLock;

use crate::Error;
use crate::procfs::{read_piece, read_to_end};

/// The ids of a process's threads.
///
/// # Errors
/// The process is gone.
pub fn threads(pid: i32) -> Result<Vec<i32>, Error> {
    let path = format!("/proc/{pid}/task");
    let entries = fs::read_dir(&path).map_err(|cause| Error::Proc { path, cause })?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// The fields of a thread's status file that matter to a tracer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The process the thread belongs to.
    pub tgid: i32,
    /// The thread's id in the innermost pid namespace, as the thread sees it.
    pub inner_id: i32,
    /// The process that created it.
    pub parent: i32,
    /// The process that traces it, or 0.
    pub tracer: i32,
    /// The user: real user id.
    pub uid: u32,
    /// The group: real group id.
    pub gid: u32,
    /// Its state: R, S, D, T, t, Z, X.
    pub state: char,
    /// 0: no seccomp, 1: strict, 2: filter.
    pub seccomp: u8,
    /// Signals waiting for the thread or its process, as a bit set (signal 1 is bit 0).
    pub pending: u64,
    /// Signals waiting for this thread alone.
    pub own_pending: u64,
    /// Signals it blocks.
    pub blocked: u64,
    /// Signals its process ignores.
    pub ignored: u64,
    /// Signals its process has handlers for.
    pub caught: u64,
    /// Whether it is a kernel thread.
    pub kernel: bool,
    /// Whether it has a shadow stack.
    pub shadow_stack: bool,
}

impl Status {
    /// Reads the status of a thread or process.
    ///
    /// # Errors
    /// The thread or process is gone.
    pub fn read(tid: i32) -> Result<Status, Error> {
        let path = format!("/proc/{tid}/status");
        let text = read_piece(&path).map_err(|cause| match cause.raw_os_error() {
            Some(libc::ESRCH | libc::ENOENT) => Error::Gone { pid: tid },
            _ => Error::Proc { path, cause },
        })?;
        Ok(Status::parse(&String::from_utf8_lossy(&text)))
    }

    /// Whether the thread has ended, and is kept only for its parent or the other threads of its
    /// process.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Parses the text of a status file.
    fn parse(text: &str) -> Status {
        // A kernel thread has no memory, hence no VmSize line.
        let mut status = Status { kernel: true, state: '?', ..Status::default() };
        for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            let number =
                || value.split_ascii_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0);
            let mask = || u64::from_str_radix(value, 16).unwrap_or(0);
            match key {
                "Tgid" => status.tgid = number(),
                "NSpid" => {
                    status.inner_id = value
                        .split_ascii_whitespace()
                        .next_back()
                        .and_then(|id| id.parse().ok())
                        .unwrap_or(0);
                }
                "PPid" => status.parent = number(),
                "TracerPid" => status.tracer = number(),
                "Uid" => {
                    status.uid =
                        value.split_ascii_whitespace().next().and_then(|id| id.parse().ok()).unwrap_or(0)
                }
                "Gid" => {
                    status.gid =
                        value.split_ascii_whitespace().next().and_then(|id| id.parse().ok()).unwrap_or(0)
                }
                "State" => status.state = value.chars().next().unwrap_or('?'),
                "Seccomp" => status.seccomp = number() as u8,
                "SigPnd" => {
                    status.own_pending = mask();
                    status.pending |= mask();
                }
                "ShdPnd" => status.pending |= mask(),
                "SigBlk" => status.blocked = mask(),
                "SigIgn" => status.ignored = mask(),
                "SigCgt" => status.caught = mask(),
                "VmSize" => status.kernel = false,
                "x86_Thread_features" => status.shadow_stack = value.contains("shstk"),
                _ => {}
            }
        }
        status
    }
}

/// Whether a thread has a shadow stack, according to the kernel. Reads nothing if processor or
/// kernel have no shadow stacks; few have them.
pub fn has_shadow_stack(tid: i32) -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(are_shadow_stacks_known) && Status::read(tid).is_ok_and(|status| status.shadow_stack)
}

fn are_shadow_stacks_known() -> bool {
    /// The processor's feature bit: bit 7 of ecx of `cpuid` leaf 7.
    const LEAF: u32 = 7;
    const SHADOW_STACKS: u32 = 1 << 7;
    /// ARCH_SHSTK_STATUS (arch/x86/include/uapi/asm/prctl.h).
    const STATUS: libc::c_int = 0x5005;
    let most = std::arch::x86_64::__cpuid(0).eax;
    let mut features = 0u64;
    most >= LEAF
        && std::arch::x86_64::__cpuid_count(LEAF, 0).ecx & SHADOW_STACKS != 0
        // SAFETY: the kernel writes one word, or refuses the call.
        && unsafe { libc::syscall(libc::SYS_arch_prctl, STATUS, &raw mut features) } == 0
}

/// The status of a thread that is traced by this process.
pub fn traced_here(tid: i32) -> Option<Status> {
    Status::read(tid).ok().filter(|status| status.tracer == std::process::id() as i32)
}

/// The processes that a thread has created and that have not been waited for; none if the kernel
/// does not list them.
///
/// If some of them end meanwhile, the kernel's list may omit others, so it is read until it shows
/// nothing new.
pub fn children(tid: i32) -> Vec<i32> {
    /// How many readings in a row must bring nothing new.
    const QUIET: u32 = 3;
    let path = format!("/proc/{tid}/task/{tid}/children");
    let mut children = Vec::new();
    let mut quiet = 0;
    while quiet < QUIET {
        let text = fs::File::open(&path).and_then(read_to_end).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let before = children.len();
        for child in text.split_ascii_whitespace().filter_map(|child| child.parse().ok()) {
            if !children.contains(&child) {
                children.push(child);
            }
        }
        quiet = if children.len() == before { quiet + 1 } else { 0 };
    }
    children
}

/// Checks that /proc is mounted and shows this process under its own id.
///
/// # Errors
/// It is not mounted, or belongs to another pid namespace.
pub fn check_proc() -> Result<(), Error> {
    let wrong = |path: &str, cause| Error::Proc { path: path.to_owned(), cause };
    let own = fs::read_link("/proc/self").map_err(|cause| wrong("/proc/self", cause))?;
    if own.to_str().and_then(|own| own.parse().ok()) == Some(std::process::id()) {
        return Ok(());
    }
    Err(wrong("/proc", io::Error::other("it shows the processes of another pid namespace; mount it again")))
}

/// The instruction pointer of a thread that is blocked in the kernel. `None` while it runs.
///
/// # Errors
/// The thread is gone, or the kernel does not show it.
pub fn blocked_at(tid: i32) -> Result<Option<u64>, Error> {
    let path = format!("/proc/{tid}/syscall");
    let text = fs::read_to_string(&path).map_err(|cause| Error::Proc { path: path.clone(), cause })?;
    // "running", or the call's number, its arguments, the stack pointer and the instruction
    // pointer.
    let last = text.split_ascii_whitespace().last().and_then(|word| word.strip_prefix("0x"));
    match last {
        None => Ok(None),
        Some(digits) => u64::from_str_radix(digits, 16)
            .map(Some)
            .map_err(|_| Error::Proc { path, cause: io::Error::from(io::ErrorKind::InvalidData) }),
    }
}

/// A thread's name.
pub fn name(tid: i32) -> String {
    let text = read_piece(&format!("/proc/{tid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(text.strip_suffix(b"\n").unwrap_or(&text)).into_owned()
}

/// Whether a process is in the caller's pid namespace; true if that cannot be determined.
pub fn same_pid_namespace(pid: i32) -> bool {
    let of = |path: String| fs::read_link(path).ok();
    match (of(format!("/proc/{pid}/ns/pid")), of("/proc/self/ns/pid".to_owned())) {
        (Some(other), Some(own)) => other == own,
        _ => true,
    }
}

/// Whether a thread's children are born in its own pid namespace. A thread can have them born in
/// another one (unshare(CLONE_NEWPID)), which lives and dies with the first of them.
pub fn children_share_pid_namespace(tid: i32) -> bool {
    let of = |name: &str| fs::read_link(format!("/proc/{tid}/ns/{name}")).ok();
    matches!((of("pid"), of("pid_for_children")), (Some(own), Some(children)) if own == children)
}

/// Bytes of memory, in RAM or swap, that a process has without a file: about what a core dump of it
/// has. 0 if the kernel does not tell.
pub fn anonymous_memory(pid: i32) -> u64 {
    let text = read_piece(&format!("/proc/{pid}/status")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let of = |line: &str| {
        let (key, value) = line.split_once(':')?;
        let counts = matches!(key, "RssAnon" | "RssShmem" | "VmSwap");
        let kibibytes: u64 = value.split_ascii_whitespace().next()?.parse().ok()?;
        counts.then(|| kibibytes.saturating_mul(1024))
    };
    text.lines().filter_map(of).fold(0, u64::saturating_add)
}

/// Whether a process has a userfaultfd open: its threads may have to answer for one that forks.
pub fn has_userfaultfd(pid: i32) -> bool {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    entries
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .any(|link| link.as_os_str() == "anon_inode:[userfaultfd]")
}

/// The processor a thread ran on last.
pub fn processor(tid: i32) -> Option<u32> {
    stat(tid, 39)?.parse().ok()
}

/// The limit of a process's stack in bytes; 0 if it cannot be read.
pub fn stack_limit(pid: i32) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call sets no limit; it only fills the structure.
    let result = unsafe { libc::prlimit(pid, libc::RLIMIT_STACK, std::ptr::null(), &mut limit) };
    if result == 0 { limit.rlim_cur } else { 0 }
}

/// The start of a process's heap, which grows up from there, also if it has none yet (brk(2)).
pub fn heap_start(tid: i32) -> Option<u64> {
    stat(tid, 47)?.parse().ok().filter(|&start| start != 0)
}

/// A value of the auxiliary vector of a thread's process (getauxval(3)), by its type.
pub fn auxiliary(tid: i32, kind: u64) -> Option<u64> {
    let vector = read_piece(&format!("/proc/{tid}/auxv")).ok()?;
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    let mut entries = vector.chunks_exact(16);
    entries.find(|entry| word(&entry[..8]) == kind).map(|entry| word(&entry[8..]))
}

/// A field of a thread's stat file, by its number in proc_pid_stat(5), at least 3.
fn stat(tid: i32, field: usize) -> Option<String> {
    let text = read_piece(&format!("/proc/{tid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The name, in parentheses, may contain anything; it is field 2.
    let after = text.get(text.rfind(')')? + 1..)?;
    after.split_ascii_whitespace().nth(field.checked_sub(3)?).map(str::to_owned)
}

/// Whether two threads share their memory; `None` if the kernel does not tell.
pub fn same_memory(one: i32, other: i32) -> Option<bool> {
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: a system call on integers.
    match unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) } {
        -1 => None,
        order => Some(order == 0),
    }
}

/// The ids of other processes that share this one's memory, such as vfork children.
pub fn memory_sharers(pid: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let others = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    // For tasks without memory (kernel threads, ended processes) the kernel reports the same
    // memory.
    let has_memory = |other| Status::read(other).is_ok_and(|status| !status.kernel);
    others
        .filter(|&other| other != pid && same_memory(pid, other) == Some(true) && has_memory(other))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_file_is_understood() {
        let text = "Name:\ta: b\nState:\tS (sleeping)\nTgid:\t42\nTracerPid:\t7\nUid:\t1000\t0\t0\t0\nGid:\t50\t0\t0\t0\nVmSize:\t 1 kB\n\
                    SigPnd:\t0000000000000010\nShdPnd:\t0000000000004000\nSigBlk:\t0000000000000001\n\
                    SigIgn:\t0000000000001000\nSigCgt:\t0000000180000000\nSeccomp:\t2\nx86_Thread_features:\tshstk wrss\n";
        let status = Status::parse(text);
        assert_eq!(
            (status.tgid, status.tracer, status.uid, status.state, status.seccomp),
            (42, 7, 1000, 'S', 2)
        );
        assert_eq!(status.gid, 50);
        assert_eq!((status.pending, status.own_pending, status.blocked), (0x4010, 0x10, 1));
        assert_eq!((status.ignored, status.caught), (0x1000, 0x1_8000_0000));
        assert!(!status.kernel && status.shadow_stack);
    }

    #[test]
    fn the_caller_itself_can_be_looked_up() {
        let pid = std::process::id() as i32;
        let status = Status::read(pid).expect("own status");
        assert_eq!(status.tgid, pid);
        assert!(!status.kernel);
        assert!(threads(pid).expect("own threads").contains(&pid));
        assert!(processor(pid).is_some());
        assert!(heap_start(pid).is_some());
        assert!(!name(pid).is_empty());
        assert!(memory_sharers(pid).is_empty());
        assert!(children_share_pid_namespace(pid));
        assert!(anonymous_memory(pid) > 4096);
        assert!(!has_userfaultfd(pid));
    }
}
