//! The stack of a thread that hit a probe.

use core::slice::from_raw_parts;

use layout::{MEMOS_SIZE, Registers};
use maps::Maps;
use unwind::Memos;
use vm::FRAMES_LIMIT;

use super::hidden::Hidden;
use super::settings;

const _: () = assert!(size_of::<Memos>() as u64 <= MEMOS_SIZE);

/// The index in [`Registers::general`] of each register, by its DWARF number.
const DWARF: [usize; 16] = [0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];

/// Where a stack is walked from.
pub(super) struct Stack<'a> {
    /// The thread's registers at the probed instruction.
    pub(super) registers: &'a Registers,
    /// The memory hidden from handlers.
    pub(super) hidden: Hidden,
    /// The stacks that were walked before in the context.
    pub(super) memos: &'a mut Memos,
}

impl Stack<'_> {
    /// The number under which a map has the stack's innermost frames, at most `most` of them; 0 if
    /// there is no room for it.
    pub(super) fn number(&mut self, maps: &Maps<'_>, map: usize, most: usize) -> u64 {
        let general = &self.registers.general;
        let all = DWARF.map(|number| general[number]);
        let [rsp, rbp] = [general[4], general[5]];
        let registers = unwind::Registers { rip: self.registers.rip, rsp, rbp, all: Some(&all) };
        let tables = settings::stacks();
        let version = tables.as_ref().map_or(0, |(_, version)| *version);
        let hidden = self.hidden;
        let read = |address| hidden.word(address, rsp);
        let most = most.min(FRAMES_LIMIT);
        if let Some(frames) = self.memos.recall(version, &registers, most, read) {
            return maps.intern(map, bytes(frames));
        }
        let mut room = [0; FRAMES_LIMIT];
        let frames = &mut room[..most];
        let found = match &tables {
            Some((index, _)) => self.memos.walk(version, &registers, index, read, frames),
            None => unwind::walk_frame_pointers(&registers, read, frames),
        };
        match found.min(most) {
            0 => 0,
            found => maps.intern(map, bytes(&frames[..found])),
        }
    }
}

/// Words as bytes.
fn bytes(words: &[u64]) -> &[u8] {
    // SAFETY: it is the same memory, and all bytes are valid.
    unsafe { from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}
