//! Functions: their parameters, and where these are when the function begins.

use std::cell::RefCell;
use std::collections::HashMap;

use gimli::{AttributeValue, DebugInfoOffset, DwTag, Unit, UnitOffset};

use super::kinds::{DEPTH, NoTypes, TypeId};
use super::locations::{Told, at_entry};
use super::passed::{FunctionType, Parameter, Passed, Piece};
use super::reader::{At, Bytes, Reader, damaged};
use super::scan::{Wish, scan};
use super::shapes::Shape;
use super::{golang, ranges, system_v};

/// The most entries directly in a function that are gone through.
const CHILDREN: usize = 1 << 16;
/// The first version of Go whose functions have parameters in registers: 1.17.
const REGISTERS_SINCE: (u32, u32) = (1, 17);

/// What the code of a unit is like.
struct Made {
    is_go: bool,
    is_rust: bool,
    /// The compiler removes parameters of functions that no other file calls, without a trace.
    removes: bool,
    /// The version of Go.
    go: (u32, u32),
}

/// The function that begins at an address in one of the units.
pub(super) fn function(
    reader: &Reader<'_>,
    units: &[DebugInfoOffset],
    known: &Known,
    vaddr: u64,
    symbols: &[&str],
) -> Result<FunctionType, NoTypes> {
    let mut is_split = false;
    for &offset in units {
        let unit = reader.unit(offset)?;
        is_split |= unit.dwo_name()?.is_some();
        let at = match known.borrow().get(&offset.0) {
            Some(begins) => begins.get(&vaddr).copied(),
            None => None,
        };
        let at = match at {
            None if !known.borrow().contains_key(&offset.0) => {
                let begins = begins(reader, &unit)?;
                let at = begins.get(&vaddr).copied();
                known.borrow_mut().insert(offset.0, begins);
                at
            }
            at => at,
        };
        if let Some(at) = at {
            return described(reader, &At { entry: unit.entry(at)?, unit }, vaddr, symbols);
        }
    }
    Err(if is_split { NoTypes::Split } else { NoTypes::NoFunction })
}

/// The functions of units that were gone through, by their address; units by their place.
pub(super) type Known = RefCell<HashMap<usize, HashMap<u64, UnitOffset>>>;

/// The functions of a unit, by the address where they begin.
fn begins<'a>(reader: &Reader<'a>, unit: &Unit<Bytes<'a>>) -> Result<HashMap<u64, UnitOffset>, NoTypes> {
    let wish = |tag: DwTag| match tag {
        gimli::DW_TAG_subprogram => Wish::Show,
        gimli::DW_TAG_namespace
        | gimli::DW_TAG_module
        | gimli::DW_TAG_structure_type
        | gimli::DW_TAG_class_type
        | gimli::DW_TAG_union_type
        | gimli::DW_TAG_enumeration_type => Wish::Enter,
        _ => Wish::Skip,
    };
    let mut found = HashMap::new();
    scan(reader, unit, wish, |seen| {
        if seen.declares {
            return Ok(());
        }
        let entry = unit.entry(seen.offset)?;
        let begin = match entry.attr_value(gimli::DW_AT_entry_pc) {
            Some(AttributeValue::Addr(pc)) => Some(pc),
            _ => {
                let low = entry.attr_value(gimli::DW_AT_low_pc);
                let low = low.map(|low| reader.dwarf.attr_address(unit, low)).transpose()?.flatten();
                match low {
                    Some(low) => Some(low),
                    None => ranges::of_entry(reader, unit, &entry, 1)?.first().map(|one| one.0),
                }
            }
        };
        if let Some(begin) = begin {
            found.entry(begin).or_insert(seen.offset);
        }
        Ok(())
    })?;
    Ok(found)
}

