//! Checks of the sources themselves: which files of a crate use each other, and how long they are.
//!
//! A file that can be read alone is understood alone. Where files use each other in a circle, none of them can be: the
//! circle is one long file in pieces. `tests/house.rs` holds every crate to a limit, and what is above it to its present
//! size, so that it can only shrink.
//!
//! ```text
//!     crates/NAME/src/lib.rs, main.rs, bin/*.rs      a root each
//!         mod a;         -> a file of the crate
//!         use crate::a::Item; a::call(); super::Item -> an edge to the file where the path ends
//!         pub use a::Item;  crate::Item              -> an edge to `a`: a re-export is seen through
//!     circle = files each of which reaches each other
//! ```
//!
//! Sources are read as tokens (`source`); nothing is compiled. What only tests have (`#[cfg(test)]`) does not count. A method
//! call names no file: files that hold parts of one type's `impl` are not tied by calls among them.

#![forbid(unsafe_code)]

mod circles;
mod graph;
mod source;

pub use circles::circles;
pub use graph::{Graph, Module};
pub use source::{Source, Use};
