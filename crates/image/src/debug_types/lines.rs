//! Source lines: the addresses of the statements that begin on a line.
//!
//! A statement can have several addresses. In one function it is the first that counts, as for a
//! breakpoint: a loop's condition is tested in several places, and is one statement. Where the
//! function is inlined, or there are copies of it, each has its own.

use std::collections::{BTreeMap, BTreeSet};

use gimli::{DebugInfoOffset, DwTag, LineProgramHeader, Unit};

use super::kinds::NoTypes;
use super::ranges;
use super::reader::{Bytes, Reader};
use super::scan::{Wish, scan};

/// The most addresses of one line.
const ADDRESSES: usize = 1 << 16;
/// The most file names that are kept for suggestions.
const FILES: usize = 1 << 14;

/// The code of a source line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineCode {
    /// Where its statements begin, each once; empty if the line has none.
    pub addresses: Vec<u64>,
    /// The nearest lines before and after it that have code, if it has none.
    pub nearest: [Option<u64>; 2],
    /// Whether the file is known.
    pub has_file: bool,
    /// Paths of files that have the same name, or nearly, if the file is not known.
    pub similar: Vec<String>,
}

/// Finds the code of a line of a file, which is named by its path or the end of it.
pub(super) fn line(reader: &Reader<'_>, file: &str, line: u64) -> Result<LineCode, NoTypes> {
    let file = file.trim_start_matches("./");
    let mut found = LineCode::default();
    let mut names = BTreeSet::new();
    for &offset in reader.units {
        // One unit that is damaged does not hide the others.
        let unit = match reader.unit(offset) {
            Err(NoTypes::TooLong) => return Err(NoTypes::TooLong),
            Err(_) => continue,
            Ok(unit) => unit,
        };
        let Some(wanted) = files(reader, &unit, file, &mut names)? else { continue };
        if wanted.is_empty() {
            continue;
        }
        found.has_file = true;
        let addresses = rows(reader, &unit, &wanted, line, &mut found.nearest)?;
        if !addresses.is_empty() {
            found.addresses.extend(first_ones(reader, offset, addresses)?);
        }
        if found.addresses.len() > ADDRESSES {
            return Err(NoTypes::TooLong);
        }
    }
    found.addresses.sort_unstable();
    found.addresses.dedup();
    if !found.addresses.is_empty() {
        found.nearest = [None, None];
    }
    if !found.has_file {
        let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let wanted = base(file);
        let mut near: Vec<(usize, String)> = names
            .into_iter()
            .map(|path| (strsim::damerau_levenshtein(&wanted, &base(&path)), path))
            .filter(|(distance, _)| *distance <= wanted.len().min(9) / 3)
            .collect();
        near.sort();
        found.similar = near.into_iter().take(5).map(|(_, path)| path).collect();
    }
    Ok(found)
}

/// The numbers of the files in a unit's table that a path means. Adds all names to `names`.
fn files<'a>(
    reader: &Reader<'a>,
    unit: &Unit<Bytes<'a>>,
    wanted: &str,
    names: &mut BTreeSet<String>,
) -> Result<Option<BTreeSet<u64>>, NoTypes> {
    let Some(program) = unit.line_program.as_ref() else { return Ok(None) };
    let header = program.header();
    let count = header.file_names().len() as u64;
    let is_before_5 = header.version() < 5;
    let numbers = if is_before_5 { 1..count + 1 } else { 0..count };
    let mut found = BTreeSet::new();
    for number in numbers {
        reader.spend(1)?;
        // The whole path is put together only if its last part fits.
        let name = header.file(number).and_then(|file| reader.dwarf.attr_string(unit, file.path_name()).ok());
        let Some(name) = name else { return Ok(None) };
        let name = name.to_string_lossy().into_owned();
        let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        if base(&name) != base(wanted) {
            if names.len() < FILES {
                names.insert(name);
            }
            continue;
        }
        let Some(path) = path(reader, unit, header, number) else { continue };
        let is_wanted = path.strip_suffix(wanted).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
        if is_wanted {
            found.insert(number);
        } else if names.len() < FILES {
            names.insert(path);
        }
    }
    Ok(Some(found))
}

