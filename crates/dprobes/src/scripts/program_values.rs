//! Types and places of debug information, as scripts have them.

use std::collections::HashMap;
use std::rc::Rc;

use image::{DebugTypes, NoTypes, Passed, Piece, RecordKind, RecordMember, Shape, TypeId, TypeName};
use script::{Integer, ProgramField, ProgramRecord, RegisterPart, Tag, Type, ValuePlace, key};
use vm::Register;

use super::programs::Program;

/// How deep pointers and arrays may be in each other.
const DEPTH: u32 = 16;

/// A name of a program as it can be shown: anything may be in it, as commands for a terminal.
pub(super) fn shown(name: &str) -> String {
    printable::text(name).into_owned()
}

/// The keys of types of programs.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// By the program's number and the place of the type.
    keys: HashMap<(usize, TypeId), Rc<str>>,
    /// By the program's number and what the type is: several units may tell the same type.
    alike: HashMap<(usize, String), Rc<str>>,
    places: HashMap<Rc<str>, (usize, TypeId)>,
}

impl Keys {
    /// Where the type of a key is told: the program's number, and the place.
    pub(super) fn type_place(&self, key: &str) -> Option<(usize, TypeId)> {
        self.places.get(key).copied()
    }

    /// A type of a program.
    pub(super) fn type_of(&mut self, program: &Program, types: &DebugTypes, id: TypeId) -> Type {
        self.within(program, types, id, DEPTH)
    }

    fn within(&mut self, program: &Program, types: &DebugTypes, id: TypeId, depth: u32) -> Type {
        let Some(depth) = depth.checked_sub(1) else { return Type::Void };
        let foreign = |bytes: u64| {
            let text = shown(&types.text(Some(id)));
            Type::Foreign(text.as_str().into(), u32::try_from(bytes).unwrap_or(u32::MAX))
        };
        let pointer = |to| Type::Pointer(Rc::new(to));
        match types.shape(id) {
            Ok(Shape::Void) => Type::Void,
            Ok(Shape::Boolean) => Type::Bool,
            Ok(Shape::Integer { bytes, signed }) => Type::Integer(Integer { bytes, signed }),
            Ok(Shape::Float { bytes: bytes @ (4 | 8), .. }) => Type::Float(bytes as u8),
            Ok(Shape::Float { bytes, .. }) => foreign(bytes),
            Ok(Shape::Pointer(None) | Shape::Function) => pointer(Type::Void),
            Ok(Shape::Pointer(Some(to))) => match types.shape(to) {
                Ok(Shape::Function) => pointer(Type::Void),
                _ => pointer(self.within(program, types, to, depth)),
            },
            Ok(Shape::Array { element, lengths }) => {
                let mut ty = self.within(program, types, element, depth);
                for (index, length) in lengths.iter().enumerate().rev() {
                    let length = length.map(u32::try_from);
                    match length {
                        Some(Ok(length)) => ty = Type::Array(Rc::new(ty), Some(length)),
                        // Only the outer dimension can be open.
                        None if index == 0 => ty = Type::Array(Rc::new(ty), None),
                        _ => return foreign(types.size(id).unwrap_or(0)),
                    }
                }
                ty
            }
            Ok(Shape::Record { id, kind, name }) => {
                let tag = match kind {
                    RecordKind::Struct => Tag::Struct,
                    RecordKind::Union => Tag::Union,
                };
                Type::Named(tag, self.key(program, types, id, name.as_deref()))
            }
            // Enums of scripts have 4 bytes.
            Ok(Shape::Enumeration { id, name, bytes: 4, .. }) => {
                Type::Named(Tag::Enum, self.key(program, types, id, name.as_deref()))
            }
            Ok(Shape::Enumeration { bytes, signed, .. }) => Type::Integer(Integer { bytes, signed }),
            Ok(Shape::Other { bytes, .. }) => foreign(bytes.unwrap_or(0)),
            Err(_) => foreign(types.size(id).unwrap_or(0)),
        }
    }

    fn key(&mut self, program: &Program, types: &DebugTypes, id: TypeId, name: Option<&str>) -> Rc<str> {
        let place = (program.number, id);
        if let Some(known) = self.keys.get(&place) {
            return Rc::clone(known);
        }
        // Types without names are alike only if they are one.
        let line = match name.map(|_| types.fingerprint(id)) {
            Some(Ok(line)) => line,
            _ => format!("{id:?}"),
        };
        let number = self.alike.len();
        let new = || key(&shown(name.unwrap_or("(anonymous)")), number);
        let known = Rc::clone(self.alike.entry((program.number, line)).or_insert_with(new));
        self.keys.insert(place, Rc::clone(&known));
        self.places.entry(Rc::clone(&known)).or_insert(place);
        known
    }

    /// A record of a program.
    pub(super) fn record(
        &mut self,
        program: &Program,
        types: &DebugTypes,
        id: TypeId,
    ) -> Result<ProgramRecord, String> {
        let record = match types.record(id) {
            // Another unit may define what this one declares.
            Err(NoTypes::Declared) => defined(types, id).and_then(|id| types.record(id)),
            found => found,
        };
        let record = record.map_err(|error| error.to_string())?;
        let mut align = 1;
        let fields = record.members.iter().map(|member| {
            let ty = self.type_of(program, types, member.of);
            let size = types.size(member.of).unwrap_or(0);
            if size.is_power_of_two() && member.offset.is_multiple_of(size.min(8)) {
                align = align.max(size.min(8));
            }
            field(member, ty, size)
        });
        let fields = fields.collect();
        let align = if record.size.is_multiple_of(align) { align } else { 1 };
        Ok(ProgramRecord { fields, size: record.size, align })
    }
}

