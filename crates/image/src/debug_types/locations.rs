//! Where the compiler says that a parameter is when its function begins.

use gimli::{AttributeValue, Expression, Operation, Unit};

use super::kinds::NoTypes;
use super::reader::{Bytes, Entry, Reader};

/// The most entries of a list of locations.
const LOCATIONS: usize = 1 << 16;
/// The most operations of an expression.
const OPERATIONS: usize = 64;

/// The general registers by DWARF's numbers (System V ABI, figure 3.36).
const REGISTERS: [&str; 16] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15",
];

/// What is told of a parameter at the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// It is in a general register.
    Register(&'static str),
    /// It is a constant in this copy of the function.
    Constant,
    /// It has a place, which is described in another way: often that after the prologue.
    Somewhere,
    /// Nothing is told of the entry.
    Nothing,
}

/// What is told of a parameter at the address where its function begins.
pub(super) fn at_entry<'a>(
    reader: &Reader<'a>,
    unit: &Unit<Bytes<'a>>,
    entry: &Entry<'a>,
    vaddr: u64,
) -> Result<Told, NoTypes> {
    if entry.has_attr(gimli::DW_AT_const_value) {
        return Ok(Told::Constant);
    }
    let Some(value) = entry.attr_value(gimli::DW_AT_location) else { return Ok(Told::Nothing) };
    if let AttributeValue::Exprloc(expression) = value {
        return told(unit, expression, true);
    }
    let Some(mut list) = reader.dwarf.attr_locations(unit, value)? else { return Ok(Told::Nothing) };
    for _ in 0..LOCATIONS {
        reader.spend(1)?;
        let Some(location) = list.next()? else { return Ok(Told::Nothing) };
        if location.range.begin <= vaddr && vaddr < location.range.end {
            return told(unit, location.data, true);
        }
    }
    Err(NoTypes::TooLong)
}

/// What an expression tells. An outer one may have another in it, which cannot have a third: so its
/// length does not make the calls deep.
fn told<'a>(
    unit: &Unit<Bytes<'a>>,
    expression: Expression<Bytes<'a>>,
    is_outer: bool,
) -> Result<Told, NoTypes> {
    let mut operations = expression.operations(unit.encoding());
    let mut found = Told::Nothing;
    for count in 0..OPERATIONS {
        let Some(operation) = operations.next()? else { return Ok(found) };
        found = match operation {
            Operation::Register { register } if count == 0 => {
                REGISTERS.get(usize::from(register.0)).map_or(Told::Somewhere, |name| Told::Register(name))
            }
            Operation::UnsignedConstant { .. } | Operation::SignedConstant { .. } if count == 0 => {
                Told::Constant
            }
            Operation::StackValue if found == Told::Constant => Told::Constant,
            // What DWARF 5 says of a changed register tells where it was: in that register.
            Operation::EntryValue { expression } if count == 0 && is_outer => {
                told(unit, Expression(expression), false)?
            }
            Operation::StackValue if matches!(found, Told::Register(_)) => found,
            _ => Told::Somewhere,
        };
    }
    Ok(Told::Somewhere)
}
