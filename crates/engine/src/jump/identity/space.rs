//! Writes an address space's identity page.

use std::mem::offset_of;

use layout::Identity;

use super::ThreadLayout;
use crate::space::Space;

/// Removes a thread that is gone.
pub(crate) fn forget_stranger(space: &mut Space, tid: i32) {
    if space.threads.unidentified_threads.remove(&tid) && space.threads.unidentified_threads.is_empty() {
        write_identity(space);
    }
}

/// Writes how threads are known, for handlers.
pub(super) fn write_identity(space: &Space) {
    let (Some(handler_memory), Some(known)) = (&space.shared.handler_memory, space.threads.known) else {
        return;
    };
    let (pid, known) = if space.threads.unidentified_threads.is_empty() {
        (space.threads.pid, known)
    } else {
        (0, ThreadLayout::default())
    };
    let (first, end) = (offset_of!(Identity, pid), offset_of!(Identity, rseq_offset) + 8);
    let mut bytes = vec![0; end - first];
    let mut put = |field: usize, value: &[u8]| bytes[field - first..][..value.len()].copy_from_slice(value);
    put(offset_of!(Identity, pid), &(pid as u32).to_le_bytes());
    put(offset_of!(Identity, owner), &(space.threads.pid as u32).to_le_bytes());
    put(offset_of!(Identity, tid_offset), &known.thread.to_le_bytes());
    put(offset_of!(Identity, rseq_offset), &known.rseq.to_le_bytes());
    // Fails only if the process is gone.
    let _ = space.code.memory.poke(handler_memory.identity + first as u64, &bytes);
}
