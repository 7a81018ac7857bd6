//! The tests of this crate from outside, but for those that need a process of their own.

#[path = "../../../image/tests/all/common/mod.rs"]
mod common;

mod inject;
mod modules;
mod obedient;
mod speed;
