//! Words of the handler's own frame ([`vm::FRAME_LIMIT`]), which scripts are compiled to.
//!
//! Compiled code knows which words were set, and keeps each in a register or a cell. Only strings
//! are in memory ([`crate::texts`]). All else is 0. The interpreter gets them when it takes over.

use layout::RESUME_WORDS;

use crate::path::Path;
use crate::shape::Location;

/// Bytes of a word.
const WORD: u16 = 8;

/// What is known of a word.
pub(crate) enum Known {
    /// It was set, at this index of the shape.
    At(usize),
    /// No byte of it was; it would come at this index.
    Zero(usize),
    /// Parts of it were, or may have been.
    Partly,
}

impl Path<'_> {
    pub(crate) fn known(&self, offset: u16) -> Known {
        if self.shape.texts.iter().any(|text| text.overlaps(offset.into(), WORD.into())) {
            return Known::Partly;
        }
        let words = &self.shape.words;
        let index = words.partition_point(|(each, _)| *each < offset);
        if words.get(index).is_some_and(|(each, _)| *each == offset) {
            return Known::At(index);
        }
        let is_near = |index: usize| words.get(index).is_some_and(|(each, _)| each.abs_diff(offset) < WORD);
        match is_near(index) || index.checked_sub(1).is_some_and(is_near) {
            true => Known::Partly,
            false => Known::Zero(index),
        }
    }

    /// Pushes a word. Returns false if it is not known, or outside.
    pub(crate) fn push_word(&mut self, offset: u16) -> bool {
        if usize::from(offset) + usize::from(WORD) > vm::FRAME_LIMIT {
            return false;
        }
        let location = match self.known(offset) {
            Known::Partly => return false,
            Known::Zero(_) => Location::Number(0),
            Known::At(index) if self.shape.words[index].1 == Location::Cell => {
                let register = self.take();
                let operand = self.word_operand(index);
                self.out.set(register, operand);
                Location::Register(register.0)
            }
            Known::At(index) => self.shape.words[index].1,
        };
        self.push(location);
        true
    }

    /// Pops a value into a word. Returns false, with nothing done, if that cannot be kept.
    pub(crate) fn pop_word(&mut self, offset: u16) -> bool {
        if usize::from(offset) + usize::from(WORD) > vm::FRAME_LIMIT {
            return false;
        }
        let known = self.known(offset);
        if matches!(known, Known::Partly)
            || matches!(known, Known::Zero(_)) && self.shape.words.len() == RESUME_WORDS
        {
            return false;
        }
        // A cell belongs to the element's position.
        if self.location(0) == Location::Cell {
            self.in_register(0);
        }
        let location = self.location(0);
        match known {
            Known::At(index) => self.shape.words[index].1 = location,
            Known::Zero(index) => self.shape.words.insert(index, (offset, location)),
            Known::Partly => return false,
        }
        self.pop();
        true
    }

    /// Sets words to bytes, with zeros up to a multiple of 8. Returns false, with nothing done, if
    /// that cannot be kept.
    pub(crate) fn set_bytes(&mut self, at: u64, bytes: &[u8]) -> bool {
        let end = at.saturating_add(bytes.len().next_multiple_of(usize::from(WORD)) as u64);
        if end > vm::FRAME_LIMIT as u64 {
            return false;
        }
        let words = || (at as u16..).step_by(WORD.into()).zip(bytes.chunks(WORD.into()));
        let mut new = 0;
        for (offset, _) in words() {
            match self.known(offset) {
                Known::Partly => return false,
                Known::Zero(_) => new += 1,
                Known::At(_) => {}
            }
        }
        if self.shape.words.len() + new > RESUME_WORDS {
            return false;
        }
        for (offset, chunk) in words() {
            let mut word = [0; WORD as usize];
            word[..chunk.len()].copy_from_slice(chunk);
            let location = Location::Number(u64::from_le_bytes(word));
            match self.known(offset) {
                Known::At(index) => self.shape.words[index].1 = location,
                Known::Zero(index) => self.shape.words.insert(index, (offset, location)),
                Known::Partly => {}
            }
        }
        true
    }
}