fn described<'a>(
    reader: &Reader<'a>,
    at: &At<'a>,
    vaddr: u64,
    symbols: &[&str],
) -> Result<FunctionType, NoTypes> {
    let made = made(reader, at)?;
    let result = match reader.inherited(at, gimli::DW_AT_type)? {
        Some((at, _)) => reader.type_of(&at)?,
        None => None,
    };
    let result = result.filter(|id| !matches!(reader.shape(*id), Ok(Shape::Void)));
    let (parameters, is_variadic) = parameters(reader, at)?;
    if made.is_go {
        return of_go(reader, parameters, made.go);
    }
    let convention = at.entry.attr_value(gimli::DW_AT_calling_convention);
    let copy = symbols.iter().find(|name| is_changed_copy(name));
    let changed = match (convention, copy) {
        (Some(AttributeValue::CallingConvention(gimli::DW_CC_nocall)), _) => {
            Some("the compiler has changed how the function is called".to_owned())
        }
        (None | Some(AttributeValue::CallingConvention(gimli::DW_CC_normal)), None) => None,
        (None | Some(AttributeValue::CallingConvention(gimli::DW_CC_normal)), Some(copy)) => {
            Some(format!("the compiler has changed which parameters this copy of the function has, `{copy}`"))
        }
        _ => Some("it has a calling convention that is not known".to_owned()),
    };
    let is_external = reader.inherited(at, gimli::DW_AT_external)?.is_some();
    let (mut places, mut returned) = system_v::Places::new(reader, result)?;
    if made.is_rust
        && let Some(result) = result
        && !is_simple(reader, result)?
    {
        let reason = "how Rust passes this type is not fixed";
        returned = Passed::Nowhere(reason.to_owned());
        places.lose(reason);
    }
    // A copy for constant parameters returns what the function does.
    let keeps_result = changed.is_none() || copy.is_some_and(|name| !may_return_nothing(name));
    if let (false, Passed::Registers(_)) = (keeps_result, &returned) {
        returned = Passed::Nowhere("the compiler may have removed what this copy returns".to_owned());
    }
    let mut found = Vec::new();
    for (origin, own) in parameters {
        let Some(of) = reader.type_of(&origin)? else { return damaged("a parameter has no type") };
        if made.is_rust && !is_simple(reader, of)? {
            places.lose("how Rust passes a parameter before it, or itself, is not fixed");
        }
        let by_convention = places.next(reader, of)?;
        let told = match &own {
            Some(own) => at_entry(reader, &own.unit, &own.entry, vaddr)?,
            None => Told::Nothing,
        };
        let fits = || Ok::<_, NoTypes>(matches!(reader.size(of, DEPTH)?, 1..=8));
        let passed = match told {
            Told::Register(register) if fits()? => {
                let bytes = reader.size(of, DEPTH)? as u8;
                Passed::Registers(vec![Piece { register, offset: 0, bytes }])
            }
            Told::Constant => {
                Passed::Nowhere("the compiler has made it a constant in this copy of the function".to_owned())
            }
            _ if changed.is_some() => Passed::Nowhere(changed.clone().unwrap_or_default()),
            Told::Nothing if made.removes && !is_external => {
                Passed::Nowhere("the compiler may have removed it".to_owned())
            }
            _ => by_convention,
        };
        found.push(Parameter { name: reader.name(&origin)?, of, passed });
    }
    Ok(FunctionType { parameters: found, is_variadic, result, returned })
}

/// The parameters of a function in their order: as declared, and their entries in this instance.
type Parameters<'a> = Vec<(At<'a>, Option<At<'a>>)>;

/// An instance of an inline function may leave out parameters, so its origin tells them.
fn parameters<'a>(reader: &Reader<'a>, at: &At<'a>) -> Result<(Parameters<'a>, bool), NoTypes> {
    let is_parameter = |at: &&At<'a>| at.entry.tag() == gimli::DW_TAG_formal_parameter;
    let is_rest = |at: &At<'a>| at.entry.tag() == gimli::DW_TAG_unspecified_parameters;
    let children = |at: &At<'a>| {
        let entries = reader.children(at, CHILDREN)?.into_iter();
        Ok::<_, NoTypes>(entries.map(|entry| At { unit: at.unit.clone(), entry }).collect::<Vec<_>>())
    };
    let own = children(at)?;
    let Some(origin) = reader.reference(&at.unit, &at.entry, gimli::DW_AT_abstract_origin)? else {
        let listed = own.iter().filter(is_parameter).map(|one| (one.clone(), Some(one.clone())));
        return Ok((listed.collect(), own.iter().any(is_rest)));
    };
    let declared = children(&reader.at(origin)?)?;
    let mut instances = HashMap::new();
    for each in own.iter().filter(is_parameter) {
        if let Some(of) = reader.reference(&each.unit, &each.entry, gimli::DW_AT_abstract_origin)? {
            instances.entry(of).or_insert_with(|| each.clone());
        }
    }
    let mut found = Vec::new();
    for one in declared.iter().filter(is_parameter) {
        let id = reader.id(&one.unit, one.entry.offset())?;
        found.push((one.clone(), instances.get(&id).cloned()));
    }
    Ok((found, declared.iter().any(is_rest)))
}

