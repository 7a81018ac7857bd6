//! Writes an address space's identity page.

use std::mem::offset_of;

use layout::Identity;

use super::ThreadLayout;
use crate::space::Space;

impl Space {
    /// Removes a thread that is gone.
    pub(crate) fn forget_stranger(&mut self, tid: i32) {
        if self.unidentified_threads.remove(&tid) && self.unidentified_threads.is_empty() {
            self.write_identity();
        }
    }

    pub(crate) fn write_identity(&self) {
        let (Some(handler_memory), Some(known)) = (&self.handler_memory, self.known) else { return };
        let (pid, known) = if self.unidentified_threads.is_empty() {
            (self.pid, known)
        } else {
            (0, ThreadLayout::default())
        };
        let (first, end) = (offset_of!(Identity, pid), offset_of!(Identity, rseq_offset) + 8);
        let mut bytes = vec![0; end - first];
        let mut put =
            |field: usize, value: &[u8]| bytes[field - first..][..value.len()].copy_from_slice(value);
        put(offset_of!(Identity, pid), &(pid as u32).to_le_bytes());
        put(offset_of!(Identity, owner), &(self.pid as u32).to_le_bytes());
        put(offset_of!(Identity, tid_offset), &known.thread.to_le_bytes());
        put(offset_of!(Identity, rseq_offset), &known.rseq.to_le_bytes());
        // Fails only if the process is gone.
        let _ = self.code.memory.poke(handler_memory.identity + first as u64, &bytes);
    }
}
