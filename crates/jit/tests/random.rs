//! Random programs: compiled code and the interpreter come to the same, in everything that can be seen.

mod support;

use agent::layout::Registers as Shared;
use dprobes_jit::{Handler, Variable, compile};
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::atomic::Ordering::Relaxed;
use support::arena::Arena;
use support::interpreter::{LEFT, Native};
use support::native::{Registers, enter, exclusive};
use vm::{End, Op, Operand, Program, Register, State, Word};

/// Local variables; the last is only counted.
const LOCALS: usize = 4;
const GLOBALS: usize = 3;
/// Bytes of memory that programs use, at the end of a page behind which there is nothing.
const MEMORY: usize = 256;

/// One instruction; the operand of a jump is the number of the instruction it goes to.
type Line = (Op, u64);

/// Where the memory is.
fn memory() -> u64 {
    use std::sync::OnceLock;
    static AT: OnceLock<u64> = OnceLock::new();
    *AT.get_or_init(|| {
        // SAFETY: a fresh mapping; its second page is given back at once, and so is what lies before it left alone.
        unsafe {
            let all = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = libc::mmap(std::ptr::null_mut(), 3 * 4096, all, flags, -1, 0) as u64;
            libc::mprotect((at + 4096) as *mut _, 4096, libc::PROT_NONE);
            libc::mprotect((at + 8192) as *mut _, 4096, libc::PROT_READ);
            at + 4096 - MEMORY as u64
        }
    })
}

/// Words that matter.
fn interesting() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 0..70_u64,
        4 => (0..MEMORY as u64 + 8).prop_map(|offset| memory() + offset),
        1 => (0..16_u64).prop_map(|offset| memory() + MEMORY as u64 + 4096 + offset),
        1 => Just(u64::MAX),
        1 => Just(1 << 63),
        1 => Just(0x8000_0000),
        1 => Just(0xffff_ffff_8000_0000),
        2 => any::<u64>(),
    ]
}

const REGISTERS: [Register; 20] = [
    Register::Rax,
    Register::Rcx,
    Register::Rdx,
    Register::Rbx,
    Register::Rbp,
    Register::Rsi,
    Register::Rdi,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R15,
    Register::Eax,
    Register::Ecx,
    Register::Edi,
    Register::Rip,
    Register::Eip,
    Register::Rflags,
    Register::Eflags,
];

/// What programs are made of, the more frequent ones several times.
fn ops() -> Vec<Op> {
    use Op::*;
    let common = [
        Push, Push, Push, Push, Push, PushR, PushR, PushR, PopR, Add, Sub, Mul, Neg, And, Or, Xor, RolImm,
        Rol, RorImm, Ror, ShlImm, Shl, ShrImm, Shr, Div, Idiv, PblImm, PbrImm, PzlImm, PzrImm, Pbl, Pzr,
        Xchg, DupImm, Ros, Jmp, Jlt, Jle, Jgt, Jge, Jz, Jnz, Jz, Jnz, Loop, LogImm, LogImm, Log, LogStr,
        LogMrf, LogLv, LogGv, PushLvImm, PopLvImm, MoveLvImm, IncLvImm, DecLvImm, PushGvImm, PopGvImm,
        MoveGvImm, IncGvImm, PushLv, PopLv, IncGv, MoveGv, PushMem8, PushMem16, PushMem32, PushMem64,
        PopMem8, PopMem16, PopMem32, PopMem64, PushPid, PushProcid, SetMinImm, SetMajImm, SetMin, SetMaj,
        PushLp, PushPlp, Vfyr, Nop, PushWid, Call, Call,
    ];
    let rare = [
        Exit, Abort, Remove, Ret, PopLp, PushX, Malloc, LogSt, Ux, Rx, PushStp, SaveTsp, Vfyrw, Dup, PushU,
        PopU, Exit, Ret, Ret,
    ];
    [&common[..], &common, &common, &rare].concat()
}

