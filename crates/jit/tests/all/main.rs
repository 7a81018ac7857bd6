//! The tests of this crate from outside, but for those that need a process of their own.

#[path = "../support/mod.rs"]
mod support;

mod clock;
mod hidden;
mod listing;
mod maps;
mod random;
mod scripts;
