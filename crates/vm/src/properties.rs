//! Properties that hold for every program and every machine, tested on random ones.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::machine::Machine;
use crate::test_machine::{Region, TestMachine, ThreadFacts};
use crate::{
    CALL_LIMIT, End, Exception, HANDLER_LIMIT, INSTRUCTION_LIMIT, JUMP_LIMIT, LOG_LIMIT, Maps, Op, Operand,
    Outcome, ProbepointInfo, Program, Register, STACK_WORDS, Shape, State, TABLE, TRACE_LIMIT, Word,
    random_script_instructions, run,
};

/// The inputs of a run.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    word: Word,
    code: Vec<u8>,
    pub(crate) entry: usize,
    jmpmax: u32,
    insmax: u32,
    logmax: usize,
    mask: u16,
    excpt_log: usize,
    autostacktrace: bool,
    heap: usize,
    locals: Vec<u64>,
    globals: Vec<u64>,
    machine: TestMachine,
}

/// The results of a run.
#[derive(Debug, PartialEq)]
pub(crate) struct Finish {
    outcome: Outcome,
    log: Vec<u8>,
    trace: Vec<u8>,
    stack: Vec<u64>,
    locals: Vec<u64>,
    globals: Vec<u64>,
    /// The words of the maps.
    tables: Vec<u64>,
    machine: TestMachine,
}

impl Start {
    pub(crate) fn run(&self, state: &mut State) -> Finish {
        self.run_by(state, |program, state, machine| run(program, self.entry, state, machine))
    }

    /// Runs it by something other than [`run`].
    pub(crate) fn run_by(
        &self,
        state: &mut State,
        by: impl FnOnce(&Program<'_>, &mut State, &mut TestMachine) -> Outcome,
    ) -> Finish {
        let atomic = |values: &[u64]| values.iter().copied().map(AtomicU64::new).collect::<Vec<_>>();
        let plain = |values: &[AtomicU64]| values.iter().map(|value| value.load(Relaxed)).collect();
        let (locals, globals) = (atomic(&self.locals), atomic(&self.globals));
        let mut machine = self.machine.clone();
        let (infos, words) = random_script_instructions::maps();
        let words = atomic(&vec![0; words]);
        let program = Program {
            word: self.word,
            code: &self.code,
            jmpmax: self.jmpmax,
            insmax: self.insmax,
            logmax: self.logmax,
            mask: self.mask,
            locals: &locals,
            globals: &globals,
            excpt_log: self.excpt_log,
            autostacktrace: self.autostacktrace,
            heap: self.heap,
            maps: Maps { infos: &infos, words: &words },
            constants: random_script_instructions::CONSTANTS,
            point: ProbepointInfo { module: b"module", offset: 1, id: 2, major: 3, minor: 4 },
        };
        let outcome = by(&program, state, &mut machine);
        Finish {
            outcome,
            log: state.log().to_vec(),
            trace: state.trace().to_vec(),
            stack: (0..STACK_WORDS).map(|below| state.element(below)).collect(),
            locals: plain(&locals),
            globals: plain(&globals),
            tables: plain(&words),
            machine,
        }
    }

    /// The documented bound of a run, in instructions.
    fn bound(&self) -> u64 {
        let jumps = u64::from(self.jmpmax.min(JUMP_LIMIT));
        let has = |op: Op| self.code.contains(&(op as u8));
        let calls = if has(Op::Call) { u64::from(CALL_LIMIT) } else { 0 };
        let handlers = if has(Op::Sx) { u64::from(HANDLER_LIMIT) } else { 0 };
        let all = (jumps + 2 * calls + handlers + 1) * self.code.len() as u64;
        all.min(self.insmax.min(INSTRUCTION_LIMIT).into())
    }
}

/// The addresses of the memory regions: apart, adjacent, and at both ends of the address space.
fn starts(word: Word) -> [u64; 5] {
    let last = word.truncate(u64::MAX);
    [0, 0x0fe0, 0x1000, 0x2000, last - 0x3f]
}

/// Memory, registers and system values.
pub(crate) fn machine(word: Word) -> impl Strategy<Value = TestMachine> {
    let bytes = || vec(prop_oneof![3 => any::<u8>(), 1 => Just(0)], 1..=64);
    let region = (proptest::sample::select(starts(word).to_vec()), bytes(), any::<bool>());
    let registers = vec((proptest::sample::select(Register::ALL), any::<u64>()), 0..4);
    // The values that a machine may refuse: it grants all or none.
    let granted = any::<bool>();
    (vec(region, 0..4), registers, any::<[u64; 3]>(), granted).prop_map(
        move |(regions, registers, system, granted)| {
            let memory =
                regions.into_iter().map(|(start, bytes, writable)| Region { start, bytes, writable });
            let numbers = || if granted { 0..70 } else { 0..0 };
            let wide = Register::ALL.iter().filter(|it| granted && it.shape() != Shape::General);
            let value = u128::from(system[0]) << 64 | u128::from(system[1]);
            TestMachine {
                word,
                registers: registers.into_iter().map(|(register, value)| (register as u16, value)).collect(),
                memory: memory.collect(),
                pid: system[0],
                processor: system[1],
                task: granted.then_some(system[2]),
                fields: numbers().map(|_| system[2]).collect(),
                wide: wide.map(|&register| (register as u16, value)).collect(),
                cpuid: numbers().map(|leaf| (leaf, [leaf, u32::MAX, 2, 3])).collect(),
                model_specific: numbers().map(|number| (number, system[0])).collect(),
                segments: numbers().map(|selector| (selector as u16, system[1])).collect(),
                ports: numbers().map(|port| (port as u16, u32::MAX)).collect(),
                calls: granted.then_some(0),
                thread: ThreadFacts {
                    id: granted.then_some(system[0]),
                    times: [granted.then_some(system[1]); 4],
                    random: granted.then_some(7),
                    ids: granted.then_some((1, 2)),
                    parent: granted.then_some(3),
                    name: granted.then_some(*b"name\0\0\0\0\0\0\0\0\0\0\0\0"),
                    stack: granted.then(|| system.to_vec()),
                },
            }
        },
    )
}

/// Relevant words: small numbers, addresses near memory, extreme values.
pub(crate) fn interesting(word: Word) -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..70_u64,
        4 => (proptest::sample::select(starts(word).to_vec()), 0..80_u64)
            .prop_map(|(start, offset)| start.wrapping_add(offset)),
        1 => Just(u64::MAX),
        1 => Just(1 << (word.bits() - 1)),
        1 => any::<u64>(),
    ]
}