fn line() -> impl Strategy<Value = Line> {
    let register = proptest::sample::select(&REGISTERS[..]);
    (proptest::sample::select(ops()), interesting(), register, any::<u16>()).prop_map(
        |(op, word, register, number)| {
            let operand = match op.row().operand {
                // A few would go beyond the last one.
                Operand::Local => u64::from(number % 23 / 5),
                Operand::Global => u64::from(number % 22 / 7),
                Operand::Register => register as u64,
                Operand::Bit => u64::from(number % 66),
                Operand::U8 if op == Op::ExitTo => 9,
                Operand::U8 => u64::from(number % 7),
                Operand::U16 if op == Op::LogImm => u64::from(number % 5),
                Operand::Label | Operand::Proc => number.into(),
                _ => word,
            };
            // Nothing but counting is done to the last one.
            let counts = matches!(op, Op::IncLvImm | Op::DecLvImm);
            let counted = LOCALS as u64 - 1;
            let operand =
                if op.row().operand == Operand::Local && operand == counted && !counts { 0 } else { operand };
            (op, operand)
        },
    )
}

/// A program: mostly forward jumps, or any.
fn lines() -> impl Strategy<Value = Vec<Line>> {
    let piece = prop_oneof![
        8 => line().prop_map(|line| vec![line]),
        // What would seldom come about by chance: a known address or count below an instruction.
        1 => (0..MEMORY as u64, proptest::sample::select(vec![Op::PushMem8, Op::PushMem32, Op::PushMem64, Op::Vfyr]))
            .prop_map(|(offset, op)| vec![(Op::Push, memory() + offset), (op, 0)]),
        1 => (0..MEMORY as u64, interesting(), proptest::sample::select(vec![Op::PopMem8, Op::PopMem64]))
            .prop_map(|(offset, value, op)| {
                vec![(Op::Push, memory() + offset), (Op::Push, value), (op, 0)]
            }),
        1 => (0..MEMORY as u64 + 2, 0..40_u64, proptest::sample::select(vec![Op::LogStr, Op::LogMrf]))
            .prop_map(|(offset, size, op)| {
                vec![(Op::Push, size), (Op::Push, memory() + offset), (op, 0)]
            }),
        1 => (0..3_u64, 0..3_u64, proptest::sample::select(vec![Op::LogLv, Op::LogGv]))
            .prop_map(|(first, count, op)| vec![(Op::Push, first), (Op::Push, count), (op, 0)]),
        1 => (0..4_u64).prop_map(|count| vec![(Op::Push, count), (Op::Log, 0)]),
        // It is no address to be used: what is there is the test's own, and not the same in both runs.
        1 => proptest::sample::select(vec![Register::Rsp, Register::Esp])
            .prop_map(|register| vec![(Op::PushR, register as u64), (Op::LogImm, 1)]),
        1 => (1..5_u64, any::<u16>()).prop_map(|(count, to)| vec![(Op::Push, count), (Op::Loop, to.into())]),
    ];
    (vec(piece, 1..25), 0..4_u8).prop_map(|(pieces, backward)| {
        let mut lines = pieces.concat();
        let count = lines.len() as u64;
        for (place, (op, operand)) in lines.iter_mut().enumerate() {
            let place = place as u64;
            match op.row().operand {
                // Up to one beyond the end.
                Operand::Label if backward > 0 => *operand = place + 1 + *operand % (count - place + 1),
                Operand::Label | Operand::Proc => *operand %= count + 1,
                _ => {}
            }
        }
        lines.push((Op::Exit, 0));
        lines
    })
}

fn assemble(lines: &[Line]) -> Vec<u8> {
    let size = |line: &Line| 1 + line.0.row().operand.size(8);
    let mut starts = vec![0];
    for line in lines {
        starts.push(starts[starts.len() - 1] + size(line));
    }
    let mut code = Vec::new();
    for (place, (op, operand)) in lines.iter().enumerate() {
        let operand = match op.row().operand {
            Operand::Label | Operand::Proc => {
                let target = starts.get(*operand as usize).copied().unwrap_or(usize::MAX >> 1);
                (target as u64).wrapping_sub(starts[place + 1] as u64)
            }
            _ => *operand,
        };
        code.push(*op as u8);
        code.extend(&operand.to_le_bytes()[..op.row().operand.size(8)]);
    }
    code
}

/// All that a run starts with.
#[derive(Clone, Debug)]
struct Start {
    lines: Vec<Line>,
    jmpmax: u32,
    logmax: usize,
    mask: u16,
    locals: [u64; LOCALS],
    globals: [u64; GLOBALS],
    registers: [u64; 16],
    flags: u64,
    memory: Vec<u8>,
    flags_live: bool,
    tentative: bool,
    rdpid: bool,
    known: bool,
}

