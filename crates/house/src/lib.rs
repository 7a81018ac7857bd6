//! Checks the sources: which files of a crate use each other, how long they are, and in how many of
//! them the methods of a type are.
//!
//! Files that use each other in a circle cannot be understood one by one: the circle is one long
//! file in pieces. `tests/house.rs` sets limits for every crate; what exceeds them may only shrink.
//!
//! ```text
//!     crates/NAME/src/lib.rs, main.rs, bin/*.rs      a root each
//!         mod a;         -> a file of the crate
//!         use crate::a::Item; a::call(); super::Item -> an edge to the file where the path ends
//!         pub use a::Item;  crate::Item              -> an edge to `a`: a re-export is seen through
//!     circle = files each of which reaches each other
//! ```
//!
//! Sources are read as tokens (`source`); nothing is compiled. Test code (`#[cfg(test)]`) does not
//! count. Method calls name no file: files with parts of one type's `impl` are not connected by
//! calls among them. So the methods of one type may be in few files only.

#![forbid(unsafe_code)]

mod circles;
mod graph;
mod source;

pub use circles::circles;
pub use graph::{Graph, Module};
pub use source::{Source, Use};
