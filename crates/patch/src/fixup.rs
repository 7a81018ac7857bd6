//! Fixups: 32-bit distances in a slot that depend on the slot's address.
//!
//! A field's place and its target come in; from where the target can be reached, and what the field
//! holds there, go out.

/// A 32-bit field that holds the distance from the end of its instruction to `target`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixup {
    /// Offset of the field in the template.
    pub(crate) at: usize,
    /// Offset of the instruction's end in the template.
    pub(crate) end: usize,
    pub(crate) target: Target,
}

/// What a fixup points to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// An address. Wider than 64 bits, since a displacement may wrap around either end of the
    /// address space; only the distance matters.
    Far(i128),
    /// Only its low 32 bits count (`[eip+displacement]`, targets of 32-bit code): always reachable.
    Narrow(u32),
    /// Data in the slot itself, by its offset.
    Own(usize),
}

impl Fixup {
    /// The slot addresses from which the target is reachable.
    pub(crate) fn reach(self) -> (i128, i128) {
        match self.target {
            Target::Far(target) => {
                let farthest = target - self.end as i128;
                (farthest - i128::from(i32::MAX), farthest - i128::from(i32::MIN))
            }
            Target::Narrow(_) | Target::Own(_) => (i128::MIN, i128::MAX),
        }
    }

    /// The field's value in a slot at `slot`, which must be in reach.
    pub(crate) fn value(self, slot: u64) -> Option<i32> {
        let from = i128::from(slot) + self.end as i128;
        match self.target {
            Target::Far(target) => i32::try_from(target - from).ok(),
            Target::Narrow(target) => Some(target.wrapping_sub(from as u32).cast_signed()),
            Target::Own(offset) => i32::try_from(offset as i128 - self.end as i128).ok(),
        }
    }
}
