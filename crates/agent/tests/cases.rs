//! Runs the conformance cases with the agent's own code, as built for other processes, in this
//! process.

mod common;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use common::Bench;
use testing::Trials;
use testing::conformance::{self, Execution, Ran, TestMachine, number};
use vm::{End, Fault, Machine, Program, Register, State, Word};

/// The agent as an [`Execution`]. It does not report how a run ended; the interpreter does, and
/// everything else the agent leaves is compared with the interpreter's results.
struct Agent {
    bench: Bench,
    runs: usize,
}

/// A case's machine, and whether it was asked for something that a real process answers
/// differently.
struct Watched<'a> {
    machine: &'a mut TestMachine,
    odd: bool,
}

impl Watched<'_> {
    /// Notes an access to memory. Nothing is mapped at a process's lowest addresses and in the
    /// upper half, as in the machine of a case without memory there.
    fn access(&mut self, address: u64, length: usize) {
        let unmapped = address >= 1 << 63 || address < 0x1_0000 - length as u64;
        self.odd |= !unmapped || !self.machine.memory.is_empty();
    }
}

impl Machine for Watched<'_> {
    fn register(&mut self, register: Register) -> u64 {
        self.odd |= number(register).is_none();
        self.machine.register(register)
    }

    fn set_register(&mut self, register: Register, value: u64) {
        self.odd |= number(register).is_none();
        self.machine.set_register(register, value);
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.access(address, into.len());
        self.machine.read(address, into)
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Fault> {
        self.access(address, from.len());
        self.machine.write(address, from)
    }

    fn verify(&mut self, address: u64, write: bool) -> bool {
        self.access(address, 1);
        self.machine.verify(address, write)
    }

    fn pid(&mut self) -> u64 {
        self.odd = true;
        self.machine.pid()
    }

    fn processor(&mut self) -> u64 {
        self.odd = true;
        self.machine.processor()
    }

    fn wide_register(&mut self, register: Register) -> Option<u128> {
        self.odd = true;
        self.machine.wide_register(register)
    }

    fn cpuid(&mut self, leaf: u32) -> Option<[u32; 4]> {
        self.odd = true;
        self.machine.cpuid(leaf)
    }

    // The agent refuses these, as the tracer does; so does the machine of most cases.
    fn model_specific_register(&mut self, number: u32) -> Option<u64> {
        let answer = self.machine.model_specific_register(number);
        self.odd |= answer.is_some();
        answer
    }

    fn task(&mut self) -> Option<u64> {
        let answer = self.machine.task();
        self.odd |= answer.is_some();
        answer
    }

    fn field(&mut self, index: u16) -> Option<u64> {
        let answer = self.machine.field(index);
        self.odd |= answer.is_some();
        answer
    }

    fn linear_address(&mut self, selector: u16, offset: u64) -> Option<u64> {
        self.odd = true;
        self.machine.linear_address(selector, offset)
    }

    fn read_port(&mut self, port: u16, size: usize) -> Option<u32> {
        let answer = self.machine.read_port(port, size);
        self.odd |= answer.is_some();
        answer
    }

    fn write_port(&mut self, port: u16, size: usize, value: u32) -> bool {
        let answer = self.machine.write_port(port, size, value);
        self.odd |= answer;
        answer
    }

    fn call_kernel_modules(&mut self) -> bool {
        let answer = self.machine.call_kernel_modules();
        self.odd |= answer;
        answer
    }
}

/// The general registers of a test's machine, if each is named by only one name.
fn general(machine: &TestMachine) -> [u64; 16] {
    let mut values = [0; 16];
    for (&register, &value) in &machine.registers {
        values[Register::from_index(register).and_then(number).expect("no other is there")] = value;
    }
    values
}

impl Execution for Agent {
    fn run(&mut self, program: &Program<'_>, entry: usize, machine: &mut TestMachine) -> Ran {
        let before = |values: &[AtomicU64]| {
            values.iter().map(|value| value.load(Ordering::Relaxed)).collect::<Vec<_>>()
        };
        let (locals, globals) = (before(program.locals), before(program.globals));
        let whole = machine.clone();
        let mut watched = Watched { machine, odd: false };
        let mut state = Box::<State>::default();
        let outcome = vm::run(program, entry, &mut state, &mut watched);
        let ran = Ran::of(outcome, &state);
        if watched.odd
            || !whole.registers.keys().all(|&it| Register::from_index(it).and_then(number).is_some())
        {
            return ran;
        }
        let cells = |values: &[u64]| values.iter().map(|&value| AtomicU64::new(value)).collect::<Vec<_>>();
        let (locals, globals) = (cells(&locals), cells(&globals));
        let copy = Program { locals: &locals, globals: &globals, ..*program };
        let info = self.bench.describe(&copy, entry);
        self.bench.registers().general = general(&whole);
        let head = self.bench.context().head.load(Ordering::Relaxed);
        self.bench.over.store(0, Ordering::Relaxed);
        self.bench.control().tail.0.store(head, Ordering::Relaxed);
        let left = self.bench.run(&info);
        self.bench.take_variables(&copy);
        assert_eq!(left.stack, ran.stack);
        assert_eq!(left.log, ran.log);
        assert_eq!(left.trace, ran.trace);
        assert_eq!(before(&locals), before(program.locals));
        assert_eq!(before(&globals), before(program.globals));
        assert_eq!(self.bench.registers().general, general(machine));
        self.record(program, &ran, head);
        self.runs += 1;
        ran
    }
}

impl Agent {
    /// Compares the record of a run, which begins behind `head`, with the interpreter's.
    fn record(&self, program: &Program<'_>, ran: &Ran, head: u64) {
        let made = self.bench.context().head.load(Ordering::Relaxed) - head;
        let logs = ran.outcome.end != End::Abort && program.logmax > 0;
        if !logs && ran.trace.is_empty() {
            assert_eq!(made, 0);
            return;
        }
        let record = self.bench.record_behind(head);
        assert_eq!((record.log, record.trace), (&*ran.log, &*ran.trace));
        let (major, minor) = record.more.map_or((None, None), |more| (Some(more.major), Some(more.minor)));
        let point = &program.point;
        assert_eq!(major.unwrap_or(point.major), ran.outcome.major.unwrap_or(point.major));
        assert_eq!(minor.unwrap_or(point.minor), ran.outcome.minor.unwrap_or(point.minor));
        assert_eq!((record.header.time, record.header.number), (99, 7));
    }
}

static AGENT: LazyLock<Mutex<Agent>> = LazyLock::new(|| {
    let mut bench = Bench::new();
    bench.stack().fill(UNUSED);
    Mutex::new(Agent { bench, runs: 0 })
});

/// The content of stack bytes that were never used.
const UNUSED: u8 = 0xa5;

/// The agent and its context belong to the process: one case runs at a time.
fn main() -> ExitCode {
    let mut trials = Trials::new();
    trials.one_at_a_time();
    for case in conformance::all().into_iter().filter(|case| case.words.contains(&Word::W8)) {
        trials.check(case.title.clone(), move || {
            case.check(Word::W8, &mut *AGENT.lock().unwrap_or_else(PoisonError::into_inner))
        });
    }
    trials.run_and(|| {
        let mut agent = AGENT.lock().unwrap_or_else(PoisonError::into_inner);
        let (runs, stack) = (agent.runs, agent.bench.stack());
        let used = stack.len() - stack.iter().take_while(|&&byte| byte == UNUSED).count();
        println!("{runs} cases; at most {used} bytes of {} of stack", stack.len());
        assert!(runs > 150, "only {runs} cases");
        assert!(used < 16 << 10, "{used} bytes of stack");
    })
}
