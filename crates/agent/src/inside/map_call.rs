//! Carries out an instruction on a map for compiled code, which goes on behind it.

use core::slice::from_raw_parts_mut;

use super::handler::{maps_of, words};
use super::hidden::Hidden;
use super::machine;
use super::stack::Stack;
use layout::{CALL, ClockWords, Context, FRAME, HandlerInfo, MEMOS, MapCall};
use unwind::Memos;
use vm::{FRAME_LIMIT, FRAMES_LIMIT, Op};

/// The body of [`super::entry::dprobes_map`].
///
/// # Safety
/// This thread has claimed the context; it, the handler's description and everything they refer to
/// are as the tracer has set them up, and stay so until this returns.
pub(super) unsafe extern "C" fn carry_out(context: *mut Context, handler: *const HandlerInfo) -> u64 {
    let region = context.cast::<u8>();
    // SAFETY: these parts of a context do not overlap; only the thread that has claimed it uses
    // them. All bytes are valid values of their types.
    let (call, frame, memos, registers) = unsafe {
        (
            &*region.add(CALL as usize).cast::<MapCall>(),
            from_raw_parts_mut(region.add(FRAME as usize), FRAME_LIMIT),
            &mut *region.add(MEMOS as usize).cast::<Memos>(),
            &(*context).registers,
        )
    };
    // SAFETY: the tracer has set it up, and it refers to mapped memory.
    let (maps, clock, hidden) = unsafe {
        let handler = &*handler;
        let clock = ClockWords(words(handler.tables, handler.table_words));
        (maps_of(handler), clock, Hidden::at(handler.hidden))
    };
    if call.op == Op::StackOf as u32 {
        let most = call.value.min(FRAMES_LIMIT as u64) as usize;
        return Stack { registers, hidden, memos }.number(&maps, call.map as usize, most);
    }
    call.carry_out(&maps, frame, || clock.monotonic(machine::counter()))
}
