//! Units and entries of debug information, and how they refer to each other.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use gimli::{
    AttributeValue, DebugInfoOffset, DebuggingInformationEntry, DwAt, Dwarf, EndianSlice, LittleEndian,
    Reader as _, Section, Unit, UnitOffset,
};

use super::kinds::{DEPTH, NoTypes, TypeId};

pub(super) type Bytes<'a> = EndianSlice<'a, LittleEndian>;
pub(super) type Entry<'a> = DebuggingInformationEntry<Bytes<'a>>;

/// The longest name; what is behind it is left out.
const NAME: usize = 16 << 10;
/// The most attributes of the children of an entry, which are kept together.
const ATTRIBUTES: usize = 1 << 20;
/// The most bytes of a table of abbreviations. Compilers make some kilobytes for a unit.
const TABLE: usize = 4 << 20;
/// The most parsed units that are kept.
const KEPT: usize = 64;

/// An entry with its unit.
#[derive(Clone)]
pub(super) struct At<'a> {
    pub(super) unit: Rc<Unit<Bytes<'a>>>,
    pub(super) entry: Entry<'a>,
}

/// Answers one question.
pub(super) struct Reader<'a> {
    pub(super) dwarf: Dwarf<Bytes<'a>>,
    pub(super) units: &'a [DebugInfoOffset],
    signed: &'a HashMap<u64, TypeId>,
    left: &'a Cell<u64>,
    parsed: RefCell<HashMap<usize, Rc<Unit<Bytes<'a>>>>>,
}

