//! Ranges of the handler's frame that instructions on maps name: keys, and values of several words.
//!
//! Words that are in registers or cells are written to the context's [`layout::FRAME`] before the
//! agent is called; a string is there already.

use layout::FRAME;
use vm::FRAME_LIMIT;

use crate::emit::Label;
use crate::frame::Cell;
use crate::operands::{Alu, Condition, RAX, Reg};
use crate::output::Operand;
use crate::owner::of_context;
use crate::path::Path;
use crate::words::Known;

/// The most bytes of words in a range.
const LONGEST: u64 = 128;

/// A range of the frame: words, and perhaps one string behind them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapRange {
    pub(crate) at: u16,
    /// Bytes of words, a multiple of 8.
    words: u16,
    /// The offset of the string.
    text: Option<u16>,
    /// The most bytes that the range may have.
    most: u32,
    /// Its length, if that is known.
    pub(crate) fixed: Option<u64>,
    /// The element with its length, counted from the top.
    length: usize,
}

impl MapRange {
    /// The range whose offset and length are elements, counted from the top. `None`: it is not
    /// known enough, too long for compiled code, or longer than `most`, which is an exception.
    pub(crate) fn of(path: &mut Path<'_>, at: usize, length: usize, most: u32) -> Option<MapRange> {
        let Operand::Number(start) = path.operand(at) else { return None };
        let at = u16::try_from(start).ok().filter(|_| start <= FRAME_LIMIT as u64)?;
        let range = MapRange { at, words: 0, text: None, most, fixed: None, length };
        let range = match path.operand(length) {
            Operand::Number(count) => {
                let fits = count <= LONGEST.min(most.into()) && start + count <= FRAME_LIMIT as u64;
                fits.then_some(())?;
                MapRange { words: count.next_multiple_of(8) as u16, fixed: Some(count), ..range }
            }
            _ => {
                let text = path.shape.texts.iter().find(|text| text.at >= at)?.at;
                let words = text - at;
                (u64::from(words) <= LONGEST && words % 8 == 0).then_some(())?;
                MapRange { words, text: Some(text), ..range }
            }
        };
        let is_known = |offset| !matches!(path.known(offset), Known::Partly);
        range.offsets().all(is_known).then_some(range)
    }

    /// The offsets of its words.
    pub(crate) fn offsets(self) -> impl Iterator<Item = u16> {
        (0..self.words).step_by(8).map(move |place| self.at + place)
    }

    /// Whether bytes of the frame may be in it.
    pub(crate) fn overlaps(self, path: &Path<'_>, at: usize, length: usize) -> bool {
        let start = usize::from(self.at);
        let words = start..start + usize::from(self.words);
        let text = path.shape.texts.iter().find(|text| Some(text.at) == self.text);
        at < words.end && words.start < at + length || text.is_some_and(|text| text.overlaps(at, length))
    }

    /// The register with its length, if that is not known.
    pub(crate) fn length_register(self, path: &mut Path<'_>) -> Option<Reg> {
        self.fixed.is_none().then(|| path.in_register(self.length))
    }

    /// The operand with its length.
    pub(crate) fn length(self, path: &mut Path<'_>) -> Operand {
        path.operand(self.length)
    }

    /// Goes to `leave` if a length that is not known exceeds what there is or what is allowed.
    pub(crate) fn check(self, path: &mut Path<'_>, leave: Label) {
        let (Some(text), Operand::Register(length)) = (self.text, path.operand(self.length)) else {
            return;
        };
        let cell = path.out.frame.cell(Cell::Text(text));
        path.out.with_rax().load(RAX, cell);
        path.out.emitter.alu_number(Alu::Add, RAX, self.words.into());
        path.out.emitter.alu(Alu::Cmp, length, RAX);
        path.out.emitter.jump_if(Condition::Above, leave);
        path.out.emitter.alu_number(Alu::Cmp, length, i32::try_from(self.most).unwrap_or(i32::MAX));
        path.out.emitter.jump_if(Condition::Above, leave);
    }

    /// Writes its words to the context's frame. Changes rax.
    pub(crate) fn write(self, path: &mut Path<'_>, context: Reg) {
        for offset in self.offsets() {
            let operand = match path.known(offset) {
                Known::At(index) => path.word_operand(index),
                _ => Operand::Number(0),
            };
            path.out.with_rax();
            path.out.store(of_context(context, FRAME as usize + usize::from(offset)), operand);
        }
    }
}
