//! Source lines as attach points.

use image::{DebugTypes, Image, LineCode};

/// The file offsets of the statements of a source line.
///
/// # Errors
/// Why there are none.
pub(super) fn statements(image: &Image, source: &str, line: u64) -> Result<Vec<u64>, String> {
    let code = DebugTypes::read(image).and_then(|types| types.line(source, line));
    let code = code.map_err(|reason| reason.to_string())?;
    if code.addresses.is_empty() {
        return Err(no_code(source, line, &code));
    }
    let offsets = code.addresses.iter().filter_map(|address| image.offset_of_address(*address));
    let mut offsets: Vec<u64> = offsets.collect();
    offsets.dedup();
    match offsets.is_empty() {
        true => Err(format!("no code of the file is at {source}:{line}")),
        false => Ok(offsets),
    }
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
