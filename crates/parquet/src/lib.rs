//! Writes traces as Apache Parquet, for DuckDB, Spark and similar tools that handle large traces
//! and complex queries.
//!
//! It is a separate crate since its dependencies take longer to build than the rest of dprobes.
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
//! Memory holds one row group of each file that is being written and, for each group written, a few
//! kilobytes of footer.

#![forbid(unsafe_code)]

mod column;
mod group;
mod partitioned;
mod schema;
mod texts;

pub use group::Parquet;
pub use partitioned::Partitioned;