/// The path of a file in a unit's table.
pub(super) fn path<'a>(
    reader: &Reader<'a>,
    unit: &Unit<Bytes<'a>>,
    header: &LineProgramHeader<Bytes<'a>>,
    number: u64,
) -> Option<String> {
    let entry = header.file(number)?;
    let text = |value| Some(reader.dwarf.attr_string(unit, value).ok()?.to_string_lossy().into_owned());
    let mut path = text(entry.path_name())?;
    for before in
        [entry.directory(header).and_then(text), unit.comp_dir.map(|it| it.to_string_lossy().into())]
    {
        if path.starts_with('/') {
            break;
        }
        if let Some(before) = before {
            path = format!("{before}/{}", path.trim_start_matches("./"));
        }
    }
    Some(path)
}

/// The addresses of a line in a unit. Notes the nearest lines that have code.
fn rows<'a>(
    reader: &Reader<'a>,
    unit: &Unit<Bytes<'a>>,
    files: &BTreeSet<u64>,
    wanted: u64,
    nearest: &mut [Option<u64>; 2],
) -> Result<Vec<u64>, NoTypes> {
    let Some(program) = unit.line_program.clone() else { return Ok(Vec::new()) };
    let (mut rows, mut found) = (program.rows(), Vec::new());
    while let Some((_, row)) = rows.next_row()? {
        reader.spend(1)?;
        let Some(line) = row.line().filter(|_| row.is_stmt() && !row.end_sequence()) else { continue };
        // What the linker has removed is left at address 0.
        if row.address() == 0 || !files.contains(&row.file_index()) {
            continue;
        }
        let line = line.get();
        if line == wanted {
            if found.len() == ADDRESSES {
                return Err(NoTypes::TooLong);
            }
            found.push(row.address());
        } else if line < wanted {
            nearest[0] = nearest[0].max(Some(line));
        } else {
            nearest[1] = Some(nearest[1].map_or(line, |nearest| nearest.min(line)));
        }
    }
    Ok(found)
}

/// The first address in each function, and in each place where one is inlined.
fn first_ones(
    reader: &Reader<'_>,
    unit: DebugInfoOffset,
    mut addresses: Vec<u64>,
) -> Result<Vec<u64>, NoTypes> {
    addresses.sort_unstable();
    addresses.dedup();
    // The innermost function of each address, and the number of its range there: what is unlikely
    // is in one of its own, behind the others in the list, and often at lower addresses.
    let mut inner: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
    let unit = reader.unit(unit)?;
    let wish = |tag: DwTag| match tag {
        gimli::DW_TAG_subprogram | gimli::DW_TAG_inlined_subroutine => Wish::ShowAndEnter,
        gimli::DW_TAG_namespace
        | gimli::DW_TAG_module
        | gimli::DW_TAG_structure_type
        | gimli::DW_TAG_class_type
        | gimli::DW_TAG_union_type
        | gimli::DW_TAG_lexical_block
        | gimli::DW_TAG_try_block
        | gimli::DW_TAG_catch_block => Wish::Enter,
        _ => Wish::Skip,
    };
    scan(reader, &unit, wish, |seen| {
        let entry = unit.entry(seen.offset)?;
        for (number, (begin, end)) in
            ranges::of_entry(reader, &unit, &entry, usize::MAX)?.into_iter().enumerate()
        {
            let from = addresses.partition_point(|address| *address < begin);
            let to = addresses.partition_point(|address| *address < end);
            reader.spend(to.saturating_sub(from) as u64)?;
            // Inner ones come later.
            for address in addresses.get(from..to).unwrap_or_default() {
                inner.insert(*address, (seen.offset.0, number));
            }
        }
        Ok(())
    })?;
    let mut first: BTreeMap<usize, (usize, u64)> = BTreeMap::new();
    let mut found = Vec::new();
    for address in addresses {
        match inner.get(&address) {
            Some((function, range)) => {
                let best = first.entry(*function).or_insert((*range, address));
                *best = (*best).min((*range, address));
            }
            // Without an entry, each is as good as the others.
            None => found.push(address),
        }
    }
    found.extend(first.into_values().map(|(_, address)| address));
    Ok(found)
}
