//! Room `process`.

mod elf;
mod maps;
mod module;

pub use elf::{
    Binding, FileId, Function, FunctionKind, Image, ImageError, Lookup, Machine, Misplaced, NameKind,
    Segment, Version,
};
pub use maps::{Mapping, maps};
pub use module::{ImageCache, Module, ModuleError, Skipped, Survey, modules, survey};
