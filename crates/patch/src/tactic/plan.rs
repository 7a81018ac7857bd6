//! What a planner is given, and the plan that it returns.
//!
//! In: sites ([`Site`]), the code around them ([`Code`]), free memory ([`Space`]), [`Limits`]. Out:
//! [`Plan`]: jumps, each with the [`Tactic`] that has placed it, bytes to write, pages to map, and
//! sites that trap, with the [`Reason`].

use std::ops::Range;

use super::pattern;

/// An instruction to probe, by a jump if possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The address of the instruction.
    pub address: u64,
    /// The length of the instruction, 1 to 15 bytes.
    pub length: usize,
    /// False to trap the site even if a jump is possible or present. The effect of the breakpoint
    /// on other jumps is planned all the same.
    pub jump: bool,
}

/// The code that contains the sites: one mapping, with the program's own bytes, without any
/// probe's.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    /// The address of the first byte.
    pub address: u64,
    /// The bytes, 64-bit code.
    pub bytes: &'a [u8],
    /// Addresses at which instructions are proven to begin, ascending. No other instruction is
    /// moved for another's jump: that a site falls through to an address proves nothing, since the
    /// site itself may be wrong. Addresses of data must not be in it.
    pub instructions: &'a [u64],
    /// Addresses inside instructions to which code jumps, ascending, as [`crate::entered_anywhere`]
    /// finds them. These instructions are not moved.
    pub entered: &'a [u64],
    /// Padding between functions that control does not reach, ascending and disjoint: may be
    /// overwritten.
    pub padding: &'a [Range<u64>],
    /// Addresses not to change, move or rely on, ascending and disjoint: restartable sequences, and
    /// what the dynamic linker writes.
    pub kept: &'a [Range<u64>],
    /// What is proven of the control flow. Without it nothing is grouped.
    pub flow: Option<Flow<'a>>,
}

/// Proven facts about control flow; the caller guarantees them.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a> {
    /// Functions whose entry points are all known, ascending and disjoint: the targets of their
    /// indirect jumps are known, and they catch no exceptions.
    pub functions: &'a [Range<u64>],
    /// All addresses in them that control can reach other than by falling through or returning from
    /// a call, ascending: targets of direct jumps and calls from anywhere, entries, jump table
    /// targets, and every address that occurs as a number in the module's code or data.
    pub targets: &'a [u64],
}

/// The address space around the code.
#[derive(Clone, Debug)]
pub struct Space<'a> {
    /// Where pages can be mapped, ascending and disjoint. Excludes room for the stack and heap to
    /// grow, memory the system reserves, and the planner's own pages.
    pub free: &'a [Range<u64>],
    /// The range for the trampolines of these sites and the copies of evicted neighbours. It should
    /// be within 2 GiB of the code. Its parts already taken are not in `free`.
    pub trampolines: Range<u64>,
}

/// The planner's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most mappings for landing pads. From half of them on, tactics that need no new mapping
    /// are preferred.
    pub mappings: usize,
    /// Whether threads have shadow stacks; then calls and returns cannot be moved.
    pub shadow_stacks: bool,
    /// Whether the address space is limited (RLIMIT_AS): no unneeded pages are mapped.
    pub few_addresses: bool,
}

/// How a site's jump is made to fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tactic {
    /// The instruction has room for all five bytes.
    Plain,
    /// The last bytes of the jump are the bytes that follow, unchanged.
    Punned,
    /// Punned, behind this number of prefixes.
    Padded(u8),
    /// Punned on the jump of a following instruction that is moved for it.
    SuccessorEvicted,
    /// A short jump to spare bytes behind another instruction's jump.
    NeighbourEvicted,
    /// A jump over the instruction and those that follow, moved together.
    Grouped,
    /// A jump that extends over the padding behind the instruction.
    OverPadding,
    /// A short jump to a whole jump in padding nearby.
    InPadding,
}

/// Why an instruction is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// It is a site.
    Site,
    /// A site's jump needs its bytes. Its trampoline is only its copy and a jump back.
    Neighbour,
}

