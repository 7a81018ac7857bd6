//! The scalars that a value consists of, as calling conventions see it.

use super::kinds::{DEPTH, NoTypes, TypeId};
use super::reader::{Reader, damaged};
use super::shapes::Shape;

/// The most scalars of a value that can be in registers: those of Go, with some to spare.
pub(super) const PARTS: usize = 64;

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
pub(super) fn parts(reader: &Reader<'_>, id: TypeId, arrays: u64) -> Result<Vec<Part>, NoParts> {
    let mut found = Vec::new();
    add(reader, id, 0, arrays, DEPTH, &mut found)?;
    Ok(found)
}

fn add(
    reader: &Reader<'_>,
    id: TypeId,
    offset: u64,
    arrays: u64,
    depth: usize,
    found: &mut Vec<Part>,
) -> Result<(), NoParts> {
    let Some(depth) = depth.checked_sub(1) else { return Ok(damaged("a type contains itself")?) };
    let mut push = |class, offset, bytes| match found.len() < PARTS {
        true => {
            found.push(Part { class, offset, bytes });
            Ok(())
        }
        false => Err(NoParts::Many),
    };
    match reader.shape(id)? {
        Shape::Void => Ok(()),
        Shape::Boolean => push(Class::Word, offset, 1),
        Shape::Integer { bytes, .. } | Shape::Enumeration { bytes, .. } => {
            push(Class::Word, offset, bytes.into())
        }
        Shape::Pointer(_) | Shape::Function => push(Class::Word, offset, 8),
        Shape::Float { name, bytes } => match (name.as_str(), bytes) {
            ("long double", _) => push(Class::Extended, offset, bytes),
            (_, 2 | 4 | 8 | 16) => push(Class::Float, offset, bytes),
            _ => Err(NoParts::Unknown(name)),
        },
        Shape::Other { what, bytes } => match (what.as_str(), bytes) {
            ("__int128" | "__int128 unsigned" | "unsigned __int128" | "i128" | "u128", Some(16)) => {
                push(Class::Word, offset, 8)?;
                push(Class::Word, offset.saturating_add(8), 8)
            }
            (name, Some(bytes @ (8 | 16))) if name.contains("complex") => {
                push(Class::Float, offset, bytes / 2)?;
                push(Class::Float, offset.saturating_add(bytes / 2), bytes / 2)
            }
            _ => Err(NoParts::Unknown(what)),
        },
        Shape::Array { element, lengths } => {
            let lengths = lengths.iter().map(|length| length.unwrap_or(0));
            let count = lengths.fold(1u64, u64::saturating_mul);
            if count > arrays {
                return Err(NoParts::Many);
            }
            let size = reader.size(element, DEPTH)?;
            for index in 0..count {
                add(
                    reader,
                    element,
                    offset.saturating_add(index.saturating_mul(size)),
                    arrays,
                    depth,
                    found,
                )?;
            }
            Ok(())
        }
        Shape::Record { id, .. } => {
            for member in reader.record(id)?.members {
                let (at, bytes) = match member.bits {
                    // The bytes that its bits are in.
                    Some(bits) => (bits.first / 8, (bits.first % 8 + u64::from(bits.count)).div_ceil(8)),
                    None => {
                        let at = offset.saturating_add(member.offset);
                        add(reader, member.of, at, arrays, depth, found)?;
                        continue;
                    }
                };
                if found.len() == PARTS {
                    return Err(NoParts::Many);
                }
                found.push(Part { class: Class::Word, offset: offset.saturating_add(at), bytes });
            }
            Ok(())
        }
    }
}
