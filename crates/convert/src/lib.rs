//! Traces in other forms: for the tools in which people look at traces, and for the eye.
//!
//! ```text
//! store::Reader -> Order -> Event -> Form: Json, Csv, Ctf, Perfetto, Report (and Parquet, in a crate of its own)
//!                            ^
//!                 Known, Sheet: where the probe is, what its bytes mean
//! ```
//!
//! [`pour`] reads a trace once, from its start to its end. It puts the records in the order of time, looks up what is known of each,
//! and hands it to a [`Form`]. Nothing here opens a file: forms write to anything that takes bytes.
//!
//! # What is promised
//!
//! * Memory does not grow with the trace: every table has a limit, and what is beyond it is counted and told, never an error.
//! * Nothing of a trace is trusted: names may hold any text, times may be any number, returns may come without entries. Each form has its
//!   own way of quoting, and what it writes is well-formed whatever the trace holds.
//! * A header item that was not asked for when the trace was made is left out, and not shown as 0.
//!
//! docs/convert.md says what each form looks like.

#![forbid(unsafe_code)]

mod columns;
mod csv;
mod ctf;
mod event;
mod json;
mod known;
mod map;
mod order;
pub mod perfetto;
mod pour;

pub mod report;
mod sheet;
mod spans;
mod text;
mod value;

pub use columns::{Column, Columns, Scalar};
pub use csv::Csv;
pub use ctf::Ctf;
pub use event::{Event, Form};
pub use json::Json;
pub use known::{Known, Place, Side};
pub use perfetto::Perfetto;
pub use pour::{Failure, Poured, pour};
pub use report::Report;
pub use sheet::Sheet;
pub use value::{json_fields, json_value};