fn start() -> impl Strategy<Value = Start> {
    let limits = (
        prop_oneof![0..12_u32, Just(256)],
        prop_oneof![0..60_usize, Just(1024)],
        prop_oneof![Just(0x0fff_u16), Just(0xffff), any::<u16>()],
    );
    let words = (
        proptest::array::uniform4(interesting()),
        proptest::array::uniform3(interesting()),
        proptest::array::uniform16(interesting()),
    );
    let memory = vec(prop_oneof![3 => any::<u8>(), 1 => Just(0)], MEMORY);
    let site = (any::<u64>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (lines(), limits, words, memory, site).prop_map(|(lines, limits, words, memory, site)| Start {
        lines,
        jmpmax: limits.0,
        logmax: limits.1,
        mask: limits.2,
        locals: words.0,
        globals: words.1,
        registers: words.2,
        flags: site.0,
        memory,
        flags_live: site.1,
        tentative: site.2,
        rdpid: site.3,
        known: site.4,
    })
}

fn memory_bytes() -> &'static mut [u8] {
    // SAFETY: it is mapped for ever, and only the test that holds `exclusive` uses it.
    unsafe { std::slice::from_raw_parts_mut(memory() as *mut u8, MEMORY) }
}

/// What can be seen of a run.
#[derive(Debug, PartialEq)]
struct Seen {
    logs: Vec<(u32, u32, Vec<u8>, Vec<u8>)>,
    removed: bool,
    locals: Vec<u64>,
    globals: Vec<u64>,
    registers: [u64; 16],
    memory: Vec<u8>,
}

