//! Shared code of tests and measurements; not part of the product.
//!
//! | module | what it is |
//! |---|---|
//! | [`skipped`], [`have`], [`need!`], [`find_program`], [`rounds`] | what a test needs of a machine, and how it is skipped if that is missing |
//! | [`Scratch`] | a directory for the files of one test |
//! | [`target`], [`variant`], [`go_target`] | the programs of `tests/targets`, built |
//! | [`output`], [`repository`] | commands that must succeed; where the sources are |
//! | [`Trials`] | tests that are found at run time: one for each entry of a case file |
//! | [`ObjectStore`] | an object store with the protocol of S3 |
//! | [`machine`] | a virtual machine, for tests that probe a kernel |
//! | [`conformance`] | the conformance cases of the language, and how to run them |

#![forbid(unsafe_code)]

pub mod conformance;
mod directories;
pub mod machine;
mod needs;
pub mod object_store;
mod programs;
mod scratch;
mod trials;

pub use directories::{repository, scratch_directory};
pub use needs::{THOROUGH, VARIABLE, find_program, have, is_root, rounds, skipped};
pub use object_store::ObjectStore;
pub use programs::{go_target, output, spawn, target, variant};
pub use scratch::Scratch;
pub use trials::Trials;
