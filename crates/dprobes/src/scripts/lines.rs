//! Source lines as attach points.

use image::{DebugTypes, Image, LineCode, NoTypes};

use crate::debuginfod;

/// The types of a file, from the file with its symbols if that has any.
///
/// # Errors
/// There are none.
pub(super) fn types(image: &Image, symbols: Option<&Image>) -> Result<DebugTypes, NoTypes> {
    match symbols.map(DebugTypes::read) {
        Some(Ok(types)) => Ok(types),
        _ => debuginfod::types(image),
    }
}

/// The file offsets of the statements of a source line, with the functions that they are in.
/// `symbols`: the file with the symbols, if it is another.
///
/// # Errors
/// Why there are none.
pub(super) fn statements(
    image: &Image,
    symbols: Option<&Image>,
    (source, line): (&str, u64),
) -> Result<Vec<(u64, String)>, String> {
    let code = types(image, symbols).and_then(|types| types.line(source, line));
    let code = code.map_err(|reason| reason.to_string())?;
    if code.addresses.is_empty() {
        return Err(no_code(source, line, &code));
    }
    let names = symbols.unwrap_or(image);
    let statement = |&address: &u64| Some((image.offset_of_address(address)?, named_at(names, address)));
    let mut statements: Vec<(u64, String)> = code.addresses.iter().filter_map(statement).collect();
    statements.dedup();
    match statements.is_empty() {
        true => Err(format!("no code of the file is at {source}:{line}")),
        false => Ok(statements),
    }
}

/// The name of the function that an instruction is in; empty if no symbol says.
pub(super) fn named_at(image: &Image, address: u64) -> String {
    image.function_at(address).map(|function| function.name.clone()).unwrap_or_default()
}

/// Why a source line has no code.
fn no_code(source: &str, line: u64, code: &LineCode) -> String {
    if !code.has_file {
        return match &code.similar[..] {
            [] => format!("it is made of no file {source}"),
            similar => format!("it is made of no file {source}; did you mean {}?", similar.join(" or ")),
        };
    }
    let nearest: Vec<String> = code.nearest.iter().flatten().map(ToString::to_string).collect();
    match &nearest[..] {
        [] => format!("line {line} of {source} has no code, and no other line has"),
        [one] => format!("line {line} of {source} has no code; the nearest line that has is {one}"),
        _ => format!(
            "line {line} of {source} has no code; the nearest lines that have are {}",
            nearest.join(" and ")
        ),
    }
}
