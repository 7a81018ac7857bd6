//! The functions of an image: all its symbol tables merged into one list, by address.

use std::ops::Range;

use super::debug_files::debug_files;
use super::debugdata;
use super::dynamic::Dynamic;
use super::error::ImageError;
use super::headers::Headers;
use super::source::Source;
use super::table::{self, Symbol, SymbolKind};
use super::version::Version;

/// What a symbol in executable memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FunctionKind {
    /// A function (STT_FUNC).
    Function,
    /// A resolver that picks the implementation when the program is linked (STT_GNU_IFUNC): a probe
    /// on it fires once, in the resolver, and never when the picked implementation is called.
    Indirect,
    /// An address in code without a type, as in assembly files (STT_NOTYPE).
    Label,
}

/// Which modules see a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Binding {
    /// Every module.
    Global,
    /// Every module, unless another module also defines it.
    Weak,
    /// Its own source file only (`static`).
    Local,
}

/// A named place in an image's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The name in the ELF file, mangled if the language mangles, without its version.
    pub name: String,
    /// The version, if the definition has one.
    pub version: Option<Version>,
    /// Its start, before the load bias is added.
    pub vaddr: u64,
    /// Bytes; 0 if the symbol has no size.
    pub size: u64,
    /// What the symbol is.
    pub kind: FunctionKind,
    /// Which modules see it.
    pub binding: Binding,
}

impl Function {
    /// The name with its version, as linkers write it: `memcpy@@GLIBC_2.14`.
    pub fn full_name(&self) -> String {
        match &self.version {
            None => self.name.clone(),
            Some(Version { name, default: true }) => format!("{}@@{name}", self.name),
            Some(Version { name, default: false }) => format!("{}@{name}", self.name),
        }
    }

    /// The demangled name, if it is mangled: with parameters, without a Rust hash.
    pub fn demangled(&self) -> Option<String> {
        super::demangle::full(&self.name)
    }

    /// Whether it contains an address, by its size.
    pub fn contains(&self, vaddr: u64) -> bool {
        self.vaddr <= vaddr && vaddr - self.vaddr < self.size
    }

    fn end(&self) -> u64 {
        self.vaddr.saturating_add(self.size)
    }
}

/// All symbols of one image.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    /// By address; among several at one address, the preferred name comes first.
    pub(crate) functions: Vec<Function>,
    /// Data among the code: name, start and end; the end equals the start if the symbol has no
    /// size.
    pub(crate) data: Vec<(String, Range<u64>)>,
    /// Tables that could not be read.
    pub(crate) problems: Vec<ImageError>,
    /// Indexes into `functions`, by name.
    by_name: Vec<u32>,
    /// For each function, the largest end among it and those before it.
    reach: Vec<u64>,
}

impl Symbols {
    pub(crate) fn read(
        source: &Source,
        headers: &Headers,
        dynamic: &Dynamic,
        build_id: Option<&[u8]>,
    ) -> Symbols {
        let mut problems = Vec::new();
        let mut all = Vec::new();
        let mut add = |symbols: Result<Vec<Symbol>, ImageError>| match symbols {
            Ok(symbols) => all.extend(symbols),
            Err(problem) => problems.push(problem),
        };
        match headers.section_of(object::elf::SHT_DYNSYM) {
            Some(section) => add(table::read_section(source, headers, section, Some(dynamic))),
            None => add(table::read_dynamic(source, headers, dynamic)),
        }
        match headers.section_of(object::elf::SHT_SYMTAB) {
            Some(section) => add(table::read_section(source, headers, section, None)),
            None => {
                if let Some(section) = headers.section(".gnu_debugdata") {
                    add(debugdata::unpack(source, section).and_then(|packed| read_separate(&packed)));
                }
                let files = debug_files(source, headers, build_id);
                let separate = files.iter().find_map(|file| {
                    let (opened, id) = file.open(build_id)?;
                    Some(Source::file(file.path(), opened, id.size))
                });
                if let Some(separate) = separate {
                    add(read_separate(&separate));
                }
            }
        }
        all.retain(|symbol| headers.is_code(symbol.vaddr));
        for symbol in &mut all {
            symbol.size = symbol.size.min(bytes_to_segment_end(headers, symbol.vaddr));
        }
        Symbols::index(all, problems)
    }

