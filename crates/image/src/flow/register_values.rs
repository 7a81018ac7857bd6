//! What is known of the registers while a function is followed: distances from the place of its
//! return address.
//!
//! In: register values and instructions. Out: values after a change of the stack pointer, and
//! whether a memory operand overlaps the return address.

use iced_x86::{Instruction, Register};

/// What a register holds: an address, as its distance from the return address's place, or one of
/// these.
pub(super) type Value = i32;
pub(super) const UNKNOWN: Value = i32::MIN;
pub(super) const RETURN: Value = i32::MIN + 1;
/// Computed from the return address.
pub(super) const DERIVED: Value = i32::MIN + 2;

/// The registers' values, by number.
pub(super) type State = [Value; 16];

pub(super) const RSP: usize = 4;
pub(super) const RBP: usize = 5;

/// Whether an instruction's memory operand overlaps the return address's place.
pub(super) fn is_place(it: &Instruction, state: &State) -> bool {
    let base = it.memory_base();
    if !base.is_gpr64() || matches!(it.memory_segment(), Register::FS | Register::GS) {
        return false;
    }
    let value = state[number(base)];
    if matches!(value, UNKNOWN | RETURN | DERIVED) {
        return false;
    }
    // For a pop, the address after it.
    let first = i64::from(value).wrapping_add(it.memory_displacement64().cast_signed());
    first < 8 && first.saturating_add((it.memory_size().size() as i64).max(1)) > 0
}

pub(super) fn push(state: &mut State) {
    state[RSP] = moved(state[RSP], -8);
}

pub(super) fn moved(value: Value, by: i32) -> Value {
    match value {
        UNKNOWN | RETURN | DERIVED => UNKNOWN,
        value => value.checked_add(by).filter(|it| it.abs() < 1 << 30).unwrap_or(UNKNOWN),
    }
}

pub(super) fn number(register: Register) -> usize {
    register.full_register().number() & 15
}
