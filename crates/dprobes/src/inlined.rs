//! What debug information says of an address: the functions that were inlined there, and lines.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use addr2line::Context;
use gimli::{EndianArcSlice, LittleEndian, SectionId};
use image::Image;

/// The most frames of one address.
const FRAMES: usize = 64;

/// The most modules of which debug information is kept.
const MODULES: usize = 64;

/// The largest file of which it is read: the tracer waits for that.
const FILE: u64 = 256 << 20;

type Lines = Context<EndianArcSlice<LittleEndian>>;

/// A function at an address, or one that was inlined there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Its name; empty if it has none.
    pub(crate) name: String,
    /// The source line, as `file.c:12`.
    pub(crate) line: Option<String>,
}

/// The debug information of modules, read when it is asked for.
#[derive(Default)]
pub(crate) struct InlinedFunctions {
    /// By the address of the module.
    modules: HashMap<usize, Known>,
}

/// A module, which is kept so that no other has its address, and what is known of it.
struct Known {
    _image: Arc<Image>,
    lines: Option<Lines>,
}

impl fmt::Debug for InlinedFunctions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("InlinedFunctions").field("modules", &self.modules.len()).finish()
    }
}

impl InlinedFunctions {
    /// The functions at an address of a module, the innermost one first; the last one is not
    /// inlined. None if there is no debug information.
    pub(crate) fn frames(&mut self, image: &Arc<Image>, vaddr: u64) -> Vec<Frame> {
        let address = Arc::as_ptr(image).addr();
        if self.modules.len() >= MODULES && !self.modules.contains_key(&address) {
            self.modules.clear();
        }
        let known = self.modules.entry(address).or_insert_with(|| read(image));
        known.lines.as_ref().map(|lines| frames(lines, vaddr)).unwrap_or_default()
    }
}

/// Reads the debug information of a module.
fn read(image: &Arc<Image>) -> Known {
    let is_small = std::fs::metadata(image.path()).is_ok_and(|file| file.len() <= FILE);
    let sections = is_small.then(|| image::debug_information(image, SectionId::DebugInfo)).flatten();
    let lines = sections.and_then(|sections| {
        let dwarf = sections.borrow(|bytes| EndianArcSlice::new(Arc::from(&bytes[..]), LittleEndian));
        Context::from_dwarf(dwarf).ok()
    });
    Known { _image: Arc::clone(image), lines }
}

fn frames(lines: &Lines, vaddr: u64) -> Vec<Frame> {
    let mut found = Vec::new();
    let Ok(mut frames) = lines.find_frames(vaddr).skip_all_loads() else { return found };
    while let Ok(Some(frame)) = frames.next() {
        let name = frame.function.and_then(|function| {
            let name = function.raw_name().ok()?.into_owned();
            Some(plain(&image::demangled(&name).unwrap_or(name)))
        });
        let line = frame.location.and_then(|location| {
            let file = plain(location.file?.rsplit('/').next()?);
            Some(format!("{file}:{}", location.line.filter(|line| *line > 0)?))
        });
        found.push(Frame { name: name.unwrap_or_default(), line });
        if found.len() == FRAMES {
            break;
        }
    }
    found
}

/// A name from a file that is not trusted, without what a terminal interprets, and without line
/// breaks, which would forge lines of a stack.
pub(crate) fn plain(name: &str) -> String {
    printable::text(name).into_owned()
}
