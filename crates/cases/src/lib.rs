//! The conformance cases, and what runs them: a library of tests, not of the product.
//!
//! `tests/conformance/*.case` of the repository say what every instruction does, as data derived by hand from the
//! language manual; its README has the format. This crate reads them ([`all`]), makes the program and the machine of
//! each, and compares what comes of it ([`Case::check`]). What runs the program is an [`Execution`]: the
//! interpreter is one ([`Interpreter`]), a compiler's output another. All are held to the same files.
//!
//! ```text
//!     *.case --read--> Case --assemble--> Program + TestMachine --Execution::run--> Ran
//!                        |                                                           |
//!                        +------------------- expected -------------> equal? <-------+
//! ```
//!
//! A new way of running programs is tested in three lines:
//!
//! ```no_run
//! # let mut compiled = dprobes_cases::Interpreter::new();
//! for case in dprobes_cases::all() {
//!     for &word in &case.words {
//!         case.check(word, &mut compiled).unwrap_or_else(|difference| panic!("{difference}"));
//!     }
//! }
//! ```
//!
//! Everything here panics on a mistake in a case file: the files are the repository's own.

#![forbid(unsafe_code)]

mod assembler;
mod case;
mod execution;
mod machine;
mod outcome;
mod text;

pub use assembler::{Assembled, assemble};
pub use case::{Case, all, folder, read};
pub use execution::{Execution, Interpreter, Ran};
pub use machine::{Region, TestMachine};
pub use text::Labels;
