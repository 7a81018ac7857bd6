//! The memory of a case, as pages of this process.
//!
//! A case's memory has any size and place. Here it is moved so that it ends where a page ends, with
//! nothing mapped behind it; the numbers in the bytecode that are addresses in it are moved with
//! it, and moved back in the results.

use testing::conformance::{Region, TestMachine};
use vm::{Decoded, Effects, Exception, FRAME_LIMIT, Op, Word, instructions};

const PAGE: u64 = 4096;

/// Where memory of cases is put, below 4 GiB.
const FIRST: u64 = 0x6540_0000;
/// The space of each piece.
const SPACE: u64 = 0x10_0000;

/// A moved piece of a case's memory.
struct Piece {
    start: u64,
    end: u64,
    /// What is added to addresses.
    by: u64,
    pages: (u64, usize),
}

/// The memory of a case.
pub(super) struct Moved {
    word: Word,
    pieces: Vec<Piece>,
}

impl Moved {
    /// Maps a case's memory; `None` if this process cannot have it.
    pub(super) fn map(machine: &TestMachine) -> Option<Moved> {
        let mut moved = Moved { word: machine.word, pieces: Vec::new() };
        let mut regions: Vec<&Region> = machine.memory.iter().collect();
        regions.sort_by_key(|region| region.start);
        let past = |start: u64, length: usize| u128::from(start) + length as u128;
        for region in &regions {
            let end = past(region.start, region.bytes.len());
            if end > 1 << 47 {
                return None;
            }
            let end = end as u64;
            match moved.pieces.last_mut() {
                Some(last) if last.end == region.start => last.end = end,
                _ => moved.pieces.push(Piece { start: region.start, end, by: 0, pages: (0, 0) }),
            }
        }
        for (number, piece) in (0..).zip(&mut moved.pieces) {
            let length = piece.end - piece.start;
            // The last page below 4 GiB can be had as it is.
            let to = if piece.end == 1 << 32 {
                piece.end
            } else {
                FIRST + number * SPACE + (length.next_multiple_of(PAGE)) + PAGE
            };
            piece.by = to.wrapping_sub(piece.end);
            let first = (to - length) / PAGE * PAGE;
            piece.pages = (first, (to - first) as usize);
            map(piece.pages);
        }
        for region in regions {
            let by = moved.by(region.start).expect("it is in a piece");
            // SAFETY: the pages were just mapped and are no one else's.
            unsafe {
                let to = region.start.wrapping_add(by) as *mut u8;
                std::ptr::copy_nonoverlapping(region.bytes.as_ptr(), to, region.bytes.len());
            }
        }
        for piece in &moved.pieces {
            let inside = |region: &&Region| (piece.start..piece.end).contains(&region.start);
            if machine.memory.iter().filter(inside).all(|region| !region.writable) {
                let (start, length) = piece.pages;
                // SAFETY: these are the pages of the piece.
                let result = unsafe { libc::mprotect(start as *mut _, length, libc::PROT_READ) };
                assert_eq!(result, 0);
            }
        }
        Some(moved)
    }

    /// What is added to an address in a piece, or right behind it.
    fn by(&self, address: u64) -> Option<u64> {
        let near = |piece: &&Piece| (piece.start..=piece.end).contains(&address);
        self.pieces.iter().find(near).map(|piece| piece.by)
    }

    /// Where an address of the case is.
    pub(super) fn actual(&self, address: u64) -> u64 {
        address.wrapping_add(self.by(address).unwrap_or(0))
    }

    /// An address as the case has it.
    pub(super) fn of_case(&self, value: u64) -> u64 {
        let near = |piece: &&Piece| {
            let case = value.wrapping_sub(piece.by);
            (piece.start..=piece.end).contains(&case)
        };
        self.pieces.iter().find(near).map_or(value, |piece| self.word.truncate(value.wrapping_sub(piece.by)))
    }

    /// The bytecode with moved addresses.
    pub(super) fn code(&self, code: &[u8]) -> Vec<u8> {
        let mut moved = code.to_vec();
        for it in instructions(code, self.word).filter_map(Decoded::instruction) {
            if it.op == Op::Push
                && let Some(by) = self.by(it.operand)
            {
                let size = self.word.bytes();
                let value = it.operand.wrapping_add(by).to_le_bytes();
                moved[it.offset + 1..][..size].copy_from_slice(&value[..size]);
            }
        }
        moved
    }

    /// Whether a number that would be moved may be an offset or a count in the frame.
    pub(super) fn is_ambiguous(&self, code: &[u8]) -> bool {
        let all = || instructions(code, self.word).filter_map(Decoded::instruction);
        let uses_frame = all().any(|it| it.effects().intersects(Effects::USES_FRAME));
        let moves = |number: u64| self.by(number).is_some_and(|by| by != 0);
        let mut pushed = all().filter(|it| it.op == Op::Push).map(|it| it.operand);
        uses_frame && pushed.any(|number| [0, FRAME_LIMIT as u64].contains(&number) && moves(number))
    }

    /// The bytes of a log with addresses as the case has them.
    pub(super) fn bytes(&self, bytes: &mut [u8]) {
        let size = self.word.bytes();
        for place in 0..bytes.len().saturating_sub(size - 1) {
            let mut value = [0; 8];
            value[..size].copy_from_slice(&bytes[place..place + size]);
            let value = u64::from_le_bytes(value);
            let back = self.of_case(value);
            if back != value {
                bytes[place..place + size].copy_from_slice(&back.to_le_bytes()[..size]);
            }
        }
    }

    /// An exception's parameters as the case has them.
    pub(super) fn exception(&self, exception: &mut Exception) {
        exception.parm1 = self.of_case(exception.parm1);
        exception.parm2 = self.of_case(exception.parm2);
    }

    /// What the memory holds now.
    pub(super) fn read(&self, machine: &mut TestMachine) {
        for region in &mut machine.memory {
            let by = self.by(region.start).expect("it is in a piece");
            // SAFETY: the pages are mapped and readable.
            unsafe {
                let from = region.start.wrapping_add(by) as *const u8;
                std::ptr::copy_nonoverlapping(from, region.bytes.as_mut_ptr(), region.bytes.len());
            }
        }
    }
}

impl Drop for Moved {
    fn drop(&mut self) {
        for piece in &self.pieces {
            let (start, length) = piece.pages;
            // SAFETY: these are pages that `map` has mapped, and nothing refers to them.
            unsafe { libc::munmap(start as *mut _, length) };
        }
    }
}

/// Maps pages at a place where nothing is.
fn map((start, length): (u64, usize)) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the flags keep the kernel from replacing what is mapped.
    let place = unsafe { libc::mmap(start as *mut _, length, protection, flags, -1, 0) };
    assert_eq!(place as u64, start, "the place is free");
}
