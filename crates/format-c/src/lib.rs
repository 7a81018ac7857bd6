//! Formats records and trace stores as text for programs in C: the library of the paper, section 6,
//! whose routines any program may call. `include/dprobes_format.h` is its interface.
//!
//! ```text
//! dpfmt_open_templates, dpfmt_parse_templates -> dpfmt_formatter: initialise
//! dpfmt_format: a record with its header; dpfmt_format_data: logged bytes alone
//! dpfmt_close: terminate
//! dpfmt_open_store -> dpfmt_store; dpfmt_next: the text of `dprobes show`, record by record
//! ```
//!
//! The texts are those of [`trace`]; this crate only hands them over. What it guarantees:
//!
//! * No panic crosses the boundary. It becomes the status `DPFMT_BUG`.
//! * A call that fails says why: a status, and for the calling thread a message with place, cause
//!   and remedy.
//! * Nothing is written beyond the caller's buffer. A text that does not fit is not lost: the call
//!   says how much room it needs, and may be repeated.
//! * Templates, records and stores may contain anything.
//!
//! The files: `boundary` has all functions of the interface, and is the only one with `unsafe`;
//! `formatter` and `store` have what is behind the two handles; `status` the numbers and messages.

mod boundary;
mod formatter;
mod status;
mod store;

#[doc(hidden)]
pub use boundary::*;
