//! The conformance cases of the language, and how to run them.
//!
//! `tests/conformance/*.case` specify what every instruction does, as data derived by hand from the
//! language manual; the README there describes the format. This module reads them ([`all`]), makes
//! the program and machine of each, and compares the outcome ([`Case::check`]). An [`Execution`]
//! runs the program: the interpreter is one ([`Interpreter`]), compiled code another. All must pass
//! the same files.
//!
//! ```text
//!     *.case --read--> Case --assemble--> Program + TestMachine --Execution::run--> Ran
//!                        |                                                           |
//!                        +------------------- expected -------------> equal? <-------+
//! ```
//!
//! A new execution is tested in a few lines, in a test program without a harness:
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
//! Everything here panics on a mistake in a case file, since the files belong to the repository.

mod assembler;
mod case;
mod execution;
mod machine;
mod outcome;
mod registers;
mod tables;
mod text;

pub use assembler::{Assembled, assemble};
pub use case::{Case, all, folder, read};
pub use execution::{Execution, Interpreter, Ran};
pub use machine::{Region, TestMachine, ThreadFacts};
pub use registers::{GENERAL, number};
pub use tables::{Content, contents};
pub use text::Labels;
