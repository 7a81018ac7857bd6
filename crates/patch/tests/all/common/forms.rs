//! Hand-written machine code, and repeated runs of it.

use super::compare::{Ways, compare};
use super::native::{Arena, BACKWARD, End, FAR, FORWARD, SITE, Start};
use super::random::{Random, start};
use dprobes_patch::Mode;

/// The targets of branches in tests.
pub const TARGETS: [u64; 3] = [FORWARD, BACKWARD, FAR];

/// The opcode, then a 32-bit displacement from the end of the instruction to `target`.
pub fn near(opcode: &[u8], target: u64) -> Vec<u8> {
    let end = SITE + opcode.len() as u64 + 4;
    [opcode, &(target.wrapping_sub(end) as u32).to_le_bytes()].concat()
}

/// The opcode, then the 8 bits of displacement.
pub fn short(opcode: &[u8], target: u64) -> Vec<u8> {
    let end = SITE + opcode.len() as u64 + 1;
    [opcode, &[target.wrapping_sub(end) as u8]].concat()
}

/// Runs with a random state, modified by `change`, `rounds` times.
pub fn rounds(bytes: &[u8], rounds: u64, change: impl Fn(&mut Start, &mut Random)) -> Vec<(End, Ways)> {
    rounds_in(Mode::Bits64, bytes, rounds, change)
}

/// [`rounds`] for code of either mode.
pub fn rounds_in(
    mode: Mode,
    bytes: &[u8],
    rounds: u64,
    change: impl Fn(&mut Start, &mut Random),
) -> Vec<(End, Ways)> {
    let mut arena = Arena::take_in(mode);
    let mut ends = Vec::new();
    for round in 0..rounds {
        let mut random = Random::new(round + 1000);
        let mut state = start(&arena, &mut random);
        change(&mut state, &mut random);
        ends.push(compare(&mut arena, bytes, &TARGETS, &state).expect("it can be displaced"));
    }
    ends
}

/// Checks that every round completed in both slots, and was emulated or not, as given.
pub fn all_complete(ends: &[(End, Ways)], emulated: bool) {
    for (end, ways) in ends {
        assert!(!ways.faulted, "{:x?} {:x?}", end.fault, end.registers);
        assert_eq!((ways.slots, ways.emulated), (2, emulated));
    }
}
