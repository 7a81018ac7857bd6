//! [`Image`]: an ELF file, each part read when it is first used.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use object::elf;

use super::build_id::build_id;
use super::dynamic::Dynamic;
use super::dynamic_relocations::DynamicRelocations;
use super::error::ImageError;
use super::flow::ControlFlow;
use super::frames::Frames;
use super::functions::{Function, Symbols};
use super::headers::{Headers, Machine, Segment};
use super::possible_targets::PossibleTargets;
use super::regions::Regions;
use super::source::{FileId, Source, open_regular};
use super::starts::Starts;
use super::{dynamic_relocations, relative_relocations, table};

/// The most bytes of a path in the file: PATH_MAX.
const PATH: u64 = 4096;

/// An ELF file's contents, as far as probes need them.
///
/// Its addresses (`vaddr`) are the file's own; a module of a process adds its load bias. In a file
/// that is not position-independent they are the addresses in the process.
#[derive(Debug)]
pub struct Image {
    pub(crate) source: Source,
    pub(crate) id: Option<FileId>,
    pub(crate) headers: Headers,
    pub(crate) dynamic: OnceLock<Dynamic>,
    names: OnceLock<Names>,
    pub(crate) symbols: OnceLock<Symbols>,
    pub(crate) frames: OnceLock<(Frames, Option<ImageError>)>,
    pub(crate) starts: OnceLock<Starts>,
    pub(crate) relocations: OnceLock<HashMap<u64, u64>>,
    pub(crate) regions: Mutex<Regions>,
    pub(crate) written: OnceLock<DynamicRelocations>,
    pub(crate) flow: OnceLock<ControlFlow>,
    pub(crate) possible_targets: OnceLock<PossibleTargets>,
}

/// Short properties of the file.
#[derive(Debug)]
struct Names {
    interpreter: Option<PathBuf>,
    soname: Option<String>,
    build_id: Option<Vec<u8>>,
}

impl Image {
    /// Opens an ELF file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is not a regular file or not an ELF file, or its program headers
    /// are damaged.
    pub fn open(path: &Path) -> Result<Image, ImageError> {
        let (file, id) = open_regular(path).map_err(|cause| ImageError::Io {
            path: path.to_owned(),
            action: "open".to_owned(),
            cause,
        })?;
        Image::from_file(path, file, id)
    }

    /// Reads an ELF file that is already open ([`open_regular`]); `path` is for messages.
    ///
    /// # Errors
    ///
    /// It is not an ELF file, or its program headers are damaged.
    pub fn from_file(path: &Path, file: File, id: FileId) -> Result<Image, ImageError> {
        Image::new(Source::file(path, file, id.size), Some(id))
    }

    /// Reads an ELF file from memory, such as the vDSO; `path` is for messages.
    ///
    /// # Errors
    ///
    /// The bytes are not an ELF file, or the program headers are damaged.
    pub fn parse(data: Vec<u8>, path: &Path) -> Result<Image, ImageError> {
        Image::new(Source::memory(path, data), None)
    }

    fn new(source: Source, id: Option<FileId>) -> Result<Image, ImageError> {
        let headers = Headers::read(&source)?;
        Ok(Image {
            source,
            id,
            headers,
            dynamic: OnceLock::new(),
            names: OnceLock::new(),
            symbols: OnceLock::new(),
            frames: OnceLock::new(),
            starts: OnceLock::new(),
            relocations: OnceLock::new(),
            regions: Mutex::default(),
            written: OnceLock::new(),
            flow: OnceLock::new(),
            possible_targets: OnceLock::new(),
        })
    }

    /// The path by which it was opened.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// The file it was read from; `None` if it was read from memory.
    pub fn file_id(&self) -> Option<&FileId> {
        self.id.as_ref()
    }

    /// The instruction set of its code.
    pub fn machine(&self) -> Machine {
        self.headers.machine
    }

    /// Whether the file can be loaded anywhere (shared libraries and PIE); if not, its load bias is
    /// 0.
    pub fn is_position_independent(&self) -> bool {
        self.headers.kind == elf::ET_DYN
    }

    /// The program's entry point (`e_entry`), or 0.
    pub fn entry(&self) -> u64 {
        self.headers.entry
    }

    /// The program's dynamic linker; `None` for static programs and libraries.
    pub fn interpreter(&self) -> Option<&Path> {
        self.names().interpreter.as_deref()
    }

