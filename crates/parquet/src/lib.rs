//! Writes traces as Apache Parquet, for DuckDB, Spark and similar tools that handle large traces
//! and complex queries.
//!
//! The writer is our own: that of the crate `parquet` adds 0.9 MB to the static program, and 14
//! crates to the build. The tests read by that crate what this one writes.
//!
//! ```text
//! file    = row group..., footer       a row for each record
//! group   = 131,072 rows, or as many as have 16 MiB of data
//! columns = number time time_ns cpu pid tid uid comm module probe symbol major minor ip sp data event   and those of templates
//! ```
//!
//! `time` is a timestamp in microseconds, which every reader supports; `time_ns` is the same in
//! nanoseconds since 1970, as a number. Items that were not asked for when the trace was made are
//! null. Numbers are unsigned unless the template says otherwise. Lists and structures are JSON, as
//! is `fields`, with the values of templates that have no columns.
//!
//! [`Partitioned`] writes several files, one for each machine and hour.
//!
//! Texts and numbers that repeat are in dictionaries; other numbers are differences; bytes are as
//! they are. Snappy compresses each page. Groups have the least and the greatest value of numbers
//! and repeated texts.
//!
//! Memory holds one row group of each file that is being written and, for each group written, a few
//! kilobytes of footer.

#![forbid(unsafe_code)]

mod chunk;
mod column;
mod encoding;
mod file;
mod group;
mod partitioned;
mod schema;
mod statistics;
mod texts;
mod thrift;

#[cfg(test)]
mod tests;

pub use group::Parquet;
pub use partitioned::Partitioned;
