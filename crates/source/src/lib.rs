//! The texts of a program, places in them, and messages about them.
//!
//! Two languages describe probes: the RPN language (crate `rpn`) and scripts (crate `script`). Both
//! report their mistakes in the same form: what is wrong, the line, what was expected there, and
//! what to do.
//!
//! ```text
//! Files --read--> Sources <--Span-- Diagnostic --render--> error: no instruction is called `psh`
//!                                                           --> malloc.rpn:7:5
//! ```
//!
//! Design constraints:
//!
//! * Does not know a language: what a message says is the caller's.
//! * Texts are untrusted. A message shows them in a printable form and shortened; the number of
//!   messages is limited.
//! * [`DiskFiles`] is the only access to the operating system.

#![forbid(unsafe_code)]

mod diagnostic;
mod files;
mod text;

pub use diagnostic::{
    Diagnostic, Keep, MAX_MESSAGES, Messages, Related, Severity, nearest, printable, quote,
};
pub use files::{DiskFiles, Files, MAX_FILE_BYTES, MemoryFiles};
pub use text::{Position, Source, SourceId, SourceLocation, Sources, Span};
