//! The tests of this crate from outside, but for those that need a process of their own.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../jit/tests/support/programs.rs"]
mod programs;

mod inside;
mod machine;
mod random;
mod remote;
mod ring;