impl Start {
    fn check(&self, arena: &mut Arena) -> Result<bool, TestCaseError> {
        let code = assemble(&self.lines);
        let handler = Handler {
            code: &code,
            entry: 0,
            jmpmax: self.jmpmax,
            logmax: self.logmax,
            mask: self.mask,
            locals: LOCALS as u16,
            globals: GLOBALS as u16,
            major: 5,
            minor: 6,
        };
        arena.clear_code();
        // What a case before this one left that failed.
        arena.forget();
        let counted = [(Variable::Local(LOCALS as u16 - 1), arena.counter())];
        let mut environment = arena.environment();
        // Only where nothing may read it.
        let reads = [Op::PushLv, Op::PopLv, Op::MoveLv, Op::LogLv];
        if !self.lines.iter().any(|(op, _)| reads.contains(op)) {
            environment.counted = &counted;
        }
        environment.flags_live = self.flags_live;
        environment.tentative = self.tentative;
        environment.rdpid = self.rdpid;
        environment.info = arena.info(&handler, &environment, |_| {});
        // No program calls a facility; in one too long to be followed, bytes may look like it.
        let Ok(compiled) = compile(&handler, &environment) else { return Err(TestCaseError::reject("long")) };
        let at = arena.place(&compiled, &[]);
        arena.identity().pid.store(if self.known { std::process::id() } else { 0 }, Relaxed);
        for (shared, value) in arena.variables(environment.locals, LOCALS).iter().zip(self.locals) {
            shared.store(value, Relaxed);
        }
        for (shared, value) in arena.variables(environment.globals, GLOBALS).iter().zip(self.globals) {
            shared.store(value, Relaxed);
        }
        memory_bytes().copy_from_slice(&self.memory);
        let red_zone = std::array::from_fn(|place| 0x1234_5678_9abc_def0 ^ (place as u64) << 17);
        let mut registers =
            Registers { general: self.registers, flags: self.flags, red_zone, ..Registers::default() };
        LEFT.with(|left| *left.borrow_mut() = None);
        enter(&compiled, at, &mut registers);
        let left = LEFT.with(|left| left.borrow_mut().take());
        prop_assert_eq!(registers.red_zone, red_zone);
        if self.flags_live {
            prop_assert_eq!((registers.flags ^ self.flags) & Registers::FLAGS, 0, "flags");
        }
        prop_assert!(arena.all_free());
        prop_assert_eq!(arena.sum(environment.hits), 1);
        prop_assert_eq!(arena.at(environment.missed).load(Relaxed), 0);
        prop_assert_eq!(arena.at(environment.dropped).load(Relaxed), 0);
        let values = |address, count| {
            arena.variables(address, count).iter().map(|it| it.load(Relaxed)).collect::<Vec<_>>()
        };
        let mut locals = values(environment.locals, LOCALS);
        locals[LOCALS - 1] = locals[LOCALS - 1].wrapping_add(arena.sum(counted[0].1));
        let records = arena.records();
        for record in &records {
            let state = if self.tentative { agent::layout::state::TENTATIVE } else { 1 };
            prop_assert_eq!(record.state, state);
            prop_assert_eq!(record.pid, std::process::id());
            prop_assert_eq!((record.rsp, record.site), (registers.general[4], environment.site));
        }
        let compiled_seen = Seen {
            logs: records.into_iter().map(|it| (it.major, it.minor, it.log, it.trace)).collect(),
            removed: arena.at(environment.over).load(Relaxed) == 1,
            locals,
            globals: values(environment.globals, GLOBALS),
            registers: registers.general,
            memory: memory_bytes().to_vec(),
        };

        // The same, interpreted from the start.
        memory_bytes().copy_from_slice(&self.memory);
        let variables = |values: &[u64]| values.iter().map(|it| (*it).into()).collect::<Vec<_>>();
        let (locals, globals) = (variables(&self.locals), variables(&self.globals));
        let program = Program {
            word: Word::W8,
            code: &code,
            jmpmax: self.jmpmax,
            logmax: self.logmax,
            mask: self.mask,
            locals: &locals,
            globals: &globals,
            point: vm::Point { major: 5, minor: 6, ..vm::Point::default() },
            ..Program::default()
        };
        let mut shared = Shared { general: self.registers, rip: environment.site, ..Shared::default() };
        shared.general[4] = registers.general[4];
        // Interrupts are on in user mode, and one bit is always set.
        shared.rflags = self.flags & Registers::FLAGS | 0x202;
        let mut state = Box::new(State::new());
        let outcome = vm::run(&program, 0, &mut state, &mut Native { registers: &mut shared });
        let kept = outcome.end != End::Abort && self.logmax > 0;
        let mut logs = Vec::new();
        if kept {
            let (major, minor) = (outcome.major.unwrap_or(5), outcome.minor.unwrap_or(6));
            logs.push((major, minor, state.log().to_vec(), Vec::new()));
            if !state.trace().is_empty() {
                logs.push((0, 0, Vec::new(), state.trace().to_vec()));
            }
        }
        let plain =
            |values: &[std::sync::atomic::AtomicU64]| values.iter().map(|it| it.load(Relaxed)).collect();
        let seen = Seen {
            logs,
            removed: outcome.end == End::Remove,
            locals: plain(&locals),
            globals: plain(&globals),
            registers: shared.general,
            memory: memory_bytes().to_vec(),
        };
        prop_assert_eq!(&compiled_seen, &seen, "{:?}", outcome);
        if let Some(left) = &left {
            let stack: Vec<u64> = (0..state.depth()).map(|below| state.element(below)).collect();
            prop_assert_eq!(left.outcome, outcome);
            // Popped elements are not handed over: no instruction of the handler can see them. Below its start, the
            // whole circle shows, and they with it.
            if stack.len() < vm::STACK_WORDS / 2 {
                prop_assert_eq!(&left.stack, &stack);
            }
        }
        Ok(left.is_some())
    }
}

/// The thread stays on one processor, so that both runs see the same one.
fn stay() {
    // SAFETY: the set is a valid one, of this size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

#[test]
fn compiled_code_does_what_the_interpreter_does() {
    // Strategies nest deeply where nothing is inlined.
    let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(all_agree).expect("a thread");
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn all_agree() {
    let _one = exclusive();
    stay();
    let mut arena = Arena::new();
    let cases = std::env::var("JIT_CASES").ok().and_then(|it| it.parse().ok()).unwrap_or(4000);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let (mut left, mut whole) = (0, 0);
    let (left_count, whole_count) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let arena = std::cell::RefCell::new(&mut arena);
    runner
        .run(&start(), |start| {
            let counter = if start.check(&mut arena.borrow_mut())? { &left_count } else { &whole_count };
            counter.set(counter.get() + 1);
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
    left += left_count.get();
    whole += whole_count.get();
    println!("{left} left compiled code, {whole} did not");
    assert!(left > cases / 10 && whole > cases / 10);
}
