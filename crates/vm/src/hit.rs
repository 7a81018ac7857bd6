//! Effects of a run outside its stack: the machine and the record.

use core::sync::atomic::Ordering;

use crate::flow::Flow;
use crate::handler_frame::HandlerFrame;
use crate::log::{Failure, Log, Token};
use crate::machine::{self, Fault, Machine};
use crate::stack::STACK_WORDS;
use crate::state::RareState;
use crate::variables::Variables;
use crate::{Exception, Word};

/// The machine, the log, the codes of the record, and rarely used state.
pub(crate) struct RunContext<'s, 'm, M, const WIDE: bool> {
    pub(crate) machine: &'m mut M,
    pub(crate) mask: u16,
    pub(crate) log: Log<'s>,
    aside: &'s mut RareState,
    /// Whether this run has used `aside` (and so cleared it).
    aside_used: bool,
    pub(crate) major: Option<u32>,
    pub(crate) minor: Option<u32>,
}

impl<'s, 'm, M: Machine, const WIDE: bool> RunContext<'s, 'm, M, WIDE> {
    const WORD: Word = Flow::<WIDE>::WORD;

    /// Begins a run.
    #[inline(always)]
    pub(crate) fn new(machine: &'m mut M, mask: u16, log: Log<'s>, aside: &'s mut RareState) -> Self {
        RunContext { machine, mask, log, aside, aside_used: false, major: None, minor: None }
    }

    /// The rarely used state, cleared at the first use in a run.
    pub(crate) fn aside(&mut self) -> &mut RareState {
        if !self.aside_used {
            self.aside.clear();
            self.aside_used = true;
        }
        self.aside
    }

    /// The machine, and the frame.
    pub(crate) fn machine_and_frame(&mut self) -> (&mut M, &mut HandlerFrame) {
        self.aside();
        (self.machine, &mut self.aside.frame)
    }

    /// Whether this run has used the rarely used state.
    #[inline(always)]
    pub(crate) fn has_used_aside(&self) -> bool {
        self.aside_used
    }

    /// Logs a string. One that does not fit ends the handler even if LOG_OVERFLOW is masked.
    pub(crate) fn log_string(&mut self, address: u64, size: u64) -> Result<(), Exception> {
        match self.log.string(self.machine, Self::WORD, address, size) {
            Ok(()) => {
                self.log.succeeded();
                Ok(())
            }
            Err(Failure::Overflow) => Err(self.log.overflow()),
            Err(Failure::Fault(fault)) => Err(self.log_fault(fault)),
        }
    }

    /// Logs memory.
    pub(crate) fn log_memory(&mut self, address: u64, size: u64) -> Result<(), Exception> {
        let logged = self.log.memory(self.machine, Self::WORD, address, size);
        self.logged(logged)
    }

    /// Logs `count` elements of the stack's `words` from the slot `top` on.
    #[inline]
    pub(crate) fn log_elements(
        &mut self,
        token: Option<Token>,
        words: &[u64; STACK_WORDS],
        top: usize,
        count: u64,
    ) -> Result<(), Exception> {
        let element = |place| Ok(words[top.wrapping_add(place as usize) % STACK_WORDS]);
        let logged = self.log.words::<Exception>(Self::WORD, token, count, element)?;
        self.logged(logged)
    }

    /// Logs the lowest `bytes` bytes of `count` elements, from the one at slot `top` on.
    pub(crate) fn log_parts(
        &mut self,
        bytes: usize,
        words: &[u64; STACK_WORDS],
        top: usize,
        count: u64,
    ) -> Result<(), Exception> {
        let element = |place| Ok(words[top.wrapping_add(place as usize) % STACK_WORDS]);
        let logged = self.log.log_low_bytes::<Exception>(bytes, None, count, element)?;
        self.logged(logged)
    }

    /// Logs `count` variables from the index `first` on.
    pub(crate) fn log_variables(
        &mut self,
        token: Token,
        variables: Variables<'_>,
        count: u64,
        first: u64,
    ) -> Result<(), Exception> {
        let element = |place| {
            // No sum wraps: the loop ends at the first index out of range.
            let variable = variables.at(first.wrapping_add(place))?;
            Ok(variable.load(Ordering::Relaxed))
        };
        let logged = self.log.words(Self::WORD, Some(token), count, element)?;
        self.logged(logged)
    }

    /// Logs a range of bytes of the frame, with `before` and `behind` it.
    pub(crate) fn log_frame(
        &mut self,
        before: &[u8],
        (offset, count): (u64, u64),
        behind: &[u8],
    ) -> Result<(), Exception> {
        self.aside();
        let bytes = self.aside.frame.get(offset, count)?;
        let logged = self.log.plain(&[before, bytes, behind]);
        self.logged(logged)
    }

    /// Sets the log pointer.
    pub(crate) fn set_log_length(&mut self, length: u64) -> Result<(), Exception> {
        let set = self.log.set_length(length);
        self.logged(set)
    }

    /// Finishes a log instruction that logged its record whole or in part; an overflow is ignored
    /// if masked.
    #[inline(always)]
    fn logged(&mut self, result: Result<(), Failure>) -> Result<(), Exception> {
        match result {
            Ok(()) => {
                self.log.succeeded();
                Ok(())
            }
            Err(Failure::Overflow) if self.mask & Exception::LOG_OVERFLOW == 0 => Ok(()),
            Err(Failure::Overflow) => Err(self.log.overflow()),
            Err(Failure::Fault(fault)) => Err(self.log_fault(fault)),
        }
    }

    /// Logs a fault record, and returns the exception to raise: LOG_OVERFLOW if the record does not
    /// fit, unless masked.
    #[cold]
    fn log_fault(&mut self, fault: Fault) -> Exception {
        match self.log.fault(Self::WORD, fault) {
            Err(_) if self.mask & Exception::LOG_OVERFLOW != 0 => self.log.overflow(),
            _ => invalid_address(Self::WORD, fault),
        }
    }

    /// The `N` bytes at an address as a number.
    #[inline(always)]
    pub(crate) fn load<const N: usize>(&mut self, address: u64) -> Result<u64, Exception> {
        let mut bytes = [0; 8];
        match machine::read(self.machine, Self::WORD, address, 0, &mut bytes[..N]) {
            Ok(()) => Ok(u64::from_le_bytes(bytes)),
            Err(fault) => Err(invalid_address(Self::WORD, fault)),
        }
    }

    /// Stores the low `N` bytes of a number at an address.
    #[inline(always)]
    pub(crate) fn store<const N: usize>(&mut self, address: u64, value: u64) -> Result<(), Exception> {
        match machine::write(self.machine, Self::WORD, address, &value.to_le_bytes()[..N]) {
            Ok(()) => Ok(()),
            Err(fault) => Err(invalid_address(Self::WORD, fault)),
        }
    }
}

/// The exception of a memory access that faulted.
#[cold]
fn invalid_address(word: Word, fault: Fault) -> Exception {
    Exception::new(Exception::INVALID_ADDR, word.truncate(fault.address), 0)
}
