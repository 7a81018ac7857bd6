//! Where a jump was put: its bytes, and the landing pads that it needs.

use super::pattern;
use super::{Space, Tactic, Write};

/// The most bytes of an instruction.
pub(super) const LONGEST: usize = 15;

/// Prefixes without effect on `jmp rel32`: segments, address size, REX. Not the operand size:
/// Intel's processors ignore it, AMD's truncate the target to 16 bits.
pub(super) const PREFIXES: [u8; 23] = [
    0x2e, 0x3e, 0x26, 0x36, 0x64, 0x65, 0x67, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49,
    0x4a, 0x4b, 0x4c, 0x4d, 0x4e, 0x4f,
];

/// How many of them may be repeated: all but REX, which must come last.
pub(super) const REPEATED: usize = 7;

/// The length of `jmp rel32`.
pub(super) const JUMP: usize = 5;

/// A jump that an instruction has been given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    pub(super) tactic: Tactic,
    pub(super) prefixes: u8,
    /// The jump. The instruction owns as many bytes as it is long; the rest are the bytes that
    /// follow. Without a pad the last four are zero, and unknown here.
    pub(super) bytes: [u8; LONGEST],
    pub(super) pad: Option<u64>,
    pub(super) joint: Option<SecondJump>,
    pub(super) group: Option<Group>,
}

/// Instructions that are moved together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// The length of the first.
    pub(super) single: u8,
    /// The bytes that the jump owns: those of all instructions, or of the first and the padding
    /// behind it.
    pub(super) length: u8,
    /// Addresses and lengths of the instructions behind the first.
    pub(super) followers: Vec<(u64, usize)>,
}

/// A second jump, reached by a short jump at the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SecondJump {
    /// The address of the second jump.
    pub(super) address: u64,
    /// The instruction in whose spare bytes it is; `None` if it is in padding.
    pub(super) host: Option<u64>,
    /// The end of the host or padding; from there on the second jump relies on bytes.
    pub(super) host_end: u64,
    pub(super) bytes: [u8; JUMP],
    /// The program's bytes there.
    pub(super) original: [u8; JUMP],
}

impl Placement {
    /// The length of the jump, including bytes beyond the instruction.
    pub(super) fn length(&self) -> usize {
        if self.joint.is_some() { 2 } else { usize::from(self.prefixes) + JUMP }
    }

    /// Whether this jump can reach all possible trampolines.
    pub(super) fn reaches(&self, address: u64, space: &Space<'_>) -> bool {
        let (lowest, highest) = pads_allowed(space);
        match self.pad {
            Some(pad) => (lowest..=highest).contains(&pad),
            None => {
                let joint = self.joint.map(|joint| joint.address + JUMP as u64);
                reaches(joint.unwrap_or(address + self.length() as u64), space)
            }
        }
    }

    /// The bytes that this jump changes in the program.
    pub(super) fn writes(&self, address: u64, length: u8) -> Vec<Write> {
        let own = self.length().min(length.into());
        let mut writes = vec![Write { address, bytes: self.bytes[..own].to_vec() }];
        if let Some(joint) = &self.joint {
            let own = ((joint.host_end - joint.address) as usize).min(joint.bytes.len());
            writes.push(Write { address: joint.address, bytes: joint.bytes[..own].to_vec() });
            writes.sort_unstable_by_key(|write| write.address);
        }
        writes
    }
}

/// Whether a jump that ends at `end` can reach all trampolines.
pub(super) fn reaches(end: u64, space: &Space<'_>) -> bool {
    pattern::distance(end, space.trampolines.start).is_some()
        && pattern::distance(end, space.trampolines.end).is_some()
}

/// The first and last possible address of a landing pad: it must reach all trampolines.
pub(super) fn pads_allowed(space: &Space<'_>) -> (u64, u64) {
    let lowest = space.trampolines.end.saturating_sub((1 << 31) - 1 + super::PAD_LENGTH as u64);
    let highest = space.trampolines.start.saturating_add((1 << 31) - super::PAD_LENGTH as u64);
    (lowest, highest)
}
