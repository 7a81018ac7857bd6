//! Finds a module's debug information (DWARF): in the file itself, or in a separate file: the one
//! that distributions install for its build-id, or the one that it names (`.gnu_debuglink`).

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gimli::{DwarfSections, SectionId};
use object::{Object, ObjectSection, ReadCache};

use super::{Image, debugdata, open_regular};

/// The largest file that debug information is read from, and the most bytes of one section of it.
const FILE: u64 = 1 << 30;
/// The longest section with the name of a debug file.
const LINK: u64 = 4096;
/// Where debug files are that are named like the directory of their module.
const DEBUG_FILES: &str = "/usr/lib/debug";

/// What a module says of its debug file.
struct Link {
    /// Its name, without a directory.
    name: PathBuf,
    /// The checksum of its contents.
    crc: u32,
}

/// The debug information of a module, from the first of these that has the section `needed`: its
/// own file, the installed file of its build-id, the file that it names. Sections that it does not
/// have are empty.
pub fn debug_information(image: &Image, needed: SectionId) -> Option<DwarfSections<Vec<u8>>> {
    let build_id = image.build_id();
    let separate = build_id.and_then(debugdata::installed_file);
    let files = [Some(image.path().to_owned()), separate];
    let found = files.into_iter().flatten().find_map(|path: PathBuf| read(&path, build_id, None, needed));
    found.or_else(|| {
        let link = link(image)?;
        let own = image.path();
        let candidates = candidates(own, &link.name).into_iter().filter(|path| path != own);
        candidates.into_iter().find_map(|path| read(&path, build_id, Some(link.crc), needed))
    })
}

/// The debug file that a module names.
fn link(image: &Image) -> Option<Link> {
    let section = image.headers.section(".gnu_debuglink")?;
    let bytes = image.source.read(".gnu_debuglink", section.offset, section.size, LINK).ok()?;
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let name = Path::new(OsStr::from_bytes(&bytes[..end]));
    // A name only: what a module says must not lead anywhere else.
    let is_name = name.file_name() == Some(name.as_os_str());
    let crc = bytes.get((end + 1).next_multiple_of(4)..)?.first_chunk()?;
    is_name.then(|| Link { name: name.to_owned(), crc: u32::from_le_bytes(*crc) })
}

/// Where gdb looks for the debug file of a module, in this order.
fn candidates(module: &Path, name: &Path) -> Vec<PathBuf> {
    let Some(directory) = module.parent() else { return Vec::new() };
    let absolute = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let below = absolute.strip_prefix("/").unwrap_or(&absolute);
    vec![
        directory.join(name),
        directory.join(".debug").join(name),
        Path::new(DEBUG_FILES).join(below).join(name),
    ]
}

/// The debug information of a file, if it has that section and is of the same build: it has the
/// same build-id or, if there is none, that checksum.
fn read(
    path: &Path,
    build_id: Option<&[u8]>,
    crc: Option<u32>,
    needed: SectionId,
) -> Option<DwarfSections<Vec<u8>>> {
    // Checks also that it is a regular file.
    if Image::open(path).ok()?.build_id() != build_id {
        return None;
    }
    let (file, id) = open_regular(path).ok()?;
    if let (Some(crc), None) = (crc, build_id)
        && (id.size > FILE || checksum(&file) != Some(crc))
    {
        return None;
    }
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
    if section.compressed_file_range().ok()?.compressed_size > FILE {
        return None;
    }
    let data = section.compressed_data().ok()?;
    if data.uncompressed_size > FILE {
        return None;
    }
    data.decompress().ok()
}

/// The checksum of a file that `.gnu_debuglink` has: CRC-32 as in zlib.
fn checksum(file: &std::fs::File) -> Option<u32> {
    let mut table = [0u32; 256];
    for (index, entry) in table.iter_mut().enumerate() {
        *entry = (0..8).fold(index as u32, |value, _| (value >> 1) ^ (0xedb8_8320 * (value & 1)));
    }
    let (mut value, mut bytes) = (!0u32, vec![0; 1 << 16]);
    let mut input = file.take(FILE + 1);
    loop {
        match input.read(&mut bytes).ok()? {
            0 => return Some(!value),
            count => {
                for byte in &bytes[..count] {
                    value = table[usize::from(value as u8 ^ byte)] ^ (value >> 8);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_checksum_is_that_of_zlib() {
        let path = testing::Scratch::new();
        let path = path.path().join("text");
        std::fs::File::create(&path).and_then(|mut file| file.write_all(b"123456789")).expect("written");
        assert_eq!(checksum(&std::fs::File::open(path).expect("it is there")), Some(0xcbf4_3926));
    }

    #[test]
    fn debug_files_are_beside_their_modules_or_below_the_root_of_all() {
        let found = candidates(Path::new("/nowhere/app"), Path::new("app.debug"));
        let expected =
            ["/nowhere/app.debug", "/nowhere/.debug/app.debug", "/usr/lib/debug/nowhere/app.debug"];
        assert_eq!(found, expected.map(PathBuf::from));
    }
}
