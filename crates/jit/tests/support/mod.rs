//! Runs compiled handlers in the test's process: shared memory below 2 GiB, a site, and the parts
//! of tracer and agent.
#![allow(dead_code, reason = "every test and the bench use a part of it")]

use dprobes_jit::Handler;
use vm::DEFAULT_MASK;

pub(crate) mod arena;
pub(crate) mod interpreter;
pub(crate) mod native;
pub(crate) mod outside;
pub(crate) mod programs;
#[path = "../../../script/tests/running/generate.rs"]
pub(crate) mod script_numbers;
pub(crate) mod script_pieces;
pub(crate) mod script_texts;
pub(crate) mod tables;

/// A handler with this code and the usual limits.
pub(crate) fn handler(code: &[u8]) -> Handler<'_> {
    Handler {
        code,
        entry: 0,
        jmpmax: 256,
        insmax: vm::INSTRUCTIONS,
        logmax: 1024,
        mask: DEFAULT_MASK,
        locals: 4,
        globals: 4,
        major: 5,
        minor: 6,
    }
}
