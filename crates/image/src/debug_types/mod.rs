//! What debug information (DWARF) tells about a module's functions and types: parameters and where
//! they are at the entry, structs and where their members are, names of types and of constants.
//!
//! ```text
//! vaddr --functions--> parameters: name, TypeId, place (system_v, golang)
//! name  --named------> TypeId --shapes--> what it is, members; --text--> as C writes it
//! ```
//!
//! Design constraints:
//!
//! * Nothing is read that is not asked for. A function is found by the address ranges of the units;
//!   only its own unit is then gone through. A search for a name visits the outermost entries of
//!   units only.
//! * The information is not trusted: all that is read is counted, and has a limit; every
//!   chain and every nesting has one of its own (`kinds`).
//! * A place is right, or refused with a reason. What the compiler says of the entry (location
//!   lists) is stronger than the calling convention.
//!
//! | file | what it contains |
//! |---|---|
//! | `kinds`, `passed` | what questions and answers consist of |
//! | `reader` | units, entries, references between them, names |
//! | `ranges` | the unit that has an address |
//! | `scan` | goes through a unit without reading what is inside of functions and types |
//! | `named` | types and constants by name |
//! | `inlined` | functions that are in their callers only |
//! | `shapes`, `text` | what a type is; its name |
//! | `lines`, `line_table` | the code of source lines; the line of all code |
//! | `functions`, `locations` | parameters of a function, and where the compiler says they are |
//! | `values`, `system_v`, `classes`, `golang` | where calling conventions pass them |

mod classes;
mod functions;
mod golang;
mod inlined;
mod kinds;
mod line_table;
mod lines;
mod locations;
mod named;
mod passed;
mod ranges;
mod reader;
mod scan;
mod shapes;
mod system_v;
mod text;
mod values;

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use gimli::{DebugInfoOffset, DwarfSections, EndianSlice, LittleEndian, SectionId, UnitType};

use super::{Image, Machine, debug_information};
use kinds::{DEPTH, UNITS, WORK};
pub use kinds::{NoTypes, TypeId, TypeName};
pub use line_table::{LineRow, LineTable};
pub use lines::LineCode;
pub use passed::{FunctionType, Parameter, Passed, Piece};
use ranges::Ranges;
use reader::Reader;
pub use shapes::{BitRange, RecordKind, RecordMember, RecordType, Shape};

/// The debug information of a module, to be asked for functions and types.
pub struct DebugTypes {
    sections: DwarfSections<Vec<u8>>,
    /// The offsets of all units, ascending.
    units: Vec<DebugInfoOffset>,
    /// The types that have units of their own, by their signature.
    signed: HashMap<u64, TypeId>,
    ranges: OnceCell<Result<Rc<Ranges>, NoTypes>>,
    functions: functions::Known,
    /// How much may still be read.
    left: Cell<u64>,
}

impl fmt::Debug for DebugTypes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("DebugTypes").field("units", &self.units.len()).finish_non_exhaustive()
    }
}

impl DebugTypes {
    /// The debug information of a module: its own, or that of a separate file.
    ///
    /// # Errors
    /// There is none, or it is damaged.
    pub fn read(image: &Image) -> Result<DebugTypes, NoTypes> {
        if image.machine() != Machine::X86_64 {
            return Err(NoTypes::OtherMachine);
        }
        let sections = debug_information(image, SectionId::DebugInfo).ok_or(NoTypes::Missing)?;
        let (mut units, mut signed) = (Vec::new(), HashMap::new());
        {
            let dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
            let mut headers = dwarf.units();
            while let Some(header) = headers.next()? {
                if units.len() == UNITS {
                    return Err(NoTypes::TooLong);
                }
                let Some(start) = header.debug_info_offset() else { continue };
                units.push(start);
                if let UnitType::Type { type_signature, type_offset } = header.type_() {
                    signed.insert(type_signature.0, TypeId(start.0.saturating_add(type_offset.0)));
                }
            }
        }
        Ok(DebugTypes {
            sections,
            units,
            signed,
            ranges: OnceCell::new(),
            functions: functions::Known::default(),
            left: Cell::new(WORK),
        })
    }

