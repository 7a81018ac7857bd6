//! The structs and unions that a script can use: sizes, and where their fields are.
//!
//! Those of the script have the layout of C on x86-64; those of programs, the one that is told.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use source::{Diagnostic, Messages, Span, nearest, quote};

use crate::ast::{Enumeration, Field, FieldKind, Item, Record, Script};
use crate::attach_point::AttachPoint;
use crate::library;
use crate::program_types::{ProgramRecord, ProgramTypes};
use crate::type_key;
use crate::types::{Tag, Type};

/// The maximum size of a record in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// A field in its record.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) ty: Type,
    pub(crate) offset: u64,
    /// The part of the unit at the offset, if it is a bit field.
    pub(crate) bits: Option<Bits>,
}

/// The bits of a bit field in its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    /// The lowest bit.
    pub first: u8,
    /// The number of bits.
    pub count: u8,
}

/// A laid out record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) fields: BTreeMap<String, Placed>,
    pub(crate) size: u64,
    align: u64,
}

/// The layout of a record of a program, or why it is not known.
type Told = Result<Rc<Layout>, String>;

/// All records and the values of all enums.
#[derive(Debug)]
pub(crate) struct Records {
    layouts: BTreeMap<Rc<str>, (Tag, Rc<Layout>, Span)>,
    /// Knows the records of programs.
    programs: Rc<dyn ProgramTypes>,
    /// Those that were asked for.
    asked: RefCell<BTreeMap<Rc<str>, Told>>,
    enums: BTreeMap<Rc<str>, Span>,
    constants: BTreeMap<String, (Type, i64)>,
    inner: usize,
}

impl Records {
    /// Lays out what a script defines.
    pub(crate) fn of(script: &Script, programs: Rc<dyn ProgramTypes>, messages: &mut Messages) -> Records {
        let mut records = Records {
            layouts: BTreeMap::new(),
            programs,
            asked: RefCell::default(),
            enums: BTreeMap::new(),
            constants: BTreeMap::new(),
            inner: 0,
        };
        for item in &script.items {
            let result = match item {
                Item::Record(record) => {
                    let name: Rc<str> = record.name.as_deref().unwrap_or("").into();
                    records.define(record, name)
                }
                Item::Enumeration(found) => records.enumerate(found, messages),
                _ => Ok(()),
            };
            if let Err(message) = result {
                messages.add(message);
            }
        }
        records
    }

    fn enumerate(&mut self, found: &Enumeration, messages: &mut Messages) -> Result<(), Diagnostic> {
        let ty = match &found.name {
            Some(name) => Type::Named(Tag::Enum, name.as_str().into()),
            None => Type::I64,
        };
        for (name, value) in &found.values {
            if library::find(name).is_some() {
                let message = format!("{} is a builtin", quote(name));
                messages
                    .add(Diagnostic::error(found.at.0, message).label("this enum has a value of that name"));
            } else if self.constants.insert(name.clone(), (ty.clone(), *value)).is_some() {
                let message = format!("{} is the name of two values of enums", quote(name));
                messages.add(Diagnostic::error(found.at.0, message).label("the second is in this enum"));
            }
        }
        match &found.name {
            None => Ok(()),
            Some(name) => match self.enums.insert(name.as_str().into(), found.at.0) {
                None => Ok(()),
                Some(first) => Err(again(Tag::Enum, name, found.at.0, first)),
            },
        }
    }

    fn define(&mut self, record: &Record, name: Rc<str>) -> Result<(), Diagnostic> {
        if let Some((tag, _, first)) = self.layouts.get(&name) {
            return Err(again(*tag, &name, record.at.0, *first));
        }
        let layout = self.layout(record)?;
        self.layouts.insert(name, (record.tag, layout.into(), record.at.0));
        Ok(())
    }