    /// The build-id (NT_GNU_BUILD_ID), usually 20 bytes.
    pub fn build_id(&self) -> Option<&[u8]> {
        self.names().build_id.as_deref()
    }

    /// A shared library's own name (DT_SONAME), such as `libc.so.6`.
    pub fn soname(&self) -> Option<&str> {
        self.names().soname.as_deref()
    }

    /// The segments that are mapped when the file is loaded, by address.
    pub fn segments(&self) -> &[Segment] {
        &self.headers.segments
    }

    /// The address at which the byte at a file offset is loaded. If two segments load it, the
    /// executable one counts.
    pub fn address_of_offset(&self, file_offset: u64) -> Option<u64> {
        let executable = self.headers.executable_segments();
        let others = self.headers.segments.iter().filter(|segment| !segment.executable);
        executable.chain(others).find_map(|segment| segment.address_of_offset(file_offset))
    }

    /// The file offset of the byte that is loaded at an address; `None` if that is no byte of the
    /// file.
    pub fn offset_of_address(&self, vaddr: u64) -> Option<u64> {
        let executable = self.headers.executable_segments();
        let others = self.headers.segments.iter().filter(|segment| !segment.executable);
        executable.chain(others).find_map(|segment| segment.offset_of_address(vaddr))
    }

    /// `len` bytes of code at an address, from the file; `None` unless one executable segment
    /// contains them all.
    pub fn text(&self, vaddr: u64, len: usize) -> Option<Vec<u8>> {
        let len = len as u64;
        let segment = self.headers.executable_segments().find(|s| s.offset_of_address(vaddr).is_some())?;
        if segment.file_end() - vaddr < len {
            return None;
        }
        self.source.read("code", segment.offset_of_address(vaddr)?, len, len).ok()
    }

    /// `len` bytes of the file at an offset; `None` unless the file has them all.
    pub fn file_bytes(&self, offset: u64, len: u64) -> Option<Vec<u8>> {
        self.source.read("code", offset, len, len).ok()
    }

    /// `len` bytes at an address, as stored in the file; `None` unless one segment contains them
    /// all.
    pub(crate) fn data(&self, vaddr: u64, len: u64) -> Option<Vec<u8>> {
        let segments = &self.headers.segments;
        let segment = segments.iter().find(|segment| segment.offset_of_address(vaddr).is_some())?;
        if segment.file_end() - vaddr < len {
            return None;
        }
        self.source.read("data", segment.offset_of_address(vaddr)?, len, len).ok()
    }

