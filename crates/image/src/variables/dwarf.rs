//! Finds variables in debug information.

use std::collections::BTreeMap;
use std::rc::Rc;

use gimli::{AttributeValue, DebugInfoOffset, Dwarf, Operation, Unit};

use super::found::{NoVariable, Variable};
use super::path::Path;
use super::types::{Bytes, Entry, Type, Types};
use crate::demangle;

/// The most different names of variables that are kept for suggestions.
const NAMES: usize = 1 << 16;

/// The result of a search.
pub(super) enum Found {
    Variable(Variable),
    /// No variable has the name.
    Nothing {
        /// The names that there are.
        names: Vec<String>,
    },
}

/// A variable of the name.
struct Candidate<'a> {
    address: Address,
    /// Its qualified name.
    name: String,
    /// The file of its unit.
    file: String,
    of: Option<Type<'a>>,
}

/// Where a variable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Address {
    Fixed(u64),
    ThreadLocal,
    /// In registers, on a stack, or nowhere.
    None,
}

/// Finds the variable or part of one that a name means.
///
/// # Errors
/// Why it is none with a fixed address; [`Found::Nothing`] if the variable does not exist here.
pub(super) fn find(dwarf: &Dwarf<Bytes<'_>>, path: &Path) -> Result<Found, NoVariable> {
    let damaged =
        |error: gimli::Error| NoVariable::Damaged { name: path.text().to_owned(), cause: error.to_string() };
    let mut units = Vec::new();
    let mut headers = dwarf.units();
    while let Some(header) = headers.next().map_err(damaged)? {
        units.extend(header.debug_info_offset());
    }
    let types = Types { dwarf, units: &units };
    let mut search = Search { types, path, candidates: Vec::new(), names: Vec::new() };
    for &offset in &units {
        search.unit(offset).map_err(damaged)?;
    }
    let Search { types, candidates, names, .. } = search;
    choose(&types, path, candidates, names)
}

/// Chooses among the variables of the name.
fn choose<'a>(
    types: &Types<'_, 'a>,
    path: &Path,
    candidates: Vec<Candidate<'a>>,
    names: Vec<String>,
) -> Result<Found, NoVariable> {
    let name = path.text().to_owned();
    if candidates.is_empty() {
        return Ok(Found::Nothing { names });
    }
    let mut fixed = BTreeMap::new();
    for candidate in &candidates {
        if let Address::Fixed(vaddr) = candidate.address {
            fixed.entry(vaddr).or_insert(candidate);
        }
    }
    let mut different = fixed.iter();
    let (vaddr, one) = match (different.next(), different.next()) {
        (Some((vaddr, one)), None) => (*vaddr, *one),
        (None, _) if candidates.iter().any(|candidate| candidate.address == Address::ThreadLocal) => {
            return Err(NoVariable::ThreadLocal { name });
        }
        (None, _) => return Err(NoVariable::NoAddress { name }),
        (Some(_), Some(_)) => {
            let tell = |candidate: &&Candidate<'_>| format!("{}:{}", candidate.file, candidate.name);
            return Err(NoVariable::Ambiguous { name, candidates: fixed.values().map(tell).collect() });
        }
    };
    let Some(of) = one.of.clone() else {
        return Err(NoVariable::Damaged { name, cause: "it has no type".to_owned() });
    };
    let steps = path.steps();
    let (offset, shape) = types.part(of, steps).map_err(|(number, obstacle)| {
        let of = path.until(number);
        obstacle.at(path.text(), &of, steps.get(number))
    })?;
    Ok(Found::Variable(Variable { vaddr: vaddr.wrapping_add(offset), size: shape.size, kind: shape.kind }))
}

/// A search through all units.
struct Search<'d, 'a, 'p> {
    types: Types<'d, 'a>,
    path: &'p Path,
    candidates: Vec<Candidate<'a>>,
    names: Vec<String>,
}

