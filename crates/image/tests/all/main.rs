//! The tests of this crate from outside, but for those that need a process of their own.

mod common;

mod boundary;
mod damage;
mod debug_types;
mod flow;
mod landing;
mod outline;
mod separate;
mod symbols;
mod usdt;
mod variables;
