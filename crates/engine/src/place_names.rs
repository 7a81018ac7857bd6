//! How messages name places in a module: by the number that the user would write in the program.
//!
//! `offset =` takes offsets in the module's file, `address =` addresses in the process. Internally
//! the engine uses addresses in the file's own numbering, which users never write.

use image::{Image, NotAnInstruction};
use rpn::Location;

use crate::reason::NotPlaced;

/// The kind of number that names places in a module.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Numbers<'a> {
    /// Offsets in the file.
    Offsets(&'a Image),
    /// Addresses in the process; the load bias.
    Addresses(u64),
}

impl<'a> Numbers<'a> {
    /// The kind that a location uses; `bias` is the load bias of the module.
    pub(crate) fn of(location: &Location, image: &'a Image, bias: u64) -> Numbers<'a> {
        match location {
            Location::Address(_) => Numbers::Addresses(bias),
            _ => Numbers::Offsets(image),
        }
    }

    /// A place with its kind of number: `offset 0x1001`.
    pub(crate) fn with_kind(self, vaddr: u64) -> String {
        match self {
            Numbers::Offsets(image) if image.offset_of_address(vaddr).is_some() => {
                format!("offset {}", self.number(vaddr))
            }
            _ => format!("address {}", self.number(vaddr)),
        }
    }

    /// The number alone. A place that is not in the file is given by its address.
    pub(crate) fn number(self, vaddr: u64) -> String {
        match self {
            Numbers::Offsets(image) => format!("{:#x}", image.offset_of_address(vaddr).unwrap_or(vaddr)),
            Numbers::Addresses(bias) => format!("{:#x}", vaddr.wrapping_add(bias)),
        }
    }

    /// The number of a place and, if it can be written so, its symbol: "0x1001 (`main+1`)".
    fn choice(self, vaddr: u64) -> String {
        let number = self.number(vaddr);
        let Numbers::Offsets(image) = self else { return number };
        match image.function_at(vaddr) {
            Some(function) if function.vaddr == vaddr => {
                format!("{number} (`{}`)", printable::text(&function.name))
            }
            Some(function) => {
                format!("{number} (`{}+{:#x}`)", printable::text(&function.name), vaddr - function.vaddr)
            }
            None => number,
        }
    }

    /// Why a place is not the start of an instruction.
    pub(crate) fn boundary(self, misplaced: NotAnInstruction) -> NotPlaced {
        match misplaced {
            NotAnInstruction::NotCode { vaddr, why } => {
                NotPlaced::NotCode { place: self.with_kind(vaddr), why }
            }
            NotAnInstruction::InsideInstruction { vaddr, before, after, text } => {
                NotPlaced::InsideInstruction {
                    place: self.with_kind(vaddr),
                    instruction: text,
                    before: self.choice(before),
                    after: self.choice(after),
                }
            }
            NotAnInstruction::Undecodable { vaddr, at, start } => NotPlaced::Undecodable {
                place: self.with_kind(vaddr),
                at: self.number(at),
                start: self.choice(start),
            },
        }
    }
}
