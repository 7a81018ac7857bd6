//! Types in debug information: how long a value is, and where its parts are.

use std::rc::Rc;

use gimli::{
    AttributeValue, DebugInfoOffset, DebuggingInformationEntry, Dwarf, EndianSlice, LittleEndian, Unit,
    UnitOffset,
};

use super::found::{NoVariable, ValueKind, similar};
use super::path::Step;

pub(super) type Bytes<'a> = EndianSlice<'a, LittleEndian>;
pub(super) type Entry<'a> = DebuggingInformationEntry<Bytes<'a>>;

/// The longest chain of type names and qualifiers, and the deepest nesting of anonymous members.
/// Damaged information can lead in a circle.
const DEPTH: usize = 64;

/// Looks up types. Units are parsed again where a reference leads into them.
pub(super) struct Types<'d, 'a> {
    pub(super) dwarf: &'d Dwarf<Bytes<'a>>,
    /// The offsets of all units, ascending.
    pub(super) units: &'d [DebugInfoOffset],
}

/// A type: its unit, and its place in that.
#[derive(Clone)]
pub(super) struct Type<'a> {
    pub(super) unit: Rc<Unit<Bytes<'a>>>,
    pub(super) offset: UnitOffset,
}

/// What a step leads to.
enum Part<'a> {
    /// A value of a type.
    Value(Type<'a>),
    /// Some dimensions of an array of several, which have no type of their own: the type of the
    /// elements, and the lengths of the dimensions.
    Row(Type<'a>, Vec<u64>),
}

/// A value in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) size: u64,
    pub(super) kind: ValueKind,
}

/// What stands in the way of a lookup; the caller knows the names.
#[derive(Debug)]
pub(super) enum Obstacle {
    /// The type has no such member. Its members' names, if it is a structure.
    NoMember(Option<Vec<String>>),
    Pointer,
    NotAnArray,
    Length(u64),
    BitField,
    Damaged(String),
}

impl From<gimli::Error> for Obstacle {
    fn from(error: gimli::Error) -> Obstacle {
        Obstacle::Damaged(error.to_string())
    }
}

fn damaged<T>(cause: &str) -> Result<T, Obstacle> {
    Err(Obstacle::Damaged(cause.to_owned()))
}

impl Obstacle {
    /// The obstacle on the way to `step` of the part `of`, as told to the user.
    pub(super) fn at(self, whole: &str, of: &str, step: Option<&Step>) -> NoVariable {
        let of = of.to_owned();
        match (self, step) {
            (Obstacle::NoMember(Some(names)), Some(Step::Member(member))) => NoVariable::NoMember {
                of,
                member: member.clone(),
                similar: similar(member, names.into_iter()),
            },
            (Obstacle::NoMember(_), Some(Step::Member(member))) => {
                NoVariable::NotAStructure { of, member: member.clone() }
            }
            (Obstacle::Pointer, _) => NoVariable::BehindAPointer { of },
            (Obstacle::Length(length), _) => NoVariable::NoElement { of, length },
            (Obstacle::BitField, Some(Step::Member(member))) => {
                NoVariable::BitField { of: format!("{of}.{member}") }
            }
            (Obstacle::NotAnArray | Obstacle::NoMember(_), _) => NoVariable::NotAnArray { of },
            (Obstacle::BitField, _) => NoVariable::BitField { of },
            (Obstacle::Damaged(cause), _) => NoVariable::Damaged { name: whole.to_owned(), cause },
        }
    }
}

