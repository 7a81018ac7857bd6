//! What types are: sizes, members, constants.

use gimli::{AttributeValue, DwTag};

use super::kinds::{DEPTH, NoTypes, TypeId};
use super::reader::{At, Entry, Reader, damaged};

/// The most members of a record, those of inner ones counted, and constants of an enum.
const MEMBERS: usize = 1 << 16;
/// The most dimensions of an array.
const DIMENSIONS: usize = 16;

/// Struct or union.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A struct, or a class.
    Struct,
    /// A union.
    Union,
}

/// What a type is, without names of types and qualifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `void`.
    Void,
    /// A truth value of one byte.
    Boolean,
    /// An integer or a character.
    Integer {
        /// Its size: 1, 2, 4 or 8.
        bytes: u8,
        /// Whether it has negative values.
        signed: bool,
    },
    /// A floating-point number.
    Float {
        /// Its name: only this tells the formats of 16 bytes from each other.
        name: String,
        /// Its size.
        bytes: u64,
    },
    /// A pointer or a reference; `None` is `void *`.
    Pointer(Option<TypeId>),
    /// An array.
    Array {
        /// The type of its elements.
        element: TypeId,
        /// Its dimensions, the outer one first; `None` where it is open.
        lengths: Vec<Option<u64>>,
    },
    /// A struct, union or class.
    Record {
        /// Its entry.
        id: TypeId,
        /// Struct or union.
        kind: RecordKind,
        /// Its name, if it has one.
        name: Option<String>,
    },
    /// An enum.
    Enumeration {
        /// Its entry.
        id: TypeId,
        /// Its name, if it has one.
        name: Option<String>,
        /// Its size.
        bytes: u8,
        /// Whether it has negative values.
        signed: bool,
    },
    /// A function.
    Function,
    /// Something else, such as an integer of 16 bytes.
    Other {
        /// What it is.
        what: String,
        /// Its size.
        bytes: Option<u64>,
    },
}

impl Shape {
    /// The same without places of entries.
    pub(super) fn without_ids(self) -> Shape {
        let none = TypeId(0);
        match self {
            Shape::Pointer(to) => Shape::Pointer(to.map(|_| none)),
            Shape::Array { lengths, .. } => Shape::Array { element: none, lengths },
            other => other,
        }
    }
}

/// Bits of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitRange {
    /// The first bit, counted from the begin of the record.
    pub first: u64,
    /// How many.
    pub count: u8,
}

/// A member of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordMember {
    /// Its name.
    pub name: String,
    /// Its type.
    pub of: TypeId,
    /// Where it is, in bytes; of a bit field, where its first bit is.
    pub offset: u64,
    /// Its bits, if it is a bit field.
    pub bits: Option<BitRange>,
}

/// A struct, union or class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordType {
    /// Its bytes.
    pub size: u64,
    /// Its members.
    pub members: Vec<RecordMember>,
}

pub(super) fn record_kind(tag: DwTag) -> Option<RecordKind> {
    match tag {
        gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type => Some(RecordKind::Struct),
        gimli::DW_TAG_union_type => Some(RecordKind::Union),
        _ => None,
    }
}