/// One instruction, usually with a sensible operand.
pub(crate) fn instruction(word: Word) -> impl Strategy<Value = Vec<u8>> {
    let distance = -40..40_i64;
    let register = proptest::sample::select(Register::ALL);
    // Pushes are as frequent as all else, so that the stack is not empty. Stack traces are written
    // and dropped often enough for the buffer to reach any state.
    let tracing = [Op::LogSt, Op::PopStp, Op::PushStp, Op::Call].map(|op| *op.row());
    let row = prop_oneof![
        9 => Just(*Op::Push.row()),
        9 => proptest::sample::select(TABLE),
        2 => proptest::sample::select(tracing.to_vec()),
    ];
    let usual = (row, interesting(word), distance, register, any::<u8>()).prop_map(
        move |(row, value, distance, register, byte)| {
            let operand = match row.operand {
                Operand::Label | Operand::Proc => distance as u64,
                Operand::Local | Operand::Global | Operand::Field => u64::from(byte % 6),
                Operand::Register => register as u64,
                Operand::Bit => u64::from(byte % 70),
                _ => value,
            };
            let mut bytes = vec![row.op as u8];
            bytes.extend(&operand.to_le_bytes()[..row.operand.size(word.bytes())]);
            bytes
        },
    );
    prop_oneof![8 => usual, 1 => random_script_instructions::with_operands(word)]
}

pub(crate) fn start(code: impl Fn(Word) -> BoxedStrategy<Vec<u8>>) -> impl Strategy<Value = Start> {
    prop_oneof![Just(Word::W4), Just(Word::W8)].prop_flat_map(move |word| {
        let logmax = prop_oneof![0..40_usize, 0..2 * LOG_LIMIT];
        let variables = || vec(any::<u64>(), 0..6);
        let entry = prop_oneof![9 => Just(0), 1 => any::<usize>()];
        // Usually nothing is masked, so that handlers are called.
        let mask = prop_oneof![3 => Just(0xffff), 1 => any::<u16>()];
        let excpt_log = prop_oneof![0..200_usize, 0..2 * TRACE_LIMIT];
        // Too few, around the first pauses, and enough.
        let insmax = prop_oneof![
            1 => 0..60_u32,
            1 => (1..3_u32, 0..3_u32).prop_map(|(pauses, more)| 4096 * pauses + more - 1),
            2 => Just(20_000),
        ];
        let jumps = prop_oneof![7 => 0..300_u32, 1 => Just(JUMP_LIMIT)];
        let limits = (entry, (jumps, insmax), logmax, mask, excpt_log, any::<bool>(), 0..100_usize);
        (code(word), limits, variables(), variables(), machine(word)).prop_map(
            move |(code, limits, locals, globals, machine)| {
                let (entry, (jmpmax, insmax), logmax, mask, excpt_log, autostacktrace, heap) = limits;
                Start {
                    word,
                    code,
                    entry,
                    jmpmax,
                    insmax,
                    logmax,
                    mask,
                    excpt_log,
                    autostacktrace,
                    heap,
                    locals,
                    globals,
                    machine,
                }
            },
        )
    })
}

