//! Converts traces to other forms: for other tools, and for people to read.
//!
//! ```text
//! store::Reader -> Order -> Event -> Form: Json, Csv, Ctf, Perfetto, Otlp, Report, Replay, CallGraph
//!                            ^             (and Parquet, in a crate of its own)
//!                            |
//!                 Known, Sheet: where the probe is, what its bytes mean
//! ```
//!
//! [`convert`] reads a trace once, from start to end. It sorts the records by time, looks up what
//! is known about each, and passes it to a [`Form`]. This crate opens no files: forms write to
//! anything that takes bytes.
//!
//! # Guarantees
//!
//! * Memory does not grow with the trace: every table has a limit; what exceeds it is counted and
//!   reported, and is never an error.
//! * The contents of a trace are not trusted: names may hold any text, times may be any number,
//!   returns may come without entries. Each form quotes in its own way, and its output is
//!   well-formed whatever the trace holds.
//! * A header item that was not asked for when the trace was made is left out, not shown as 0.
//!
//! docs/convert.md describes each form.

#![forbid(unsafe_code)]

mod columns;
mod convert;
mod csv;
mod ctf;
mod event;
mod facts;
mod graph;
mod json;
mod live;
mod map;
mod order;
mod otlp;
pub mod perfetto;
mod plural;
mod remarks;
mod replay;
pub mod report;
#[cfg(test)]
mod sample;
mod spans;
mod template_set;
mod text;
mod value;

pub use columns::{Column, Columns, Scalar};
pub use convert::{Failure, Summary, convert};
pub use csv::Csv;
pub use ctf::Ctf;
pub use event::{Event, Form};
pub use facts::{ProbeSite, Side, TraceFacts};
pub use graph::CallGraph;
pub use json::Json;
pub use live::LiveSpans;
pub use otlp::{Carried, Otlp};
pub use perfetto::Perfetto;
pub use replay::Replay;
pub use report::Report;
pub use template_set::TemplateSet;
pub use value::{json_fields, json_value};
