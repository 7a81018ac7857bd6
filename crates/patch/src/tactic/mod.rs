//! Tactics: which bytes make a jump of an instruction that may be shorter than a jump, without touching another one.
//!
//! `jmp rel32` has five bytes, most instructions have fewer. The tactics, in the order in which they are preferred
//! (Chamith, Svensson, Dalessandro, Newton, "Instruction Punning", PLDI 2017; Duck, Gao, Roychoudhury, "Binary
//! Rewriting without Control Flow Recovery", PLDI 2020):
//!
//! ```text
//!   plain       the instruction has five bytes or more
//!               48 8b 44 24 08 | ..            e9 rr rr rr rr | ..
//!
//!   punned      the last bytes of the jump are the bytes that follow, as they are: they say roughly where the jump leads, the
//!               bytes of the instruction say where exactly; there is put a landing pad, five bytes: a jump to the trampoline
//!               48 89 e5 | 41 57 ..            e9 rr rr | 41 57           to site + 5 + 0x5741rrrr
//!
//!   padded      prefixes that say nothing on a jump move it, so that other bytes follow
//!               48 89 e5 | 41 57 41 ..         2e e9 rr | 41 57 41        to site + 6 + 0x415741rr
//!
//!   successor   the next instruction moves away as a whole: it becomes a jump to its own copy, and the first jump is punned on the
//!   evicted     bytes of the second
//!               55 | 48 89 e5 | 41 57          e9 | e9 rr rr | 41 57
//!
//!   neighbour   an instruction of six bytes or more within 127 bytes moves away; the bytes that its jump leaves over take a second
//!   evicted     jump, to which two bytes lead
//!               50 90 | .. | 48 81 ec 00 01 00 00      eb xx | .. | e9 rr rr rr rr | e9 rr
//!
//!   over        what follows is padding between functions, which nobody executes: it is overwritten
//!   padding     c3 | 0f 1f 40 00                   e9 rr rr rr rr
//!
//!   in          padding within 127 bytes takes a whole jump, to which two bytes lead
//!   padding     41 57 | .. | 66 0f 1f 44 00 00     eb xx | .. | e9 rr rr rr rr 00
//!
//!   grouped     several instructions move together, under one jump; only where it is proven that control comes to none of them but
//!               the first, and that all others cannot fault
//!               53 | 48 89 fb | 31 c0          e9 | rr rr rr | rr c0
//! ```
//!
//! # What holds
//!
//! - No byte of an instruction is changed but of a probed one, of a neighbour that is itself moved (at its address is a
//!   jump to its copy, so that whoever jumps to it executes it), and of padding to which control is proven not to come.
//! - Where instructions overlap (`lock` prefixes that are jumped over), none of them is moved: neither the one into whose middle code jumps,
//!   nor the one that begins there, whose bytes are the other's, too.
//! - A byte that a jump is punned on is *relied* on. It is not changed by any later plan, unless that plan gives a new jump to whoever
//!   relies on it. The same holds for what is trapped: a breakpoint is a byte, too.
//! - One plan is applied as one: its writes are of one image of the memory, no part of which is right alone.
//!
//! # Landing pads
//!
//! They are where the puns want them, anywhere within 2 GiB; each new page of them may be a mapping of its own, of which a process
//! has a limited number. Pads share pages wherever they can. Pages are joined to runs across small gaps, and across larger
//! ones where there are many runs (`wide`). The runs are counted; when there are no more, sites are refused for that reason.

mod arrange;
mod evict;
mod group;
mod image;
mod jump;
mod luck;
mod moved;
mod padding;
mod pads;
mod pattern;
mod planner;
mod remove;
mod wide;

use std::ops::Range;

pub use planner::Planner;
pub use remove::Removal;

/// An instruction that is to be probed, by jump where that is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Of the instruction.
    pub address: u64,
    /// Of the instruction, in bytes: 1 to 15.
    pub length: usize,
    /// False where the site is to be trapped whatever is possible, even if it is a jump already; what follows from a breakpoint at it is
    /// planned all the same.
    pub jump: bool,
}

/// The code that sites are in: one mapping, as the program has it, without any probe's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    /// Where it begins.
    pub address: u64,
    /// Its bytes, of 64-bit code.
    pub bytes: &'a [u8],
    /// Addresses at which instructions are proven to begin, ascending. What is not among them is never moved for another's sake: that a
    /// site falls through to it proves nothing, since a site may be what somebody takes for an instruction. Data must not be among them.
    pub instructions: &'a [u64],
    /// Addresses inside of instructions to which code jumps ([`crate::entered_anywhere`] finds them), ascending. These instructions are not moved.
    pub entered: &'a [u64],
    /// Padding between functions to which control does not come, ascending and disjoint: it may be overwritten.
    pub padding: &'a [Range<u64>],
    /// Addresses that must not be changed, moved, nor relied on, ascending and disjoint: restartable sequences, and what the dynamic linker
    /// writes.
    pub kept: &'a [Range<u64>],
    /// What is proven of the control flow. Without it nothing is grouped.
    pub flow: Option<Flow<'a>>,
}

/// A proof of where control comes to. It is the caller's word.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a> {
    /// Functions of which all ways to get to an instruction are known, ascending and disjoint: where each of their indirect jumps leads,
    /// and that they catch no exceptions.
    pub functions: &'a [Range<u64>],
    /// All addresses in them to which control may come otherwise than by falling through or returning from a call, ascending: targets of
    /// direct jumps and calls from anywhere, entries, targets of jump tables, and what any number in the module's code and data is the
    /// address of.
    pub targets: &'a [u64],
}

