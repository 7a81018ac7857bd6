//! The layout of C's types: what the raw bytes of arrays and structs are.

use script::{Integer, Tag, Type};

use crate::cursor::Cursor;
use crate::datum::Datum;
use crate::definition::Member;
use crate::error::Wrong;
use crate::number::{enumerator, integer};
use crate::world::World;

/// How deep arrays and structs may be in each other.
const DEPTH: u32 = 32;

/// The size of a type in C.
pub(crate) fn size(ty: &Type, world: &mut dyn World) -> Result<u64, Wrong> {
    sized(ty, world, DEPTH)
}

fn sized(ty: &Type, world: &mut dyn World, depth: u32) -> Result<u64, Wrong> {
    let depth = depth.checked_sub(1).ok_or(Wrong::NoLayout)?;
    match ty {
        Type::Bool => Ok(1),
        Type::Integer(integer) => Ok(u64::from(integer.bytes)),
        Type::Pointer(_) => Ok(8),
        Type::Named(Tag::Enum, _) => Ok(4),
        Type::Named(tag, name) => Ok(world.layout(*tag, name).ok_or(Wrong::NoLayout)?.bytes),
        Type::Array(inner, length) => {
            let inner = sized(inner, world, depth)?;
            inner.checked_mul(u64::from(length.ok_or(Wrong::NoLayout)?)).ok_or(Wrong::NoLayout)
        }
        _ => Err(Wrong::NoLayout),
    }
}

/// The value of a type in C, of raw bytes.
pub(crate) fn value(ty: &Type, bytes: &[u8], world: &mut dyn World) -> Result<Datum, Wrong> {
    valued(ty, bytes, world, DEPTH)
}

fn valued(ty: &Type, bytes: &[u8], world: &mut dyn World, depth: u32) -> Result<Datum, Wrong> {
    let depth = depth.checked_sub(1).ok_or(Wrong::NoLayout)?;
    let mut cursor = Cursor::new(bytes);
    match ty {
        Type::Bool => Ok(Datum::Bool(cursor.number(1)? != 0)),
        Type::Integer(kind) => Ok(integer(cursor.number(kind.bytes)?, *kind)),
        Type::Pointer(_) => Ok(Datum::address(cursor.word()?)),
        Type::Named(Tag::Enum, name) => Ok(enumerator(name, cursor.number(4)?, world)),
        // As in a struct of C, an array of characters is a string.
        Type::Array(inner, _) if matches!(**inner, Type::Integer(Integer { bytes: 1, signed: true })) => {
            let length = size(ty, world)?;
            Ok(Datum::text(until_nul(cursor.take(length)?)))
        }
        Type::Array(inner, length) => {
            let each = size(inner, world)?;
            let length = length.ok_or(Wrong::NoLayout)?;
            if each == 0 {
                return Ok(Datum::Array(Vec::new()));
            }
            let whole = each.checked_mul(u64::from(length)).ok_or(Wrong::NoLayout)?;
            // Not more elements than there are bytes.
            let mut elements = Cursor::new(cursor.take(whole)?);
            let elements = (0..length).map(|_| valued(inner, elements.take(each)?, world, depth));
            Ok(Datum::Array(elements.collect::<Result<_, _>>()?))
        }
        Type::Named(tag, name) => {
            let layout = world.layout(*tag, name).ok_or(Wrong::NoLayout)?;
            let bytes = cursor.take(layout.bytes)?;
            let fields = layout.members.iter().map(|member| {
                let mut cursor = Cursor::new(bytes);
                cursor.take(member.offset)?;
                let value = match member.bits {
                    Some(bits) => bit_field(member, bits, cursor)?,
                    None => {
                        let bytes = cursor.take(size(&member.ty, world)?)?;
                        valued(&member.ty, bytes, world, depth)?
                    }
                };
                Ok((member.name.clone(), value))
            });
            Ok(Datum::Record(fields.collect::<Result<_, _>>()?))
        }
        _ => Err(Wrong::NoLayout),
    }
}

fn bit_field(member: &Member, (first, count): (u8, u8), mut cursor: Cursor<'_>) -> Result<Datum, Wrong> {
    let Type::Integer(kind) = member.ty else { return Err(Wrong::NoLayout) };
    if count == 0 || count > 64 || u32::from(first) + u32::from(count) > 64 {
        return Err(Wrong::NoLayout);
    }
    let bytes = u64::from(first + count).div_ceil(8);
    let number = cursor.take(bytes)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let above = 64 - u32::from(count);
    let shifted = (number >> first) << above;
    Ok(match kind.signed {
        true => Datum::Signed(shifted.cast_signed() >> above),
        false => Datum::Unsigned(shifted >> above),
    })
}

/// The bytes before the first NUL.
pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len())]
}
