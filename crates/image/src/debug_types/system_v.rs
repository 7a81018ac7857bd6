//! Where functions of C have their parameters when they begin (System V ABI, 3.2.3).

use super::classes::is_by_address;
use super::kinds::{NoTypes, TypeId};
use super::passed::{FLOATS, Passed, Piece};
use super::reader::{Reader, has_plain_names};
use super::shapes::{Shape, record_kind};
use super::values::{Class, NoParts, Part, scalars};

/// The general registers of parameters, in their order.
const REGISTERS: [&str; 6] = ["rdi", "rsi", "rdx", "rcx", "r8", "r9"];
/// How many registers parameters have that are floats.
const FLOAT_REGISTERS: usize = 8;

/// How a value is passed.
#[derive(Debug)]
enum Kind {
    /// It has no contents, and no place.
    Nothing,
    /// In one or two registers; whether each is one for floats.
    Registers(Vec<bool>),
    /// In memory.
    Memory,
    /// By its address in a register.
    Reference,
    /// It is not known how, because of this.
    Unknown(String),
}

/// The places of a function's parameters, one after the other.
#[derive(Debug, Default)]
pub(super) struct Places {
    words: usize,
    floats: usize,
    /// The next place on the stack, counted from the stack pointer: the return address is there.
    stack: u64,
    /// Why all further places are unknown.
    lost: Option<String>,
}

impl Places {
    /// The places of a function that returns a value of a type, and where it returns that.
    pub(super) fn new(reader: &Reader<'_>, result: Option<TypeId>) -> Result<(Places, Passed), NoTypes> {
        let mut places = Places { stack: 8, ..Places::default() };
        let Some(result) = result else {
            return Ok((places, Passed::Nowhere("the function returns nothing".to_owned())));
        };
        let returned = match kind(reader, result)? {
            Kind::Nothing => Passed::Nowhere("it has no contents".to_owned()),
            Kind::Registers(floats) => in_registers(&floats, &["rax", "rdx"], &FLOATS, reader, result)?,
            Kind::Memory | Kind::Reference => {
                // `long double` is returned in a register of its own.
                if let Shape::Float { .. } = reader.shape(result)? {
                    Passed::in_extended_registers()
                } else {
                    places.words = 1;
                    Passed::Pointed("rax")
                }
            }
            Kind::Unknown(what) => {
                places.lost = Some(format!("how a value of type `{what}` is returned is not known"));
                Passed::Nowhere(format!("how a value of type `{what}` is returned is not known"))
            }
        };
        Ok((places, returned))
    }

    /// The place of the next parameter.
    pub(super) fn next(&mut self, reader: &Reader<'_>, of: TypeId) -> Result<Passed, NoTypes> {
        if let Some(reason) = &self.lost {
            return Ok(Passed::Nowhere(reason.clone()));
        }
        let kind = kind(reader, of)?;
        match kind {
            Kind::Nothing => Ok(Passed::Nowhere("it has no contents".to_owned())),
            Kind::Reference if self.words < REGISTERS.len() => {
                self.words += 1;
                Ok(Passed::Pointed(REGISTERS[self.words - 1]))
            }
            Kind::Reference => {
                self.stack = self.stack.saturating_add(8);
                Ok(Passed::Nowhere("its address is on the stack".to_owned()))
            }
            Kind::Registers(each) => {
                let floats = each.iter().filter(|is_float| **is_float).count();
                let words = each.len() - floats;
                if self.words + words > REGISTERS.len() || self.floats + floats > FLOAT_REGISTERS {
                    return self.on_stack(reader, of);
                }
                let passed =
                    in_registers(&each, &REGISTERS[self.words..], &FLOATS[self.floats..], reader, of)?;
                self.words += words;
                self.floats += floats;
                Ok(passed)
            }
            Kind::Memory => self.on_stack(reader, of),
            Kind::Unknown(what) => {
                let reason = format!("how a value of type `{what}` is passed is not known");
                self.lost = Some(reason.clone());
                Ok(Passed::Nowhere(reason))
            }
        }
    }

    /// All further places are unknown.
    pub(super) fn lose(&mut self, reason: &str) {
        self.lost.get_or_insert_with(|| reason.to_owned());
    }

    fn on_stack(&mut self, reader: &Reader<'_>, of: TypeId) -> Result<Passed, NoTypes> {
        let size = reader.size(of, super::kinds::DEPTH)?;
        let align = alignment(reader, of)?;
        // The first parameter on the stack is at a multiple of 16 when the function is called.
        let start = (self.stack - 8).checked_next_multiple_of(align).and_then(|start| start.checked_add(8));
        let end = start.and_then(|start| start.checked_add(size)?.checked_next_multiple_of(8));
        let (Some(start), Some(end)) = (start, end) else {
            return Err(NoTypes::Damaged("a parameter is too large".to_owned()));
        };
        self.stack = end;
        Ok(Passed::Stack(start))
    }
}

