//! Going on in the middle of a run that something else has begun: compiled code, which does what is common and leaves
//! the rest to the interpreter.
//!
//! What compiled code cannot have done by then is not part of a [`Middle`]: no exception was raised or handler set, the
//! stack base is 0, and there is no heap block and no stack trace.

use crate::frame::CALL_DEPTH;
use crate::interpreter::run_for;
use crate::machine::Machine;
use crate::state::State;
use crate::{Outcome, Program, Word};

/// Where a run is that is to go on. Whatever it holds, going on is safe and bounded like a whole run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Middle<'a> {
    /// The offset in the code of the next instruction.
    pub offset: usize,
    /// The slot of the stack's top, modulo 1024: 0 where nothing was pushed, 1023 after one push.
    pub top: usize,
    /// The elements of the stack that are not 0.
    pub elements: &'a [Element],
    /// The calls that have not returned, the outermost first; at most [`CALL_DEPTH`] of them count.
    pub calls: &'a [Call],
    /// Calls that were made, those that have returned included.
    pub calls_made: u32,
    /// Jumps that were taken.
    pub jumps: u32,
    /// Instructions that were executed. 0 will do where a run cannot reach `insmax`.
    pub instructions: u32,
    /// What has been logged.
    pub log: &'a [u8],
    /// Bytes logged when the last logging that succeeded had ended: the previous log pointer.
    pub complete: usize,
    /// The major code, 0 to 65535, where `setmaj` set one.
    pub major: Option<u32>,
    /// The minor code, 0 to 65535, where `setmin` set one.
    pub minor: Option<u32>,
}

/// An element of the stack: as compiled code stores it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// Its slot, modulo 1024. The first push of a run is to slot 1023, the second to 1022.
    pub slot: u64,
    /// Its value.
    pub value: u64,
}

impl<'a> Middle<'a> {
    /// The calls that count.
    #[inline(always)]
    pub(crate) fn calls(&self) -> &'a [Call] {
        &self.calls[..self.calls.len().min(CALL_DEPTH)]
    }
}

/// A call that has not returned: as compiled code stores it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The offset of the procedure in the code.
    pub callee: u32,
    /// The offset at which the caller goes on.
    pub back: u32,
}

/// Goes on with a run, to its end. The result, the log, the variables and what is done to the machine from here on are
/// those of [`crate::run`], had it come to this place.
pub fn resume<M: Machine>(
    program: &Program<'_>,
    middle: &Middle<'_>,
    state: &mut State,
    machine: &mut M,
) -> Outcome {
    match program.word {
        Word::W4 => run_for::<M, false>(program, middle, state, machine),
        Word::W8 => run_for::<M, true>(program, middle, state, machine),
    }
}
