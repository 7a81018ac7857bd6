//! Random programs: the agent's run, including its record, equals the interpreter's outside. The
//! tests of crate `jit` run the same programs as compiled code.

use crate::common;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::Bench;
use crate::outside::Outside;
use crate::programs::{
    GLOBALS, LOCALS, Line, MEMORY, assemble, interesting, jumps_and_instructions, lines, memory_bytes, shown,
    traces,
};
use crate::script_pieces::{CONSTANTS, THREAD, TIMES, maps};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use vm::{Constants, End, Maps, Program, State};

const SITE: u64 = 0x5555_1234_5678;
const FLAGS: u64 = 0x246;

/// The start of a run.
#[derive(Clone, Debug)]
struct Start {
    lines: Vec<Line>,
    limits: (u32, u32),
    logmax: usize,
    mask: u16,
    traces: (usize, bool),
    locals: [u64; LOCALS],
    globals: [u64; GLOBALS],
    registers: [u64; 16],
    memory: Vec<u8>,
    /// Whether another run has removed the probe before.
    removed: bool,
}

fn start() -> impl Strategy<Value = Start> {
    let limits = (
        jumps_and_instructions(),
        prop_oneof![0..60_usize, Just(1024)],
        prop_oneof![Just(0x0fff_u16), Just(0xffff), any::<u16>()],
        traces(),
    );
    let words = (
        proptest::array::uniform4(interesting()),
        proptest::array::uniform3(interesting()),
        proptest::array::uniform16(interesting()),
    );
    let memory = proptest::collection::vec(prop_oneof![3 => any::<u8>(), 1 => Just(0)], MEMORY);
    (lines(), limits, words, memory, any::<bool>()).prop_map(|(lines, limits, words, memory, removed)| {
        Start {
            lines,
            limits: limits.0,
            logmax: limits.1,
            mask: limits.2,
            traces: limits.3,
            locals: words.0,
            globals: words.1,
            registers: words.2,
            memory,
            removed,
        }
    })
}

/// The codes of a record, whether there is a log, the log and the traces.
type Record = (u32, u32, bool, Vec<u8>, Vec<u8>);

/// The visible results of a run.
#[derive(Debug, PartialEq)]
struct Seen {
    stack: Vec<u64>,
    record: Option<Record>,
    /// Whether the handler has removed the probe.
    removes: bool,
    locals: Vec<u64>,
    globals: Vec<u64>,
    registers: [u64; 16],
    memory: Vec<u8>,
    /// The words of the maps that are not 0.
    maps: Vec<(usize, u64)>,
}

