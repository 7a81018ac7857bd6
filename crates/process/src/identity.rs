//! Finds where the libc keeps a thread's id, and the kernel its rseq area, so that a thread can
//! read them without a system call.

use crate::{Stopped, memory};

/// A thread's registration for restartable sequences (rseq(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RseqRegistration {
    /// The address of its `struct rseq`.
    pub address: u64,
    /// Bytes of the `struct rseq`.
    pub size: u32,
    /// The signature before each abort handler.
    pub signature: u32,
}

/// Offsets from the thread pointer at which glibc and musl keep a thread's id on x86-64.
const KNOWN: [u64; 2] = [0x2d0, 0x30];
/// How many bytes after the thread pointer are searched for the id of an unknown libc.
const SEARCHED: usize = 0x1000;

/// The offset from the thread pointer (the fs base) at which each of these threads of one process
/// has its own id, in 4 bytes. `None`: no place is known. The ids are those that the threads see in
/// their own pid namespace.
///
/// An offset that no known libc uses is accepted only if two or more threads agree. A thread that
/// the program creates without its libc does not keep its id there, so each new thread must be
/// checked, too ([`keeps_its_id`]).
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
        // Of several places that hold the id none is known to be the libc's.
        [one] => Some(*one),
        _ => None,
    }
}

/// Whether a stopped thread has its own id at an offset from its thread pointer
/// ([`thread_id_offset`]).
pub fn keeps_its_id(thread: &Stopped, offset: u64) -> bool {
    let mut bytes = [0; 4];
    let Some(address) = pointer(thread).and_then(|pointer| pointer.checked_add(offset)) else { return false };
    memory::read(thread.tid(), address, &mut bytes).is_ok()
        && thread.inner_id() == Some(u32::from_le_bytes(bytes))
}

/// The thread pointer of a 64-bit thread, if it is set.
fn pointer(thread: &Stopped) -> Option<u64> {
    let registers = thread.registers().ok()?;
    Some(registers.fs_base()).filter(|&base| base != 0 && !registers.is_32_bit())
}
