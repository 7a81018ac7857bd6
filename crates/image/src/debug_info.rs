//! Finds a module's debug information (DWARF): in the file itself, or in a separate one
//! ([`debug_files`]).

use std::borrow::Cow;
use std::fs::File;

use gimli::{DwarfSections, SectionId};
use object::{Object, ObjectSection, ReadCache};

use super::debug_files::debug_files;
use super::{Image, open_regular};

/// The most bytes of one section of a file that debug information is read from.
const SECTION: u64 = 1 << 30;

/// The debug information of a module, from the first of these that has the section `needed`: its
/// own file, the files of its build-id, the file that it names. Sections that it does not have are
/// empty.
pub fn debug_information(image: &Image, needed: SectionId) -> Option<DwarfSections<Vec<u8>>> {
    let build_id = image.build_id();
    // Another build may be there by now.
    let is_same = Image::open(image.path()).is_ok_and(|file| file.build_id() == build_id);
    let own = is_same.then(|| open_regular(image.path()).ok()).flatten();
    own.and_then(|(file, _)| read(file, needed)).or_else(|| {
        let files = debug_files(&image.source, &image.headers, build_id);
        files.iter().find_map(|file| read(file.open(build_id)?.0, needed))
    })
}

/// The debug information of a file, if it has that section.
fn read(file: File, needed: SectionId) -> Option<DwarfSections<Vec<u8>>> {
    // Only the sections are read that are asked for.
    let cache = ReadCache::new(file);
    let file = object::File::parse(&cache).ok()?;
    file.section_by_name(needed.name())?;
    let section = |id: SectionId| {
        let data = file.section_by_name(id.name()).and_then(|section| uncompressed(&section));
        Ok::<_, gimli::Error>(data.unwrap_or_default().into_owned())
    };
    DwarfSections::load(section).ok()
}

/// The bytes of a section. A hostile file may claim any size for it.
fn uncompressed<'a>(section: &impl ObjectSection<'a>) -> Option<Cow<'a, [u8]>> {
    if section.compressed_file_range().ok()?.compressed_size > SECTION {
        return None;
    }
    let data = section.compressed_data().ok()?;
    if data.uncompressed_size > SECTION {
        return None;
    }
    data.decompress().ok()
}