/// The address space around the code.
#[derive(Clone, Debug)]
pub struct Space<'a> {
    /// Where pages can be mapped: ascending, disjoint. What grows (the stack, the heap), what the system reserves and the planner's own
    /// pages are not among them.
    pub free: &'a [Range<u64>],
    /// Where the trampolines of these sites, and the copies of evicted neighbours, will be: somewhere in it. All of it should be within 2 GiB
    /// of the code. What of it is taken for them is not in `free`.
    pub trampolines: Range<u64>,
}

/// What a planner may use up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Mappings for landing pads. From half of them on, tactics that need no new one are preferred.
    pub mappings: usize,
    /// Whether threads have shadow stacks, with which calls and returns cannot be moved.
    pub shadow_stacks: bool,
    /// Whether the process may have only so many addresses (RLIMIT_AS): none are mapped that are not needed.
    pub few_addresses: bool,
}

/// How a site's jump was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tactic {
    /// All five bytes are the instruction's own.
    Plain,
    /// Some are the following bytes.
    Punned,
    /// Punned, behind so many prefixes.
    Padded(u8),
    /// Punned on the jump of an instruction that was moved for it.
    SuccessorEvicted,
    /// By a short jump to the bytes left over by another instruction's jump.
    NeighbourEvicted,
    /// Together with the instructions that follow.
    Grouped,
    /// Over the padding that follows.
    OverPadding,
    /// By a short jump to padding nearby, in which there is room for a whole one.
    InPadding,
}

/// Why an instruction is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// It is a site.
    Site,
    /// A site's jump needs its bytes. Its trampoline is its copy and a jump back.
    Neighbour,
}

/// Bytes to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Of the first byte.
    pub address: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// One moved instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jump {
    /// Of the instruction.
    pub address: u64,
    /// Of the instruction, in bytes.
    pub length: usize,
    /// Why it is moved.
    pub purpose: Purpose,
    /// How its jump was made.
    pub tactic: Tactic,
    /// The landing pad to which the jump leads; without one it leads to the trampoline.
    pub pad: Option<u64>,
    /// The instructions behind it that are moved with it, addresses and lengths: of [`Tactic::Grouped`] alone. They run in its trampoline, one
    /// after the other; a thread that is at one of them when the jump is written must be moved there.
    pub followers: Vec<(u64, usize)>,
    /// The bytes of the program that change, in the order of their addresses. Without a pad the last four of them are the distance to
    /// the trampoline, and zero here.
    code: Vec<Write>,
}

/// The bytes of a landing pad.
pub const PAD_LENGTH: usize = 5;

impl Jump {
    /// The same jump where all of it - the program's code, the landing pad, the trampoline - is `by` bytes farther: in another process that
    /// has the module at another address. Its bytes are the same.
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

    /// The bytes of the program, if the trampoline is at `trampoline`; none if that is out of reach.
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

    /// The bytes of the landing pad, if there is one and the trampoline is at `trampoline`: `e9 rel32`. None if that is out
    /// of reach, which it is not from anywhere in [`Space::trampolines`].
    pub fn pad(&self, trampoline: u64) -> Option<Write> {
        let address = self.pad?;
        let distance = pattern::distance(address + PAD_LENGTH as u64, trampoline)?;
        let mut bytes = vec![0xe9];
        bytes.extend_from_slice(&distance.to_le_bytes());
        Some(Write { address, bytes })
    }
}

/// Why a site has no jump. It is to be trapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum Reason {
    /// It was not to have one.
    #[error("it is trapped as asked")]
    Asked,
    /// Code jumps into the middle of the instruction.
    #[error("code jumps into the middle of the instruction")]
    Entered,
    /// The instruction is a part of another one, which begins before it.
    #[error("its bytes are another instruction's, too")]
    Shared,
    /// Its bytes must not be changed.
    #[error("its bytes must stay as they are")]
    Kept,
    /// The instruction is not in the code that was given, or a part of it is another one that is moved already.
    #[error("its bytes are not in the mapping, or belong to another probed instruction")]
    Outside,
    /// A jump's bytes would have to be those of an instruction that cannot be moved, or lead to where nothing can be mapped.
    #[error(
        "no jump fits: its bytes would be those of instructions that cannot be moved, or lead to memory in use"
    )]
    NoJump,
    /// There would be one, but no more mappings may be used.
    #[error("its landing pad would need one more mapping than the process is allowed")]
    Mappings,
}

/// What is to be done, all of it or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Pages to be mapped for landing pads, readable and executable: ascending, disjoint, each one mapping. All of them are
    /// in [`Space::free`].
    pub map: Vec<Range<u64>>,
    /// Instructions that are moved now, and those moved before whose jump or purpose is another one now: ascending. Among the latter may
    /// be sites of earlier plans: their old bytes are overwritten, their old pads are no longer used.
    pub jumps: Vec<Jump>,
    /// Sites to be trapped (0xcc at their address), and why: ascending. Sites of earlier plans may be among them, too.
    pub traps: Vec<(u64, Reason)>,
    /// What earlier plans changed and is to be as the program has it: neighbours that need not be moved any more. The rest of what is
    /// in `jumps` and `traps` is written over it.
    pub restore: Vec<Write>,
    /// Sites that can neither have a jump nor be trapped: their bytes must not be changed, or are no instruction's.
    pub refused: Vec<(u64, Reason)>,
    /// Landing pads of earlier plans that are no longer used. The next plan may use their bytes.
    pub pads: Vec<u64>,
}
