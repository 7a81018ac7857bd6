//! The names of types.

use std::rc::Rc;

use source::{Diagnostic, nearest, quote};

use super::cursor::{Cursor, KEYWORDS};
use crate::token::Token;
use crate::types::{MAX_PARTS, Tag, Type};

/// C's words that may be combined, such as `unsigned long int`.
const COMBINED: &[&str] = &["unsigned", "signed", "char", "short", "int", "long"];
/// C's words that say nothing about how a value is read.
const IGNORED: &[&str] = &["const", "volatile"];

/// The maximum number of stars and brackets of a type.
const MAX_SUFFIXES: usize = 8;

/// Whether a type begins at a token.
pub(crate) fn begins(cursor: &Cursor<'_>, ahead: usize) -> bool {
    match cursor.ahead(ahead) {
        Token::Name(name) => {
            Tag::named(name).is_some()
                || COMBINED.contains(&&**name)
                || IGNORED.contains(&&**name)
                || Type::named(name).is_some()
        }
        _ => false,
    }
}

impl Tag {
    pub(crate) fn named(word: &str) -> Option<Tag> {
        [Tag::Struct, Tag::Union, Tag::Enum].into_iter().find(|tag| tag.word() == word)
    }
}

/// A type without stars and brackets; also a name that only a probed program may know.
fn base_or_alias(cursor: &mut Cursor<'_>) -> Result<Type, Diagnostic> {
    ignored(cursor);
    match cursor.peek() {
        Token::Name(name) if !begins(cursor, 0) && !KEYWORDS.contains(&&**name) => {
            let name = name.clone();
            cursor.next();
            ignored(cursor);
            Ok(Type::Named(Tag::Alias, (&*name).into()))
        }
        _ => base(cursor),
    }
}

/// The message for a name that means no type.
pub(crate) fn unknown(name: &str, span: source::Span) -> Diagnostic {
    let names = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool", "string"];
    Diagnostic::error(span, format!("no type is called {}", quote(name)))
        .label("expected a type")
        .suggest(nearest(name, names))
}

/// A type without stars and brackets.
pub(crate) fn base(cursor: &mut Cursor<'_>) -> Result<Type, Diagnostic> {
    ignored(cursor);
    let Token::Name(first) = cursor.peek() else { return Err(cursor.unexpected("expected a type")) };
    if let Some(tag) = Tag::named(first) {
        cursor.next();
        let name = cursor.name(&format!("the name of a {}", tag.word()))?;
        return Ok(Type::Named(tag, name.into()));
    }
    let found = match COMBINED.contains(&&**first) {
        true => combined(cursor)?,
        false => match Type::named(first) {
            Some(found) => {
                cursor.next();
                found
            }
            None => return Err(unknown(first, cursor.span())),
        },
    };
    ignored(cursor);
    Ok(found)
}

fn ignored(cursor: &mut Cursor<'_>) {
    while IGNORED.iter().any(|word| cursor.take_word(word)) {}
}

/// C's integer types.
fn combined(cursor: &mut Cursor<'_>) -> Result<Type, Diagnostic> {
    let start = cursor.span();
    let mut words = [0u8; 6];
    while let Token::Name(word) = cursor.peek()
        && let Some(index) = COMBINED.iter().position(|each| *each == &**word)
    {
        words[index] = words[index].saturating_add(1);
        cursor.next();
    }
    let [unsigned, signed, char, short, int, long] = words;
    let bytes = match (char, short, int, long) {
        (1, 0, 0, 0) => 1,
        (0, 1, 0 | 1, 0) => 2,
        (0, 0, 0 | 1, 0) => 4,
        (0, 0, 0 | 1, 1 | 2) => 8,
        _ => 0,
    };
    if bytes == 0 || unsigned + signed > 1 {
        return Err(Diagnostic::error(cursor.since(start).0, "this is no type of C").label("expected a type"));
    }
    Ok(if unsigned == 1 { Type::unsigned(bytes) } else { Type::signed(bytes) })
}

/// The stars after a type.
pub(crate) fn stars(cursor: &mut Cursor<'_>, mut found: Type) -> Result<Type, Diagnostic> {
    let mut count = 0;
    while cursor.take("*") {
        ignored(cursor);
        count += 1;
        if count > MAX_SUFFIXES {
            return Err(cursor.unexpected("too many stars"));
        }
        found = found.pointer();
    }
    Ok(found)
}

/// The brackets after a type, outermost first as in C.
pub(crate) fn brackets(cursor: &mut Cursor<'_>, mut found: Type) -> Result<Type, Diagnostic> {
    let mut lengths = Vec::new();
    while cursor.take("[") {
        let length = match cursor.peek() {
            Token::Integer(length) => {
                cursor.next();
                let length = u32::try_from(*length).ok().filter(|length| *length > 0);
                let message = || Diagnostic::error(cursor.last(), "an array cannot have this length");
                Some(length.ok_or_else(|| message().label("expected a number from 1 to 4294967295"))?)
            }
            _ => None,
        };
        cursor.expect("]")?;
        lengths.push(length);
        if lengths.len() > MAX_SUFFIXES {
            return Err(cursor.unexpected("too many lengths"));
        }
    }
    for length in lengths.into_iter().rev() {
        // `string[64]` is a string: its length is a limit of storage.
        found = match found {
            Type::Text | Type::Bytes | Type::Opaque(_) => found,
            found => Type::Array(Rc::new(found), length),
        };
    }
    Ok(found)
}

/// A type as in a cast or a declaration.
pub(crate) fn whole(cursor: &mut Cursor<'_>) -> Result<Type, Diagnostic> {
    if cursor.peek().is("(") {
        return cursor.deeper(tuple);
    }
    let found = base_or_alias(cursor)?;
    let found = stars(cursor, found)?;
    brackets(cursor, found)
}

/// `(int64, string)`
fn tuple(cursor: &mut Cursor<'_>) -> Result<Type, Diagnostic> {
    let start = cursor.span();
    cursor.expect("(")?;
    let mut members = Vec::new();
    while !cursor.peek().is(")") {
        members.push(whole(cursor)?);
        if !cursor.take(",") {
            break;
        }
    }
    cursor.expect(")")?;
    let found = Type::Tuple(members.into());
    match found.count_parts() > MAX_PARTS {
        true => {
            Err(Diagnostic::error(cursor.since(start).0, "the type has too many parts").label("too large"))
        }
        false => Ok(found),
    }
}
