//! Which objects of C++ classes are passed by their address (Itanium C++ ABI, 3.1.2.3): those whose
//! class, or the class of a part, has a copy constructor or a destructor of its own, or is virtual.

use gimli::AttributeValue;

use super::kinds::{DEPTH, NoTypes, TypeId};
use super::reader::{At, Reader};
use super::shapes::{Shape, record_kind};

/// The most entries of a class, and the most classes of an object, that are looked at.
const CHILDREN: usize = 1 << 14;
const CLASSES: u32 = 256;

/// Whether an object is passed by its address; `None` if that is not told.
pub(super) fn is_by_address(reader: &Reader<'_>, of: TypeId) -> Result<Option<bool>, NoTypes> {
    let mut left = CLASSES;
    within(reader, of, DEPTH, &mut left)
}

fn within(reader: &Reader<'_>, of: TypeId, depth: usize, left: &mut u32) -> Result<Option<bool>, NoTypes> {
    let (Some(depth), Some(fewer)) = (depth.checked_sub(1), left.checked_sub(1)) else { return Ok(None) };
    *left = fewer;
    let Some(at) = reader.plain(of)? else { return Ok(Some(false)) };
    if at.entry.tag() == gimli::DW_TAG_array_type {
        return match reader.type_of(&at)? {
            Some(element) => within(reader, element, depth, left),
            None => Ok(None),
        };
    }
    if record_kind(at.entry.tag()).is_none() {
        return Ok(Some(false));
    }
    match at.entry.attr_value(gimli::DW_AT_calling_convention) {
        Some(AttributeValue::CallingConvention(gimli::DW_CC_pass_by_reference)) => return Ok(Some(true)),
        Some(AttributeValue::CallingConvention(gimli::DW_CC_pass_by_value)) => return Ok(Some(false)),
        _ => {}
    }
    if Reader::flag(&at.entry, gimli::DW_AT_declaration) {
        return Ok(None);
    }
    let name = reader.name(&at)?.unwrap_or_default();
    let name = name.split('<').next().unwrap_or_default();
    for entry in reader.children(&at, CHILDREN)? {
        let child = At { unit: at.unit.clone(), entry };
        let is_virtual = child.entry.has_attr(gimli::DW_AT_virtuality);
        let part = match child.entry.tag() {
            gimli::DW_TAG_subprogram | gimli::DW_TAG_inheritance if is_virtual => return Ok(Some(true)),
            gimli::DW_TAG_subprogram => special(reader, &child, name)?,
            gimli::DW_TAG_inheritance => inner(reader, &child, depth, left)?,
            gimli::DW_TAG_member if !Reader::flag(&child.entry, gimli::DW_AT_declaration) => {
                inner(reader, &child, depth, left)?
            }
            _ => Some(false),
        };
        if part != Some(false) {
            return Ok(part);
        }
    }
    Ok(Some(false))
}

fn inner<'a>(
    reader: &Reader<'a>,
    at: &At<'a>,
    depth: usize,
    left: &mut u32,
) -> Result<Option<bool>, NoTypes> {
    match reader.type_of(at)? {
        Some(of) => within(reader, of, depth, left),
        None => Ok(None),
    }
}

/// Whether a member function is a copy or move constructor, or a destructor, that the program's
/// author wrote.
fn special<'a>(reader: &Reader<'a>, at: &At<'a>, class: &str) -> Result<Option<bool>, NoTypes> {
    let name = reader.name(at)?.unwrap_or_default();
    let is_destructor = name.starts_with('~');
    if !is_destructor && (name != class || !copies(reader, at)?) {
        return Ok(Some(false));
    }
    if Reader::flag(&at.entry, gimli::DW_AT_deleted) {
        return Ok(None);
    }
    // What the compiler makes, or is told to make in the class, counts by the parts of the class.
    let is_made = Reader::flag(&at.entry, gimli::DW_AT_artificial)
        || Reader::number(&at.entry, gimli::DW_AT_defaulted) == Some(1);
    Ok(Some(!is_made))
}

/// Whether a constructor has one parameter, a reference to an object of its class.
fn copies<'a>(reader: &Reader<'a>, at: &At<'a>) -> Result<bool, NoTypes> {
    let mut references = Vec::new();
    for entry in reader.children(at, CHILDREN)? {
        if entry.tag() != gimli::DW_TAG_formal_parameter || Reader::flag(&entry, gimli::DW_AT_artificial) {
            continue;
        }
        let child = At { unit: at.unit.clone(), entry };
        let Some(of) = reader.type_of(&child)? else { return Ok(false) };
        let tag = reader.plain(of)?.map(|at| at.entry.tag());
        let is_reference =
            matches!(tag, Some(gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type));
        references.push((of, is_reference));
    }
    let [(of, true)] = references[..] else { return Ok(false) };
    let Shape::Pointer(Some(to)) = reader.shape(of)? else { return Ok(false) };
    let Some(to) = reader.plain(to)? else { return Ok(false) };
    let own = reader.name(at)?;
    let target = reader.name(&to)?;
    let target = target.as_deref().map(|name| name.split('<').next().unwrap_or_default());
    Ok(target == own.as_deref())
}