/// Checks the properties for one program. (The machine checks its own: see [`TestMachine`].)
fn hold(start: &Start, state: &mut State) -> Result<(), TestCaseError> {
    let finish = start.run(state);
    prop_assert!(state.steps <= start.bound(), "{} instructions", state.steps);
    prop_assert!(finish.log.len() <= start.logmax.min(LOG_LIMIT));
    prop_assert!(finish.trace.len() <= start.excpt_log.min(TRACE_LIMIT));
    if !finish.trace.is_empty() {
        let read = read_traces(&finish.trace, start.word);
        prop_assert!(read.is_some(), "{:02x?}", finish.trace);
    }
    prop_assert!(finish.outcome.major.max(finish.outcome.minor) <= Some(65_535));
    for value in &finish.stack {
        prop_assert_eq!(*value, start.word.truncate(*value));
    }
    match finish.outcome.end {
        End::ExitTo(facility) => prop_assert!((1..=3).contains(&facility)),
        End::Abort => prop_assert!(finish.log.is_empty() && finish.trace.is_empty()),
        End::Exception(Exception { parm2, .. }) if start.word == Word::W4 && start.entry == 0 => {
            prop_assert!(parm2 <= u32::MAX.into());
        }
        _ => {}
    }
    for (before, after) in start.machine.memory.iter().zip(&finish.machine.memory) {
        prop_assert!(before.writable || before == after, "read-only memory changed");
    }
    // Nothing of an earlier run is visible: the same inputs with a new state give the same results.
    prop_assert_eq!(finish, start.run(&mut State::new()));
    Ok(())
}

/// Parses stack traces as [`State::trace`] describes them, and returns their number; `None` if the
/// layout is wrong. The last trace may end early.
fn read_traces(bytes: &[u8], word: Word) -> Option<u16> {
    let mut rest = bytes;
    let mut take = |count: usize| {
        let (taken, after) = rest.split_at_checked(count)?;
        rest = after;
        Some(taken)
    };
    let number = |bytes: &[u8]| usize::from(u16::from_le_bytes([bytes[1], bytes[2]]));
    let prefix = |bytes: &[u8], token: u8| (bytes[0] == token).then(|| number(bytes));
    let name = prefix(take(3)?, 1)?;
    (take(name)? == b"module").then_some(())?;
    (take(14)? == [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 3, 0, 4, 0]).then_some(())?;
    let traces = prefix(take(3)?, 2)?;
    for trace in 1..=traces {
        take(4 * word.bytes())?;
        let frames = prefix(take(3)?, 3)?;
        (frames <= crate::CALL_DEPTH).then_some(())?;
        for _ in 0..frames {
            // Missing data must be the end of the last trace.
            let Some(_) = take(2 * word.bytes()) else { return (trace == traces).then_some(traces as u16) };
            for token in [4, 5, 6] {
                let Some(bytes) = take(3) else { return (trace == traces).then_some(traces as u16) };
                let words = prefix(bytes, token)?;
                take(words * word.bytes())?;
            }
        }
    }
    // Nothing follows the last trace.
    take(1).is_none().then_some(traces as u16)
}

