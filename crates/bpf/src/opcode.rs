//! The parts of an instruction's code byte, and the pseudo sources, by number.

/// The lowest three bits: the kind of instruction.
pub(crate) mod class {
    pub(crate) const LD: u8 = 0;
    pub(crate) const LDX: u8 = 1;
    pub(crate) const ST: u8 = 2;
    pub(crate) const STX: u8 = 3;
    pub(crate) const ALU: u8 = 4;
    pub(crate) const JMP: u8 = 5;
    pub(crate) const JMP32: u8 = 6;
    pub(crate) const ALU64: u8 = 7;
}

/// Whether an operand is a register.
pub(crate) mod source {
    pub(crate) const REG: u8 = 8;
}

/// How memory is accessed.
pub(crate) mod mode {
    pub(crate) const IMM: u8 = 0x00;
    pub(crate) const MEM: u8 = 0x60;
    pub(crate) const ATOMIC: u8 = 0xc0;
}

/// Arithmetic without a second operand.
pub(crate) mod alu {
    pub(crate) const NEG: u8 = 0x80;
    pub(crate) const END: u8 = 0xd0;
}

/// Jumps without a condition.
pub(crate) mod jump {
    pub(crate) const JA: u8 = 0x00;
    pub(crate) const CALL: u8 = 0x80;
    pub(crate) const EXIT: u8 = 0x90;
}

/// What the source field of a 64-bit load or a call means instead of a register.
pub(crate) mod pseudo {
    /// A call of a function of the same program.
    pub(crate) const CALL: u8 = 1;
    /// The address of a function of the same program.
    pub(crate) const FUNCTION: u8 = 4;
    /// A map, by its index in the list of maps given at load.
    pub(crate) const MAP_INDEX: u8 = 5;
    /// The address of the value of a map of one element, by the same index.
    pub(crate) const MAP_INDEX_VALUE: u8 = 6;
}
