//! A register's properties, and groups of registers with consecutive indices.

/// A register of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Register {
    /// Its index in the bytecode.
    pub index: u16,
    /// Its name, in lower case.
    pub name: &'static str,
    /// What a kernel probe may do with it. A user probe has only one context: what is allowed as
    /// `r` or as `u` is allowed as both.
    pub uses: Uses,
    /// Whether it is for kernel probes only, since user mode has no access to it.
    pub kernel: bool,
}

/// What a handler may do with a register, as in the columns of the manual's appendices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Uses {
    /// `push u`.
    pub push_u: bool,
    /// `push r`.
    pub push_r: bool,
    /// `pop u`.
    pub pop_u: bool,
    /// `pop r`.
    pub pop_r: bool,
}

/// Can be read and set in both contexts.
pub(super) const GENERAL: Uses = Uses { push_u: true, push_r: true, pop_u: true, pop_r: true };
/// Can be read in both contexts.
pub(super) const READ_ONLY: Uses = Uses { push_u: true, push_r: true, pop_u: false, pop_r: false };
/// Can be read in the current context only: it belongs to the system.
pub(super) const CURRENT: Uses = Uses { push_u: false, push_r: true, pop_u: false, pop_r: false };
/// Can be read in the user context only: the kernel has none of its own.
pub(super) const USER: Uses = Uses { push_u: true, push_r: false, pop_u: false, pop_r: false };

/// Registers with consecutive indices and the same uses.
#[derive(Debug)]
pub(super) struct RegisterRange {
    first: u16,
    uses: Uses,
    names: &'static [&'static str],
}

impl RegisterRange {
    pub(super) const fn new(first: u16, uses: Uses, names: &'static [&'static str]) -> RegisterRange {
        RegisterRange { first, uses, names }
    }

    pub(super) fn registers(&self) -> impl Iterator<Item = Register> {
        let register = |(index, name): (u16, &&'static str)| Register {
            index,
            name,
            uses: self.uses,
            kernel: self.uses == CURRENT,
        };
        (self.first..).zip(self.names).map(register)
    }
}
