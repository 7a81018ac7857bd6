//! The layout of C's types: what the raw bytes of arrays and structs are.

use script::{Bits, Compiled, Integer, Member, Tag, Type};

use crate::cursor::Cursor;
use crate::datum::Datum;
use crate::error::Wrong;
use crate::number::{enumerator, integer};

/// How deep arrays and structs may be in each other.
const DEPTH: u32 = 32;

/// The size of a type in C.
pub(crate) fn size(ty: &Type, script: &Compiled) -> Result<u64, Wrong> {
    Ok(measured(ty, script, DEPTH)?.0)
}

/// Size and alignment of a type in C.
fn measured(ty: &Type, script: &Compiled, depth: u32) -> Result<(u64, u64), Wrong> {
    let depth = depth.checked_sub(1).ok_or(Wrong::NoLayout)?;
    match ty {
        Type::Bool => Ok((1, 1)),
        Type::Integer(integer) => Ok((integer.bytes.into(), integer.bytes.into())),
        Type::Pointer(_) => Ok((8, 8)),
        Type::Named(Tag::Enum, _) => Ok((4, 4)),
        Type::Named(_, name) => {
            let (mut end, mut most) = (0, 1);
            for member in fields(name, script)? {
                let (size, align) = measured(&member.ty, script, depth)?;
                end = end.max(member.offset.checked_add(size).ok_or(Wrong::NoLayout)?);
                most = most.max(align);
            }
            Ok((end.checked_next_multiple_of(most).ok_or(Wrong::NoLayout)?, most))
        }
        Type::Array(inner, length) => {
            let (size, align) = measured(inner, script, depth)?;
            let length = u64::from(length.ok_or(Wrong::NoLayout)?);
            Ok((size.checked_mul(length).ok_or(Wrong::NoLayout)?, align))
        }
        _ => Err(Wrong::NoLayout),
    }
}

fn fields<'s>(record: &str, script: &'s Compiled) -> Result<&'s [Member], Wrong> {
    script.records.get(record).map(Vec::as_slice).ok_or(Wrong::NoLayout)
}

/// The value of a type in C, of raw bytes.
pub(crate) fn value(ty: &Type, bytes: &[u8], script: &Compiled) -> Result<Datum, Wrong> {
    valued(ty, bytes, script, DEPTH)
}

fn valued(ty: &Type, bytes: &[u8], script: &Compiled, depth: u32) -> Result<Datum, Wrong> {
    let depth = depth.checked_sub(1).ok_or(Wrong::NoLayout)?;
    let mut cursor = Cursor::new(bytes);
    match ty {
        Type::Bool => Ok(Datum::Bool(cursor.number(1)? != 0)),
        Type::Integer(kind) => Ok(integer(cursor.number(kind.bytes)?, *kind)),
        Type::Pointer(_) => Ok(Datum::address(cursor.word()?)),
        Type::Named(Tag::Enum, name) => Ok(enumerator(name, cursor.number(4)?, script)),
        // As in a struct of C, an array of characters is a string.
        Type::Array(inner, _) if matches!(**inner, Type::Integer(Integer { bytes: 1, signed: true })) => {
            let length = size(ty, script)?;
            Ok(Datum::text(until_nul(cursor.take(length)?)))
        }
        Type::Array(inner, length) => {
            let each = size(inner, script)?;
            if each == 0 {
                return Ok(Datum::Array(Vec::new()));
            }
            // Not more elements than there are bytes.
            let mut elements = Cursor::new(cursor.take(size(ty, script)?)?);
            let length = length.ok_or(Wrong::NoLayout)?;
            let elements = (0..length).map(|_| valued(inner, elements.take(each)?, script, depth));
            Ok(Datum::Array(elements.collect::<Result<_, _>>()?))
        }
        Type::Named(_, name) => {
            let bytes = cursor.take(size(ty, script)?)?;
            let fields = fields(name, script)?.iter().map(|member| {
                let mut cursor = Cursor::new(bytes);
                cursor.take(member.offset)?;
                let bytes = cursor.take(size(&member.ty, script)?)?;
                let value = match member.bits {
                    Some(bits) => bit_field(member, bits, bytes)?,
                    None => valued(&member.ty, bytes, script, depth)?,
                };
                Ok((member.name.clone(), value))
            });
            Ok(Datum::Record(fields.collect::<Result<_, _>>()?))
        }
        _ => Err(Wrong::NoLayout),
    }
}

/// A bit field in its unit.
fn bit_field(member: &Member, Bits { first, count }: Bits, unit: &[u8]) -> Result<Datum, Wrong> {
    let Type::Integer(kind) = member.ty else { return Err(Wrong::NoLayout) };
    let above = 64u32.checked_sub(u32::from(count)).filter(|above| *above < 64).ok_or(Wrong::NoLayout)?;
    let number = Cursor::new(unit).number(kind.bytes)?;
    let shifted = number.checked_shr(first.into()).ok_or(Wrong::NoLayout)? << above;
    Ok(match kind.signed {
        true => Datum::Signed(shifted.cast_signed() >> above),
        false => Datum::Unsigned(shifted >> above),
    })
}

/// The bytes before the first NUL.
pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len())]
}