    fn layout(&mut self, record: &Record) -> Result<Layout, Diagnostic> {
        let mut layout = Layout { align: 1, ..Layout::default() };
        // The bit at which the next field may begin.
        let mut end = 0u64;
        for field in &record.fields {
            let (ty, inner) = self.field_type(record, field)?;
            let (size, align) = match &inner {
                Some(inner) => (inner.size, inner.align),
                None => self.measure(&ty).ok_or_else(|| {
                    Diagnostic::error(field.at.0, format!("the size of `{ty}` is not known"))
                        .label("expected a type that is defined before")
                        .help("a struct can contain pointers to what is not defined")
                })?,
            };
            layout.align = layout.align.max(align);
            let bits = match field.bits {
                // A bit field begins in the next unit if it does not fit.
                Some(bits) => {
                    let (bits, unit) = (u64::from(bits), size * 8);
                    if record.tag == Tag::Struct && end / unit != (end + bits - 1) / unit {
                        end = end.next_multiple_of(unit);
                    }
                    bits
                }
                None => {
                    end = end.next_multiple_of(align * 8);
                    size * 8
                }
            };
            let start = if record.tag == Tag::Union { 0 } else { end };
            match (&field.name, inner) {
                (Some(name), _) => {
                    let (offset, bits) = match field.bits {
                        None => (start / 8, None),
                        // A bit field lies in one unit of its type.
                        Some(count) => {
                            let first = u8::try_from(start % (size * 8)).unwrap_or(0);
                            (start / (size * 8) * size, Some(Bits { first, count }))
                        }
                    };
                    layout.add(name, Placed { ty, offset, bits }, field.at.0)?;
                }
                (None, Some(inner)) => {
                    for (name, placed) in inner.fields {
                        let placed = Placed { offset: placed.offset + start / 8, ..placed };
                        layout.add(&name, placed, field.at.0)?;
                    }
                }
                (None, None) => {}
            }
            end = if record.tag == Tag::Union { end.max(bits) } else { start + bits };
            if end / 8 > MAX_BYTES {
                let message = format!("the {} is larger than {MAX_BYTES} bytes", record.tag.word());
                return Err(Diagnostic::error(field.at.0, message).label("too large with this field"));
            }
        }
        layout.size = end.div_ceil(8).next_multiple_of(layout.align);
        Ok(layout)
    }

    /// The type of a field; for a record defined in place also its layout. Such a record gets a
    /// name that no script can write.
    fn field_type(&mut self, outer: &Record, field: &Field) -> Result<(Type, Option<Layout>), Diagnostic> {
        let inner = match &field.kind {
            FieldKind::Plain(ty) => return Ok((ty.clone(), None)),
            FieldKind::Inner(inner) => inner,
        };
        let layout = self.layout(inner)?;
        self.inner += 1;
        let name: Rc<str> = match &inner.name {
            Some(name) => name.as_str().into(),
            None => {
                let outer = outer.name.as_deref().unwrap_or("");
                format!("{outer}::{}", field.name.clone().unwrap_or(self.inner.to_string())).into()
            }
        };
        let (tag, span) = (inner.tag, inner.at.0);
        if let Some((_, _, first)) = self.layouts.insert(name.clone(), (tag, layout.clone().into(), span))
            && inner.name.is_some()
        {
            return Err(again(tag, &name, span, first));
        }
        Ok((Type::Named(tag, name), Some(layout)))
    }

    /// Size and alignment of a type.
    fn measure(&self, ty: &Type) -> Option<(u64, u64)> {
        match ty {
            Type::Bool => Some((1, 1)),
            Type::Integer(integer) => Some((u64::from(integer.bytes), u64::from(integer.bytes))),
            Type::Pointer(_) => Some((8, 8)),
            Type::Float(bytes) => Some((u64::from(*bytes), u64::from(*bytes))),
            Type::Named(Tag::Enum, _) => Some((4, 4)),
            Type::Named(_, name) => self.get(name).map(|layout| (layout.size, layout.align)),
            Type::Foreign(_, bytes) => Some((u64::from(*bytes), 1)),
            Type::Array(inner, Some(length)) => {
                let (size, align) = self.measure(inner)?;
                let size = size.checked_mul(u64::from(*length)).filter(|size| *size <= MAX_BYTES)?;
                Some((size, align))
            }
            // A flexible member at the end of a struct.
            Type::Array(inner, None) => self.measure(inner).map(|(_, align)| (0, align)),
            Type::Tuple(members) => members.iter().try_fold((0u64, 1u64), |(end, align), member| {
                let (size, own) = self.measure(member)?;
                Some((end.next_multiple_of(own) + size, align.max(own)))
            }),
            _ => None,
        }
    }

