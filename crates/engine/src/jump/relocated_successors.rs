//! The tail of a trampoline: behind its displaced instruction, copies of the following
//! instructions, as far as the site's jump covers them.
//!
//! Processors predict jumps by the address of their last byte. A trampoline that came back into the
//! middle of the site's jump, where the program's instructions are, would make the processor
//! predict a jump there, wrongly, each time: 6 ns on the machine this was designed on, twice what a
//! hit costs otherwise. So a trampoline comes back behind the jump.
//!
//! ```text
//!     53           push %rbx            e9 8d 04 7f 5b   jmp  pad        ...          handlers
//!     8d 04 7f     lea  (..), %eax                                       53           push %rbx
//!     5b           pop  %rbx                                             0f 1f 44..   nop               *
//!     01 f0        add  %esi, %eax      01 f0            add ..          8d 04 7f     lea  (..), %eax
//!                                                                        0f 1f 44..   nop               *
//!                                                                        5b           pop  %rbx
//!                                                                        e9 ..        jmp  to `add`
//! ```
//!
//! The program's own bytes stay as they are: threads that come there by other ways execute them
//! there. The copies do the same. A thread at a copy, or at the `nop` before it, is shown at the
//! original.
//!
//! When one of these instructions is probed later, the `nop` before its copy becomes a jump to the
//! original ([`cut`](super::Jumps::cut)), while all threads are held. A thread at the `nop` then
//! comes to the new probe; a thread past it had reached the instruction before it was probed.

use std::ops::Range;

use patch::{Continuation, Displaced, Mode, Refusal, Slot, SlotPosition};

use super::text::Text;

/// A `nop` as long as a jump, before each copy: it is replaced by a jump when the original is
/// probed.
pub(crate) const TAIL_NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

const MOST: usize = 8;

/// Bytes reserved for each site before its tail is known. If they are not enough, there is no tail.
pub(crate) const USUAL: u64 = 64;

/// What [`relocated_successors`] has to know of the code behind a site.
pub(crate) trait Behind {
    /// Whether an instruction is probed, or must run at its own address.
    fn stays(&self, address: u64) -> bool;
    /// The end of the jump at an address, if there is one.
    fn jump_end(&self, address: u64) -> Option<u64>;
}

/// The instructions from `next` on that a jump which ends at `end` covers: as many as needed to get
/// out of it, and out of other jumps on the way. Empty if one of them cannot be copied.
pub(crate) fn relocated_successors(
    text: &Text,
    next: u64,
    end: u64,
    kept: &[Range<u64>],
    behind: &impl Behind,
) -> Vec<Displaced> {
    let mut tail = Vec::new();
    let (mut next, mut end) = (next, end);
    while next < end {
        let Ok(displaced) = patch::displace_in(Mode::Bits64, text.ahead(next, 15), next) else {
            return Vec::new();
        };
        let after = next + displaced.length() as u64;
        let is_kept = kept.iter().any(|range| range.start < after && next < range.end);
        if tail.len() == MOST || is_kept || behind.stays(next) || !displaced.can_follow() {
            return Vec::new();
        }
        end = end.max(behind.jump_end(next).unwrap_or(0));
        let over = !displaced.falls_through();
        tail.push(displaced);
        if over {
            break;
        }
        next = after;
    }
    tail
}

/// One copy in a trampoline.
#[derive(Debug)]
pub(crate) struct SuccessorCopy {
    /// The address of the original.
    pub(crate) address: u64,
    /// The address of the `nop` before the copy.
    pub(crate) cut: u64,
    /// The address behind the original.
    next: u64,
    slot: Slot,
}

impl SuccessorCopy {
    /// Appends the copy of an instruction to the bytes of a trampoline at `start`.
    pub(crate) fn append(
        displaced: &Displaced,
        start: u64,
        bytes: &mut Vec<u8>,
    ) -> Result<SuccessorCopy, Refusal> {
        let cut = start + bytes.len() as u64;
        let slot = displaced.slot_to(cut + TAIL_NOP.len() as u64, Continuation::Behind)?;
        bytes.extend_from_slice(&TAIL_NOP);
        bytes.extend_from_slice(&slot.bytes);
        let address = displaced.address();
        Ok(SuccessorCopy { address, cut, next: address + displaced.length() as u64, slot })
    }

    pub(crate) fn slot(&self) -> &Slot {
        &self.slot
    }

    /// The same copy in a process in which all addresses are `by` bytes higher.
    pub(crate) fn moved(&self, by: u64) -> SuccessorCopy {
        let moved = |address: u64| address.wrapping_add(by);
        SuccessorCopy {
            address: moved(self.address),
            cut: moved(self.cut),
            next: moved(self.next),
            slot: self.slot.moved(by),
        }
    }

    /// Where a thread is shown that is at the `nop`, in the copy, or right behind it.
    pub(crate) fn position_at(&self, address: u64) -> SlotPosition {
        let at = |rip| SlotPosition::After { rip, rcx: None };
        let Some(offset) = address.checked_sub(self.slot.address).map(|offset| offset as usize) else {
            return at(self.address);
        };
        if offset >= self.slot.bytes.len() {
            return at(self.next);
        }
        match self.slot.position_at(offset) {
            SlotPosition::Before => at(self.address),
            place => place,
        }
    }
}

#[cfg(test)]
mod tests {
    use patch::SlotPosition;

    use super::super::trampoline::Commit;
    use super::super::{Layout, Trampoline};
    use super::*;

    const SITE: u64 = 0x10_0000;
    const START: u64 = 0x20_0000;

    #[derive(Default)]
    struct FakeSurroundings {
        stays: Vec<u64>,
        jumps: Vec<(u64, u64)>,
    }

