//! The state of an unfinished run, as compiled code leaves it to the interpreter.

use crate::frame::CALL_DEPTH;

/// The state of an unfinished run. Whatever it holds, continuing it is safe and bounded like a
/// whole run.
#[derive(Clone, Copy, Debug, Default)]
pub struct PartialRun<'a> {
    /// The offset in the code of the next instruction.
    pub offset: usize,
    /// The slot of the stack's top, modulo 1024: 0 if nothing was pushed, 1023 after one push.
    pub top: usize,
    /// The nonzero elements of the stack.
    pub elements: &'a [Element],
    /// The nonzero words of the frame.
    pub words: &'a [FrameWord],
    /// The pieces of `frame` that are in the frame; its other bytes are 0.
    pub texts: &'a [FrameText],
    /// Bytes of a frame.
    pub frame: &'a [u8],
    /// The calls that have not returned, outermost first; those beyond [`CALL_DEPTH`] are ignored.
    pub calls: &'a [Call],
    /// Calls made, including those that have returned.
    pub calls_made: u32,
    /// Jumps taken.
    pub jumps: u32,
    /// Instructions executed. May be 0 if the run cannot reach `insmax`.
    pub instructions: u32,
    /// The log so far.
    pub log: &'a [u8],
    /// The previous log pointer: the length of the log after the last successful log instruction.
    pub complete: usize,
    /// The major code, 0 to 65535, if `setmaj` set one.
    pub major: Option<u32>,
    /// The minor code, 0 to 65535, if `setmin` set one.
    pub minor: Option<u32>,
}

/// An element of the stack, as compiled code stores it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// Its slot, modulo 1024. The first push of a run is to slot 1023, the second to 1022.
    pub slot: u64,
    /// Its value.
    pub value: u64,
}

/// A word of the frame, as compiled code stores it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameWord {
    /// Its offset in bytes.
    pub offset: u64,
    /// Its value.
    pub value: u64,
}

/// A piece of the frame.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameText {
    /// Its offset in bytes.
    pub offset: u32,
    /// Its length in bytes.
    pub length: u32,
}

impl FrameText {
    /// Its place in the frame.
    pub(crate) fn range(self) -> core::ops::Range<usize> {
        self.offset as usize..(self.offset as usize).saturating_add(self.length as usize)
    }
}

impl<'a> PartialRun<'a> {
    /// The calls, at most [`CALL_DEPTH`].
    #[inline(always)]
    pub(crate) fn calls(&self) -> &'a [Call] {
        &self.calls[..self.calls.len().min(CALL_DEPTH)]
    }
}

/// A call that has not returned, as compiled code stores it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The offset of the procedure in the code.
    pub callee: u32,
    /// The offset at which the caller continues.
    pub back: u32,
}
