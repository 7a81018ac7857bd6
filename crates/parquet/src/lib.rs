//! Traces as Apache Parquet, for DuckDB, Spark and the like: where a trace outgrows a machine, or a question outgrows a text.
//!
//! A crate of its own, since what it needs takes longer to build than the rest of dprobes.
//!
//! ```text
//! file    = row group..., footer       a row for each record
//! group   = 131,072 rows, or as many as have 16 MiB of data
//! columns = number time time_ns cpu pid tid uid comm module probe symbol major minor ip sp data event   and those of templates
//! ```
//!
//! `time` is a timestamp in microseconds, which everybody reads, `time_ns` the same in nanoseconds since 1970, as a number. What was not asked
//! for when the trace was made is null. Numbers are unsigned unless the template says otherwise. Lists and structures are JSON, as is
//! `fields`, which has the values of the templates for which there are no columns.
//!
//! In memory are one row group and, for each that was written, a few kilobytes of footer.

#![forbid(unsafe_code)]

mod column;
mod group;
mod schema;
mod texts;

pub use group::Parquet;
