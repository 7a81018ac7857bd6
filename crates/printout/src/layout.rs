//! The layout of C's types: what the raw bytes of arrays and structs are.

use script::{Bits, Compiled, Integer, Member, RecordLayout, Tag, Type};

use crate::cursor::Cursor;
use crate::datum::Datum;
use crate::error::Wrong;
use crate::number::{enumerator, integer};

/// How deep arrays and structs may be in each other.
const DEPTH: u32 = 32;

/// The size of a type in C.
pub(crate) fn size(ty: &Type, script: &Compiled) -> Result<u64, Wrong> {
    measured(ty, script, DEPTH)
}

fn measured(ty: &Type, script: &Compiled, depth: u32) -> Result<u64, Wrong> {
    let depth = depth.checked_sub(1).ok_or(Wrong::NoLayout)?;
    match ty {
        Type::Bool => Ok(1),
        Type::Integer(integer) => Ok(integer.bytes.into()),
        Type::Pointer(_) => Ok(8),
        Type::Named(Tag::Enum, _) => Ok(4),
        Type::Float(bytes) => Ok((*bytes).into()),
        Type::Foreign(_, bytes) => Ok((*bytes).into()),
        Type::Named(_, name) => Ok(record(name, script)?.size),
        Type::Array(inner, length) => {
            let size = measured(inner, script, depth)?;
            // An open array at the end of a struct has no bytes there.
            size.checked_mul(length.unwrap_or(0).into()).ok_or(Wrong::NoLayout)
        }
        _ => Err(Wrong::NoLayout),
    }
}

fn record<'s>(record: &str, script: &'s Compiled) -> Result<&'s RecordLayout, Wrong> {
    script.records.get(record).ok_or(Wrong::NoLayout)
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
        Type::Float(bytes) => Ok(float(*bytes, cursor.number(*bytes)?)),
        Type::Foreign(_, bytes) => Ok(Datum::Bytes(cursor.take((*bytes).into())?.to_vec())),
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
            let length = length.unwrap_or(0);
            let elements = (0..length).map(|_| valued(inner, elements.take(each)?, script, depth));
            Ok(Datum::Array(elements.collect::<Result<_, _>>()?))
        }
        Type::Named(_, name) => {
            let bytes = cursor.take(size(ty, script)?)?;
            let fields = record(name, script)?.members.iter().map(|member| {
                let mut cursor = Cursor::new(bytes);
                cursor.take(member.offset)?;
                let size = size(&member.ty, script)?;
                let value = match member.bits {
                    // The unit of a packed struct's last bits can go beyond its end.
                    Some(bits) => {
                        let rest = bytes.get(member.offset as usize..).unwrap_or_default();
                        let mut unit: Vec<u8> = rest.iter().copied().take(size as usize).collect();
                        unit.resize(size as usize, 0);
                        bit_field(member, bits, &unit, script)?
                    }
                    None => valued(&member.ty, cursor.take(size)?, script, depth)?,
                };
                Ok((member.name.clone(), value))
            });
            Ok(Datum::Record(fields.collect::<Result<_, _>>()?))
        }
        _ => Err(Wrong::NoLayout),
    }
}

/// A floating-point number of 4 or 8 bytes.
pub(crate) fn float(bytes: u8, bits: u64) -> Datum {
    match bytes {
        4 => Datum::float(f32::from_bits(bits as u32)),
        _ => Datum::float(f64::from_bits(bits)),
    }
}

/// A bit field in its unit.
fn bit_field(
    member: &Member,
    Bits { first, count }: Bits,
    unit: &[u8],
    script: &Compiled,
) -> Result<Datum, Wrong> {
    let kind = match member.ty {
        Type::Integer(kind) => kind,
        Type::Bool => Integer { bytes: 1, signed: false },
        Type::Named(Tag::Enum, _) => Integer { bytes: 4, signed: false },
        _ => return Err(Wrong::NoLayout),
    };
    let above = 64u32.checked_sub(u32::from(count)).filter(|above| *above < 64).ok_or(Wrong::NoLayout)?;
    let number = Cursor::new(unit).number(kind.bytes)?;
    let shifted = number.checked_shr(first.into()).ok_or(Wrong::NoLayout)? << above;
    let number = shifted >> above;
    Ok(match (&member.ty, kind.signed) {
        (Type::Bool, _) => Datum::Bool(number != 0),
        (Type::Named(_, name), _) => enumerator(name, number, script),
        (_, true) => Datum::Signed(shifted.cast_signed() >> above),
        (_, false) => Datum::Unsigned(number),
    })
}

/// The bytes before the first NUL.
pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len())]
}
