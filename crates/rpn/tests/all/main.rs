//! The tests of this crate from outside, but for those that need a process of their own.

mod bounds;
mod laws;
mod objects;
mod ppdf;
mod programs;