    impl Behind for FakeSurroundings {
        fn stays(&self, address: u64) -> bool {
            self.stays.contains(&address)
        }

        fn jump_end(&self, address: u64) -> Option<u64> {
            self.jumps.iter().find(|(at, _)| *at == address).map(|(_, end)| *end)
        }
    }

    /// push %rbx; lea (%rdi,%rdi,2), %eax; pop %rbx; add %esi, %eax; ret
    const FUNCTION: [u8; 8] = [0x53, 0x8d, 0x04, 0x7f, 0x5b, 0x01, 0xf0, 0xc3];

    fn followers(bytes: &[u8], length: u64, kept: &[Range<u64>], around: &FakeSurroundings) -> Vec<u64> {
        let text = Text::new(SITE, bytes);
        let tail = relocated_successors(&text, SITE + length, SITE + 5, kept, around);
        tail.iter().map(|follower| follower.address() - SITE).collect()
    }

    #[test]
    fn a_tail_goes_to_the_end_of_the_jump() {
        assert_eq!(followers(&FUNCTION, 1, &[], &FakeSurroundings::default()), [1, 4]);
        assert_eq!(followers(&FUNCTION[1..], 3, &[], &FakeSurroundings::default()), [3, 4]);
        // A jump of five bytes needs none.
        assert_eq!(followers(&FUNCTION, 5, &[], &FakeSurroundings::default()), [0; 0]);
    }

    #[test]
    fn a_tail_goes_to_the_end_of_the_jumps_that_it_comes_through() {
        let around = FakeSurroundings { stays: vec![], jumps: vec![(SITE + 1, SITE + 6)] };
        assert_eq!(followers(&FUNCTION, 1, &[], &around), [1, 4, 5]);
    }

    #[test]
    fn a_tail_ends_where_control_does() {
        // push %rbx; pop %rbx; ret; and the next function
        assert_eq!(followers(&[0x53, 0x5b, 0xc3, 0x53, 0x5b], 1, &[], &FakeSurroundings::default()), [1, 2]);
    }

    #[test]
    fn what_must_be_executed_at_its_own_address_is_not_copied() {
        let probed = FakeSurroundings { stays: vec![SITE + 4], jumps: vec![] };
        assert_eq!(followers(&FUNCTION, 1, &[], &probed), [0; 0]);
        let kept = SITE + 3..SITE + 4;
        assert_eq!(followers(&FUNCTION, 1, &[kept], &FakeSurroundings::default()), [0; 0]);
        for instruction in [&[0xff, 0xd0][..], &[0xe8, 0, 0, 0, 0], &[0x0f, 0x05], &[0x9c], &[0x9d], &[0xcc]]
        {
            let bytes = [&[0x53], instruction, &[0x90; 8]].concat();
            assert_eq!(followers(&bytes, 1, &[], &FakeSurroundings::default()), [0; 0], "{instruction:x?}");
        }
        // The mapping ends.
        assert_eq!(followers(&FUNCTION[..3], 1, &[], &FakeSurroundings::default()), [0; 0]);
    }

    /// The trampoline of the function's first instruction, without a handler.
    fn trampoline(commit: Option<Vec<u8>>) -> (Trampoline, Vec<u8>) {
        let commit = commit.map(|code| Commit { code, handler: 0 });
        let text = Text::new(SITE, &FUNCTION);
        let tail = relocated_successors(&text, SITE + 1, SITE + 5, &[], &FakeSurroundings::default());
        let displaced = patch::displace(&FUNCTION, SITE).expect("it can be displaced");
        let layout = Layout { displaced: &displaced, handlers: &[], commit: commit.as_ref(), tail: &tail };
        assert!(layout.reach().contains(&START));
        let size = layout.size();
        let (trampoline, bytes) = layout.at(START).expect("in reach");
        assert!(bytes.len() as u64 <= size);
        (trampoline, bytes)
    }

    #[test]
    fn copies_stand_behind_the_displaced_instruction() {
        let (_, bytes) = trampoline(None);
        let jump = (SITE + 5).wrapping_sub(START + bytes.len() as u64) as u32;
        let expected = [
            &[0x53][..],
            &TAIL_NOP,
            &FUNCTION[1..4],
            &TAIL_NOP,
            &FUNCTION[4..5],
            &[0xe9],
            &jump.to_le_bytes(),
        ];
        assert_eq!(bytes, expected.concat());
        // The record is committed before them.
        let (_, committing) = trampoline(Some(vec![0x90; 3]));
        assert_eq!(committing[..9], [&[0x53, 0x90, 0x90, 0x90][..], &TAIL_NOP].concat());
    }

    #[test]
    fn a_thread_is_shown_at_the_original() {
        for (committed, commit) in [(0, None), (3, Some(vec![0x90; 3]))] {
            let (trampoline, bytes) = trampoline(commit);
            let place = |offset: u64| match trampoline.part(START + offset) {
                Some(super::super::Part::Displaced(SlotPosition::After { rip, rcx: None })) => {
                    Some(rip - SITE)
                }
                Some(super::super::Part::Displaced(SlotPosition::Before)) => Some(0),
                _ => None,
            };
            assert_eq!(place(0), Some(0));
            let tail = 1 + committed;
            for offset in 1..=tail {
                assert_eq!(place(offset), Some(1), "{offset}");
            }
            let places = [0, 5, 8, 13, 14].map(|offset| place(tail + offset));
            assert_eq!(places, [Some(1), Some(1), Some(4), Some(4), Some(5)]);
            assert_eq!(place(bytes.len() as u64), None);
            let between = |offset: u64| trampoline.is_between(START + tail + offset);
            assert!(between(0) && between(8) && !between(5) && !between(13) && !between(14));
        }
    }
}
