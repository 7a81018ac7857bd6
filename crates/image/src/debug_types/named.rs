//! Finds types and constants by their names.

use std::collections::HashSet;
use std::fmt::Write;

use gimli::{DebugInfoOffset, DwTag, Unit};

use super::kinds::{NoTypes, TypeId, TypeName};
use super::reader::{Bytes, Reader, has_plain_names};
use super::scan::{Wish, scan};
use super::shapes::Shape;
use super::text;

/// The most types of one name that are compared: a header's are told by each unit that includes it.
const COPIES: usize = 256;

/// The most members by which types are compared.
const ALIKE: usize = 1024;

/// The complete types of a name: those of the first units, else those of all.
pub(super) fn types(
    reader: &Reader<'_>,
    first: &[DebugInfoOffset],
    kind: TypeName,
    name: &str,
) -> Result<Vec<TypeId>, NoTypes> {
    let found = search(reader, first, |unit, found: &mut Vec<TypeId>| {
        let plain = has_plain_names(&unit);
        let wish = |tag: DwTag| match tag {
            gimli::DW_TAG_namespace | gimli::DW_TAG_module => Wish::Enter,
            _ if is_kind(tag, kind, plain) => Wish::Show,
            _ => Wish::Skip,
        };
        scan(reader, &unit, wish, |seen| {
            let Some(value) = seen.name.filter(|_| !seen.declares) else { return Ok(()) };
            if reader.dwarf.attr_string(&unit, value)?.slice() == name.as_bytes() {
                found.push(reader.id(&unit, seen.offset)?);
            }
            Ok(())
        })
    })?;
    let mut known = HashSet::new();
    let mut distinct = Vec::new();
    for id in found {
        if known.insert(fingerprint(reader, id)?) {
            distinct.push(id);
        }
    }
    Ok(distinct)
}

/// The constants of a name: their enums and values, each once.
pub(super) fn constants(
    reader: &Reader<'_>,
    first: &[DebugInfoOffset],
    name: &str,
) -> Result<Vec<(TypeId, i64)>, NoTypes> {
    let wish = |tag: DwTag| match tag {
        gimli::DW_TAG_namespace
        | gimli::DW_TAG_module
        | gimli::DW_TAG_structure_type
        | gimli::DW_TAG_class_type => Wish::Enter,
        gimli::DW_TAG_enumeration_type => Wish::ShowAndEnter,
        gimli::DW_TAG_enumerator => Wish::Show,
        _ => Wish::Skip,
    };
    let found = search(reader, first, |unit, found: &mut Vec<TypeId>| {
        let mut enumeration = None;
        scan(reader, &unit, wish, |seen| {
            if seen.tag == gimli::DW_TAG_enumeration_type {
                enumeration = Some(seen.offset);
                return Ok(());
            }
            let Some((value, parent)) = seen.name.zip(enumeration) else { return Ok(()) };
            if seen.tag == gimli::DW_TAG_enumerator
                && reader.dwarf.attr_string(&unit, value)?.slice() == name.as_bytes()
            {
                found.push(reader.id(&unit, parent)?);
            }
            Ok(())
        })
    })?;
    let mut known = HashSet::new();
    let mut distinct = Vec::new();
    for id in found {
        let value = reader.enumerators(id)?.into_iter().find(|(each, _)| each == name);
        if let Some((_, value)) = value
            && known.insert((value, fingerprint(reader, id)?))
        {
            distinct.push((id, value));
        }
    }
    Ok(distinct)
}

type UnitOf<'a> = std::rc::Rc<Unit<Bytes<'a>>>;

/// Looks through the first units, and through all others if these have nothing.
fn search<'a>(
    reader: &Reader<'a>,
    first: &[DebugInfoOffset],
    look: impl Fn(UnitOf<'a>, &mut Vec<TypeId>) -> Result<(), NoTypes>,
) -> Result<Vec<TypeId>, NoTypes> {
    let mut found = Vec::new();
    for &offset in first {
        look(reader.unit(offset)?, &mut found)?;
    }
    let rest = if found.is_empty() { reader.units } else { &[] };
    for &offset in rest.iter().filter(|offset| !first.contains(offset)) {
        // One unit that is damaged does not hide the others.
        let Ok(unit) = reader.unit(offset) else { continue };
        if let Err(error) = look(unit, &mut found)
            && error == NoTypes::TooLong
        {
            return Err(error);
        }
        if found.len() >= COPIES {
            break;
        }
    }
    Ok(found)
}

/// Whether a tag is one of a kind; `plain`: in a language in which no type needs a keyword.
fn is_kind(tag: DwTag, kind: TypeName, plain: bool) -> bool {
    let is_struct = matches!(tag, gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type);
    match kind {
        TypeName::Struct => is_struct,
        TypeName::Union => tag == gimli::DW_TAG_union_type,
        TypeName::Enum => tag == gimli::DW_TAG_enumeration_type,
        TypeName::Plain => {
            let is_tagged = matches!(tag, gimli::DW_TAG_union_type | gimli::DW_TAG_enumeration_type);
            matches!(tag, gimli::DW_TAG_typedef | gimli::DW_TAG_base_type)
                || plain && (is_struct || is_tagged)
        }
    }
}

/// A type in one line, with its members by name, place and the name of their type.
pub(super) fn fingerprint(reader: &Reader<'_>, id: TypeId) -> Result<String, NoTypes> {
    let mut line = text::text(reader, Some(id));
    match reader.shape(id)? {
        Shape::Record { id, kind, .. } => match reader.record(id) {
            Ok(record) => {
                let _ = write!(line, " {kind:?} {}", record.size);
                let (first, rest) = record.members.split_at(record.members.len().min(ALIKE));
                if !rest.is_empty() {
                    let _ = write!(line, ";{id:?}");
                }
                for member in first {
                    let of = text::text(reader, Some(member.of));
                    let _ = write!(line, ";{}@{}{:?}{of}", member.name, member.offset, member.bits);
                }
            }
            Err(NoTypes::Declared) => line.push_str(" declared"),
            Err(error) => return Err(error),
        },
        Shape::Enumeration { id, bytes, .. } => {
            let _ = write!(line, " {bytes}");
            for (name, value) in reader.enumerators(id)?.into_iter().take(ALIKE) {
                let _ = write!(line, ";{name}={value}");
            }
        }
        Shape::Pointer(_) => {}
        other => {
            let _ = write!(line, " {:?}", other.without_ids());
        }
    }
    Ok(line)
}
