//! The compiled handler.

use crate::emit::{Emitter, Finished, Label, SiteField};
use crate::operands::{RAX, RSP, Rm};
use core::fmt;
use layout::{COMMIT_CELL, SPILL_CELL, state};

/// Why a handler cannot run at a site with a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// It may call a debug facility (`exit 1` to `exit 3`) at this offset in the code.
    Facility(usize),
}

impl fmt::Display for Unsupported {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsupported::Facility(offset) => {
                write!(to, "the handler calls a debug facility (at {offset:#x} in its code)")
            }
        }
    }
}

impl std::error::Error for Unsupported {}

/// A load from or a store to the program's memory, which may fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guarded {
    /// The offset of the instruction.
    pub access: u32,
    /// The offset where the thread continues if it faults; rax may have changed by then.
    pub repair: u32,
}

/// An instruction of the prologue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The offset of an instruction.
    pub offset: u32,
    /// The number to add to rsp before it to get the site's rsp. All other registers are as at the
    /// site.
    pub below: u32,
}

/// A compiled handler, independent of its final address.
///
/// ```text
///     descriptors of restartable sequences     only where there are some: 32 bytes each
///     cold code
///     entry:  the prologue
///             the handler
///             the epilogue
///     end:    what comes behind it in memory: the displaced instruction
/// ```
#[derive(Clone, Debug)]
pub struct Compiled {
    bytes: Vec<u8>,
    addresses: Vec<u32>,
    site_fields: Option<Vec<SiteField>>,
    entry: u32,
    steps: Vec<Step>,
    guarded: Vec<Guarded>,
    /// Whether a hit may claim a context.
    pub claims: bool,
    /// Whether any path leaves to the interpreter, or calls the agent for a map.
    pub leaves: bool,
    /// The registers that may differ from the site's while it runs, by their numbers in machine
    /// code (bit 0: rax).
    pub clobbers: u16,
    /// Bytes of stack used below the site's rsp, including calls of the agent.
    pub stack: u32,
}

/// The parts of a [`Compiled`].
pub(crate) struct CompiledParts {
    pub(crate) finished: Finished,
    pub(crate) entry: Label,
    pub(crate) steps: Vec<(Label, u32)>,
    pub(crate) guarded: Vec<(Label, Label)>,
    pub(crate) claims: bool,
    pub(crate) leaves: bool,
    pub(crate) clobbers: u16,
    pub(crate) stack: u32,
}

impl Compiled {
    pub(crate) fn new(parts: CompiledParts) -> Compiled {
        let offset = |label: Label| parts.finished.offset(label);
        let mut guarded: Vec<_> = parts.guarded.iter().collect();
        guarded.sort_by_key(|(access, _)| offset(*access));
        Compiled {
            entry: offset(parts.entry),
            steps: parts.steps.iter().map(|&(label, below)| Step { offset: offset(label), below }).collect(),
            guarded: guarded
                .into_iter()
                .map(|&(access, repair)| Guarded { access: offset(access), repair: offset(repair) })
                .collect(),
            claims: parts.claims,
            leaves: parts.leaves,
            clobbers: parts.clobbers,
            stack: parts.stack,
            addresses: parts.finished.addresses,
            site_fields: parts.finished.site_fields,
            bytes: parts.finished.bytes,
        }
    }

    /// The length of the code in bytes, without the displaced instruction.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Always false: the code at least counts the hit.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The required alignment of the code's address.
    pub fn alignment(&self) -> u64 {
        if self.addresses.is_empty() { 1 } else { crate::emit::DESCRIPTOR as u64 }
    }

    /// The offset at which a hit begins.
    pub fn entry(&self) -> u32 {
        self.entry
    }

    /// Appends the bytes for `address` to `to`.
    pub fn append_at(&self, address: u64, to: &mut Vec<u8>) {
        let start = to.len();
        to.extend_from_slice(&self.bytes);
        for &at in &self.addresses {
            let word = &mut to[start + at as usize..][..8];
            let mut offset = [0; 8];
            offset.copy_from_slice(word);
            word.copy_from_slice(&address.wrapping_add(u64::from_le_bytes(offset)).to_le_bytes());
        }
    }

    /// The fields that hold the site's address, or an address in the code itself at a fixed
    /// distance from it. Changing these fields moves the handler to another site, if everything
    /// else it was compiled for is the same. `None` if that is impossible.
    pub fn site_fields(&self) -> Option<impl Iterator<Item = SiteField>> {
        let fields = self.site_fields.as_ref()?.iter().copied();
        Some(fields.chain(self.addresses.iter().map(|&at| SiteField::Word(at))))
    }

    /// Where a thread continues if the memory access at `offset` faulted, if there is one.
    pub fn repair(&self, offset: u32) -> Option<u32> {
        let found = self.guarded.binary_search_by_key(&offset, |it| it.access).ok()?;
        Some(self.guarded[found].repair)
    }

    /// The accesses to the program's memory, by their offsets.
    pub fn guarded(&self) -> &[Guarded] {
        &self.guarded
    }

    /// If the instruction at `offset` belongs to the prologue, the number to add to rsp to restore
    /// the site's registers: for a thread whose stack has no room.
    pub fn undo(&self, offset: u32) -> Option<u32> {
        self.steps.iter().find(|step| step.offset == offset).map(|step| step.below)
    }

    /// The code that commits a tentative record, to be put behind the displaced instruction, which
    /// has added `delta` to rsp. It changes no flags and no register.
    ///
    /// ```text
    ///     mov   %rax, -144-delta(%rsp)
    ///     mov   -136-delta(%rsp), %rax
    ///     movb  $COMMITTED, (%rax)
    ///     mov   -144-delta(%rsp), %rax
    /// ```
    pub fn commit(delta: i32) -> Vec<u8> {
        let cell = |below: u64| Rm::At(RSP, -(below as i32) - delta);
        let mut emitter = Emitter::new();
        emitter.store(cell(SPILL_CELL), RAX);
        emitter.load(RAX, cell(COMMIT_CELL));
        emitter.store8_number(Rm::At(RAX, 0), state::COMMITTED as u8);
        emitter.load(RAX, cell(SPILL_CELL));
        emitter.finish().bytes
    }
}
