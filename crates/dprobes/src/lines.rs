//! Source lines of probed instructions, from the debug information of their modules.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use addr2line::Context;
use gimli::{EndianSlice, LittleEndian};
use image::Image;
use process::Module;
use trace::store::Source;

/// At most so many instructions are resolved.
const MAX_INSTRUCTIONS: usize = 100_000;

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
            let sections = image::debug_information(image, gimli::SectionId::DebugLine);
            let Some(sections) = sections else { continue };
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
