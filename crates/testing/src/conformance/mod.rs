//! The conformance cases, and what runs them.
//!
//! `tests/conformance/*.case` of the repository say what every instruction does, as data derived by hand from the
//! language manual; its README has the format. This module reads them ([`all`]), makes the program and the machine of
//! each, and compares what comes of it ([`Case::check`]). What runs the program is an [`Execution`]: the
//! interpreter is one ([`Interpreter`]), a compiler's output another. All are held to the same files.
//!
//! ```text
//!     *.case --read--> Case --assemble--> Program + TestMachine --Execution::run--> Ran
//!                        |                                                           |
//!                        +------------------- expected -------------> equal? <-------+
//! ```
//!
//! A new way of running programs is tested in a few lines, in a test program without a harness of its own:
//!
//! ```no_run
//! # use testing::conformance::{self, Interpreter};
//! fn main() -> std::process::ExitCode {
//!     let mut trials = testing::Trials::new();
//!     for case in conformance::all() {
//!         trials.check(case.title.clone(), move || case.check(vm::Word::W8, &mut Interpreter::new()));
//!     }
//!     trials.run()
//! }
//! ```
//!
//! Everything here panics on a mistake in a case file: the files are the repository's own.

mod assembler;
mod case;
mod execution;
mod machine;
mod outcome;
mod registers;
mod text;

pub use assembler::{Assembled, assemble};
pub use case::{Case, all, folder, read};
pub use execution::{Execution, Interpreter, Ran};
pub use machine::{Region, TestMachine};
pub use registers::{GENERAL, number};
pub use text::Labels;
