//! Where Go functions have their parameters and results (Go's internal ABI, since Go 1.17).

use super::kinds::{NoTypes, TypeId};
use super::passed::{FLOATS, Passed, Piece};
use super::reader::Reader;
use super::values::{Class, NoParts, scalars};

/// The general registers, in their order.
const REGISTERS: [&str; 9] = ["rax", "rbx", "rcx", "rdi", "rsi", "r8", "r9", "r10", "r11"];

/// The places of parameters or results, one after the other.
#[derive(Debug, Default)]
pub(super) struct Places {
    words: usize,
    floats: usize,
    /// The next place on the stack, counted from the first one.
    stack: u64,
}

impl Places {
    /// The place of the next value.
    pub(super) fn next(&mut self, reader: &Reader<'_>, of: TypeId) -> Result<Passed, NoTypes> {
        let size = reader.size(of, super::kinds::DEPTH)?;
        // Arrays of more than one element are never in registers.
        let found = match scalars(reader, of, 1) {
            Ok(found) => found,
            Err(NoParts::Many) => return self.on_stack(size, 8),
            Err(NoParts::Unknown(what)) => {
                return Ok(Passed::Nowhere(format!("how a value of type `{what}` is passed is not known")));
            }
            Err(NoParts::Types(error)) => return Err(error),
        };
        let floats = found.iter().filter(|part| part.class != Class::Word).count();
        let words = found.len() - floats;
        if self.words + words > REGISTERS.len() || self.floats + floats > FLOATS.len() {
            let align = found.iter().map(|part| part.bytes).max().unwrap_or(1);
            return self.on_stack(size, align);
        }
        let (mut general, mut vector) = (REGISTERS[self.words..].iter(), FLOATS[self.floats..].iter());
        self.words += words;
        self.floats += floats;
        if found.is_empty() {
            return Ok(Passed::Nowhere("it has no contents".to_owned()));
        }
        let pieces = found.iter().filter_map(|part| {
            let register = if part.class == Class::Word { general.next() } else { vector.next() };
            let (offset, bytes) = (part.offset, part.bytes.min(8) as u8);
            register.map(|register| Piece { register, offset, bytes })
        });
        Ok(Passed::Registers(pieces.collect()))
    }

    fn on_stack(&mut self, size: u64, align: u64) -> Result<Passed, NoTypes> {
        let start = self.stack.checked_next_multiple_of(align.clamp(1, 8));
        let end = start.and_then(|start| start.checked_add(size));
        let (Some(start), Some(end)) = (start, end) else {
            return Err(NoTypes::Damaged("a parameter is too large".to_owned()));
        };
        self.stack = end;
        Ok(Passed::Stack(start.saturating_add(8)))
    }
}