/// A byte-by-byte model of `log str` and `log mrf`: `size` bytes at `address`, with `room` bytes of
/// log after the prefix. Returns the bytes, the exception and the faulting address.
fn naive(
    machine: &mut TestMachine,
    string: bool,
    address: u64,
    size: u64,
    room: usize,
) -> (Vec<u8>, Option<u16>, u64) {
    let mut bytes = Vec::new();
    let mut at = Some(address);
    while (bytes.len() as u64) < size {
        if !string && bytes.len() == room {
            return (bytes, Some(Exception::LOG_OVERFLOW), 0);
        }
        let address = at.filter(|&at| at <= machine.word.truncate(u64::MAX));
        let mut byte = [0];
        match address {
            None => return (bytes, Some(Exception::INVALID_ADDR), 0),
            Some(address) => {
                if machine.read(address, &mut byte).is_err() {
                    return (bytes, Some(Exception::INVALID_ADDR), address);
                }
                at = address.checked_add(1);
            }
        }
        if string && byte == [0] {
            break;
        }
        if bytes.len() == room {
            return (bytes, Some(Exception::LOG_OVERFLOW), 0);
        }
        bytes.extend(byte);
    }
    (bytes, None, 0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_are_safe_and_bounded(
        starts in vec(start(|_| vec(any::<u8>(), 0..120).boxed()), 1..3),
    ) {
        let mut state = State::new();
        for start in &starts {
            hold(start, &mut state)?;
        }
    }

    #[test]
    fn random_instructions_are_safe_and_bounded(
        starts in vec(start(|word| {
            vec(instruction(word), 0..60).prop_map(|instructions| instructions.concat()).boxed()
        }), 1..3),
    ) {
        let mut state = State::new();
        for start in &starts {
            hold(start, &mut state)?;
        }
    }

    #[test]
    fn memory_and_strings_are_logged_as_if_byte_by_byte(
        (word, machine, address, size) in prop_oneof![Just(Word::W4), Just(Word::W8)].prop_flat_map(
            |word| (Just(word), machine(word), interesting(word), interesting(word)),
        ),
        string in any::<bool>(),
        logmax in 3..100_usize,
    ) {
        let (address, size) = (word.truncate(address), word.truncate(size));
        let mut code = vec![Op::Push as u8];
        code.extend(&size.to_le_bytes()[..word.bytes()]);
        code.push(Op::Push as u8);
        code.extend(&address.to_le_bytes()[..word.bytes()]);
        code.extend([if string { Op::LogStr } else { Op::LogMrf } as u8, Op::Exit as u8]);
        let start = Start {
            word, code, entry: 0, jmpmax: 0, insmax: 4, logmax, mask: 0xffff, excpt_log: 0, autostacktrace: false, heap: 0,
            locals: Vec::new(), globals: Vec::new(), machine,
        };
        let (bytes, exception, fault) =
            naive(&mut start.machine.clone(), string, address, size, logmax - 3);
        let mut log = Vec::new();
        let record = |token: u8, bytes: &[u8]| {
            let [low, high] = (bytes.len() as u16).to_le_bytes();
            [&[token, low, high], bytes].concat()
        };
        let overflow = Exception::new(Exception::LOG_OVERFLOW, logmax as u64, 0);
        let end = match exception {
            None => {
                log = record(string.into(), &bytes);
                End::Exit
            }
            Some(Exception::INVALID_ADDR) if logmax >= 3 + word.bytes() => {
                log = record(0xff, &fault.to_le_bytes()[..word.bytes()]);
                End::Exception(Exception::new(Exception::INVALID_ADDR, fault, 0))
            }
            Some(Exception::LOG_OVERFLOW) if !string => {
                log = record(0, &bytes);
                End::Exception(overflow)
            }
            Some(_) => End::Exception(overflow),
        };
        let finish = start.run(&mut State::new());
        prop_assert_eq!(finish.outcome.end, end);
        prop_assert_eq!(finish.log, log);
    }
}

#[test]
fn increments_from_many_threads_are_all_counted() {
    let code = [Op::IncLvImm as u8, 0, 0, Op::DecGvImm as u8, 0, 0, Op::Exit as u8];
    let (locals, globals) = ([AtomicU64::new(0)], [AtomicU64::new(0)]);
    let program = Program {
        word: Word::W8,
        code: &code,
        jmpmax: 0,
        logmax: 0,
        mask: 0,
        locals: &locals,
        globals: &globals,
        ..Program::default()
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut state = Box::new(State::new());
                for _ in 0..20_000 {
                    let outcome = run(&program, 0, &mut state, &mut TestMachine::default());
                    assert_eq!(outcome.end, End::Exit);
                }
            });
        }
    });
    assert_eq!(locals[0].load(Relaxed), 80_000);
    assert_eq!(globals[0].load(Relaxed), 80_000_u64.wrapping_neg());
}
