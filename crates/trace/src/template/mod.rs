//! Formats logged bytes as text by templates (the paper, section 6).
//!
//! ```text
//! major=1                                 DProbes(1,1) cpu=0 pid=4711: large request
//! minor=1, desc="large request"           size=8192 from 0x00007f0012345678
//!     fmt="size=%8u from 0x%8x"
//! ```
//!
//! A template file has the templates of one major code. [`Templates`] are those of a directory,
//! found by a record's codes. The interface follows the paper's: [`Templates::open`] initialises,
//! [`Templates::format`] formats a record, dropping terminates, and [`Templates::refresh`] reads
//! changed files again.
//!
//! The stages: *lex* and *parse* (files; all errors are reported at once, as [`Problem`]s) ->
//! *compile* (`fmt` strings to items) -> *walk* (the only module that knows which bytes an item
//! takes and what happens if there are too few). *walk* calls a visitor, which makes text
//! (*write*), or typed [`Value`]s for converters; [`Template::fields`] describes these.
//!
//! Neither templates nor records are trusted. Every repetition consumes data, so the length of a
//! record bounds the work. Nesting, file sizes, and the text and values of one record have limits.

mod compile;
mod condition;
mod control;
mod definition;
mod directory;
mod dump;
mod fields;
mod index;
mod lex;
mod load;
mod mask;
mod number;
mod parse;
mod prefix;
mod problem;
mod resolve;
mod statement;
mod stored;
mod values;
mod walk;
mod write;

pub use control::Width;
pub use definition::Template;
pub use directory::{OpenError, Templates};
pub use fields::{Field, FieldType};
pub use parse::TemplateFile;
pub(crate) use prefix::Prefixed;
pub use problem::Problem;
pub use stored::StoredTemplates;
pub use values::{Value, Values};
pub use write::Formatted;
pub(crate) use write::record as write_record;
