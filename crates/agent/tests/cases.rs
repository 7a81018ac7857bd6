//! Runs the conformance cases with the agent's own code, as built for other processes, in this
//! process.

mod common;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use common::Bench;
use maps::MapInfo;
use testing::Trials;
use testing::conformance::{self, Execution, Ran, TestMachine, ThreadFacts, contents, number};
use vm::{Clock, End, Fault, Machine, Maps, Op, Program, Register, State, Word};

/// The agent as an [`Execution`]. It does not report how a run ended; the interpreter does, and
/// everything else the agent leaves is compared with the interpreter's results.
struct Agent {
    bench: Bench,
    runs: usize,
    /// How many runs were left to the interpreter alone, by the reason.
    left_out: BTreeMap<&'static str, usize>,
}

/// A case's machine, and why a real process answers differently to what it was asked.
struct Watched<'a> {
    machine: &'a mut TestMachine,
    odd: Option<&'static str>,
}

impl Watched<'_> {
    /// Notes a reason, if it holds.
    fn note(&mut self, reason: &'static str, holds: bool) {
        if holds {
            self.odd.get_or_insert(reason);
        }
    }

    /// Notes an access to memory. Nothing is mapped at a process's lowest addresses and in the
    /// upper half, as in the machine of a case without memory there.
    fn access(&mut self, address: u64, length: usize) {
        let unmapped = address >= 1 << 63 || address < 0x1_0000 - length as u64;
        self.note("the case has memory of its own", !unmapped || !self.machine.memory.is_empty());
    }

    /// Notes an answer that the process refuses, if the case's machine does not.
    fn refused<T>(&mut self, answer: Option<T>) -> Option<T> {
        self.note("the agent refuses what the case grants", answer.is_some());
        answer
    }
}

impl Machine for Watched<'_> {
    fn register(&mut self, register: Register) -> u64 {
        self.note(REGISTERS, number(register).is_none());
        self.machine.register(register)
    }

    fn set_register(&mut self, register: Register, value: u64) {
        self.note(REGISTERS, number(register).is_none());
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
        self.note("the process has its own number", true);
        self.machine.pid()
    }

    // `update` asks too, and does the same on each. `push procid` is looked for in the code.
    fn processor(&mut self) -> u64 {
        self.machine.processor()
    }

    fn wide_register(&mut self, register: Register) -> Option<u128> {
        self.note(REGISTERS, true);
        self.machine.wide_register(register)
    }

    fn cpuid(&mut self, leaf: u32) -> Option<[u32; 4]> {
        self.note(PROCESSOR, true);
        self.machine.cpuid(leaf)
    }

    // The agent refuses these, as the tracer does; so does the machine of most cases.
    fn model_specific_register(&mut self, number: u32) -> Option<u64> {
        let answer = self.machine.model_specific_register(number);
        self.refused(answer)
    }

    fn task(&mut self) -> Option<u64> {
        let answer = self.machine.task();
        self.refused(answer)
    }

    fn field(&mut self, index: u16) -> Option<u64> {
        let answer = self.machine.field(index);
        self.refused(answer)
    }

    fn thread(&mut self) -> Option<u64> {
        let answer = self.machine.thread();
        self.note("the agent knows the thread's id", answer.is_none_or(|id| u32::try_from(id).is_err()));
        answer
    }

    fn time(&mut self, clock: Clock) -> Option<u64> {
        let answer = self.machine.time(clock);
        self.note("the agent knows the time", answer.is_none());
        answer
    }

    fn random(&mut self) -> Option<u32> {
        self.note("the agent's random numbers are its own", true);
        self.machine.random()
    }

    fn ids(&mut self) -> Option<(u32, u32)> {
        let answer = self.machine.ids();
        self.note("the agent knows the thread's user and group", answer.is_none());
        answer
    }

    fn parent(&mut self) -> Option<u32> {
        let answer = self.machine.parent();
        self.note("the agent knows the process's parent", answer.is_none());
        answer
    }

    fn name(&mut self) -> Option<[u8; 16]> {
        let answer = self.machine.name();
        self.note("the agent knows the thread's name", answer.is_none());
        answer
    }

    fn stack(&mut self, frames: &mut [u64]) -> Option<usize> {
        self.note("the thread has its own stack", true);
        self.machine.stack(frames)
    }

    fn linear_address(&mut self, selector: u16, offset: u64) -> Option<u64> {
        self.note("the process has its own segments", true);
        self.machine.linear_address(selector, offset)
    }

    fn read_port(&mut self, port: u16, size: usize) -> Option<u32> {
        let answer = self.machine.read_port(port, size);
        self.refused(answer)
    }

    fn write_port(&mut self, port: u16, size: usize, value: u32) -> bool {
        let answer = self.machine.write_port(port, size, value);
        self.refused(answer.then_some(())).is_some()
    }

    fn call_kernel_modules(&mut self) -> bool {
        let answer = self.machine.call_kernel_modules();
        self.refused(answer.then_some(())).is_some()
    }
}

