//! The modules of a process: the ELF files it runs code of, and their addresses.
//!
//! A module is an [`Image`] at a load bias. One file loaded twice (by `dlmopen`, say) makes two
//! modules; one image serves all processes that map the same file. The kernel's vDSO is a module
//! too, without a file.
//!
//! Executable mappings that are not modules are listed as [`Skipped`], with the reason.

mod cache;
mod error;
mod find;
mod loaded;
mod naming;
mod open;

pub use self::cache::ImageCache;
pub use self::error::ModuleError;
pub use self::find::{Skipped, Survey, modules, modules_in, survey};
pub use self::loaded::Module;
pub use self::open::open_module;