    fn index(all: Vec<Symbol>, problems: Vec<ImageError>) -> Symbols {
        let mut data = Vec::new();
        let mut functions = Vec::with_capacity(all.len());
        for Symbol { name, version, vaddr, size, kind, binding } in all {
            match kind {
                SymbolKind::Data | SymbolKind::ThreadLocal => {
                    data.push((name, vaddr..vaddr.saturating_add(size)))
                }
                SymbolKind::Code(kind) => {
                    functions.push(Function { name, version, vaddr, size, kind, binding });
                }
            }
        }
        data.sort_by_key(|(_, range)| range.start);
        merge_equal(&mut functions);

        let mut by_name: Vec<u32> = (0..u32::try_from(functions.len()).unwrap_or(u32::MAX)).collect();
        by_name.sort_by(|a, b| functions[*a as usize].name.cmp(&functions[*b as usize].name));
        let mut furthest = 0;
        let reach = functions.iter().map(|function| {
            furthest = function.end().max(furthest);
            furthest
        });
        let reach = reach.collect();
        Symbols { functions, data, problems, by_name, reach }
    }

    /// All symbols with this name, whatever their version.
    pub(crate) fn named<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Function> {
        let function = |index: &u32| &self.functions[*index as usize];
        let first = self.by_name.partition_point(|index| function(index).name.as_str() < name);
        self.by_name[first..].iter().map(function).take_while(move |function| function.name == name)
    }

    /// The innermost function that contains an address by its size; else the last one before it, if
    /// that has no size.
    pub(crate) fn at(&self, vaddr: u64) -> Option<&Function> {
        let end = self.functions.partition_point(|function| function.vaddr <= vaddr);
        let mut inner: Option<&Function> = None;
        for index in (0..end).rev() {
            let function = &self.functions[index];
            if let Some(found) = inner
                && found.vaddr != function.vaddr
            {
                break;
            }
            // Walking backwards over one address, the preferred symbol comes last.
            if function.contains(vaddr) || function.vaddr == vaddr {
                inner = Some(function);
            }
            if inner.is_none() && self.reach[index] <= vaddr {
                break;
            }
        }
        inner.or_else(|| {
            let last = self.functions[..end].last().filter(|last| last.size == 0)?;
            self.functions.get(self.functions.partition_point(|function| function.vaddr < last.vaddr))
        })
    }
}

fn read_separate(source: &Source) -> Result<Vec<Symbol>, ImageError> {
    match debugdata::symbol_table(source)? {
        Some((headers, section)) => table::read_section(source, &headers, &section, None),
        None => Ok(Vec::new()),
    }
}

/// Bytes from an address to the end of its segment: the most that a function can have.
fn bytes_to_segment_end(headers: &Headers, vaddr: u64) -> u64 {
    let code = headers.executable_segments().map(super::Segment::code).find(|code| code.contains(&vaddr));
    code.map_or(0, |code| code.end - vaddr)
}

/// The order of several names for one address: functions before labels, global names before local
/// ones, plain ones before underscored ones.
fn preference(function: &Function) -> (bool, Binding, usize, bool) {
    let underscores = function.name.bytes().take_while(|byte| *byte == b'_').count();
    let mangled = function.name.starts_with("_Z") || function.name.starts_with("_R");
    let default = function.version.as_ref().is_none_or(|version| version.default);
    (function.kind == FunctionKind::Label, function.binding, if mangled { 0 } else { underscores }, !default)
}

/// Merges what several tables say about the same name at the same address, and sorts the list.
fn merge_equal(functions: &mut Vec<Function>) {
    functions.sort_by(|a, b| (a.vaddr, &a.name).cmp(&(b.vaddr, &b.name)));
    functions.dedup_by(|next, kept| {
        let versions_agree = next.version.is_none() || kept.version.is_none() || next.version == kept.version;
        let same = next.vaddr == kept.vaddr && next.name == kept.name && versions_agree;
        if same {
            kept.size = kept.size.max(next.size);
            kept.kind = kept.kind.min(next.kind);
            kept.binding = kept.binding.min(next.binding);
            if kept.version.is_none() {
                kept.version = next.version.take();
            }
        }
        same
    });
    functions.sort_by(|a, b| (a.vaddr, preference(a), &a.name).cmp(&(b.vaddr, preference(b), &b.name)));
}
