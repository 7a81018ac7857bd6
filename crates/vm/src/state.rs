//! The memory that a run works in.

use crate::log::LOG_LIMIT;
use crate::stack::STACK_WORDS;
use core::fmt;

/// Calls that can be nested.
pub const CALL_DEPTH: usize = 32;

/// The working memory of one run at a time: the RPN stack, the call stack and the log, 40 KiB.
///
/// Nothing in it passes from one run to the next. It can be used for one program after another, and a run that
/// was cut off (its thread killed) leaves it fit for use. A new one is all zero bytes, so that statics of it take
/// no room in a file.
pub struct State {
    pub(crate) words: [u64; STACK_WORDS],
    /// How many words, counted from slot 1023 down, may not be zero.
    pub(crate) used: usize,
    /// The slot of the top after the last run.
    pub(crate) top: usize,
    /// The return offsets of the calls.
    pub(crate) returns: [usize; CALL_DEPTH],
    pub(crate) log: [u8; LOG_LIMIT],
    pub(crate) log_length: usize,
    /// Instructions of the last run.
    #[cfg(test)]
    pub(crate) steps: u64,
}

impl State {
    /// Working memory that no run has used yet.
    pub const fn new() -> State {
        State {
            words: [0; STACK_WORDS],
            used: 0,
            top: 0,
            returns: [0; CALL_DEPTH],
            log: [0; LOG_LIMIT],
            log_length: 0,
            #[cfg(test)]
            steps: 0,
        }
    }

    /// What the last run logged; empty if it ended with [`crate::End::Abort`].
    pub fn log(&self) -> &[u8] {
        &self.log[..self.log_length]
    }

    /// The RPN stack as the last run left it: the word `below` words below the top. It is circular: 1024 words
    /// below the top is the top.
    pub fn element(&self, below: usize) -> u64 {
        self.words[self.top.wrapping_add(below) % STACK_WORDS]
    }

    /// The pushes less the pops of the last run, modulo 1024.
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
    /// Its sizes, not its 40 KiB.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("State")
            .field("depth", &self.depth())
            .field("log_length", &self.log_length)
            .finish_non_exhaustive()
    }
}
