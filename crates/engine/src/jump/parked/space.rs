//! Tells whether threads of an address space wait for room.

use crate::space::Space;
use layout::Identity;
use std::mem::offset_of;

impl Space {
    /// Whether a thread has found no free context since the last call.
    pub(crate) fn is_crowded(&self) -> bool {
        let Some(ground) = &self.ground else { return false };
        let place = ground.identity + offset_of!(Identity, no_free_context) as u64;
        let mut crowded = [0; 4];
        let is_crowded = self.code.memory.peek(place, &mut crowded).is_ok() && crowded != [0; 4];
        // Fails only if the process is gone.
        is_crowded && self.code.memory.poke(place, &[0; 4]).is_ok()
    }
}
