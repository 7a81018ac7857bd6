//! Types as C writes them.

use std::cell::Cell;

use super::kinds::{DEPTH, NoTypes, TypeId};
use super::reader::{Reader, has_plain_names};
use super::shapes::{Shape, record_kind};

/// The longest text of a type.
const LENGTH: usize = 512;
/// The most parameters of a function's type that are shown.
const SHOWN: usize = 16;

/// The most entries that are visited for one text.
const VISITED: u32 = 256;

/// A type in one line; `None` is `void`.
pub(super) fn text(reader: &Reader<'_>, id: Option<TypeId>) -> String {
    let left = Cell::new(VISITED);
    let mut text = within(reader, id, DEPTH, &left).unwrap_or_else(|_| "?".to_owned());
    if let Some((end, _)) = text.char_indices().nth(LENGTH) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}

fn within(
    reader: &Reader<'_>,
    id: Option<TypeId>,
    depth: usize,
    left: &Cell<u32>,
) -> Result<String, NoTypes> {
    let Some(id) = id else { return Ok("void".to_owned()) };
    let (Some(depth), Some(fewer)) = (depth.checked_sub(1), left.get().checked_sub(1)) else {
        return Ok("...".to_owned());
    };
    left.set(fewer);
    let mut at = reader.at(id)?;
    if let Some(told) = reader.reference(&at.unit, &at.entry, gimli::DW_AT_signature)? {
        at = reader.at(told)?;
    }
    let inner = || within(reader, reader.type_of(&at)?, depth, left);
    // What is behind a name: a pointer says so with its star.
    let qualified = |word: &str| {
        let inner = inner()?;
        Ok(if inner.ends_with('*') { format!("{inner} {word}") } else { format!("{word} {inner}") })
    };
    let named = |keyword: &str| {
        let name = reader.name(&at)?;
        let plain = has_plain_names(&at.unit);
        Ok(match name {
            Some(name) if plain => name,
            Some(name) => format!("{keyword} {name}"),
            None => format!("{keyword} (anonymous)"),
        })
    };
    match at.entry.tag() {
        gimli::DW_TAG_const_type => qualified("const"),
        gimli::DW_TAG_volatile_type => qualified("volatile"),
        gimli::DW_TAG_atomic_type => qualified("_Atomic"),
        gimli::DW_TAG_restrict_type => qualified("restrict"),
        gimli::DW_TAG_pointer_type => {
            let of = reader.type_of(&at)?;
            let to = of.map(|id| reader.at(id)).transpose()?;
            if let Some(function) = to.filter(|to| to.entry.tag() == gimli::DW_TAG_subroutine_type) {
                return signature(reader, &function, depth, left);
            }
            // Go's pointers have names.
            match reader.name(&at)? {
                Some(name) => Ok(name),
                None => Ok(format!("{}*", within(reader, of, depth, left)?)),
            }
        }
        gimli::DW_TAG_reference_type => Ok(format!("{}&", inner()?)),
        gimli::DW_TAG_rvalue_reference_type => Ok(format!("{}&&", inner()?)),
        gimli::DW_TAG_enumeration_type => named("enum"),
        gimli::DW_TAG_array_type => {
            let Shape::Array { element, lengths } = reader.shape(id)? else { return inner() };
            let mut text = within(reader, Some(element), depth, left)?;
            for length in lengths {
                text.push_str(&length.map_or("[]".to_owned(), |length| format!("[{length}]")));
            }
            Ok(text)
        }
        tag => match record_kind(tag) {
            Some(super::shapes::RecordKind::Union) => named("union"),
            Some(super::shapes::RecordKind::Struct) => named("struct"),
            None => Ok(reader.name(&at)?.unwrap_or_else(|| "?".to_owned())),
        },
    }
}

/// A pointer to a function.
fn signature<'a>(
    reader: &Reader<'a>,
    at: &super::reader::At<'a>,
    depth: usize,
    left: &Cell<u32>,
) -> Result<String, NoTypes> {
    let result = within(reader, reader.type_of(at)?, depth, left)?;
    let mut parameters = Vec::new();
    for entry in reader.children(at, 1 << 10)? {
        let child = super::reader::At { unit: at.unit.clone(), entry };
        match child.entry.tag() {
            gimli::DW_TAG_formal_parameter if parameters.len() < SHOWN => {
                parameters.push(within(reader, reader.type_of(&child)?, depth, left)?);
            }
            gimli::DW_TAG_formal_parameter | gimli::DW_TAG_unspecified_parameters => {
                parameters.push("...".to_owned());
                break;
            }
            _ => {}
        }
    }
    Ok(format!("{result} (*)({})", parameters.join(", ")))
}