impl<'a> Reader<'a> {
    /// A type without names and qualifiers; `None` is `void`.
    pub(super) fn plain(&self, id: TypeId) -> Result<Option<At<'a>>, NoTypes> {
        let mut at = self.at(id)?;
        for _ in 0..DEPTH {
            match at.entry.tag() {
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_restrict_type
                | gimli::DW_TAG_atomic_type => match self.type_of(&at)? {
                    Some(next) => at = self.at(next)?,
                    None => return Ok(None),
                },
                // What has a signature is told in a unit of its own.
                _ => match self.reference(&at.unit, &at.entry, gimli::DW_AT_signature)? {
                    Some(next) => at = self.at(next)?,
                    None => return Ok(Some(at)),
                },
            }
        }
        damaged("a type refers to itself")
    }

    /// What a type is.
    pub(super) fn shape(&self, id: TypeId) -> Result<Shape, NoTypes> {
        let Some(at) = self.plain(id)? else { return Ok(Shape::Void) };
        let id = self.id(&at.unit, at.entry.offset())?;
        let bytes = Reader::number(&at.entry, gimli::DW_AT_byte_size);
        let other = |what: &str| Ok(Shape::Other { what: what.to_owned(), bytes });
        match at.entry.tag() {
            gimli::DW_TAG_base_type => self.base(&at, bytes),
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => Ok(Shape::Pointer(self.type_of(&at)?)),
            gimli::DW_TAG_array_type if at.entry.has_attr(gimli::DW_AT_GNU_vector) => other("a vector"),
            gimli::DW_TAG_array_type => {
                let Some(element) = self.type_of(&at)? else {
                    return damaged("an array has no type of its elements");
                };
                Ok(Shape::Array { element, lengths: self.lengths(&at)? })
            }
            gimli::DW_TAG_enumeration_type => {
                // Only an integer is asked what it is: an enum here would be asked for its own.
                let underlying = match self.type_of(&at)? {
                    Some(id) => self.plain(id)?.filter(|of| of.entry.tag() == gimli::DW_TAG_base_type),
                    None => None,
                };
                let bytes_of = |of: &At<'a>| Reader::number(&of.entry, gimli::DW_AT_byte_size);
                let underlying = underlying.map(|of| self.base(&of, bytes_of(&of))).transpose()?;
                let encoding = at.entry.attr_value(gimli::DW_AT_encoding);
                let signed = match underlying {
                    Some(Shape::Integer { signed, .. }) => signed,
                    _ => encoding == Some(AttributeValue::Encoding(gimli::DW_ATE_signed)),
                };
                match u8::try_from(bytes.unwrap_or(4)) {
                    Ok(bytes @ (1 | 2 | 4 | 8)) => {
                        Ok(Shape::Enumeration { id, name: self.name(&at)?, bytes, signed })
                    }
                    _ => other("an enum of an unusual size"),
                }
            }
            gimli::DW_TAG_subroutine_type => Ok(Shape::Function),
            gimli::DW_TAG_ptr_to_member_type => other("a pointer to a member"),
            tag => match record_kind(tag) {
                Some(kind) => Ok(Shape::Record { id, kind, name: self.name(&at)? }),
                None => other("a type of another language"),
            },
        }
    }

    fn base(&self, at: &At<'a>, bytes: Option<u64>) -> Result<Shape, NoTypes> {
        let name = self.name(at)?.unwrap_or_else(|| "?".to_owned());
        let other = |what| Ok(Shape::Other { what, bytes });
        let Some(AttributeValue::Encoding(encoding)) = at.entry.attr_value(gimli::DW_AT_encoding) else {
            return other(name);
        };
        let size = match bytes {
            Some(size @ (1 | 2 | 4 | 8)) => size as u8,
            _ if encoding == gimli::DW_ATE_float => 0,
            _ => return other(name),
        };
        Ok(match encoding {
            gimli::DW_ATE_boolean if size == 1 => Shape::Boolean,
            gimli::DW_ATE_signed | gimli::DW_ATE_signed_char => Shape::Integer { bytes: size, signed: true },
            gimli::DW_ATE_unsigned
            | gimli::DW_ATE_unsigned_char
            | gimli::DW_ATE_UTF
            | gimli::DW_ATE_address
            | gimli::DW_ATE_boolean => Shape::Integer { bytes: size, signed: false },
            gimli::DW_ATE_float => Shape::Float { name, bytes: bytes.unwrap_or(0) },
            _ => return other(name),
        })
    }

    /// The dimensions of an array.
    fn lengths(&self, at: &At<'a>) -> Result<Vec<Option<u64>>, NoTypes> {
        let dimensions = self.children(at, DIMENSIONS)?;
        let dimensions = dimensions.iter().filter(|child| child.tag() == gimli::DW_TAG_subrange_type);
        let lengths = dimensions.map(|child| {
            let last = child.attr_value(gimli::DW_AT_upper_bound);
            // -1 as the last one: no element.
            let last = last.and_then(|last| match last.sdata_value() {
                Some(-1) => Some(0),
                _ => last.udata_value().and_then(|last| last.checked_add(1)),
            });
            Reader::number(child, gimli::DW_AT_count).or(last)
        });
        let lengths: Vec<_> = lengths.collect();
        Ok(if lengths.is_empty() { vec![None] } else { lengths })
    }

    /// The bytes of a value; those of an open array are none.
    pub(super) fn size(&self, id: TypeId, depth: usize) -> Result<u64, NoTypes> {
        let Some(depth) = depth.checked_sub(1) else { return damaged("a type contains itself") };
        let Some(at) = self.plain(id)? else { return damaged("`void` has no size") };
        if let Some(size) = Reader::number(&at.entry, gimli::DW_AT_byte_size) {
            return Ok(size);
        }
        match self.shape(id)? {
            Shape::Pointer(_) | Shape::Function => Ok(8),
            Shape::Enumeration { bytes, .. } => Ok(bytes.into()),
            Shape::Array { element, lengths } => {
                let size = self.size(element, depth)?;
                let mut lengths = lengths.iter().map(|length| length.unwrap_or(0));
                let size = lengths.try_fold(size, |size, length| size.checked_mul(length));
                size.ok_or_else(|| NoTypes::Damaged("an array is too long".to_owned()))
            }
            Shape::Record { .. } => Err(NoTypes::Declared),
            _ => damaged("a type has no size"),
        }
    }

    /// A record with its members.
    pub(super) fn record(&self, id: TypeId) -> Result<RecordType, NoTypes> {
        let Some(at) = self.plain(id)? else { return damaged("`void` has no members") };
        if record_kind(at.entry.tag()).is_none() {
            return damaged("a type that is no struct was asked for its members");
        }
        if Reader::flag(&at.entry, gimli::DW_AT_declaration) {
            return Err(NoTypes::Declared);
        }
        let size = Reader::number(&at.entry, gimli::DW_AT_byte_size);
        let Some(size) = size else { return damaged("a struct has no size") };
        let mut members = Vec::new();
        self.members(&at, 0, DEPTH, &mut members)?;
        Ok(RecordType { size, members })
    }

    /// Adds the members of a record that begins at an offset.
    fn members(
        &self,
        at: &At<'a>,
        begin: u64,
        depth: usize,
        found: &mut Vec<RecordMember>,
    ) -> Result<(), NoTypes> {
        let Some(depth) = depth.checked_sub(1) else { return damaged("a type contains itself") };
        for entry in self.children(at, MEMBERS)? {
            let is_member = matches!(entry.tag(), gimli::DW_TAG_member | gimli::DW_TAG_inheritance);
            // A static member is in no value.
            if !is_member || Reader::flag(&entry, gimli::DW_AT_declaration) {
                continue;
            }
            let child = At { unit: at.unit.clone(), entry };
            let Some(of) = self.type_of(&child)? else { continue };
            // The place of a virtual base class is in each object.
            let Some(offset) = member_offset(&child.entry) else { continue };
            let offset = begin.saturating_add(offset);
            let name = self.name(&child)?.filter(|_| child.entry.tag() == gimli::DW_TAG_member);
            if let Some(name) = name {
                if found.len() >= MEMBERS {
                    return Err(NoTypes::TooLong);
                }
                let bits = self.bits(&child, of, begin, offset)?;
                let offset = bits.map_or(offset, |bits| bits.first / 8);
                found.push(RecordMember { name, of, offset, bits });
                continue;
            }
            // Anonymous, or a base class.
            if let Some(inner) = self.plain(of)?
                && record_kind(inner.entry.tag()).is_some()
            {
                self.members(&inner, offset, depth, found)?;
            }
        }
        Ok(())
    }

    /// The bits of a bit field in a record that begins at `begin`; `unit` is where its unit is.
    fn bits(&self, at: &At<'a>, of: TypeId, begin: u64, unit: u64) -> Result<Option<BitRange>, NoTypes> {
        let Some(count) = Reader::number(&at.entry, gimli::DW_AT_bit_size) else { return Ok(None) };
        let Ok(count) = u8::try_from(count) else { return damaged("a bit field is too large") };
        if count == 0 || count > 64 {
            return damaged("a bit field is too large");
        }
        let bit = |byte: u64| byte.saturating_mul(8);
        let first = match Reader::number(&at.entry, gimli::DW_AT_data_bit_offset) {
            Some(offset) => bit(begin).saturating_add(offset),
            None => match at.entry.attr_value(gimli::DW_AT_bit_offset).and_then(|it| it.sdata_value()) {
                // DWARF 3 counts from the highest bit of the unit; of a packed struct, a field can
                // begin above it.
                Some(offset) => {
                    let bytes = Reader::number(&at.entry, gimli::DW_AT_byte_size);
                    let bytes = bytes.map_or_else(|| self.size(of, DEPTH), Ok)?;
                    let below = bit(bytes).cast_signed().checked_sub(offset);
                    let below = below.and_then(|below| below.checked_sub(count.into()));
                    let first = below.and_then(|below| bit(unit).checked_add_signed(below));
                    let Some(first) = first else { return damaged("a bit field is outside of its struct") };
                    first
                }
                None => bit(unit),
            },
        };
        Ok(Some(BitRange { first, count }))
    }

    /// The constants of an enum.
    pub(super) fn enumerators(&self, id: TypeId) -> Result<Vec<(String, i64)>, NoTypes> {
        let Some(at) = self.plain(id)? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for entry in self.children(&at, MEMBERS)? {
            if entry.tag() != gimli::DW_TAG_enumerator {
                continue;
            }
            let value = entry.attr_value(gimli::DW_AT_const_value);
            // Only what is negative is written as a signed number.
            let value = value.and_then(|value| match value {
                AttributeValue::Sdata(value) => Some(value),
                value => value.udata_value().map(u64::cast_signed),
            });
            let child = At { unit: at.unit.clone(), entry };
            if let (Some(name), Some(value)) = (self.name(&child)?, value) {
                found.push((name, value));
            }
        }
        Ok(found)
    }
}

/// Where a member is in its record; `None` if that is computed from the object.
fn member_offset(entry: &Entry<'_>) -> Option<u64> {
    match entry.attr_value(gimli::DW_AT_data_member_location) {
        None => Some(0),
        Some(AttributeValue::Exprloc(expression)) => {
            // DWARF 2: `DW_OP_plus_uconst offset`.
            let mut input = expression.0;
            use gimli::Reader as _;
            let operation = input.read_u8().ok()?;
            let offset = input.read_uleb128().ok()?;
            (operation == gimli::DW_OP_plus_uconst.0 && input.is_empty()).then_some(offset)
        }
        Some(value) => value.udata_value(),
    }
}
