//! Shared code of the tests. Each test uses part of it.
#![allow(dead_code, unreachable_pub)]

pub mod compare;
pub mod encodings;
pub mod flow;
pub mod forms;
pub mod native;
pub mod program;
pub mod random;
pub mod world;
