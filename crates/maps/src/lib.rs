//! Maps of scripts: tables in memory that a probed process and its tracer share.
#![no_std]
#![forbid(unsafe_code)]

mod info;

pub use info::{Kind, MapInfo};
