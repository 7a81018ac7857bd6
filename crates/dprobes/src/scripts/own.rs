//! Handlers that dprobes itself runs: `begin`, `end`, `interval`.
//!
//! In: a handler (`Own`), and the memory of the script's maps. Out: what it logged, for the reader.

use rpn::{Location, Object};
use script::Compiled;
use vm::{Clock, End, Fault, Machine, Program, Register, State, Word};

use super::memory::Memory;
use super::objects::{object, probe};
use super::places::{Own, Places};

/// dprobes itself, as a handler sees it. It has no registers and no memory.
struct Itself<'a> {
    memory: &'a Memory,
}

impl Machine for Itself<'_> {
    fn register(&mut self, _: Register) -> u64 {
        0
    }

    fn set_register(&mut self, _: Register, _: u64) {}

    fn read(&mut self, address: u64, _: &mut [u8]) -> Result<(), Fault> {
        Err(Fault { address })
    }

    fn write(&mut self, address: u64, _: &[u8]) -> Result<(), Fault> {
        Err(Fault { address })
    }

    fn verify(&mut self, _: u64, _: bool) -> bool {
        false
    }

    fn pid(&mut self) -> u64 {
        std::process::id().into()
    }

    fn processor(&mut self) -> u64 {
        // SAFETY: it takes nothing and returns a number.
        u64::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
    }

    fn thread(&mut self) -> Option<u64> {
        u64::try_from(nix::unistd::gettid().as_raw()).ok()
    }

    fn time(&mut self, clock: Clock) -> Option<u64> {
        Some(self.memory.time(clock))
    }

    fn random(&mut self) -> Option<u32> {
        use std::hash::{BuildHasher, RandomState};
        Some(RandomState::new().hash_one(0) as u32)
    }

    fn ids(&mut self) -> Option<(u32, u32)> {
        Some((nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw()))
    }

    fn parent(&mut self) -> Option<u32> {
        u32::try_from(nix::unistd::getppid().as_raw()).ok()
    }

    fn name(&mut self) -> Option<[u8; 16]> {
        let mut name = [0; 16];
        name[..7].copy_from_slice(b"dprobes");
        Some(name)
    }

    fn stack(&mut self, _: &mut [u64]) -> Option<usize> {
        Some(0)
    }
}

/// Runs a handler; returns what it logged.
pub(super) fn run(compiled: &Compiled, memory: &Memory, own: Own, state: &mut State) -> Vec<u8> {
    let program = Program {
        word: Word::W8,
        code: &compiled.code,
        jmpmax: vm::JUMP_LIMIT,
        logmax: vm::LOG_LIMIT,
        maps: memory.maps(),
        constants: memory.constants(),
        point: vm::ProbepointInfo { minor: own.minor, ..vm::ProbepointInfo::default() },
        ..Program::default()
    };
    let outcome = vm::run(&program, own.entry, state, &mut Itself { memory });
    match outcome.end {
        End::Abort => Vec::new(),
        _ => state.log().to_vec(),
    }
}

impl Places {
    /// What dprobes itself runs, as the probes of a program without code.
    pub(super) fn own_program(&self) -> Object {
        let names = self.own().map(|own| self.names.get(own.minor as usize).map_or("", |(name, _)| name));
        let probes = names.map(|name| probe(name.to_owned(), Location::Offset(0), 0, (0, 0)));
        Object { probes: probes.collect(), ..object("dprobes") }
    }

    /// The number of a handler in that program.
    pub(super) fn own_probe(&self, own: Own) -> u32 {
        self.own().position(|each| each == own).unwrap_or(0) as u32
    }

    fn own(&self) -> impl Iterator<Item = Own> + '_ {
        let intervals = self.intervals.iter().map(|(_, own)| *own);
        let signals = self.signals.iter().map(|(_, own)| *own);
        self.begin.iter().chain(&self.end).copied().chain(intervals).chain(signals)
    }
}
