//! Reads ELF files: what probes need to know about an executable or a shared library.
//!
//! An [`Image`] is read once and shared by all processes that map the file. Its headers are read
//! when it is opened; symbols, unwinding entries and code only when they are needed. Everything in
//! the file is untrusted: sizes are checked against the file and against a limit before anything is
//! allocated, damaged tables are left out and reported by [`Image::problems`], and only damaged
//! program headers make the file unusable.
//!
//! `image` has the data: what is read and what is worked out, each part once. The files that work
//! something out have functions of an image, and `questions` offers these as methods to other
//! crates:
//!
//! ```text
//! source     the bytes, read piece by piece
//!   headers    segments, sections            dynamic   soname, tables of a file without sections
//!   table      one symbol table              version, debugdata   symbol versions, symbols kept elsewhere
//!   functions  all tables merged             demangle, lookup     from a user's name to functions
//!   separate   symbols in another file              debug_files  files that have debug information
//!   debug_info debug information             build_id    which build of a file it is
//!   variables  global variables and their parts
//!   debug_types  functions' parameters and types, as debug information tells them
//!   frames     unwinding entries             starts    where disassembly may begin
//!   region(s)  disassembled stretches        boundary  does an instruction start here?
//!   outline    one function's parts and exits   selection functions by name or pattern
//!   flow       which instructions control provably reaches      landing   which others it may
//!   usdt       static probes and where their arguments are
//!   restartable  code in which no thread may be stopped      dynrel   what the dynamic linker writes
//! ```

#![forbid(unsafe_code)]

mod boundary;
mod build_id;
mod data_symbols;
mod debug_files;
mod debug_info;
mod debug_types;
mod debugdata;
mod demangle;
mod dynamic;
mod dynamic_relocations;
mod entry_points;
mod error;
mod exceptions;
mod flow;
mod frames;
mod functions;
mod go_version;
mod headers;
mod hex;
mod image;
mod loaded_parts;
mod lookup;
mod outline;
mod pattern;
mod possible_targets;
mod questions;
mod region;
mod regions;
mod relative_relocations;
mod restartable;
mod selection;
mod separate;
mod source;
mod starts;
mod table;
mod usdt;
mod variables;
mod version;

pub use self::boundary::{NoCode, NotAnInstruction};
pub use self::data_symbols::DataSymbols;
pub use self::debug_info::debug_information;
pub use self::debug_types::{
    BitRange, DebugTypes, FunctionType, LineCode, LineRow, LineTable, NoTypes, Parameter, Passed, Piece,
    RecordKind, RecordMember, RecordType, Shape, TypeId, TypeName,
};
pub use self::demangle::full as demangled;
pub use self::error::ImageError;
pub use self::flow::{Block, ControlFlow, Doubt, Leaves, NotAnalyzed, Unresolved};
pub use self::functions::{Binding, Function, FunctionKind};
pub use self::headers::{Machine, Segment};
pub use self::hex::hex;
pub use self::image::Image;
pub use self::lookup::{Lookup, NameKind};
pub use self::outline::{Exit, Outline};
pub use self::pattern::{Pattern, PatternError};
pub use self::possible_targets::PossibleTargets;
pub use self::selection::Selected;
pub use self::separate::SymbolMismatch;
pub use self::source::{FileId, open_regular};
pub use self::usdt::{Argument, ArgumentPlace, ArgumentRegister, StaticProbe};
pub use self::variables::{NoVariable, ValueKind, Variable, variable};
pub use self::version::Version;