/// The error for what is not as it has to be.
pub(super) fn damaged<T>(cause: &str) -> Result<T, NoTypes> {
    Err(NoTypes::Damaged(cause.to_owned()))
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        dwarf: Dwarf<Bytes<'a>>,
        units: &'a [DebugInfoOffset],
        signed: &'a HashMap<u64, TypeId>,
        left: &'a Cell<u64>,
    ) -> Reader<'a> {
        Reader { dwarf, units, signed, left, parsed: RefCell::default() }
    }

    /// Counts something that is read.
    pub(super) fn spend(&self, count: u64) -> Result<(), NoTypes> {
        self.left.set(self.left.get().checked_sub(count).ok_or(NoTypes::TooLong)?);
        Ok(())
    }

    /// The unit at an offset.
    pub(super) fn unit(&self, offset: DebugInfoOffset) -> Result<Rc<Unit<Bytes<'a>>>, NoTypes> {
        if let Some(unit) = self.parsed.borrow().get(&offset.0) {
            return Ok(Rc::clone(unit));
        }
        let header = self.dwarf.unit_header(offset)?;
        self.spend(100 + self.abbreviations(header.debug_abbrev_offset().0)?)?;
        let unit = Rc::new(self.dwarf.unit(header)?);
        // Its table of lines begins with names.
        let lines = unit.line_program.as_ref().map(|lines| lines.header());
        let names = lines.map_or(0, |lines| lines.file_names().len() + lines.include_directories().len());
        self.spend(names as u64)?;
        let mut parsed = self.parsed.borrow_mut();
        if parsed.len() >= KEPT {
            parsed.clear();
        }
        parsed.insert(offset.0, Rc::clone(&unit));
        Ok(unit)
    }

    /// The bytes of a table of abbreviations, which is read as a whole: no more than [`TABLE`].
    fn abbreviations(&self, offset: usize) -> Result<u64, NoTypes> {
        let mut input = *self.dwarf.debug_abbrev.reader();
        input.skip(offset)?;
        let before = input.len();
        let size = |input: &Bytes<'a>| before - input.len();
        while input.read_uleb128()? != 0 {
            // Its tag, and whether there are children.
            input.read_uleb128()?;
            input.read_u8()?;
            loop {
                let (attribute, form) = (input.read_uleb128()?, input.read_uleb128()?);
                if form == u64::from(gimli::DW_FORM_implicit_const.0) {
                    input.read_sleb128()?;
                }
                if size(&input) > TABLE {
                    return damaged("a table of abbreviations is too large");
                }
                if (attribute, form) == (0, 0) {
                    break;
                }
            }
        }
        Ok(size(&input) as u64)
    }

    /// The entry of a type.
    pub(super) fn at(&self, id: TypeId) -> Result<At<'a>, NoTypes> {
        self.spend(20)?;
        let number = self.units.partition_point(|start| start.0 <= id.0);
        let Some(start) = number.checked_sub(1).map(|number| self.units[number]) else {
            return damaged("a reference leads nowhere");
        };
        let unit = self.unit(start)?;
        let entry = unit.entry(UnitOffset(id.0 - start.0))?;
        self.spend(entry.attrs().len() as u64)?;
        Ok(At { unit, entry })
    }

    /// The entry that an attribute refers to, if it has the attribute.
    pub(super) fn reference(
        &self,
        unit: &Unit<Bytes<'a>>,
        entry: &Entry<'a>,
        attribute: DwAt,
    ) -> Result<Option<TypeId>, NoTypes> {
        match entry.attr_value(attribute) {
            None => Ok(None),
            Some(AttributeValue::UnitRef(offset)) => self.id(unit, offset).map(Some),
            Some(AttributeValue::DebugInfoRef(offset)) => Ok(Some(TypeId(offset.0))),
            Some(AttributeValue::DebugTypesRef(signature)) => match self.signed.get(&signature.0) {
                Some(id) => Ok(Some(*id)),
                None => damaged("a type is in a section of types, which is not read"),
            },
            Some(_) => damaged("a reference to a type is of an unknown form"),
        }
    }

    /// The id of an entry of a unit.
    pub(super) fn id(&self, unit: &Unit<Bytes<'a>>, offset: UnitOffset) -> Result<TypeId, NoTypes> {
        match unit.header.debug_info_offset().and_then(|start| start.0.checked_add(offset.0)) {
            Some(offset) => Ok(TypeId(offset)),
            None => damaged("a type is in a type unit"),
        }
    }

    /// The type of an entry; `None` is `void`.
    pub(super) fn type_of(&self, at: &At<'a>) -> Result<Option<TypeId>, NoTypes> {
        self.reference(&at.unit, &at.entry, gimli::DW_AT_type)
    }

    /// The first value of an attribute: of an entry, or of what it is an instance or the definition
    /// of.
    pub(super) fn inherited(
        &self,
        at: &At<'a>,
        attribute: DwAt,
    ) -> Result<Option<(At<'a>, AttributeValue<Bytes<'a>>)>, NoTypes> {
        let mut at = at.clone();
        for _ in 0..DEPTH {
            if let Some(value) = at.entry.attr_value(attribute) {
                return Ok(Some((at, value)));
            }
            let origin = self.reference(&at.unit, &at.entry, gimli::DW_AT_abstract_origin)?;
            let next = match origin {
                Some(next) => Some(next),
                None => self.reference(&at.unit, &at.entry, gimli::DW_AT_specification)?,
            };
            match next {
                Some(next) => at = self.at(next)?,
                None => return Ok(None),
            }
        }
        damaged("an entry is an instance of itself")
    }

    /// The name of an entry, or of what it is an instance of.
    pub(super) fn name(&self, at: &At<'a>) -> Result<Option<String>, NoTypes> {
        let Some((at, value)) = self.inherited(at, gimli::DW_AT_name)? else { return Ok(None) };
        let name = self.dwarf.attr_string(&at.unit, value)?;
        let name = name.slice();
        self.spend(1 + name.len().min(NAME) as u64 / 64)?;
        Ok(Some(String::from_utf8_lossy(&name[..name.len().min(NAME)]).into_owned()))
    }

    /// A number that an entry has.
    pub(super) fn number(entry: &Entry<'a>, attribute: DwAt) -> Option<u64> {
        entry.attr_value(attribute).and_then(|value| value.udata_value())
    }

    /// Whether an entry has a flag.
    pub(super) fn flag(entry: &Entry<'a>, attribute: DwAt) -> bool {
        matches!(entry.attr_value(attribute), Some(AttributeValue::Flag(true)))
    }

    /// The children of an entry, at most `most`.
    pub(super) fn children(&self, at: &At<'a>, most: usize) -> Result<Vec<Entry<'a>>, NoTypes> {
        let (mut found, mut attributes) = (Vec::new(), 0);
        let mut raw = at.unit.entries_raw(Some(at.entry.offset()))?;
        let mut entry = Entry::null();
        if !raw.read_entry(&mut entry)? || !entry.has_children() {
            return Ok(found);
        }
        // The depth of the entry where `raw` began.
        let mut base = 0isize;
        while !raw.is_empty() {
            let is_entry = raw.read_entry(&mut entry)?;
            let depth = base.saturating_add(entry.depth());
            // What is inside of children is read, too, to be skipped. The length of an entry says
            // little of its attributes: some take no bytes.
            let count = entry.attrs().len();
            self.spend(if depth == 1 { 5.max(count as u64) } else { 1 + count as u64 })?;
            if !is_entry {
                if depth <= 1 {
                    break;
                }
                continue;
            }
            if depth > 1 {
                continue;
            }
            attributes += count;
            if found.len() == most || attributes > ATTRIBUTES {
                return Err(NoTypes::TooLong);
            }
            found.push(entry.clone());
            if entry.has_children()
                && let Some(AttributeValue::UnitRef(next)) = entry.attr_value(gimli::DW_AT_sibling)
                && next > raw.next_offset()
            {
                raw = at.unit.entries_raw(Some(next))?;
                base = depth;
            }
        }
        Ok(found)
    }
}

/// Whether types need no keyword in the language of a unit.
pub(super) fn has_plain_names(unit: &Unit<Bytes<'_>>) -> bool {
    let root = unit.entry(unit.header.root_offset());
    let language = root.ok().and_then(|root| root.attr_value(gimli::DW_AT_language));
    !matches!(
        language,
        None | Some(gimli::AttributeValue::Language(
            gimli::DW_LANG_C
                | gimli::DW_LANG_C89
                | gimli::DW_LANG_C99
                | gimli::DW_LANG_C11
                | gimli::DW_LANG_C17
        ))
    )
}
