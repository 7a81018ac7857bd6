//! Tells whether threads of an address space wait for room.

use std::mem::offset_of;

use layout::Identity;

use crate::space::Space;

impl Space {
    /// Whether a thread has found no free context since the last call.
    pub(crate) fn is_crowded(&self) -> bool {
        let Some(handler_memory) = &self.handler_memory else { return false };
        let place = handler_memory.identity + offset_of!(Identity, no_free_context) as u64;
        let mut crowded = [0; 4];
        let is_crowded = self.code.memory.peek(place, &mut crowded).is_ok() && crowded != [0; 4];
        // Fails only if the process is gone.
        is_crowded && self.code.memory.poke(place, &[0; 4]).is_ok()
    }
}
