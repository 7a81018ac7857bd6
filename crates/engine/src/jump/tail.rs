//! What a trampoline executes behind its displaced instruction: copies of the instructions that follow, as far as the site's
//! jump covers them.
//!
//! Processors remember jumps by the address of their last byte. One that came back into the middle of the site's jump, to
//! bytes that are instructions of the program, would be taken by its processor for one that is about to jump there, again and
//! again: 6 ns each time on the machine this was designed on, twice what a hit costs otherwise. So a trampoline comes back behind the
//! jump.
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
//! The program's own bytes stay as they are: whoever comes to them otherwise executes them there. What the copies execute is the same. A
//! thread that is at one of them, or at the `nop` before it, is shown at the original.
//!
//! When one of these instructions is probed later, the `nop` before its copy becomes a jump to the original ([`cut`](super::Jumps::cut)),
//! while all threads are held. Where it stands at the `nop`, a thread comes to the new probe; where it is past it, it had come to the
//! instruction before the probe was there.

use std::ops::Range;

use patch::{Displaced, Mode, Onward, Place, Refusal, Slot};

use super::text::Text;

/// What stands before each copy, and is replaced by a jump when its original is probed: `nop` of the length of a jump.
pub(crate) const CUT: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// The most instructions.
const MOST: usize = 8;

/// Bytes that are reckoned with for each site before its tail is known. Where they are not enough, there is no tail.
pub(crate) const USUAL: u64 = 64;

/// What has to be known of the addresses behind a site.
pub(crate) trait Behind {
    /// Whether an instruction is probed, or has to be executed at its own address.
    fn stays(&self, address: u64) -> bool;
    /// Where the jump ends that is at an address, if there is one.
    fn jump_end(&self, address: u64) -> Option<u64>;
}

/// The instructions from `next` on that a jump covers which ends at `end`: as many as it takes to come out of it, and of all other
/// jumps. None if they cannot be copied.
pub(crate) fn tail(
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
pub(crate) struct Follower {
    /// Of the original.
    pub(crate) address: u64,
    /// Where the `nop` before it is.
    pub(crate) cut: u64,
    /// Behind the original.
    next: u64,
    slot: Slot,
}

impl Follower {
    /// Appends the copy of an instruction to a trampoline that is at `start`.
    pub(crate) fn append(
        displaced: &Displaced,
        start: u64,
        bytes: &mut Vec<u8>,
    ) -> Result<Follower, Refusal> {
        let cut = start + bytes.len() as u64;
        let slot = displaced.slot_to(cut + CUT.len() as u64, Onward::Behind)?;
        bytes.extend_from_slice(&CUT);
        bytes.extend_from_slice(&slot.bytes);
        let address = displaced.address();
        Ok(Follower { address, cut, next: address + displaced.length() as u64, slot })
    }

    /// Where a thread is that is at the `nop`, in the copy, or right behind it.
    pub(crate) fn place(&self, address: u64) -> Place {
        let at = |rip| Place::After { rip, rcx: None };
        let Some(offset) = address.checked_sub(self.slot.address).map(|offset| offset as usize) else {
            return at(self.address);
        };
        if offset >= self.slot.bytes.len() {
            return at(self.next);
        }
        match self.slot.place(offset) {
            Place::Before => at(self.address),
            place => place,
        }
    }
}
