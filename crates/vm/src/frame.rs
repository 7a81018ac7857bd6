//! The frames of the call stack: one for each call that has not returned.

use crate::stack::STACK_WORDS;

/// Maximum depth of nested calls.
pub const CALL_DEPTH: usize = 32;

/// The frames of a run: the outermost level of the handler, then its nested calls.
pub(crate) type Frames = [Frame; CALL_DEPTH + 1];

/// The state of a call. All zeros is the initial state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// The offset of the procedure in the code.
    pub(crate) callee: usize,
    /// The offset at which the caller continues.
    pub(crate) back: usize,
    /// The caller's stack base.
    pub(crate) base: usize,
    /// The offset of the exception handler plus 1; 0 if none is set.
    handler: usize,
    /// The stack slots that stack traces show.
    pub(crate) elements: Range,
    /// The local variables that stack traces show.
    pub(crate) locals: Range,
    /// The global variables that stack traces show.
    pub(crate) globals: Range,
}

/// A range of elements or variables.
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

    /// The frame of a call of the procedure at `callee`, which returns to `back` and to the stack
    /// base `base`.
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

    /// Sets or clears the exception handler. (usize::MAX is no offset in any code.)
    #[inline(always)]
    pub(crate) fn set_handler(&mut self, offset: Option<usize>) {
        self.handler = offset.map_or(0, |offset| offset.wrapping_add(1));
    }
}

/// The slot `index` elements above the slot `base`; `index` is a word in two's complement. Wraps
/// correctly, since the stack is circular and 1024 divides the modulus of a word.
#[inline(always)]
pub(crate) fn slot(base: usize, index: u64) -> usize {
    base.wrapping_add(index as usize) % STACK_WORDS
}
