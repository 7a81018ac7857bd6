//! The working memory of a run.

use core::fmt;

use crate::Exception;
use crate::frame::{CALL_DEPTH, Frame, Frames};
use crate::handler_frame::HandlerFrame;
use crate::heap::Heap;
use crate::log::LOG_LIMIT;
use crate::stack::STACK_WORDS;
use crate::trace::Trace;

/// The working memory of one run at a time: the RPN stack, the call stack, the heap, the log and
/// the stack traces, 93 KiB.
///
/// Nothing in it passes from one run to the next. It can be used for different programs in turn,
/// and stays usable after a run that was cut off (its thread killed). A new one is all zero bytes,
/// so that a static takes no space in the executable file.
pub struct State {
    pub(crate) words: [u64; STACK_WORDS],
    /// How many words, counted from slot 1023 down, may be nonzero.
    pub(crate) used: usize,
    /// The slot of the top of the stack after the last run.
    pub(crate) top: usize,
    /// The call stack.
    pub(crate) frames: Frames,
    pub(crate) log: [u8; LOG_LIMIT],
    pub(crate) log_length: usize,
    pub(crate) rare: RareState,
    /// Whether the last run used `rare` and did not end with an abort.
    pub(crate) traced: bool,
    /// Instructions that the last run executed.
    #[cfg(test)]
    pub(crate) steps: u64,
}

/// State that few runs use. It is cleared when a run first uses it.
pub(crate) struct RareState {
    /// The last exception that was raised.
    pub(crate) last: Exception,
    /// How many times an exception handler was called.
    pub(crate) handled: u32,
    pub(crate) heap: Heap,
    pub(crate) trace: Trace,
    pub(crate) frame: HandlerFrame,
}

impl RareState {
    /// Resets it to the state at the start of a run.
    pub(crate) fn clear(&mut self) {
        (self.last, self.handled) = (Exception::NONE, 0);
        self.heap.clear();
        self.trace.clear();
        self.frame.clear();
    }
}

impl State {
    /// Working memory that has not been used yet.
    pub const fn new() -> State {
        State {
            words: [0; STACK_WORDS],
            used: 0,
            top: 0,
            frames: [Frame::OUTERMOST; CALL_DEPTH + 1],
            log: [0; LOG_LIMIT],
            log_length: 0,
            rare: RareState {
                last: Exception::NONE,
                handled: 0,
                heap: Heap::new(),
                trace: Trace::new(),
                frame: HandlerFrame::new(),
            },
            traced: false,
            #[cfg(test)]
            steps: 0,
        }
    }

    /// The log of the last run; empty if it ended with [`crate::End::Abort`].
    pub fn log(&self) -> &[u8] {
        &self.log[..self.log_length]
    }

    /// The stack traces of the last run (`log st`, `autostacktrace`), to be recorded separately
    /// from the log with major and minor code 0; empty if it wrote none, or ended with
    /// [`crate::End::Abort`]. Layout:
    ///
    /// ```text
    /// 01  u16 bytes  byte ...        the module's name
    /// u64                            the probepoint's offset
    /// u16  u16  u16                  the program's number, the probe's major and minor code
    /// 02  u16 traces                 then each trace:
    ///     word  word  word  word     last exception: code; current handler's offset or -1; parameters 1 and 2
    ///     03  u16 frames             then each call that has not returned, the innermost first:
    ///         word  word             the offset of the procedure, the offset returned to
    ///         04  u16 words  word ...   elements of the stack   (trace pv)
    ///         05  u16 words  word ...   local variables         (trace lv)
    ///         06  u16 words  word ...   global variables        (trace gv)
    /// ```
    ///
    /// If `excpt_log` bytes do not suffice, the last trace ends early, after a whole word or a
    /// whole prefix.
    pub fn trace(&self) -> &[u8] {
        if self.traced { self.rare.trace.bytes() } else { &[] }
    }

    /// An element of the RPN stack as the last run left it: the one `below` elements below the top.
    /// The stack is circular: 1024 below the top is the top.
    pub fn element(&self, below: usize) -> u64 {
        self.words[self.top.wrapping_add(below) % STACK_WORDS]
    }

    /// Pushes minus pops of the last run, modulo 1024.
    pub fn depth(&self) -> usize {
        (STACK_WORDS - self.top) % STACK_WORDS
    }
}

impl Default for State {
    fn default() -> State {
        State::new()
    }
}

impl fmt::Debug for State {
    /// Shows its sizes, not its 93 KiB.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("State")
            .field("depth", &self.depth())
            .field("log_length", &self.log_length)
            .field("trace_length", &self.trace().len())
            .finish_non_exhaustive()
    }
}