/// The definition of a type that is only declared.
fn defined(types: &DebugTypes, id: TypeId) -> Result<TypeId, NoTypes> {
    let Shape::Record { kind, name: Some(name), .. } = types.shape(id)? else {
        return Err(NoTypes::Declared);
    };
    let kind = match kind {
        RecordKind::Struct => TypeName::Struct,
        RecordKind::Union => TypeName::Union,
    };
    match types.named(kind, &name, &[])?[..] {
        [one] => Ok(one),
        _ => Err(NoTypes::Declared),
    }
}

/// A field; bits are read in a unit that has all of them.
pub(super) fn field(member: &RecordMember, ty: Type, size: u64) -> ProgramField {
    let name = shown(&member.name);
    let Some(bits) = member.bits else { return ProgramField { name, ty, offset: member.offset, bits: None } };
    let (unit, size) = (size.clamp(1, 8).next_power_of_two(), size);
    let end = bits.first.saturating_add(bits.count.into());
    let offset = bits.first / 8 / unit * unit;
    if size == unit && end <= offset.saturating_add(unit).saturating_mul(8) {
        return ProgramField { name, ty, offset, bits: Some(((bits.first - offset * 8) as u8, bits.count)) };
    }
    // A packed struct's bits may be in two units of their type.
    let offset = bits.first / 8;
    let bytes = (end.div_ceil(8) - offset).next_power_of_two();
    if bytes > 8 {
        return ProgramField {
            name,
            ty: Type::Foreign("a bit field of 9 bytes".into(), 9),
            offset,
            bits: None,
        };
    }
    let ty = match ty {
        Type::Integer(integer) => Type::Integer(Integer { bytes: bytes as u8, ..integer }),
        _ => Type::Integer(Integer { bytes: bytes as u8, signed: false }),
    };
    ProgramField { name, ty, offset, bits: Some(((bits.first % 8) as u8, bits.count)) }
}

/// All arguments as a struct: each begins at a multiple of 8.
pub(super) fn arguments(named: &[(String, Type)], sizes: &[u64]) -> ProgramRecord {
    let mut record = ProgramRecord { align: 8, ..ProgramRecord::default() };
    for ((name, ty), size) in named.iter().zip(sizes) {
        let (name, ty) = (name.clone(), ty.clone());
        record.fields.push(ProgramField { name, ty, offset: record.size, bits: None });
        let room = size.max(&1).checked_next_multiple_of(8).unwrap_or(u64::MAX);
        record.size = record.size.saturating_add(room);
    }
    record
}

/// Where a value is.
pub(super) fn value_place(passed: &Passed) -> ValuePlace {
    let unknown = || ValuePlace::Nowhere("it is in a register that is not read".to_owned());
    match passed {
        Passed::Registers(pieces) => {
            let parts: Option<Vec<RegisterPart>> = pieces.iter().map(part).collect();
            parts.map_or_else(unknown, ValuePlace::Registers)
        }
        Passed::Stack(offset) => ValuePlace::Stack(*offset),
        Passed::Pointed(name) => register(name).map_or_else(unknown, ValuePlace::Pointed),
        Passed::Nowhere(reason) => ValuePlace::Nowhere(shown(reason)),
    }
}

fn part(piece: &Piece) -> Option<RegisterPart> {
    let offset = u16::try_from(piece.offset).ok()?;
    Some(RegisterPart { register: register(piece.register)?, offset, bytes: piece.bytes })
}

fn register(name: &str) -> Option<Register> {
    Register::ALL.iter().copied().find(|register| register.name() == name)
}

#[cfg(test)]
mod tests {
    use image::BitRange;

    use super::*;

    fn bits(first: u64, count: u8, bytes: u8) -> ProgramField {
        let member = RecordMember {
            name: "x".into(),
            of: TypeId::default(),
            offset: first / 8,
            bits: Some(BitRange { first, count }),
        };
        field(&member, Type::Integer(Integer { bytes, signed: true }), bytes.into())
    }

    #[test]
    fn bits_are_read_in_a_unit_that_has_all_of_them() {
        let read = |first, count, bytes| {
            let field = bits(first, count, bytes);
            let Type::Integer(Integer { bytes, signed: true }) = field.ty else { panic!("{field:?}") };
            (field.offset, bytes, field.bits)
        };
        assert_eq!(read(131, 5, 4), (16, 4, Some((3, 5))));
        assert_eq!(read(153, 7, 1), (19, 1, Some((1, 7))));
        // Of a packed struct: over the end of the unit of its type.
        assert_eq!(read(79, 30, 4), (9, 8, Some((7, 30))));
        assert_eq!(read(60, 8, 4), (7, 2, Some((4, 8))));
        assert!(matches!(bits(7, 64, 8).ty, Type::Foreign(..)));
    }

    #[test]
    fn arguments_begin_at_multiples_of_8() {
        let named =
            [("a".to_owned(), Type::Bool), ("b".to_owned(), Type::Void), ("c".to_owned(), Type::Bool)];
        let record = arguments(&named, &[1, 12, 1]);
        let offsets: Vec<u64> = record.fields.iter().map(|field| field.offset).collect();
        assert_eq!((offsets, record.size), (vec![0, 8, 24], 32));
    }

    #[test]
    fn names_are_shown_without_commands_for_terminals() {
        assert_eq!(shown("client"), "client");
        assert!(!shown("a\u{1b}[2Jb").contains('\u{1b}'));
    }

    #[test]
    fn registers_have_the_names_of_the_machine() {
        for name in ["rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r15"] {
            assert!(register(name).is_some(), "{name}");
        }
        let passed = Passed::Registers(vec![Piece { register: "nobody", offset: 0, bytes: 8 }]);
        assert!(matches!(value_place(&passed), ValuePlace::Nowhere(_)));
    }
}
