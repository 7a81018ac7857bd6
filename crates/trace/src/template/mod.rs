//! The formatter: logged bytes as the text that a template gives them (the paper, section 6).
//!
//! ```text
//! major=1                                 DProbes(1,1) cpu=0 pid=4711: large request
//! minor=1, desc="large request"           size=8192 from 0x00007f0012345678
//!     fmt="size=%8u from 0x%8x"
//! ```
//!
//! A template file has the templates of one major code. [`Templates`] are those of a directory, looked up by a record's
//! codes. The library's interface is the paper's: [`Templates::open`] initialises, [`Templates::format`] formats one record,
//! dropping terminates, and [`Templates::refresh`] re-reads what has been changed.
//!
//! The way of a template: *lex* and *parse* (files, all errors at once, as [`Problem`]s) -> *compile* (`fmt` strings, to
//! items) -> *walk*: the one place that says what bytes an item takes, and what happens where they are too few. What is made of
//! the bytes is the walker's visitor: text (*write*), or typed [`Value`]s for converters, which [`Template::fields`] names.
//!
//! Neither templates nor records are trusted. Every repetition takes data, so that the length of a record bounds the work; nesting and
//! sizes of files have limits; text and values that one record makes do too.

mod compile;
mod control;
mod directory;
mod dump;
mod fields;
mod index;
mod kept;
mod lex;
mod load;
mod parse;
mod problem;
mod statement;
mod values;
mod walk;
mod write;

pub use compile::Template;
pub use control::Width;
pub use directory::{OpenError, Templates};
pub use fields::{Field, Kind};
pub use kept::Kept;
pub use parse::TemplateFile;
pub use problem::Problem;
pub use values::{Value, Values};
pub use write::Formatted;
pub(crate) use write::record as write_record;