impl Start {
    fn check(&self, bench: &mut Bench) -> Result<(), TestCaseError> {
        let code = assemble(&self.lines);
        let cells = |values: &[u64]| values.iter().map(|&value| AtomicU64::new(value)).collect::<Vec<_>>();
        let values = |cells: &[AtomicU64]| cells.iter().map(|it| it.load(Ordering::Relaxed)).collect();
        let (locals, globals) = (cells(&self.locals), cells(&self.globals));
        let (infos, count) = maps();
        let words = cells(&vec![0; count]);
        let program = Program {
            maps: Maps { infos: &infos, words: &words },
            constants: Constants(CONSTANTS),
            code: &code,
            jmpmax: self.limits.0,
            insmax: self.limits.1,
            logmax: self.logmax,
            mask: self.mask,
            locals: &locals,
            globals: &globals,
            excpt_log: self.traces.0,
            autostacktrace: self.traces.1,
            heap: 64,
            point: vm::ProbepointInfo {
                module: b"module",
                offset: 7,
                major: 5,
                minor: 6,
                ..vm::ProbepointInfo::default()
            },
            ..Program::default()
        };

        // Outside, and first: a program that reaches for other memory, which here is the tests' own,
        // is given up before it is in the agent.
        memory_bytes().copy_from_slice(&self.memory);
        let mut machine = Outside {
            general: self.registers,
            rip: SITE,
            rflags: FLAGS,
            removed: self.removed,
            strayed: false,
        };
        let mut state = Box::<State>::default();
        let outcome = vm::run(&program, 0, &mut state, &mut machine);
        prop_assume!(!machine.strayed);
        let removes = outcome.end == End::Remove;
        let logs = outcome.end != End::Abort && self.logmax > 0;
        let makes = (logs || !state.trace().is_empty()) && !(removes && self.removed);
        let log = if logs { state.log().to_vec() } else { Vec::new() };
        let codes = (outcome.major.unwrap_or(5), outcome.minor.unwrap_or(6));
        let outside = Seen {
            stack: (0..state.depth()).map(|below| state.element(below)).collect(),
            record: makes.then(|| (codes.0, codes.1, logs, log, state.trace().to_vec())),
            removes,
            locals: values(&locals),
            globals: values(&globals),
            registers: machine.general,
            memory: memory_bytes().to_vec(),
            maps: filled(&words),
        };

        // In the agent.
        memory_bytes().copy_from_slice(&self.memory);
        let agent_locals = cells(&self.locals);
        let agent_globals = cells(&self.globals);
        let agent_words = cells(&vec![0; count]);
        let program = Program {
            locals: &agent_locals,
            globals: &agent_globals,
            maps: Maps { infos: &infos, words: &agent_words },
            ..program
        };
        let info = bench.describe(&program, 0);
        bench.set_clock(TIMES.map(Some));
        bench.context().holder.store(THREAD as u32, Ordering::Relaxed);
        let head = bench.context().head.load(Ordering::Relaxed);
        bench.control().tail.0.store(head, Ordering::Relaxed);
        let before = u64::from(self.removed) << 33;
        bench.over.store(before, Ordering::Relaxed);
        let registers = bench.registers();
        (registers.general, registers.rip, registers.rflags) = (self.registers, SITE, FLAGS);
        let left = bench.run(&info);
        let over = bench.over.load(Ordering::Relaxed);
        let made = bench.context().head.load(Ordering::Relaxed) - head;
        let record = (made > 0).then(|| {
            let record = bench.record_behind(head);
            let (major, minor) = record.more.map_or((5, 6), |more| (more.major, more.minor));
            (major, minor, record.has_log, record.log.to_vec(), record.trace.to_vec())
        });
        bench.take_variables(&program);
        let in_agent = Seen {
            stack: left.stack,
            record,
            removes: over == 1 << 32 | 1,
            locals: values(&agent_locals),
            globals: values(&agent_globals),
            registers: bench.registers().general,
            memory: memory_bytes().to_vec(),
            maps: filled(&agent_words),
        };
        prop_assert_eq!(in_agent, outside, "{:?}", outcome);
        Ok(())
    }
}

/// The words that are not 0, and their places.
fn filled(words: &[AtomicU64]) -> Vec<(usize, u64)> {
    let values = words.iter().map(|word| word.load(Ordering::Relaxed)).enumerate();
    values.filter(|&(_, value)| value != 0).collect()
}

/// Pins the thread to one processor, so that both runs see the same.
fn stay() {
    // SAFETY: the set is a valid one, of this size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

fn all_agree() {
    stay();
    let _alone = common::alone_with_identity();
    let mut bench = Bench::new();
    common::identity().pid.store(std::process::id(), Ordering::Relaxed);
    let bench = RefCell::new(&mut bench);
    let cases = std::env::var("AGENT_CASES").ok().and_then(|it| it.parse().ok()).unwrap_or(1000);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let agree = |start: Start| start.check(&mut bench.borrow_mut());
    TestRunner::new(config).run(&start(), agree).unwrap_or_else(|failure| panic!("{}", shown(&failure)));
}

#[test]
fn the_agent_does_what_the_interpreter_does() {
    // Without inlining strategies nest deeply.
    let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(all_agree).expect("a thread");
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}
