//! Checks whether one file has the symbols of another: a separate debug file, or the module before
//! it was stripped.
//!
//! The build-ids decide. If one of the files has none, the layout of the code decides: stripping,
//! and keeping only the debug information (`objcopy --only-keep-debug`), do not change any
//! section's address and size.

use std::fmt;
use std::ops::Range;

use super::{Image, Machine, hex};

/// Why a file does not have a module's symbols: what the module has, and what the file has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SymbolMismatch {
    /// They are for different machines.
    Machine {
        /// The module's.
        expected: Machine,
        /// The file's.
        found: Machine,
    },
    /// They have different build-ids.
    BuildId {
        /// The module's.
        expected: Vec<u8>,
        /// The file's.
        found: Vec<u8>,
    },
    /// One of them has no build-id, and their code is at different addresses: the first ranges that
    /// differ.
    Layout {
        /// Addresses of code of the module; `None` if it has no more.
        expected: Option<Range<u64>>,
        /// Addresses of code of the file; `None` if it has no more.
        found: Option<Range<u64>>,
    },
}

impl fmt::Display for SymbolMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = |range: &Option<Range<u64>>| match range {
            Some(range) => format!("code at {:#x} to {:#x}", range.start, range.end.saturating_sub(1)),
            None => "no more code".to_owned(),
        };
        match self {
            SymbolMismatch::Machine { expected, found } => write!(f, "{expected} expected, {found} found"),
            SymbolMismatch::BuildId { expected, found } => {
                write!(f, "build-id {} expected, build-id {} found", hex(expected), hex(found))
            }
            SymbolMismatch::Layout { expected, found } => {
                write!(f, "{} expected, {} found", code(expected), code(found))
            }
        }
    }
}

impl std::error::Error for SymbolMismatch {}

/// Answers [`Image::has_symbols_of`].
pub(crate) fn has_symbols_of(symbols: &Image, module: &Image) -> Result<(), SymbolMismatch> {
    if symbols.machine() != module.machine() {
        return Err(SymbolMismatch::Machine { expected: module.machine(), found: symbols.machine() });
    }
    if let (Some(expected), Some(found)) = (module.build_id(), symbols.build_id()) {
        return match expected == found {
            true => Ok(()),
            false => Err(SymbolMismatch::BuildId { expected: expected.to_vec(), found: found.to_vec() }),
        };
    }
    let by_sections = [symbols, module].iter().all(|image| !image.headers.sections.is_empty());
    let layout = |image: &Image| if by_sections { sections(image) } else { segments(image) };
    let (expected, found) = (layout(module), layout(symbols));
    let differ = (0..expected.len().max(found.len())).find(|&at| expected.get(at) != found.get(at));
    match differ {
        None => Ok(()),
        Some(at) => {
            Err(SymbolMismatch::Layout { expected: expected.get(at).cloned(), found: found.get(at).cloned() })
        }
    }
}

/// Answers [`Image::has_code`].
pub(crate) fn has_code(image: &Image) -> bool {
    image.headers.executable_segments().any(|segment| segment.file_size > 0)
}

/// The sections with code, by address.
fn sections(image: &Image) -> Vec<Range<u64>> {
    let sections = image.headers.sections.iter();
    let code = sections.filter(|section| section.allocated && section.executable && section.size > 0);
    let mut ranges: Vec<_> =
        code.map(|section| section.vaddr..section.vaddr.saturating_add(section.size)).collect();
    ranges.sort_by_key(|range| (range.start, range.end));
    ranges
}

/// The segments with code, by address.
fn segments(image: &Image) -> Vec<Range<u64>> {
    let code = image.headers.executable_segments();
    code.map(|segment| segment.vaddr..segment.vaddr.saturating_add(segment.mem_size)).collect()
}
