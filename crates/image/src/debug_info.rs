//! Finds a module's debug information (DWARF): in the file itself, or in the separate file that
//! distributions install for its build-id.

use std::borrow::Cow;
use std::io::Read;
use std::path::{Path, PathBuf};

use gimli::{DwarfSections, SectionId};
use object::{Object, ObjectSection};

use super::{Image, debugdata};

/// The largest file that debug information is read from, and the most bytes of one section of it.
const FILE: u64 = 1 << 30;

/// The debug information of a module, from the first of these that has the section `needed`: its
/// own file, the installed file of its build-id. Sections that it does not have are empty.
pub fn debug_information(image: &Image, needed: SectionId) -> Option<DwarfSections<Vec<u8>>> {
    let build_id = image.build_id();
    let separate = build_id.and_then(debugdata::installed_file);
    let files = [Some(image.path().to_owned()), separate];
    files.into_iter().flatten().find_map(|path: PathBuf| read(&path, build_id, needed))
}

/// The debug information of a file, if it has that section and is of the same build.
fn read(path: &Path, build_id: Option<&[u8]>, needed: SectionId) -> Option<DwarfSections<Vec<u8>>> {
    // Checks also that it is a regular file.
    if Image::open(path).ok()?.build_id() != build_id {
        return None;
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(FILE + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > FILE {
        return None;
    }
    let file = object::File::parse(&*bytes).ok()?;
    file.section_by_name(needed.name())?;
    let section = |id: SectionId| {
        let data = file.section_by_name(id.name()).and_then(|section| uncompressed(&section));
        Ok::<_, gimli::Error>(data.unwrap_or_default().into_owned())
    };
    DwarfSections::load(section).ok()
}

/// The bytes of a section. A hostile file may claim any size for it.
fn uncompressed<'a>(section: &impl ObjectSection<'a>) -> Option<Cow<'a, [u8]>> {
    let data = section.compressed_data().ok()?;
    if data.uncompressed_size > FILE {
        return None;
    }
    data.decompress().ok()
}
