//! Carries out an instruction on a map for compiled code, which goes on behind it.

use core::slice::from_raw_parts_mut;

use super::handler::{maps_of, words};
use super::machine;
use layout::{CALL, ClockWords, Context, FRAME, HandlerInfo, MapCall};
use vm::FRAME_LIMIT;

/// The body of [`super::entry::dprobes_map`].
///
/// # Safety
/// This thread has claimed the context; it, the handler's description and everything they refer to
/// are as the tracer has set them up, and stay so until this returns.
pub(super) unsafe extern "C" fn carry_out(context: *mut Context, handler: *const HandlerInfo) -> u64 {
    let region = context.cast::<u8>();
    // SAFETY: these parts of a context do not overlap; only the thread that has claimed it uses
    // them. All bytes are valid values of their types.
    let (call, frame) = unsafe {
        (
            &*region.add(CALL as usize).cast::<MapCall>(),
            from_raw_parts_mut(region.add(FRAME as usize), FRAME_LIMIT),
        )
    };
    // SAFETY: the tracer has set it up, and it refers to mapped memory.
    let (maps, clock) = unsafe {
        let handler = &*handler;
        (maps_of(handler), ClockWords(words(handler.tables, handler.table_words)))
    };
    call.carry_out(&maps, frame, || clock.monotonic(machine::counter()))
}
