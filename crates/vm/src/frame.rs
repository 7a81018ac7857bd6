//! The frames of the call stack: what a run remembers of each call that has not returned.

use crate::stack::STACK_WORDS;

/// Calls that can be nested.
pub const CALL_DEPTH: usize = 32;

/// The frames of a run: that of the handler's outermost level, and those of the calls nested in it.
pub(crate) type Frames = [Frame; CALL_DEPTH + 1];

/// What is remembered of a call. All zeros: nothing yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// The offset of the procedure in the code.
    pub(crate) callee: usize,
    /// The offset at which the caller goes on.
    pub(crate) back: usize,
    /// The caller's stack base.
    pub(crate) base: usize,
    /// The offset of the exception handler and 1; 0 where none is set.
    handler: usize,
    /// The elements that stack traces show, by their slots.
    pub(crate) elements: Range,
    /// The local variables that stack traces show.
    pub(crate) locals: Range,
    /// The global variables that stack traces show.
    pub(crate) globals: Range,
}

/// Some elements or variables in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    /// The index of the first.
    pub(crate) first: u64,
    /// How many.
    pub(crate) count: u64,
}

impl Frame {
    /// The frame of the outermost level.
    pub(crate) const OUTERMOST: Frame = Frame::new(0, 0, 0);

    /// The frame of a call of the procedure at `callee`, which returns to `back` and to the stack base `base`.
    #[inline(always)]
    pub(crate) const fn new(callee: usize, back: usize, base: usize) -> Frame {
        let none = Range { first: 0, count: 0 };
        Frame { callee, back, base, handler: 0, elements: none, locals: none, globals: none }
    }

    /// The offset of the exception handler, if one is set.
    #[inline(always)]
    pub(crate) fn handler(&self) -> Option<usize> {
        self.handler.checked_sub(1)
    }

    /// Sets the exception handler, or takes it away. (No byte of any code has the largest offset.)
    #[inline(always)]
    pub(crate) fn set_handler(&mut self, offset: Option<usize>) {
        self.handler = offset.map_or(0, |offset| offset.wrapping_add(1));
    }
}

/// The slot that is `index`, a word in two's complement, elements above the slot `base`. The stack is circular, and
/// 1024 divides what a word wraps at.
#[inline(always)]
pub(crate) fn slot(base: usize, index: u64) -> usize {
    base.wrapping_add(index as usize) % STACK_WORDS
}
