//! Follows threads and processes as they are created, execute a program, and end.

use std::collections::HashMap;

use process::{Registers, Stopped};

mod tracer;

/// How often a new thread is looked at before its parent is assumed never to report it.
const CHECKS_BEFORE_ORPHAN: u32 = 3;

/// A new thread that has stopped and that its parent has not reported yet.
#[derive(Debug)]
pub(crate) struct Newborn {
    pub(crate) thread: Stopped,
    pub(crate) ticks: u32,
}

/// A new thread that its parent has reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced {
    /// Its address space, or `None` if that cannot be probed.
    pub(crate) space: Option<u32>,
    /// Its process id.
    pub(crate) pid: i32,
    /// Its id in its own pid namespace.
    inner_id: i32,
}

/// Whether a thread that is about to end has called exit itself. Then it has reported all its
/// children, since it was in no other call.
fn is_its_own_end(registers: &Registers) -> bool {
    let number = registers.call_number();
    match registers.is_32_bit() {
        // exit and exit_group of i386 (arch/x86/entry/syscalls/syscall_32.tbl).
        true => number == 1 || number == 252,
        false => number == libc::SYS_exit || number == libc::SYS_exit_group,
    }
}

/// New threads that cannot be followed yet.
#[derive(Debug, Default)]
pub(crate) struct NewThreads {
    /// Threads that have stopped before their parent reported them.
    pub(crate) newborn: HashMap<i32, Newborn>,
    /// Threads that their parent reported before they stopped.
    pub(crate) announced: HashMap<i32, Announced>,
}