impl<'a> Types<'_, 'a> {
    /// The type that an entry of a unit refers to; `None` if it has none.
    pub(super) fn of(&self, unit: &Unit<Bytes<'a>>, entry: &Entry<'a>) -> Result<Option<Type<'a>>, Obstacle> {
        self.reference(unit, entry, gimli::DW_AT_type)
    }

    /// The entry that an attribute refers to.
    pub(super) fn reference(
        &self,
        unit: &Unit<Bytes<'a>>,
        entry: &Entry<'a>,
        attribute: gimli::DwAt,
    ) -> Result<Option<Type<'a>>, Obstacle> {
        let in_section = |offset: UnitOffset| match unit.header.debug_info_offset() {
            Some(start) => Ok(DebugInfoOffset(start.0 + offset.0)),
            None => damaged("it is in a type unit"),
        };
        let offset = match entry.attr_value(attribute) {
            None => return Ok(None),
            Some(AttributeValue::UnitRef(offset)) => in_section(offset)?,
            Some(AttributeValue::DebugInfoRef(offset)) => offset,
            Some(AttributeValue::DebugTypesRef(_)) => return damaged("it is in a type unit"),
            Some(_) => return damaged("a reference to a type is of an unknown form"),
        };
        let number = self.units.partition_point(|start| *start <= offset);
        let Some(start) = number.checked_sub(1).map(|number| self.units[number]) else {
            return damaged("a reference leads nowhere");
        };
        let unit = self.dwarf.unit(self.dwarf.unit_header(start)?)?;
        Ok(Some(Type { unit: Rc::new(unit), offset: UnitOffset(offset.0 - start.0) }))
    }

    /// A type without names and qualifiers (`typedef`, `const`, ...), and what it is.
    fn plain(&self, mut one: Type<'a>) -> Result<(Type<'a>, Entry<'a>), Obstacle> {
        for _ in 0..DEPTH {
            let entry = one.unit.entry(one.offset)?;
            let next = match entry.tag() {
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_restrict_type
                | gimli::DW_TAG_atomic_type => self.of(&one.unit, &entry)?,
                _ => return Ok((one, entry)),
            };
            match next {
                Some(next) => one = next,
                None => return damaged("it is of type void"),
            }
        }
        damaged("its type refers to itself")
    }

    /// The size and kind of a type's values.
    pub(super) fn shape(&self, one: &Type<'a>) -> Result<Shape, Obstacle> {
        self.shape_within(one.clone(), DEPTH)
    }

    fn shape_within(&self, one: Type<'a>, depth: usize) -> Result<Shape, Obstacle> {
        let Some(depth) = depth.checked_sub(1) else { return damaged("its type contains itself") };
        let (one, entry) = self.plain(one)?;
        let size = entry.attr_value(gimli::DW_AT_byte_size).and_then(|value| value.udata_value());
        let kind = match entry.tag() {
            gimli::DW_TAG_base_type => kind_of(&entry),
            gimli::DW_TAG_enumeration_type => ValueKind::Unsigned,
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => {
                let size = size.unwrap_or_else(|| u64::from(one.unit.encoding().address_size));
                return Ok(Shape { size, kind: ValueKind::Pointer });
            }
            gimli::DW_TAG_array_type => {
                let Some(element) = self.of(&one.unit, &entry)? else {
                    return damaged("an array has no type of its elements");
                };
                let lengths = self.lengths(&one)?;
                let element = self.shape_within(element, depth)?.size;
                let counted = lengths.iter().try_fold(element, |size, length| size.checked_mul(*length));
                let size = size.or(counted);
                let Some(size) = size else { return damaged("an array is too long") };
                return Ok(Shape { size, kind: ValueKind::Aggregate });
            }
            _ => ValueKind::Aggregate,
        };
        match size {
            Some(size) => Ok(Shape { size, kind }),
            None => damaged("its type has no size"),
        }
    }

    /// The lengths of an array's dimensions; 0 where it is not known.
    fn lengths(&self, one: &Type<'a>) -> Result<Vec<u64>, Obstacle> {
        let mut lengths = Vec::new();
        let mut tree = one.unit.entries_tree(Some(one.offset))?;
        let mut children = tree.root()?.children();
        while let Some(child) = children.next()? {
            let entry = child.entry();
            if entry.tag() == gimli::DW_TAG_subrange_type {
                let number = |name| entry.attr_value(name).and_then(|value| value.udata_value());
                let last = number(gimli::DW_AT_upper_bound).map(|last| last.saturating_add(1));
                lengths.push(number(gimli::DW_AT_count).or(last).unwrap_or(0));
            }
        }
        Ok(lengths)
    }

    /// The part of a value that the steps lead to: its offset, and its shape. The error is that of
    /// a step, by its number.
    pub(super) fn part(&self, one: Type<'a>, steps: &[Step]) -> Result<(u64, Shape), (usize, Obstacle)> {
        let mut place = (0u64, Part::Value(one));
        for (number, step) in steps.iter().enumerate() {
            let (by, part) = self.step(place.1, step).map_err(|obstacle| (number, obstacle))?;
            place = (place.0.wrapping_add(by), part);
        }
        let shape = match place.1 {
            Part::Value(one) => self.shape(&one),
            Part::Row(element, lengths) => self.row(&element, &lengths),
        };
        shape.map(|shape| (place.0, shape)).map_err(|obstacle| (steps.len().saturating_sub(1), obstacle))
    }

    /// One step: its offset, and what is there.
    fn step(&self, part: Part<'a>, step: &Step) -> Result<(u64, Part<'a>), Obstacle> {
        let (element, lengths) = match (part, step) {
            (Part::Row(..), Step::Member(_)) => return Err(Obstacle::NoMember(None)),
            (Part::Row(element, lengths), Step::Element(_)) => (element, lengths),
            (Part::Value(one), step) => {
                let (one, entry) = self.plain(one)?;
                match (step, entry.tag()) {
                    (_, gimli::DW_TAG_pointer_type) => return Err(Obstacle::Pointer),
                    (Step::Member(name), _) => {
                        let (offset, of) = self.member(&one, name, DEPTH)?;
                        return Ok((offset, Part::Value(of)));
                    }
                    (Step::Element(_), gimli::DW_TAG_array_type) => {
                        let Some(element) = self.of(&one.unit, &entry)? else {
                            return damaged("an array has no type of its elements");
                        };
                        (element, self.lengths(&one)?)
                    }
                    (Step::Element(_), _) => return Err(Obstacle::NotAnArray),
                }
            }
        };
        let Step::Element(index) = *step else { return Err(Obstacle::NoMember(None)) };
        let Some((&length, rest)) = lengths.split_first() else {
            return damaged("an array has no length");
        };
        if index >= length {
            return Err(Obstacle::Length(length));
        }
        let stride = self.row(&element, rest)?.size;
        let part = match rest {
            [] => Part::Value(element),
            _ => Part::Row(element, rest.to_vec()),
        };
        Ok((index.wrapping_mul(stride), part))
    }

    /// The shape of an array of elements with these dimensions; that of an element if there are
    /// none.
    fn row(&self, element: &Type<'a>, lengths: &[u64]) -> Result<Shape, Obstacle> {
        let one = self.shape(element)?;
        let size = lengths.iter().try_fold(one.size, |size, length| size.checked_mul(*length));
        let Some(size) = size else { return damaged("an array is too long") };
        Ok(Shape { size, kind: if lengths.is_empty() { one.kind } else { ValueKind::Aggregate } })
    }

    /// A member of a structure, also of an anonymous one inside, or of a base class: its offset and
    /// its type.
    fn member(&self, one: &Type<'a>, name: &str, depth: usize) -> Result<(u64, Type<'a>), Obstacle> {
        let Some(depth) = depth.checked_sub(1) else { return damaged("its type contains itself") };
        let is_structure = |tag| {
            matches!(tag, gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type)
        };
        if !is_structure(one.unit.entry(one.offset)?.tag()) {
            return Err(Obstacle::NoMember(None));
        }
        let mut names = Vec::new();
        let mut tree = one.unit.entries_tree(Some(one.offset))?;
        let mut children = tree.root()?.children();
        while let Some(child) = children.next()? {
            let entry = child.entry();
            if !matches!(entry.tag(), gimli::DW_TAG_member | gimli::DW_TAG_inheritance) {
                continue;
            }
            let own = self.name(&one.unit, entry)?;
            let is_wanted = own.as_deref() == Some(name);
            if !is_wanted && own.is_some() {
                names.extend(own);
                continue;
            }
            let Some(of) = self.of(&one.unit, entry)? else { continue };
            if is_wanted && entry.attr(gimli::DW_AT_bit_size).is_some() {
                return Err(Obstacle::BitField);
            }
            let offset = match entry.attr_value(gimli::DW_AT_data_member_location) {
                None => 0,
                Some(value) => match value.udata_value() {
                    Some(offset) => offset,
                    // A virtual base class: its place is in each object.
                    None if !is_wanted => continue,
                    None => return damaged("a member's place is computed"),
                },
            };
            if is_wanted {
                return Ok((offset, of));
            }
            // Anonymous, or a base class: its members belong to this structure.
            match self.member(&self.plain(of)?.0, name, depth) {
                Ok((inner, of)) => return Ok((offset.wrapping_add(inner), of)),
                Err(Obstacle::NoMember(more)) => names.extend(more.into_iter().flatten()),
                Err(other) => return Err(other),
            }
        }
        Err(Obstacle::NoMember(Some(names)))
    }

    /// An entry's name, if it has one.
    pub(super) fn name(
        &self,
        unit: &Unit<Bytes<'a>>,
        entry: &Entry<'a>,
    ) -> Result<Option<String>, gimli::Error> {
        let name = entry.attr_value(gimli::DW_AT_name);
        let name = name.map(|value| self.dwarf.attr_string(unit, value)).transpose()?;
        Ok(name.map(|name| String::from_utf8_lossy(name.slice()).into_owned()))
    }
}

/// What a value of a base type is.
fn kind_of(entry: &Entry<'_>) -> ValueKind {
    match entry.attr_value(gimli::DW_AT_encoding) {
        Some(AttributeValue::Encoding(encoding)) => match encoding {
            gimli::DW_ATE_unsigned => ValueKind::Unsigned,
            gimli::DW_ATE_signed => ValueKind::Signed,
            gimli::DW_ATE_boolean => ValueKind::Boolean,
            gimli::DW_ATE_signed_char | gimli::DW_ATE_unsigned_char | gimli::DW_ATE_UTF => {
                ValueKind::Character
            }
            gimli::DW_ATE_float => ValueKind::Float,
            _ => ValueKind::Unknown,
        },
        _ => ValueKind::Unknown,
    }
}
