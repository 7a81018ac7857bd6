//! Runs a handler for one hit: from its beginning, or from where compiled code has left it.
//!
//! Compiled code does the common cases and leaves the rest to the interpreter. A [`PartialRun`] has
//! no field for state that compiled code cannot have produced: no exception was raised and no
//! handler set, the stack base is 0, and there is no heap block and no stack trace.

use crate::code::PAUSE;
use crate::flow::Flow;
use crate::hit::RunContext;
use crate::interpreter::execute;
use crate::log::Log;
use crate::loop_exit::LoopExit;
use crate::machine::Machine;
use crate::partial_run::PartialRun;
use crate::slow_path::{end_at_instruction_limit, slow_path};
use crate::stack::Stack;
use crate::state::State;
use crate::{End, Outcome, Program, Word};

/// Runs the handler at offset `entry` of the program's code, for one hit.
///
/// Whatever the code holds, the run ends after at most `insmax` instructions, and after at most
/// (`jmpmax` + 2 x `CALL_LIMIT` + `HANDLER_LIMIT` + 1) x `code.len()`: between two jumps,
/// calls, returns or exceptions the offset only grows, and there are no more returns than calls. An
/// instruction takes a bounded time: at most 1024 words of the stack, or all of the log, the heap
/// or the stack trace buffer.
///
/// A long run asks the machine now and then whether it must end ([`Machine::is_over`]); if so it
/// ends as if `insmax` were reached.
///
/// The handler's log is then in [`State::log`], its stack traces in [`State::trace`].
pub fn run<M: Machine>(program: &Program<'_>, entry: usize, state: &mut State, machine: &mut M) -> Outcome {
    resume(program, &PartialRun { offset: entry, ..PartialRun::default() }, state, machine)
}

/// Continues a run to its end. The result, the log, the variables and the effects on the machine
/// from here on are those of [`crate::run`], had it reached this state.
pub fn resume<M: Machine>(
    program: &Program<'_>,
    middle: &PartialRun<'_>,
    state: &mut State,
    machine: &mut M,
) -> Outcome {
    match program.word {
        Word::W4 => run_for::<M, false>(program, middle, state, machine),
        Word::W8 => run_for::<M, true>(program, middle, state, machine),
    }
}

/// [`resume`] for one word size: 8 bytes if `WIDE`, else 4.
fn run_for<M: Machine, const WIDE: bool>(
    program: &Program<'_>,
    middle: &PartialRun<'_>,
    state: &mut State,
    machine: &mut M,
) -> Outcome {
    let State { words, used, frames, log, rare: aside, .. } = state;
    // All words count as used while the run lasts, in case it is cut off.
    let mut stack = Stack::new(words, core::mem::replace(used, words.len()));
    stack.fill(Flow::<WIDE>::WORD, middle.top, middle.elements);
    let mut flow = Flow::<WIDE>::new(program, middle, stack, frames);
    let mut log = Log::new(log, program.logmax);
    log.fill(middle.log, middle.complete);
    let mut hit = RunContext::<M, WIDE>::new(machine, program.mask, log, aside);
    for word in middle.words {
        // What is outside is not stored.
        let _ = hit.aside().frame.set_word(word.offset, word.value);
    }
    for text in middle.texts {
        if let Some(bytes) = middle.frame.get(text.range())
            && let Ok(into) = hit.aside().frame.get_mut(text.offset.into(), text.length.into())
        {
            into.copy_from_slice(bytes);
        }
    }
    let code = |number: Option<u32>| number.map(|number| number & 0xffff);
    (hit.major, hit.minor) = (code(middle.major), code(middle.minor));
    let end = loop {
        let stop = match execute(program, &mut flow, &mut hit) {
            Ok(LoopExit::End(end)) => break end,
            Ok(stop) => stop,
            #[cfg(test)]
            Err(exception) if exception == crate::resume_tests::STOPPED => {
                crate::resume_tests::capture(&mut flow, &mut hit);
                break End::Abort;
            }
            Err(exception) if exception == PAUSE => {
                if flow.code.refill_budget() && !hit.machine.is_over() {
                    continue;
                }
                break end_at_instruction_limit(program, &mut flow, &mut hit);
            }
            Err(exception) => LoopExit::Exception(exception),
        };
        let end;
        (flow, end) = slow_path(program, stop, flow, &mut hit);
        if let Some(end) = end {
            break end;
        }
    };
    let outcome = Outcome { end, major: hit.major, minor: hit.minor };
    let (top, written) = (flow.stack.slot(), flow.stack.used());
    let kept = end != End::Abort;
    let (length, traced) = (hit.log.length(), hit.has_used_aside());
    #[cfg(test)]
    (state.steps = flow.code.count);
    state.top = top;
    state.used = written;
    state.log_length = if kept { length } else { 0 };
    state.traced = kept && traced;
    outcome
}
