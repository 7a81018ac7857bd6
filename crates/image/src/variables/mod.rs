//! Finds a global variable, or a part of one, by the name that its source code gives it: where it
//! is and how long.
//!
//! ```text
//! counter                 a variable: by debug information, else by the symbol table
//! config.limits[2].soft   a part of one: by debug information only
//! main::calls             a static variable of a function; likewise namespaces and classes
//! server.c:state          of this source file, where several files have one of that name
//! ```
//!
//! Only variables at a fixed address are found: not those of threads, on stacks or in registers.

mod dwarf;
mod found;
mod path;
mod types;

use std::collections::BTreeMap;

use gimli::{EndianSlice, LittleEndian, SectionId};

use super::table::{self, SymbolKind};
use super::{Image, debug_information};
use found::similar;
pub use found::{NoVariable, ValueKind, Variable};
use path::Path;

/// Finds the variable, or part of a variable, with this name in a module.
///
/// # Errors
/// Why there is none, or none with an address.
pub fn variable(image: &Image, name: &str) -> Result<Variable, NoVariable> {
    let path = Path::parse(name)?;
    let sections = debug_information(image, SectionId::DebugInfo);
    let found = match &sections {
        Some(sections) => {
            let dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
            dwarf::find(&dwarf, &path)?
        }
        None => dwarf::Found::Nothing { names: Vec::new() },
    };
    let names = match found {
        dwarf::Found::Variable(variable) => return Ok(variable),
        dwarf::Found::Nothing { names } => names,
    };
    by_symbol(image, &path, names, sections.is_some())
}

/// Finds a variable in the symbol tables. `names` are the variables of the debug information.
fn by_symbol(
    image: &Image,
    path: &Path,
    names: Vec<String>,
    described: bool,
) -> Result<Variable, NoVariable> {
    let whole = || path.text().to_owned();
    let mut found: BTreeMap<u64, (u64, SymbolKind)> = BTreeMap::new();
    let mut names = names;
    for symbol in table::data(&image.source, &image.headers) {
        let full = super::demangle::full(&symbol.name);
        if symbol.name == path.variable() || full.as_deref() == Some(path.variable()) {
            let size = found.entry(symbol.vaddr).or_insert((0, symbol.kind));
            size.0 = size.0.max(symbol.size);
        } else {
            names.push(full.unwrap_or(symbol.name));
        }
    }
    match found.into_iter().collect::<Vec<_>>()[..] {
        [] => Err(NoVariable::Unknown {
            name: path.variable().to_owned(),
            similar: similar(path.variable(), names.into_iter()),
        }),
        [(_, (_, SymbolKind::ThreadLocal))] => Err(NoVariable::ThreadLocal { name: whole() }),
        [_] if path.file().is_some() && described => {
            Err(NoVariable::Unknown { name: whole(), similar: Vec::new() })
        }
        [_] if path.has_parts() || path.file().is_some() => {
            Err(NoVariable::NoDebugInformation { name: whole() })
        }
        [(vaddr, (size, _))] => Ok(Variable { vaddr, size, kind: ValueKind::Unknown }),
        ref several => {
            let candidates = several.iter().map(|(vaddr, _)| format!("{vaddr:#x}")).collect();
            Err(NoVariable::Ambiguous { name: whole(), candidates })
        }
    }
}
