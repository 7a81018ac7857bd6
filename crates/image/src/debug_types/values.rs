//! The scalars that a value consists of, as calling conventions see it.

use super::kinds::{DEPTH, NoTypes, TypeId};
use super::reader::{Reader, damaged};
use super::shapes::Shape;

/// The most scalars of a value that can be in registers: those of Go, with some to spare.
const PARTS: usize = 64;
/// The most types that are looked at for one value: most may be empty.
const VISITED: u32 = 256;

/// How a scalar is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// In general registers: integers, pointers.
    Word,
    /// In registers for floats.
    Float,
    /// `long double`, which is passed in memory.
    Extended,
}

/// A scalar in a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) class: Class,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// Why a value is not made of known scalars.
#[derive(Debug)]
pub(super) enum NoParts {
    /// It has too many of them for registers.
    Many,
    /// It has one that no convention here knows.
    Unknown(String),
    Types(NoTypes),
}

impl From<NoTypes> for NoParts {
    fn from(error: NoTypes) -> NoParts {
        NoParts::Types(error)
    }
}

/// The scalars of a value; `arrays` is the longest array whose elements are counted apart.
pub(super) fn scalars(reader: &Reader<'_>, id: TypeId, arrays: u64) -> Result<Vec<Part>, NoParts> {
    let mut search = Search { reader, arrays, left: VISITED, found: Vec::new() };
    search.add(id, 0, DEPTH)?;
    Ok(search.found)
}

/// What is found of a value.
struct Search<'s, 'a> {
    reader: &'s Reader<'a>,
    arrays: u64,
    left: u32,
    found: Vec<Part>,
}

impl Search<'_, '_> {
    fn push(&mut self, class: Class, offset: u64, bytes: u64) -> Result<(), NoParts> {
        if self.found.len() == PARTS {
            return Err(NoParts::Many);
        }
        self.found.push(Part { class, offset, bytes });
        Ok(())
    }

    /// Adds the scalars of a value that begins at an offset.
    fn add(&mut self, id: TypeId, offset: u64, depth: usize) -> Result<(), NoParts> {
        let Some(depth) = depth.checked_sub(1) else { return Ok(damaged("a type contains itself")?) };
        self.left = self.left.checked_sub(1).ok_or(NoParts::Many)?;
        match self.reader.shape(id)? {
            Shape::Void => Ok(()),
            Shape::Boolean => self.push(Class::Word, offset, 1),
            Shape::Integer { bytes, .. } | Shape::Enumeration { bytes, .. } => {
                self.push(Class::Word, offset, bytes.into())
            }
            Shape::Pointer(_) | Shape::Function => self.push(Class::Word, offset, 8),
            Shape::Float { name, bytes } => match (name.as_str(), bytes) {
                ("long double", _) => self.push(Class::Extended, offset, bytes),
                (_, 2 | 4 | 8 | 16) => self.push(Class::Float, offset, bytes),
                _ => Err(NoParts::Unknown(name)),
            },
            Shape::Other { what, bytes } => match (what.as_str(), bytes) {
                ("__int128" | "__int128 unsigned" | "unsigned __int128" | "i128" | "u128", Some(16)) => {
                    self.push(Class::Word, offset, 8)?;
                    self.push(Class::Word, offset.saturating_add(8), 8)
                }
                (name, Some(bytes @ (8 | 16))) if name.contains("complex") => {
                    self.push(Class::Float, offset, bytes / 2)?;
                    self.push(Class::Float, offset.saturating_add(bytes / 2), bytes / 2)
                }
                _ => Err(NoParts::Unknown(what)),
            },
            Shape::Array { element, lengths } => {
                let lengths = lengths.iter().map(|length| length.unwrap_or(0));
                let count = lengths.fold(1u64, u64::saturating_mul);
                if count > self.arrays {
                    return Err(NoParts::Many);
                }
                let size = self.reader.size(element, DEPTH)?;
                for index in 0..count {
                    self.add(element, offset.saturating_add(index.saturating_mul(size)), depth)?;
                }
                Ok(())
            }
            Shape::Record { id, .. } => {
                for member in self.reader.record(id)?.members {
                    match member.bits {
                        // The bytes that its bits are in.
                        Some(bits) => {
                            let at = offset.saturating_add(bits.first / 8);
                            let bytes = (bits.first % 8 + u64::from(bits.count)).div_ceil(8);
                            self.push(Class::Word, at, bytes)?;
                        }
                        None => self.add(member.of, offset.saturating_add(member.offset), depth)?,
                    }
                }
                Ok(())
            }
        }
    }
}
