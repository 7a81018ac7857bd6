//! Source lines of probed instructions, from the debug information of their modules.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::Context;
use gimli::{DwarfSections, EndianSlice, LittleEndian};
use image::Image;
use object::{Object, ObjectSection};
use process::Module;
use trace::store::Source;

/// Largest file that debug information is read from, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// At most so many instructions are resolved.
const MAX_INSTRUCTIONS: usize = 100_000;
/// Where distributions keep the debug information of their files, by build-id.
const SEPARATE: &str = "/usr/lib/debug/.build-id";

/// The probed instructions, by module.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// The modules, and their numbers by path and build-id.
    modules: Vec<Arc<Image>>,
    numbers: HashMap<(PathBuf, Vec<u8>), u32>,
    /// The virtual address of each instruction, by module number and file offset.
    places: BTreeMap<(u32, u64), u64>,
}

impl Places {
    /// The number of a module, and whether it is new.
    pub(crate) fn module(&mut self, module: &Module) -> (u32, bool) {
        let build_id = module.image.build_id().unwrap_or_default().to_vec();
        let next = self.modules.len() as u32;
        let number = *self.numbers.entry((module.path.clone(), build_id)).or_insert(next);
        if number == next {
            self.modules.push(Arc::clone(&module.image));
        }
        (number, number == next)
    }

    /// Adds an instruction.
    pub(crate) fn note(&mut self, module: u32, vaddr: u64, offset: u64) {
        if self.places.len() < MAX_INSTRUCTIONS {
            self.places.insert((module, offset), vaddr);
        }
    }

    /// The source lines of all added instructions, where they are known.
    pub(crate) fn sources(self) -> Vec<Source> {
        let mut sources = Vec::new();
        for (number, image) in self.modules.iter().enumerate() {
            let module = number as u32;
            let Some(sections) = sections(image) else { continue };
            let dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
            let Ok(lines) = Context::from_dwarf(dwarf) else { continue };
            for (&(_, offset), &vaddr) in self.places.range((module, 0)..=(module, u64::MAX)) {
                let Ok(Some(location)) = lines.find_location(vaddr) else { continue };
                if let (Some(file), Some(line)) = (location.file, location.line.filter(|line| *line > 0)) {
                    sources.push(Source { module, offset, file: file.to_owned(), line });
                }
            }
        }
        sources
    }
}

/// The debug information of a module: its own, or that in a separate file.
fn sections(image: &Image) -> Option<DwarfSections<Vec<u8>>> {
    let build_id = image.build_id();
    let separate = build_id.and_then(|id| id.split_first()).map(|(first, rest)| {
        Path::new(SEPARATE).join(image::hex(&[*first])).join(format!("{}.debug", image::hex(rest)))
    });
    [Some(image.path().to_owned()), separate].into_iter().flatten().find_map(|path| read(&path, build_id))
}

/// The debug information of a file, if it has any and is of the same build.
fn read(path: &Path, build_id: Option<&[u8]>) -> Option<DwarfSections<Vec<u8>>> {
    // Checks also that it is a regular file.
    if Image::open(path).ok()?.build_id() != build_id {
        return None;
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return None;
    }
    let file = object::File::parse(&*bytes).ok()?;
    file.section_by_name(".debug_line")?;
    let section = |id: gimli::SectionId| {
        let data = file.section_by_name(id.name()).and_then(|section| uncompressed(&section));
        Ok::<_, gimli::Error>(data.unwrap_or_default().into_owned())
    };
    DwarfSections::load(section).ok()
}

/// The bytes of a section. A hostile file may claim any size for it.
fn uncompressed<'a>(section: &impl ObjectSection<'a>) -> Option<Cow<'a, [u8]>> {
    let data = section.compressed_data().ok()?;
    if data.uncompressed_size > MAX_FILE_BYTES {
        return None;
    }
    data.decompress().ok()
}