/// Bytes to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The address of the first byte.
    pub address: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// One moved instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jump {
    /// The address of the instruction.
    pub address: u64,
    /// The length of the instruction in bytes.
    pub length: usize,
    /// Why it is moved.
    pub purpose: Purpose,
    /// How its jump is made to fit.
    pub tactic: Tactic,
    /// The landing pad to which the jump leads; `None` if it leads directly to the trampoline.
    pub pad: Option<u64>,
    /// For [`Tactic::Grouped`]: the following instructions that move with it, as addresses and
    /// lengths. They run in its trampoline in order; a thread that is at one of them when the jump
    /// is written must be moved there.
    pub followers: Vec<(u64, usize)>,
    /// The changed bytes of the program, in address order. Without a pad the last four are the
    /// distance to the trampoline, zero here.
    pub(super) code: Vec<Write>,
}

/// The length of a landing pad in bytes.
pub const PAD_LENGTH: usize = 5;

impl Jump {
    /// The same jump with code, landing pad and trampoline `by` bytes higher, as in another process
    /// that has the module at another address. Its bytes are the same.
    #[must_use]
    pub fn moved(&self, by: u64) -> Jump {
        let moved = |address: u64| address.wrapping_add(by);
        Jump {
            address: moved(self.address),
            pad: self.pad.map(moved),
            followers: self.followers.iter().map(|&(address, length)| (moved(address), length)).collect(),
            code: self
                .code
                .iter()
                .map(|write| Write { address: moved(write.address), bytes: write.bytes.clone() })
                .collect(),
            ..*self
        }
    }

    /// The bytes to write in the program for a trampoline at `trampoline`; `None` if that is out of
    /// reach.
    pub fn code(&self, trampoline: u64) -> Option<Vec<Write>> {
        let mut code = self.code.clone();
        if self.pad.is_none() {
            let write = code.last_mut()?;
            let end = write.address + write.bytes.len() as u64;
            let field = write.bytes.len().checked_sub(4)?;
            write.bytes[field..].copy_from_slice(&pattern::distance(end, trampoline)?.to_le_bytes());
        }
        Some(code)
    }

    /// The bytes of the landing pad (`e9 rel32`) for a trampoline at `trampoline`; `None` without a
    /// pad, or out of reach, which never happens within [`Space::trampolines`].
    pub fn pad(&self, trampoline: u64) -> Option<Write> {
        let address = self.pad?;
        let distance = pattern::distance(address + PAD_LENGTH as u64, trampoline)?;
        let mut bytes = vec![0xe9];
        bytes.extend_from_slice(&distance.to_le_bytes());
        Some(Write { address, bytes })
    }
}

/// Why a site is trapped and has no jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum Reason {
    /// The caller asked for a trap.
    #[error("a trap was requested")]
    Asked,
    /// Code jumps into the middle of the instruction.
    #[error("code jumps into the middle of the instruction")]
    Entered,
    /// The instruction is part of another one that begins before it.
    #[error("its bytes are also part of another instruction")]
    Shared,
    /// Its bytes are in [`Code::kept`].
    #[error("its bytes must not be changed")]
    Kept,
    /// The instruction is not in the given code, or overlaps another moved instruction.
    #[error("its bytes are not in the mapping, or belong to another probed instruction")]
    Outside,
    /// A jump would need the bytes of instructions that cannot be moved, or lead to memory that
    /// cannot be mapped.
    #[error("no jump fits: it would overwrite instructions that cannot be moved, or lead to memory in use")]
    NoJump,
    /// A jump would need one more mapping than is allowed.
    #[error("its landing pad would exceed the process's limit on mappings")]
    Mappings,
}

/// The changes to make, all or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Pages to map for landing pads, readable and executable: ascending, disjoint, each one
    /// mapping, all in [`Space::free`].
    pub map: Vec<Range<u64>>,
    /// Newly moved instructions, and those moved before whose jump or purpose changes, ascending.
    /// They may include sites of earlier plans: overwrite their old bytes; their old pads are
    /// unused now.
    pub jumps: Vec<Jump>,
    /// Sites to trap (0xcc at their address), and why, ascending. May include sites of earlier
    /// plans.
    pub traps: Vec<(u64, Reason)>,
    /// Bytes that earlier plans changed and that become the program's again (of neighbours that
    /// need not be moved any more). Write `jumps` and `traps` after them.
    pub restore: Vec<Write>,
    /// Sites that can neither jump nor be trapped: their bytes must not change, or are not an
    /// instruction.
    pub refused: Vec<(u64, Reason)>,
    /// Landing pads of earlier plans that are unused now. The next plan may reuse their bytes.
    pub pads: Vec<u64>,
}
