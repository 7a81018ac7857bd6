//! What the routines do ([`Micro`]). Each is in the program once, and the verifier follows it once;
//! a routine that loops is run by one step a round.

mod exception;
mod fault;
mod frame;
mod heap;
mod lookup;
mod memory;
mod repeat;
mod string;
mod trace;
mod trace_cut;
mod words;

use crate::compiler::Compiler;
use crate::routine::Micro;

/// Emits a routine.
pub(crate) fn emit(micro: Micro, c: &mut Compiler<'_>) {
    let emit = match micro {
        Micro::Raise => exception::raise,
        Micro::Again => exception::again,
        Micro::Dispatch => exception::dispatch,
        Micro::Unwind => exception::unwind,
        Micro::EndException => exception::end,
        Micro::EndInstructions => exception::end_instructions,
        Micro::Fault => fault::fault,
        Micro::Store => fault::store,
        Micro::LogFault => fault::log_fault,
        Micro::Copies => repeat::copies,
        Micro::Elements => words::elements,
        Micro::ElementsMore => words::elements_more,
        Micro::Variables => words::variables,
        Micro::VariablesMore => words::variables_more,
        Micro::Pointer => words::pointer,
        Micro::PointerMore => words::pointer_more,
        Micro::Memory => memory::memory,
        Micro::MemoryMore => memory::memory_more,
        Micro::Text => string::text,
        Micro::TextMore => string::text_more,
        Micro::Trace => trace::trace,
        Micro::TraceFrame => trace::frame,
        Micro::TraceRange => trace::range,
        Micro::TraceWords => trace::words,
        Micro::TraceCut => trace_cut::cut,
        Micro::TraceCutTrace => trace_cut::one_trace,
        Micro::TraceCutPart => trace_cut::one_part,
        Micro::Allocate => heap::allocate,
        Micro::AllocateMore => heap::allocate_more,
        Micro::Free => heap::free,
        Micro::FreeMore => heap::free_more,
        Micro::FreeTable => heap::free_table,
        Micro::Find => lookup::find,
        Micro::FindMore => lookup::find_more,
        Micro::PushHeap => heap::push,
        Micro::PopHeap => heap::pop,
        Micro::FrameText => frame::text,
        Micro::FrameTextMore => frame::text_more,
        Micro::FrameCompare => frame::compare,
        Micro::FrameFind => frame::find,
    };
    emit(c);
}