/// The bytes of a value in registers: whether each half is in one for floats, and the next
/// registers
/// of both kinds.
fn in_registers(
    halves: &[bool],
    words: &[&'static str],
    floats: &[&'static str],
    reader: &Reader<'_>,
    of: TypeId,
) -> Result<Passed, NoTypes> {
    let size = reader.size(of, super::kinds::DEPTH)?;
    if halves == [true] && size > 8 {
        return Ok(Passed::Nowhere("it has 16 bytes in one register for floats".to_owned()));
    }
    let (mut words, mut floats) = (words.iter(), floats.iter());
    let pieces = halves.iter().enumerate().filter_map(|(index, is_float)| {
        let register = if *is_float { floats.next() } else { words.next() };
        let offset = 8 * index as u64;
        register.map(|register| Piece { register, offset, bytes: size.saturating_sub(offset).min(8) as u8 })
    });
    Ok(Passed::Registers(pieces.collect()))
}

/// How a value of a type is passed.
fn kind(reader: &Reader<'_>, of: TypeId) -> Result<Kind, NoTypes> {
    if let Some(kind) = kind_of_class(reader, of)? {
        return Ok(kind);
    }
    let size = match reader.shape(of)? {
        Shape::Other { what, bytes: None } => return Ok(Kind::Unknown(what)),
        _ => reader.size(of, super::kinds::DEPTH)?,
    };
    let is_record = matches!(reader.shape(of)?, Shape::Record { .. } | Shape::Array { .. });
    // At most two registers, unless it is a vector, which is no struct.
    if is_record && size > 16 {
        return Ok(match scalars(reader, of, 2) {
            Err(NoParts::Unknown(what)) => Kind::Unknown(what),
            _ => Kind::Memory,
        });
    }
    let found = match scalars(reader, of, 16) {
        Ok(found) => found,
        Err(NoParts::Unknown(what)) => return Ok(Kind::Unknown(what)),
        Err(NoParts::Many) => return Ok(Kind::Memory),
        Err(NoParts::Types(error)) => return Err(error),
    };
    if found.is_empty() {
        return Ok(Kind::Nothing);
    }
    let misplaced =
        |part: &Part| part.bytes.is_power_of_two() && !part.offset.is_multiple_of(part.bytes.min(8));
    if found.iter().any(|part| part.class == Class::Extended || misplaced(part)) {
        return Ok(Kind::Memory);
    }
    // Floats of 16 bytes take one register.
    if let [Part { class: Class::Float, bytes: 16, .. }] = found[..] {
        return Ok(Kind::Registers(vec![true]));
    }
    let halves = if size > 8 { 2 } else { 1 };
    let is_float = |half: u64| {
        let mut in_half = found.iter().filter(|part| part.offset / 8 == half);
        // A half that is padding only is no general register.
        in_half.all(|part| part.class == Class::Float)
    };
    Ok(Kind::Registers((0..halves).map(is_float).collect()))
}

/// How an object of a class of C++ is passed, if that is not as a struct of C.
fn kind_of_class(reader: &Reader<'_>, of: TypeId) -> Result<Option<Kind>, NoTypes> {
    let Some(at) = reader.plain(of)? else { return Ok(None) };
    if record_kind(at.entry.tag()).is_none() || !has_plain_names(&at.unit) {
        return Ok(None);
    }
    Ok(match is_by_address(reader, of)? {
        Some(true) => Some(Kind::Reference),
        Some(false) => None,
        None => Some(Kind::Unknown(reader.name(&at)?.unwrap_or_default())),
    })
}

/// The alignment of a value on the stack.
fn alignment(reader: &Reader<'_>, of: TypeId) -> Result<u64, NoTypes> {
    let told = reader.plain(of)?.and_then(|at| Reader::number(&at.entry, gimli::DW_AT_alignment));
    if let Some(told) = told.filter(|told| told.is_power_of_two() && *told > 8 && *told <= 4096) {
        return Ok(told);
    }
    Ok(match scalars(reader, of, 16) {
        Ok(found) if found.iter().any(|part| part.bytes == 16) => 16,
        Ok(_) if matches!(reader.shape(of)?, Shape::Other { bytes: Some(16), .. }) => 16,
        _ => 8,
    })
}
