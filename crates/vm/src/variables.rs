//! The local and the global variables.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::{Exception, Word};

/// `parm1` of INVALID_OPERAND: a local variable's index.
pub(crate) const LOCAL: u64 = 1;
/// `parm1` of INVALID_OPERAND: a global variable's index.
pub(crate) const GLOBAL: u64 = 2;

/// The local variables, or the global ones.
#[derive(Clone, Copy)]
pub(crate) struct Variables<'a> {
    pub(crate) list: &'a [AtomicU64],
    /// `parm1` of the exception that an index out of range raises.
    pub(crate) kind: u64,
}

impl<'a> Variables<'a> {
    /// The variable at an index.
    #[inline(always)]
    pub(crate) fn at(self, index: u64) -> Result<&'a AtomicU64, Exception> {
        match usize::try_from(index).ok().and_then(|index| self.list.get(index)) {
            Some(variable) => Ok(variable),
            None => Err(Exception::operand(self.kind, index)),
        }
    }

    /// The word in the variable at an index.
    #[inline(always)]
    pub(crate) fn get(self, word: Word, index: u64) -> Result<u64, Exception> {
        Ok(word.truncate(self.at(index)?.load(Ordering::Relaxed)))
    }

    /// Sets the variable at an index.
    #[inline(always)]
    pub(crate) fn set(self, index: u64, value: u64) -> Result<(), Exception> {
        self.at(index)?.store(value, Ordering::Relaxed);
        Ok(())
    }

    /// Adds to the variable at an index, atomically.
    #[inline(always)]
    pub(crate) fn add(self, index: u64, value: u64) -> Result<(), Exception> {
        self.at(index)?.fetch_add(value, Ordering::Relaxed);
        Ok(())
    }
}
