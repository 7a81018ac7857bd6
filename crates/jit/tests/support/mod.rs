//! Running compiled handlers in the process of the test: shared memory below 2 GiB, a site, and what the tracer and the
//! agent do for it.
#![allow(dead_code, reason = "every test and the bench use a part of it")]

pub(crate) mod arena;
pub(crate) mod interpreter;
pub(crate) mod native;