    fn with<T>(&self, ask: impl FnOnce(&Reader<'_>) -> Result<T, NoTypes>) -> Result<T, NoTypes> {
        let dwarf = self.sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
        ask(&Reader::new(dwarf, &self.units, &self.signed, &self.left))
    }

    fn ranges(&self) -> Result<Rc<Ranges>, NoTypes> {
        self.ranges.get_or_init(|| self.with(ranges::read).map(Rc::new)).clone()
    }

    /// The function that begins at an address: its parameters, and what it returns. `symbols` are
    /// the names that symbol tables have for it.
    ///
    /// # Errors
    /// It is not described.
    pub fn function(&self, vaddr: u64, symbols: &[&str]) -> Result<FunctionType, NoTypes> {
        let units = self.ranges()?.units_at(vaddr);
        self.with(|reader| functions::function(reader, &units, &self.functions, vaddr, symbols))
    }

    /// The complete types of a name, each once. Those of the unit that has the code at `near` are
    /// meant if it has any; only if not, the other units are searched.
    ///
    /// # Errors
    /// The information is damaged, or too large.
    pub fn named(&self, kind: TypeName, name: &str, near: &[u64]) -> Result<Vec<TypeId>, NoTypes> {
        let units = self.units_near(near);
        self.with(|reader| named::types(reader, &units, kind, name))
    }

    /// The value of an enum's constant, and its enum; searched as in [`DebugTypes::named`].
    ///
    /// # Errors
    /// The information is damaged, or too large.
    pub fn constant(&self, name: &str, near: &[u64]) -> Result<Vec<(TypeId, i64)>, NoTypes> {
        let units = self.units_near(near);
        self.with(|reader| named::constants(reader, &units, name))
    }

    /// The code of a source line; the file is named by its path or the end of it.
    ///
    /// # Errors
    /// The information is damaged, or too large.
    pub fn line(&self, file: &str, line: u64) -> Result<LineCode, NoTypes> {
        self.with(|reader| lines::line(reader, file, line))
    }

    /// Whether a function of this name was inlined wherever it is called.
    ///
    /// # Errors
    /// The information is damaged, or too large.
    pub fn has_inlined(&self, name: &str) -> Result<bool, NoTypes> {
        self.with(|reader| inlined::has(reader, name))
    }

    /// The line tables of all units.
    ///
    /// # Errors
    /// The information is damaged, or too large.
    pub fn line_table(&self) -> Result<LineTable, NoTypes> {
        self.with(line_table::line_table)
    }

    fn units_near(&self, near: &[u64]) -> Vec<DebugInfoOffset> {
        let Ok(ranges) = self.ranges() else { return Vec::new() };
        let mut units: Vec<DebugInfoOffset> = near.iter().flat_map(|vaddr| ranges.units_at(*vaddr)).collect();
        units.dedup();
        units
    }

    /// What a type is, without names of types (`typedef`) and qualifiers.
    ///
    /// # Errors
    /// The information is damaged.
    pub fn shape(&self, id: TypeId) -> Result<Shape, NoTypes> {
        self.with(|reader| reader.shape(id))
    }

    /// A struct, union or class with its members; those of anonymous members, and of base classes,
    /// are its own.
    ///
    /// # Errors
    /// It is none, or damaged, or is only declared here.
    pub fn record(&self, id: TypeId) -> Result<RecordType, NoTypes> {
        self.with(|reader| reader.record(id))
    }

    /// The constants of an enum.
    ///
    /// # Errors
    /// It is none, or damaged.
    pub fn enumerators(&self, id: TypeId) -> Result<Vec<(String, i64)>, NoTypes> {
        self.with(|reader| reader.enumerators(id))
    }

    /// A type in one line: equal ones are the same type, told by several units.
    ///
    /// # Errors
    /// The information is damaged.
    pub fn fingerprint(&self, id: TypeId) -> Result<String, NoTypes> {
        self.with(|reader| named::fingerprint(reader, id))
    }

    /// The bytes of a value of a type.
    ///
    /// # Errors
    /// It has no size, or is damaged.
    pub fn size(&self, id: TypeId) -> Result<u64, NoTypes> {
        self.with(|reader| reader.size(id, DEPTH))
    }

    /// A type as C writes it; `None` is `void`.
    pub fn text(&self, id: Option<TypeId>) -> String {
        self.with(|reader| Ok(text::text(reader, id))).unwrap_or_else(|_| "?".to_owned())
    }
}