    /// The eight-byte number at an address in memory that the program cannot write, as stored in
    /// the file; `None` unless one segment contains it.
    pub fn constant(&self, vaddr: u64) -> Option<u64> {
        let segments = &self.headers.segments;
        let segment = segments.iter().find(|segment| segment.offset_of_address(vaddr).is_some())?;
        let bytes = self.data(vaddr, 8).filter(|_| !segment.writable)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    /// All functions and labels in the code, by address: from `.symtab`, `.dynsym`,
    /// `.gnu_debugdata` and an installed debug file together. Among several names for one address
    /// the preferred one comes first.
    pub fn functions(&self) -> &[Function] {
        &self.symbols().functions
    }

    /// Whether data has this name, for the message that it cannot be probed. Reads the symbol
    /// tables again; always false for a file without section headers.
    pub fn is_data(&self, name: &str) -> bool {
        table::data(&self.source, &self.headers).any(|symbol| symbol.name == name)
    }

    /// The function that contains an address: the innermost one by size, or the last one before it
    /// if that has no size.
    pub fn function_at(&self, vaddr: u64) -> Option<&Function> {
        if !self.headers.is_executable(vaddr) {
            return None;
        }
        self.symbols().at(vaddr)
    }

    /// The functions and labels at an address; the preferred name comes first.
    pub(crate) fn functions_at(&self, vaddr: u64) -> &[Function] {
        let all = self.functions();
        let from = all.partition_point(|function| function.vaddr < vaddr);
        let to = all.partition_point(|function| function.vaddr <= vaddr);
        &all[from..to]
    }

    /// Whether it is a Go program or library: Go functions run on stacks of a few kilobytes, which
    /// they grow themselves.
    pub fn is_go(&self) -> bool {
        let is_go = |name: &str| matches!(name, ".gopclntab" | ".data.rel.ro.gopclntab" | ".note.go.buildid");
        self.headers.sections.iter().any(|section| is_go(&section.name))
    }

    /// The first two numbers of the version of Go that built it, if that is told.
    pub fn go_version(&self) -> Option<(u32, u32)> {
        super::go_version::go_version(self)
    }

    /// The section that contains an address.
    pub fn section_name(&self, vaddr: u64) -> Option<&str> {
        let mut sections = self.headers.sections.iter();
        let section = sections.find(|section| section.allocated && section.contains(vaddr))?;
        Some(&section.name)
    }

    /// The damaged tables of the file, which were left out. Reads all tables.
    pub fn problems(&self) -> Vec<&ImageError> {
        self.starts();
        let symbols = self.symbols();
        let frames = self.frames.get().and_then(|(_, problem)| problem.as_ref());
        self.headers.problem.iter().chain(&symbols.problems).chain(frames).collect()
    }

    pub(crate) fn dynamic(&self) -> &Dynamic {
        // A damaged dynamic section counts as empty; reading the symbols that depend on it reports
        // the damage.
        self.dynamic.get_or_init(|| Dynamic::read(&self.source, &self.headers).unwrap_or_default())
    }

    pub(crate) fn symbols(&self) -> &Symbols {
        self.symbols
            .get_or_init(|| Symbols::read(&self.source, &self.headers, self.dynamic(), self.build_id()))
    }

    pub(crate) fn starts(&self) -> &Starts {
        self.starts.get_or_init(|| {
            Starts::collect(&self.headers, self.dynamic(), self.symbols(), &self.frames().ranges)
        })
    }

    pub(crate) fn frames(&self) -> &Frames {
        let read = || match Frames::read(&self.source, &self.headers) {
            Ok(frames) => (frames, None),
            Err(problem) => (Frames::default(), Some(problem)),
        };
        &self.frames.get_or_init(read).0
    }

    /// The addresses of the image that the dynamic linker writes into data, by their places.
    pub(crate) fn relocations(&self) -> &HashMap<u64, u64> {
        self.relocations.get_or_init(|| relative_relocations::relative(&self.source, &self.headers))
    }

    /// A pointer stored in the file's data, as it is when the file is loaded with bias 0.
    pub(crate) fn pointer_at(&self, vaddr: u64) -> Option<u64> {
        if let Some(address) = self.relocations().get(&vaddr) {
            return Some(*address);
        }
        let word = if self.headers.is_64 { 8 } else { 4 };
        let segment = self.headers.segments.iter().find(|segment| {
            segment.offset_of_address(vaddr).is_some() && segment.file_end() - vaddr >= word
        })?;
        let bytes = self.source.read("data", segment.offset_of_address(vaddr)?, word, word).ok()?;
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(&bytes);
        Some(u64::from_le_bytes(whole))
    }

    /// What the dynamic linker writes into the image.
    pub(crate) fn written(&self) -> &DynamicRelocations {
        self.written.get_or_init(|| dynamic_relocations::read(&self.source, &self.headers, self.dynamic()))
    }

    /// Whether the dynamic linker changes any of these bytes of code when it relocates the file
    /// (text relocations). Until then they have other values.
    pub fn is_relocated(&self, vaddr: u64, len: u64) -> bool {
        self.written().covers(&(vaddr..vaddr.saturating_add(len)))
    }

    /// The ranges of code that the dynamic linker changes when it relocates the file, ascending and
    /// disjoint.
    pub fn relocated_code(&self) -> &[std::ops::Range<u64>] {
        &self.written().code
    }

    fn names(&self) -> &Names {
        self.names.get_or_init(|| Names {
            interpreter: self.read_interpreter(),
            soname: self.read_soname(),
            build_id: build_id(&self.source, &self.headers),
        })
    }

    fn read_interpreter(&self) -> Option<PathBuf> {
        let part = self.headers.interpreter?;
        let bytes = self.source.read("interpreter", part.offset, part.size, PATH).ok()?;
        let path = bytes.split(|byte| *byte == 0).next()?;
        Some(PathBuf::from(OsStr::from_bytes(path)))
    }

    fn read_soname(&self) -> Option<String> {
        let dynamic = self.dynamic();
        let strings = self.headers.offset_of_address(dynamic.strings?)?;
        let at = dynamic.soname.filter(|at| *at < dynamic.strings_size)?;
        let size = (dynamic.strings_size - at).min(PATH);
        let size = size.min(self.source.len().saturating_sub(strings.saturating_add(at)));
        let bytes = self.source.read("soname", strings.checked_add(at)?, size, PATH).ok()?;
        let name = bytes.split(|byte| *byte == 0).next()?;
        (!name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned())
    }
}
