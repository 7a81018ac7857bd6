//! Any bytecode, with any limits, on a machine that grants or refuses everything: the interpreter ends, keeps to the
//! limits and to the contract of `Machine`, and leaves nothing that changes the next run.
//!
//! The input: 16 bytes of settings, then the code.
#![no_main]

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use libfuzzer_sys::fuzz_target;
use vm::{Fault, LOG_LIMIT, Machine, Outcome, ProbepointInfo, Program, Register, RegisterSet, State, Word, run};

/// Where memory is; the upper half can be written.
const MEMORY: std::ops::Range<u64> = 0x1000..0x3000;

struct Process {
    word: Word,
    memory: Vec<u8>,
    grants: bool,
    registers: u64,
}

impl Process {
    fn range(&self, address: u64, length: usize, write: bool) -> Result<std::ops::Range<usize>, Fault> {
        assert!(length > 0 && address <= self.word.truncate(u64::MAX));
        assert!(length as u64 - 1 <= self.word.truncate(u64::MAX) - address, "{length} at {address:#x}");
        let start = if write { (MEMORY.start + MEMORY.end) / 2 } else { MEMORY.start };
        for at in address..=address + (length as u64 - 1) {
            if !(start..MEMORY.end).contains(&at) {
                return Err(Fault { address: at });
            }
        }
        let first = (address - MEMORY.start) as usize;
        Ok(first..first + length)
    }
}

impl Machine for Process {
    fn register(&mut self, register: Register) -> u64 {
        assert!(self.word == Word::W8 || register.set() == RegisterSet::Both);
        self.registers.wrapping_mul(register as u64 + 1)
    }
    fn wide_register(&mut self, register: Register) -> Option<u128> {
        self.grants.then_some(u128::from(self.registers) << 40 | register as u128)
    }
    fn cpuid(&mut self, leaf: u32) -> Option<[u32; 4]> {
        self.grants.then_some([leaf, 1, 2, u32::MAX])
    }
    fn model_specific_register(&mut self, number: u32) -> Option<u64> {
        self.grants.then_some(u64::from(number) << 20)
    }
    fn set_register(&mut self, register: Register, value: u64) {
        assert!(register.can_pop());
        assert!(register.set() == RegisterSet::Long || value <= u64::from(u32::MAX));
        self.registers ^= value;
    }
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        assert!(into.len() <= LOG_LIMIT);
        let range = self.range(address, into.len(), false)?;
        into.copy_from_slice(&self.memory[range]);
        Ok(())
    }
    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Fault> {
        assert!(from.len() <= 8);
        let range = self.range(address, from.len(), true)?;
        self.memory[range].copy_from_slice(from);
        Ok(())
    }
    fn verify(&mut self, address: u64, write: bool) -> bool {
        self.range(address, 1, write).is_ok()
    }
    fn pid(&mut self) -> u64 {
        4711
    }
    fn processor(&mut self) -> u64 {
        1
    }
    fn task(&mut self) -> Option<u64> {
        self.grants.then_some(MEMORY.start)
    }
    fn field(&mut self, index: u16) -> Option<u64> {
        self.grants.then_some(u64::from(index) << 30)
    }
    fn linear_address(&mut self, selector: u16, offset: u64) -> Option<u64> {
        self.grants.then_some(offset.wrapping_add(selector.into()))
    }
    fn read_port(&mut self, port: u16, size: usize) -> Option<u32> {
        assert!([1, 2, 4].contains(&size));
        self.grants.then_some(u32::from(port) << 8)
    }
    fn write_port(&mut self, _: u16, size: usize, value: u32) -> bool {
        assert!([1, 2, 4].contains(&size) && u64::from(value) < 1 << (8 * size));
        self.grants
    }
    fn call_kernel_modules(&mut self) -> bool {
        self.grants
    }
}

/// What a run leaves.
#[derive(Debug, PartialEq)]
struct Left {
    outcome: Outcome,
    log: Vec<u8>,
    trace: Vec<u8>,
    top: u64,
    variables: Vec<u64>,
    memory: Vec<u8>,
}

fn once(state: &mut State, settings: &[u8; 16], code: &[u8]) -> Left {
    let [flags, entry, jumps, log_low, log_high, trace, heap, mask_low, mask_high, rest @ ..] = *settings;
    let word = if flags & 1 == 0 { Word::W8 } else { Word::W4 };
    let variables: Vec<AtomicU64> = (0..6).map(|value| AtomicU64::new(value * 0x1111)).collect();
    let program = Program {
        word,
        code,
        jmpmax: u32::from(jumps) << (flags >> 5),
        insmax: 1 << 16,
        logmax: usize::from(u16::from_le_bytes([log_low, log_high])),
        mask: u16::from_le_bytes([mask_low, mask_high]),
        locals: &variables[..3],
        globals: &variables[3..],
        excpt_log: usize::from(trace) << 4,
        autostacktrace: flags & 2 != 0,
        heap: usize::from(heap) << 6,
        point: ProbepointInfo { module: b"module", offset: 1, id: 2, major: 3, minor: 4 },
        ..Program::default()
    };
    let memory = MEMORY.map(|at| rest[at as usize % rest.len()]).collect();
    let registers = u64::from_le_bytes([0, 0, rest[0], rest[1], rest[2], rest[3], rest[4], rest[5]]);
    let mut process = Process { word, memory, grants: flags & 4 != 0, registers };
    let outcome = run(&program, entry.into(), state, &mut process);
    assert!(state.log().len() <= program.logmax.min(LOG_LIMIT));
    assert!(state.trace().len() <= program.excpt_log);
    Left {
        outcome,
        log: state.log().to_vec(),
        trace: state.trace().to_vec(),
        top: state.element(0),
        variables: variables.iter().map(|variable| variable.load(Ordering::Relaxed)).collect(),
        memory: process.memory,
    }
}

thread_local! {
    /// The state that all runs use, one after another.
    static USED: RefCell<Box<State>> = RefCell::new(Box::default());
    static FRESH: RefCell<Box<State>> = RefCell::new(Box::default());
}

fuzz_target!(|data: &[u8]| {
    let Some((settings, code)) = data.split_first_chunk::<16>() else { return };
    let used = USED.with_borrow_mut(|state| once(state, settings, code));
    let fresh = FRESH.with_borrow_mut(|state| {
        **state = State::new();
        once(state, settings, code)
    });
    assert_eq!(used, fresh, "what an earlier run left matters");
});
