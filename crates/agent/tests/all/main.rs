//! The tests of this crate from outside, but for those that need a process of their own.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../jit/tests/support/outside.rs"]
mod outside;
#[path = "../../../jit/tests/support/programs.rs"]
mod programs;
#[path = "../../../jit/tests/support/script_pieces.rs"]
mod script_pieces;

mod inside;
mod machine;
mod map_call;
mod random;
mod remote;
mod ring;
mod stacks;