    /// The size of a value of a type, if it is known.
    pub(crate) fn size(&self, ty: &Type) -> Option<u64> {
        let (size, align) = self.measure(ty)?;
        Some(size.next_multiple_of(align))
    }

    /// The records of the script by their name.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Rc<str>, &Rc<Layout>)> {
        self.layouts.iter().map(|(name, (_, layout, _))| (name, layout))
    }

    /// A record, if the script defines it, or if it is one of a program.
    pub(crate) fn get(&self, name: &str) -> Option<Rc<Layout>> {
        match self.layouts.get(name) {
            Some((_, layout, _)) => Some(Rc::clone(layout)),
            None => self.of_program(name)?.ok(),
        }
    }

    /// Why the fields of a record of a program are not known.
    pub(crate) fn reason(&self, name: &str) -> Option<String> {
        self.of_program(name)?.err()
    }

    fn of_program(&self, name: &str) -> Option<Told> {
        if !type_key::is_key(name) {
            return None;
        }
        if let Some(known) = self.asked.borrow().get(name) {
            return Some(known.clone());
        }
        let found = self.programs.record(name).map(|record| Rc::new(Layout::told(record)));
        self.asked.borrow_mut().insert(name.into(), found.clone());
        Some(found)
    }

    /// Why the program of an attach point does not tell a type.
    pub(crate) fn refused(&self, homes: &[AttachPoint], tag: Tag, name: &str) -> Option<String> {
        homes.iter().find_map(|home| self.programs.named(home, tag, name).err())
    }

    /// What is known of programs.
    pub(crate) fn programs(&self) -> &dyn ProgramTypes {
        &*self.programs
    }

    /// Whether the script defines a record or an enum of a name, or it is a key of a program's.
    pub(crate) fn knows(&self, tag: Tag, name: &str) -> bool {
        type_key::is_key(name)
            || match tag {
                Tag::Enum => self.enums.contains_key(name),
                Tag::Alias => false,
                Tag::Struct | Tag::Union => self.layouts.contains_key(name),
            }
    }

    /// The type and value of an enum's value.
    pub(crate) fn constant(&self, name: &str) -> Option<&(Type, i64)> {
        self.constants.get(name)
    }

    pub(crate) fn constants(&self) -> impl Iterator<Item = &str> {
        self.constants.keys().map(String::as_str)
    }

    /// A defined record with a similar name.
    pub(crate) fn near(&self, name: &str) -> Option<&str> {
        nearest(name, self.layouts.keys().map(|each| &**each).filter(|each| !each.contains(':')))
    }
}

impl Layout {
    /// The layout of a record of a program.
    fn told(record: ProgramRecord) -> Layout {
        let ProgramRecord { fields, size, align } = record;
        let mut layout = Layout { fields: BTreeMap::new(), size, align: align.max(1) };
        for field in fields {
            let bits = field.bits.map(|(first, count)| Bits { first, count });
            let placed = Placed { ty: field.ty, offset: field.offset, bits };
            layout.fields.entry(field.name).or_insert(placed);
        }
        layout
    }

    fn add(&mut self, name: &str, placed: Placed, span: Span) -> Result<(), Diagnostic> {
        match self.fields.insert(name.to_string(), placed) {
            None => Ok(()),
            Some(_) => {
                Err(Diagnostic::error(span, format!("two fields are called {}", quote(name)))
                    .label("the second"))
            }
        }
    }
}

fn again(tag: Tag, name: &str, span: Span, first: Span) -> Diagnostic {
    Diagnostic::error(span, format!("{} {} is defined again", tag.word(), quote(name)))
        .label("second definition")
        .related(first, "first defined here")
}