/// The parameters and results of a Go function, which are in one list.
fn of_go<'a>(
    reader: &Reader<'a>,
    parameters: Parameters<'a>,
    version: (u32, u32),
) -> Result<FunctionType, NoTypes> {
    let (mut places, mut results) = (golang::Places::default(), golang::Places::default());
    let mut function = FunctionType {
        parameters: Vec::new(),
        is_variadic: false,
        result: None,
        returned: Passed::Nowhere("the function returns nothing".to_owned()),
    };
    for (at, _) in parameters {
        let Some(of) = reader.type_of(&at)? else { return damaged("a parameter has no type") };
        let is_result = Reader::flag(&at.entry, gimli::DW_AT_variable_parameter);
        if is_result && function.result.is_some() {
            continue;
        }
        let mut passed = if is_result { results.next(reader, of)? } else { places.next(reader, of)? };
        if version < REGISTERS_SINCE {
            passed =
                Passed::Nowhere("the program is of a Go version before 1.17, or of an unknown one".into());
        }
        match is_result {
            true => {
                // Results on the stack are behind the parameters, of which not all are read yet.
                if let Passed::Stack(_) = passed {
                    passed = Passed::Nowhere("it is returned on the stack".to_owned());
                }
                (function.result, function.returned) = (Some(of), passed);
            }
            false => function.parameters.push(Parameter { name: reader.name(&at)?, of, passed }),
        }
    }
    Ok(function)
}

/// What made a function's unit.
fn made<'a>(reader: &Reader<'a>, at: &At<'a>) -> Result<Made, NoTypes> {
    let root = at.unit.entry(at.unit.header.root_offset())?;
    let language = root.attr_value(gimli::DW_AT_language);
    let is = |wanted| language == Some(AttributeValue::Language(wanted));
    let producer = root.attr_value(gimli::DW_AT_producer);
    let producer = producer.map(|value| reader.dwarf.attr_string(&at.unit, value)).transpose()?;
    let producer =
        producer.map(|text| String::from_utf8_lossy(text.slice()).into_owned()).unwrap_or_default();
    let removes = ["clang", "LLVM", "rustc"].iter().any(|name| producer.contains(name));
    Ok(Made {
        is_go: is(gimli::DW_LANG_Go) && producer.starts_with("Go "),
        is_rust: is(gimli::DW_LANG_Rust),
        removes,
        go: go_version(&producer).unwrap_or((0, 0)),
    })
}

/// The version in `Go cmd/compile go1.19.8; regabi`.
fn go_version(producer: &str) -> Option<(u32, u32)> {
    let version = producer.split([' ', ';']).find_map(|word| word.strip_prefix("go1."))?;
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    Some((1, digits.parse().ok()?))
}

/// Whether a symbol is that of a copy that the compiler made with other parameters.
fn is_changed_copy(name: &str) -> bool {
    [".isra.", ".constprop.", ".part."].iter().any(|mark| name.contains(mark))
}

/// Whether a copy may return less than its function.
fn may_return_nothing(name: &str) -> bool {
    [".isra.", ".part."].iter().any(|mark| name.contains(mark))
}

/// Whether Rust passes a type as C does: one number or address, or the two of a slice.
fn is_simple(reader: &Reader<'_>, of: TypeId) -> Result<bool, NoTypes> {
    Ok(match reader.shape(of)? {
        Shape::Boolean | Shape::Integer { .. } | Shape::Pointer(_) | Shape::Float { .. } => true,
        Shape::Enumeration { .. } => true,
        Shape::Record { id, name, .. } => {
            let names: Vec<String> = match reader.record(id) {
                Ok(record) if record.size == 16 => {
                    record.members.into_iter().map(|member| member.name).collect()
                }
                _ => Vec::new(),
            };
            let is_wide = name.is_some_and(|name| name.starts_with('&') || name.starts_with('*'));
            is_wide && matches!(&names[..], [data, more] if data == "data_ptr" && more == "length")
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_go_are_read() {
        assert_eq!(go_version("Go cmd/compile go1.19.8; regabi"), Some((1, 19)));
        assert_eq!(go_version("Go cmd/compile go1.22"), Some((1, 22)));
        assert_eq!(go_version("Go cmd/compile devel go1.23-abc"), Some((1, 23)));
        assert_eq!(go_version("GNU C17"), None);
    }

    #[test]
    fn copies_are_known_by_their_names() {
        assert!(is_changed_copy("work.isra.0") && is_changed_copy("f.constprop.1.cold"));
        assert!(!is_changed_copy("f") && !is_changed_copy("f.lto_priv.0"));
    }
}
