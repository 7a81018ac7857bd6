//! Tells whether threads of an address space wait for room.

use std::mem::offset_of;

use layout::Identity;

use crate::space::Space;

/// Whether a thread has found no free context since the last call.
pub(super) fn is_crowded(space: &Space) -> bool {
    let Some(handler_memory) = &space.shared.handler_memory else { return false };
    let place = handler_memory.identity + offset_of!(Identity, no_free_context) as u64;
    let mut crowded = [0; 4];
    let is_crowded = space.code.memory.peek(place, &mut crowded).is_ok() && crowded != [0; 4];
    // Fails only if the process is gone.
    is_crowded && space.code.memory.poke(place, &[0; 4]).is_ok()
}