/// Reasons.
const REGISTERS: &str = "only general registers can be chosen";
const PROCESSOR: &str = "the process runs on a processor of its own";

/// Maps, and behind them one in which the agent finds the thread's name, user and group and its
/// process's parent, if the case has them.
fn with_threads(
    infos: &[MapInfo],
    words: Vec<AtomicU64>,
    thread: &ThreadFacts,
) -> (Vec<MapInfo>, Vec<AtomicU64>) {
    let (mut infos, mut words) = (infos.to_vec(), words);
    if thread.ids.is_none() && thread.name.is_none() && thread.parent.is_none() {
        return (infos, words);
    }
    let mut threads = [MapInfo { key: 8, value: 32, entries: 1, ..MapInfo::default() }];
    let size = maps::plan(&mut threads, 1, usize::MAX).expect("a small map");
    threads[0].place = words.len() as u32;
    infos.extend(threads);
    words.extend((0..size).map(|_| AtomicU64::new(0)));
    let (user, group) = thread.ids.unwrap_or_default();
    let name = thread.name.unwrap_or_default();
    let parent = u64::from(thread.parent.unwrap_or(0));
    let value = [&name[..], &user.to_le_bytes(), &group.to_le_bytes(), &parent.to_le_bytes()].concat();
    let key = thread.id.unwrap_or(0).to_le_bytes();
    assert!(Maps { infos: &infos, words: &words }.store(infos.len() - 1, &key, &value));
    (infos, words)
}

/// Whether a program asks for the processor's number.
fn asks_for_processor(code: &[u8]) -> bool {
    let mut instructions = vm::instructions(code, Word::W8).filter_map(|it| it.instruction());
    instructions.any(|it| it.op == Op::PushProcid)
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
        let words = before(program.maps.words);
        let whole = machine.clone();
        let mut watched = Watched { machine, odd: None };
        let mut names = whole.registers.keys().map(|&index| Register::from_index(index).and_then(number));
        watched.note(REGISTERS, names.any(|name| name.is_none()));
        watched.note(PROCESSOR, asks_for_processor(program.code));
        let mut state = Box::<State>::default();
        let outcome = vm::run(program, entry, &mut state, &mut watched);
        let ran = Ran::of(outcome, &state);
        if let Some(reason) = watched.odd {
            *self.left_out.entry(reason).or_default() += 1;
            return ran;
        }
        let cells = |values: &[u64]| values.iter().map(|&value| AtomicU64::new(value)).collect::<Vec<_>>();
        let (locals, globals, words) = (cells(&locals), cells(&globals), cells(&words));
        let (infos, words) = with_threads(program.maps.infos, words, &whole.thread);
        let copy = Program {
            locals: &locals,
            globals: &globals,
            maps: Maps { infos: &infos, words: &words },
            ..*program
        };
        let mut info = self.bench.describe(&copy, entry);
        if infos.len() > program.maps.infos.len() {
            info.threads = infos.len() as u32;
        }
        self.bench.set_clock(whole.thread.times);
        self.bench.context().holder.store(whole.thread.id.unwrap_or(0) as u32, Ordering::Relaxed);
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
        let maps = Maps { words: &words, ..program.maps };
        assert_eq!(contents(&maps), contents(&program.maps));
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
    Mutex::new(Agent { bench, runs: 0, left_out: BTreeMap::new() })
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
        println!("left to the interpreter: {:#?}", agent.left_out);
        let (runs, stack) = (agent.runs, agent.bench.stack());
        let used = stack.len() - stack.iter().take_while(|&&byte| byte == UNUSED).count();
        println!("{runs} cases; at most {used} bytes of {} of stack", stack.len());
        assert!(runs > 500, "only {runs} cases");
        assert!(used < 16 << 10, "{used} bytes of stack");
    })
}
