//! How a thread can tell who it is and where it runs, without a system call: what its libc and the kernel keep for it.

use crate::{Stopped, memory};

/// A thread's registration for restartable sequences (rseq(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RseqRegistration {
    /// The address of its `struct rseq`.
    pub address: u64,
    /// Bytes of that.
    pub size: u32,
    /// What must stand before each place that a sequence aborts to.
    pub signature: u32,
}

/// Where libraries of C keep a thread's id, from its thread pointer on: glibc and musl, of x86-64.
const KNOWN: [u64; 2] = [0x2d0, 0x30];
/// Bytes behind the thread pointer that are looked at, where no library is known to keep it.
const SEARCHED: usize = 0x1000;

/// Where threads of one process keep their own ids, as 4 bytes at an offset from the thread pointer (the base of fs):
/// the place in which each of them has its own. `None`: no place is known to be that. The ids are those that the threads see
/// themselves, in their own namespace.
///
/// What no known libc uses is believed only of two threads or more. A thread that the program makes without its libc does not keep its
/// id there: each new one is to be looked at, too ([`keeps_its_id`]).
pub fn thread_id_offset(threads: &[&Stopped]) -> Option<u64> {
    if threads.is_empty() {
        return None;
    }
    if let Some(known) = KNOWN.into_iter().find(|&offset| threads.iter().all(|it| keeps_its_id(it, offset))) {
        return Some(known);
    }
    if threads.len() < 2 {
        return None;
    }
    let mut candidates: Option<Vec<u64>> = None;
    for thread in threads {
        let pointer = pointer(thread)?;
        let id = thread.inner_id()?;
        let mut bytes = [0; SEARCHED];
        let read = match memory::read(thread.tid(), pointer, &mut bytes) {
            Ok(()) => SEARCHED,
            Err(count) => count,
        };
        let here = (0..read.saturating_sub(3)).step_by(4).filter(|&at| bytes[at..at + 4] == id.to_le_bytes());
        let here: Vec<u64> = here.map(|at| at as u64).collect();
        candidates = Some(match candidates {
            None => here,
            Some(before) => before.into_iter().filter(|offset| here.contains(offset)).collect(),
        });
    }
    match candidates?.as_slice() {
        // A second place that holds it always may be anything; neither is known to be kept.
        [one] => Some(*one),
        _ => None,
    }
}

/// Whether a stopped thread has its own id at an offset from its thread pointer ([`thread_id_offset`]).
pub fn keeps_its_id(thread: &Stopped, offset: u64) -> bool {
    let mut bytes = [0; 4];
    let Some(address) = pointer(thread).and_then(|pointer| pointer.checked_add(offset)) else { return false };
    memory::read(thread.tid(), address, &mut bytes).is_ok()
        && thread.inner_id() == Some(u32::from_le_bytes(bytes))
}

/// A thread's thread pointer, if it has one.
fn pointer(thread: &Stopped) -> Option<u64> {
    let registers = thread.registers().ok()?;
    Some(registers.fs_base()).filter(|&base| base != 0 && !registers.is_32_bit())
}
