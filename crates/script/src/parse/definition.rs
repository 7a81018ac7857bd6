//! Structs, unions and enums.

use std::rc::Rc;

use source::{Diagnostic, quote};

use super::cursor::Cursor;
use super::typename;
use crate::ast::{Enumeration, Field, FieldKind, Record};
use crate::token::Token;
use crate::types::{Tag, Type};

/// The maximum number of fields of a record, and of values of an enum.
const MAX_FIELDS: usize = 4096;

/// A struct or union; for inner ones the name may be missing.
pub(crate) fn record(cursor: &mut Cursor<'_>, tag: Tag, inner: bool) -> Result<Record, Diagnostic> {
    let start = cursor.span();
    cursor.next();
    let name = match inner && cursor.peek().is("{") {
        true => None,
        false => Some(cursor.name(&format!("the name of a {}", tag.word()))?),
    };
    let at = cursor.since(start);
    cursor.expect("{")?;
    let mut fields = Vec::new();
    while !cursor.take("}") {
        cursor.deeper(|cursor| field(cursor, &mut fields))?;
        if fields.len() > MAX_FIELDS {
            return Err(Diagnostic::error(at.0, format!("a {} has at most {MAX_FIELDS} fields", tag.word()))
                .label("too many fields"));
        }
    }
    Ok(Record { at, tag, name, fields })
}

/// Whether a record is defined here, not only named.
fn defines(cursor: &Cursor<'_>) -> Option<Tag> {
    let Token::Name(word) = cursor.peek() else { return None };
    let tag = Tag::named(word).filter(|tag| *tag != Tag::Enum)?;
    let brace = if matches!(cursor.ahead(1), Token::Name(_)) { 2 } else { 1 };
    cursor.ahead(brace).is("{").then_some(tag)
}

/// One declaration, which may declare several fields.
fn field(cursor: &mut Cursor<'_>, fields: &mut Vec<Field>) -> Result<(), Diagnostic> {
    let start = cursor.span();
    if let Some(tag) = defines(cursor) {
        let record = record(cursor, tag, true)?;
        let name = match cursor.peek().is(";") {
            true => None,
            false => Some(cursor.name("the name of a field")?),
        };
        cursor.expect(";")?;
        fields.push(Field { at: cursor.since(start), name, kind: FieldKind::Inner(record), bits: None });
        return Ok(());
    }
    let base = typename::base(cursor)?;
    loop {
        let ty = typename::stars(cursor, base.clone())?;
        if cursor.peek().is("(") {
            return Err(cursor
                .unexpected("pointers to functions cannot be declared")
                .help("declare the field as `void *name;`"));
        }
        let name = Some(cursor.name("the name of a field")?);
        let ty = match &ty {
            // In C the brackets after a name make an array of anything.
            Type::Text | Type::Bytes | Type::Opaque(_) | Type::Aggregate(_) | Type::Tuple(_) => {
                return Err(Diagnostic::error(
                    cursor.since(start).0,
                    format!("a field cannot be of type `{ty}`"),
                )
                .label("expected a type of C")
                .help("write `char name[16];` for a string"));
            }
            _ => typename::brackets(cursor, ty)?,
        };
        let bits = match cursor.take(":") {
            true => Some(bits(cursor, &ty)?),
            false => None,
        };
        fields.push(Field { at: cursor.since(start), name, kind: FieldKind::Plain(ty), bits });
        if !cursor.take(",") {
            return cursor.expect(";");
        }
    }
}

fn bits(cursor: &mut Cursor<'_>, ty: &Type) -> Result<u8, Diagnostic> {
    let most = ty.as_integer().map_or(0, |integer| u64::from(integer.bytes) * 8);
    match cursor.peek() {
        Token::Integer(count) if *count > 0 && *count <= most => {
            cursor.next();
            Ok(u8::try_from(*count).unwrap_or(64))
        }
        _ => Err(cursor.unexpected(&format!("expected a number of bits that `{ty}` has"))),
    }
}

/// An enum. Values count up from the last one given.
pub(crate) fn enumeration(cursor: &mut Cursor<'_>) -> Result<Enumeration, Diagnostic> {
    let start = cursor.span();
    cursor.next();
    let name = match cursor.peek().is("{") {
        true => None,
        false => Some(cursor.name("the name of an enum")?),
    };
    let at = cursor.since(start);
    cursor.expect("{")?;
    let mut values = Vec::new();
    let mut next = Some(0i64);
    while !cursor.take("}") {
        let name = cursor.name("the name of a value")?;
        if cursor.take("=") {
            next = Some(constant(cursor)?);
        }
        let value = next.ok_or_else(|| {
            Diagnostic::error(cursor.last(), format!("the value of {} is larger than 64 bits", quote(&name)))
                .label("no number is left")
        })?;
        values.push((name, value));
        if values.len() > MAX_FIELDS {
            return Err(Diagnostic::error(at.0, format!("an enum has at most {MAX_FIELDS} values"))
                .label("too many values"));
        }
        next = value.checked_add(1);
        if !cursor.take(",") {
            cursor.expect("}")?;
            break;
        }
    }
    Ok(Enumeration { at, name, values })
}

/// `3` or `-3`.
fn constant(cursor: &mut Cursor<'_>) -> Result<i64, Diagnostic> {
    let negative = cursor.take("-");
    match cursor.peek() {
        Token::Integer(value) => {
            let value = i128::from(*value) * if negative { -1 } else { 1 };
            let value =
                i64::try_from(value).map_err(|_| cursor.unexpected("expected a number of 64 bits"))?;
            cursor.next();
            Ok(value)
        }
        _ => Err(cursor.unexpected("expected a number")),
    }
}

/// Whether a definition of a record begins here; `struct name;` alone means nothing.
pub(crate) fn only_named(cursor: &mut Cursor<'_>) -> Option<Rc<str>> {
    match (cursor.ahead(1), cursor.ahead(2)) {
        (Token::Name(name), Token::Sign(";")) => Some(name.clone()),
        _ => None,
    }
}
