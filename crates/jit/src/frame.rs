//! The handler's stack frame.
//!
//! ```text
//!     rsp at the site
//!     -128    the red zone                            not touched
//!     -136    the tentative record's address          only where a record is tentative, this handler's or that of one before it
//!             the registers that the handler changes
//!             cells of 8 bytes: what has no register
//!     rsp of the handler
//! ```
//!
//! The prologue pushes before it changes any register, and ends with a store to the lowest word
//! that later code may push: after it no stack access can fault.

use layout::{COMMIT_CELL, RED_ZONE};

use crate::emit::{Emitter, Label};
use crate::operands::{RAX, RSP, Reg, Rm};

/// A word of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    /// The program's flags as [`Emitter::save_flags`] gives them.
    Flags,
    /// The program's rflags.
    AllFlags,
    /// Jumps taken.
    Jumps,
    /// Calls made.
    Calls,
    /// Instructions executed.
    Instructions,
    /// Bytes logged.
    Logged,
    /// Bytes logged at the end of the last completed logging instruction.
    Complete,
    /// The major code.
    Major,
    /// The minor code.
    Minor,
    /// The element of the stack at a position of the shape.
    Element(usize),
    /// The word at an offset of the handler's own frame ([`vm::FRAME_LIMIT`]).
    Word(u16),
    /// The bytes of the string at an offset of the handler's own frame.
    Text(u16),
}

/// Assumptions about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameLayout {
    /// The saved registers, as a bit set.
    pub(crate) saved: u16,
    /// The number of cells.
    pub(crate) cells: usize,
    /// Bytes pushed below the frame.
    pub(crate) deep: i32,
}

/// The frame. Its contents are known only after the code that uses it is written, so sizes are
/// assumed, and the code is written again if they were wrong.
#[derive(Debug)]
pub(crate) struct Frame {
    /// The registers assumed to be saved, as a bit set.
    saved: u16,
    /// The number of cells assumed.
    cells_assumed: usize,
    /// The most bytes assumed to be pushed below the frame.
    deep: i32,
    cells: Vec<Cell>,
    /// The registers that were changed, as a bit set.
    changed: u16,
    /// Whether the address of a tentative record is kept.
    tentative: bool,
    /// Bytes currently pushed below the frame.
    pub(crate) below: i32,
}

impl Frame {
    pub(crate) fn new(assumed: FrameLayout, tentative: bool) -> Frame {
        let FrameLayout { saved, cells: cells_assumed, deep } = assumed;
        Frame { saved, cells_assumed, deep, cells: Vec::new(), changed: 0, tentative, below: 0 }
    }

    /// The right assumptions, if the current ones were wrong. `deep`: bytes pushed below the frame.
    pub(crate) fn wrong(&self, deep: i32) -> Option<FrameLayout> {
        let assumed = FrameLayout { saved: self.saved, cells: self.cells_assumed, deep: self.deep };
        let right = FrameLayout {
            saved: self.saved | self.changed,
            cells: self.cells_assumed.max(self.cells.len()),
            deep: self.deep.max(deep),
        };
        (right != assumed).then_some(right)
    }

    /// Notes that a register is changed.
    pub(crate) fn change(&mut self, register: Reg) {
        self.changed |= 1 << register.0;
    }

    /// The saved registers, as a bit set.
    pub(crate) fn saved(&self) -> u16 {
        self.saved
    }

    /// Whether a register is saved.
    pub(crate) fn is_saved(&self, register: u8) -> bool {
        self.saved >> register & 1 != 0
    }

    /// The memory of a cell.
    pub(crate) fn cell(&mut self, cell: Cell) -> Rm {
        let place = self.cells.iter().position(|it| *it == cell).unwrap_or_else(|| {
            self.cells.push(cell);
            self.cells.len() - 1
        });
        Rm::At(RSP, self.below + 8 * place as i32)
    }

    /// The memory of a saved register.
    pub(crate) fn saved_at(&self, register: u8) -> Rm {
        let later = (self.saved >> register >> 1).count_ones() as usize;
        Rm::At(RSP, self.below + 8 * (self.cells_assumed + later) as i32)
    }

    /// The distance from rsp to the site's rsp.
    pub(crate) fn size(&self) -> i32 {
        self.below + 8 * (self.cells_assumed + self.saved.count_ones() as usize) as i32 + self.skipped()
    }

    /// The memory that holds a tentative record's address.
    pub(crate) fn commit_cell(&self) -> Rm {
        Rm::At(RSP, self.size() - COMMIT_CELL as i32)
    }

    fn skipped(&self) -> i32 {
        (if self.tentative { COMMIT_CELL } else { RED_ZONE }) as i32
    }

    /// Emits the prologue and returns its steps.
    pub(crate) fn prologue(&self, emitter: &mut Emitter) -> Vec<(Label, u32)> {
        let mut steps = Vec::with_capacity(8);
        let mut below = 0;
        let mut step = |emitter: &mut Emitter, size: i32| {
            steps.push((emitter.here_label(), below));
            below += size as u32;
        };
        step(emitter, self.skipped());
        emitter.address(RSP, Rm::At(RSP, -self.skipped()));
        for register in registers(self.saved) {
            step(emitter, 8);
            emitter.push(register);
        }
        if let Some(more) = self.cells_assumed.checked_sub(1) {
            if more > 0 {
                step(emitter, 8 * more as i32);
                emitter.address(RSP, Rm::At(RSP, -8 * more as i32));
            }
            step(emitter, 8);
            emitter.push(RAX);
        }
        if self.deep > 0 {
            step(emitter, 0);
            emitter.store(Rm::At(RSP, -self.deep), RAX);
        }
        steps
    }

    /// Emits the epilogue, which changes no flags.
    pub(crate) fn epilogue(&self, emitter: &mut Emitter) {
        if self.cells_assumed > 0 {
            emitter.address(RSP, Rm::At(RSP, 8 * self.cells_assumed as i32));
        }
        for number in (0..16).rev().filter(|number| self.is_saved(*number)) {
            emitter.pop(Reg(number));
        }
        emitter.address(RSP, Rm::At(RSP, self.skipped()));
    }
}

/// The registers of a bit set, lowest number first.
pub(crate) fn registers(bits: u16) -> impl Iterator<Item = Reg> {
    (0..16).filter(move |number| bits >> number & 1 != 0).map(Reg)
}