impl<'a> Search<'_, 'a, '_> {
    /// Searches a unit.
    fn unit(&mut self, offset: DebugInfoOffset) -> Result<(), gimli::Error> {
        let unit = Rc::new(self.types.dwarf.unit(self.types.dwarf.unit_header(offset)?)?);
        let file =
            unit.name.map(|name| String::from_utf8_lossy(name.slice()).into_owned()).unwrap_or_default();
        if self.path.file().is_some_and(|wanted| !is_file(&file, wanted)) {
            return Ok(());
        }
        // The names of the scopes around an entry, by their depth.
        let mut scopes: Vec<(isize, String)> = Vec::new();
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            let depth = entry.depth();
            scopes.retain(|(outer, _)| *outer < depth);
            match entry.tag() {
                gimli::DW_TAG_namespace
                | gimli::DW_TAG_structure_type
                | gimli::DW_TAG_class_type
                | gimli::DW_TAG_union_type
                | gimli::DW_TAG_subprogram => {
                    let name = self.types.name(&unit, entry)?;
                    scopes.extend(name.map(|name| (depth, name)));
                }
                gimli::DW_TAG_variable => self.variable(&unit, entry, &scopes, &file)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Notes a variable if it has the name.
    fn variable(
        &mut self,
        unit: &Rc<Unit<Bytes<'a>>>,
        entry: &Entry<'a>,
        scopes: &[(isize, String)],
        file: &str,
    ) -> Result<(), gimli::Error> {
        // A declaration alone has no place; its definition, if there is one, refers to it.
        if entry.attr(gimli::DW_AT_declaration).is_some() {
            return Ok(());
        }
        let declaration = self.types.reference(unit, entry, gimli::DW_AT_specification).ok().flatten();
        let declared = match &declaration {
            Some(Type { unit, offset }) => Some((Rc::clone(unit), unit.entry(*offset)?)),
            None => None,
        };
        let own = self.types.name(unit, entry)?;
        let name = match (own, &declared) {
            (Some(name), _) => Some(name),
            (None, Some((unit, entry))) => self.types.name(unit, entry)?,
            (None, None) => None,
        };
        let Some(name) = name else { return Ok(()) };
        let wanted = self.path.variable();
        if name != wanted && wanted.rsplit("::").next() != Some(&name) {
            if self.names.len() < NAMES {
                self.names.push(name);
            }
            return Ok(());
        }
        let linkage = [Some((unit, entry)), declared.as_ref().map(|(unit, entry)| (unit, entry))];
        let linkage = linkage.into_iter().flatten().find_map(|(unit, entry)| {
            let name =
                self.types.dwarf.attr_string(unit, entry.attr_value(gimli::DW_AT_linkage_name)?).ok()?;
            demangle::full(&name.to_string_lossy())
        });
        let names: Vec<&str> = scopes.iter().map(|(_, name)| &**name).chain([&*name]).collect();
        let qualified = linkage.unwrap_or_else(|| names.join("::"));
        let is_end =
            qualified.strip_suffix(wanted).is_some_and(|rest| rest.is_empty() || rest.ends_with("::"));
        if !is_end {
            return Ok(());
        }
        let of = match self.types.of(unit, entry) {
            Ok(Some(of)) => Some(of),
            _ => declared.as_ref().and_then(|(unit, entry)| self.types.of(unit, entry).ok().flatten()),
        };
        let address = self.address(unit, entry)?;
        self.candidates.push(Candidate { address, name: qualified, file: file.to_owned(), of });
        Ok(())
    }

    /// Where a variable is.
    fn address(&self, unit: &Unit<Bytes<'a>>, entry: &Entry<'a>) -> Result<Address, gimli::Error> {
        let Some(AttributeValue::Exprloc(expression)) = entry.attr_value(gimli::DW_AT_location) else {
            return Ok(Address::None);
        };
        let mut operations = expression.operations(unit.encoding());
        let mut address = Address::None;
        let mut is_alone = true;
        while let Some(operation) = operations.next()? {
            is_alone &= address == Address::None;
            match operation {
                Operation::Address { address: fixed } => address = Address::Fixed(fixed),
                Operation::AddressIndex { index } => {
                    address = Address::Fixed(self.types.dwarf.address(unit, index)?);
                }
                Operation::TLS => return Ok(Address::ThreadLocal),
                _ => is_alone = false,
            }
        }
        Ok(if is_alone { address } else { Address::None })
    }
}

/// Whether a unit's file is the wanted one: its path, or the end of it.
fn is_file(file: &str, wanted: &str) -> bool {
    file.strip_suffix(wanted).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
}
