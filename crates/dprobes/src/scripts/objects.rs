//! The programs and probes of the engine that a script's handlers become.

use rpn::{Arch, Location, Object};

/// The greatest `maxhits`, which means no limit.
const UNLIMITED: u64 = 0x7fff_ffff;

/// A probe of a handler.
pub(super) fn probe(
    point: String,
    location: Location,
    minor: u32,
    (entry, end): (usize, usize),
) -> rpn::Probe {
    rpn::Probe {
        point,
        location,
        watch: None,
        opcode: None,
        minor,
        group: None,
        kind: None,
        ignore: 0,
        maxhits: UNLIMITED,
        logonfault: true,
        mask: script::EXCEPTIONS,
        heap: 0,
        entry,
        end,
        span: Default::default(),
        sites: Vec::new(),
    }
}

/// A program for a module, without probes and code.
pub(super) fn object(file: &str) -> Object {
    Object {
        module: file.to_owned(),
        arch: Arch::X86_64,
        major: 0,
        logmax: vm::LOG_LIMIT,
        jmpmax: vm::JUMP_LIMIT,
        insmax: vm::INSTRUCTIONS,
        ..Object::default()
    }
}
