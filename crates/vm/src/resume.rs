//! Continues a run that compiled code has begun. Compiled code does the common cases and leaves the
//! rest to the interpreter.
//!
//! A [`PartialRun`] has no field for state that compiled code cannot have produced: no exception
//! was raised and no handler set, the stack base is 0, and there is no heap block and no stack
//! trace.

use crate::interpreter::run_for;
use crate::machine::Machine;
use crate::partial_run::PartialRun;
use crate::state::State;
use crate::{Outcome, Program, Word};

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
