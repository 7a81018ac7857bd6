//! Random programs: compiled code and the interpreter have the same visible results.

use crate::support::arena::Arena;
use crate::support::interpreter::{LEFT, Native};
use crate::support::native::{Registers, enter, exclusive};
use crate::support::outside::Outside;
use crate::support::programs::{
    GLOBALS, LOCALS, Line, MEMORY, assemble, interesting, jumps_and_instructions, lines, memory,
    memory_bytes, shown, traces,
};
use crate::support::script_pieces::{CONSTANTS, maps, processors};
use dprobes_jit::{Environment, Handler, Limits, Variable, compile};
use layout::Registers as Shared;
use layout::hidden::{BEFORE_OURS, BELOW_STACK, MARK_OURS, PAGE_BITS};
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use testing::conformance::{Content, contents};
use vm::{Constants, End, Maps, Op, Program, State, Word};

/// The probed instruction, as a program may read it.
const SITE: u64 = 0x5555_1234_5678;

/// The start of a run.
#[derive(Clone, Debug)]
struct Start {
    lines: Vec<Line>,
    jmpmax: u32,
    insmax: u32,
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
    /// Whether it is the last run that `maxhits` allows.
    last: bool,
    /// The mark of the memory's pages: nonzero marks leave compiled code or cause a closer check.
    mark: u8,
    excpt_log: usize,
    autostacktrace: bool,
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
    let memory = vec(prop_oneof![3 => any::<u8>(), 1 => Just(0)], MEMORY);
    let mark =
        prop_oneof![12 => Just(0), 1 => Just(MARK_OURS), 1 => Just(BEFORE_OURS), 1 => Just(BELOW_STACK)];
    let site = (any::<u64>(), any::<[bool; 5]>(), mark);
    (lines(), limits, words, memory, site).prop_map(|(lines, limits, words, memory, site)| Start {
        lines,
        jmpmax: limits.0.0,
        insmax: limits.0.1,
        logmax: limits.1,
        mask: limits.2,
        locals: words.0,
        globals: words.1,
        registers: words.2,
        flags: site.0,
        memory,
        flags_live: site.1[0],
        tentative: site.1[1],
        rdpid: site.1[2],
        known: site.1[3],
        last: site.1[4],
        mark: site.2,
        excpt_log: limits.3.0,
        autostacktrace: limits.3.1,
    })
}

/// Major and minor code.
type Codes = (u32, u32);

/// The visible results of a run.
#[derive(Debug, PartialEq)]
struct Seen {
    /// Codes, log and stack traces of each record.
    logs: Vec<(Codes, Vec<u8>, Vec<u8>)>,
    removed: bool,
    locals: Vec<u64>,
    globals: Vec<u64>,
    registers: [u64; 16],
    memory: Vec<u8>,
    maps: Vec<Content>,
}

/// The bytes of a handler that is moved to another site, and those of the same handler compiled for
/// that site. `None` if it cannot be moved.
fn moved(handler: &Handler<'_>, environment: &Environment<'_>) -> Option<(Vec<u8>, Vec<u8>)> {
    const HERE: u64 = 0x7fff_1234_5678;
    const CODE: u64 = 0x7fff_2000_0000;
    let compiled = |by: u64| {
        let environment = Environment { site: HERE.wrapping_add(by), ..*environment };
        compile(handler, &environment).expect("it was compiled before")
    };
    let by = 0x0000_00a9_8765_4000_u64.wrapping_neg();
    let (here, there) = (compiled(0), compiled(by));
    let (mut moved, mut elsewhere) = (Vec::new(), Vec::new());
    here.append_at(CODE, &mut moved);
    here.site_fields()?.for_each(|field| field.add(by, &mut moved));
    there.append_at(CODE.wrapping_add(by), &mut elsewhere);
    Some((moved, elsewhere))
}

/// Words that threads share, with these values.
fn cells(values: &[u64]) -> Vec<AtomicU64> {
    values.iter().map(|&value| value.into()).collect()
}

impl Start {
    /// The program, with its variables and maps.
    fn program<'a>(
        &self,
        code: &'a [u8],
        (locals, globals): (&'a [AtomicU64], &'a [AtomicU64]),
        maps: Maps<'a>,
    ) -> Program<'a> {
        Program {
            word: Word::W8,
            code,
            jmpmax: self.jmpmax,
            insmax: self.insmax,
            logmax: self.logmax,
            mask: self.mask,
            locals,
            globals,
            excpt_log: self.excpt_log,
            autostacktrace: self.autostacktrace,
            heap: 64,
            maps,
            constants: Constants(CONSTANTS),
            point: vm::ProbepointInfo { offset: 7, major: 5, minor: 6, ..vm::ProbepointInfo::default() },
        }
    }

    /// Whether the program reaches memory that is not the programs'.
    fn strays(&self, code: &[u8]) -> bool {
        memory_bytes().copy_from_slice(&self.memory);
        let (locals, globals) = (cells(&self.locals), cells(&self.globals));
        let (infos, count) = maps();
        let words = cells(&vec![0; count]);
        let program = self.program(code, (&locals, &globals), Maps { infos: &infos, words: &words });
        let mut machine = Outside {
            general: self.registers,
            rip: SITE,
            rflags: self.flags,
            removed: false,
            strayed: false,
        };
        vm::run(&program, 0, &mut Box::<State>::default(), &mut machine);
        machine.strayed
    }

    fn check(&self, arena: &mut Arena) -> Result<bool, TestCaseError> {
        let code = assemble(&self.lines);
        prop_assume!(!self.strays(&code));
        let handler = Handler {
            code: &code,
            entry: 0,
            jmpmax: self.jmpmax,
            insmax: self.insmax,
            logmax: self.logmax,
            mask: self.mask,
            locals: LOCALS as u16,
            globals: GLOBALS as u16,
            major: 5,
            minor: 6,
        };
        arena.clear_code();
        // Left by an earlier case that failed.
        arena.forget();
        for page in 0..3 {
            arena.mark(memory() + (page << PAGE_BITS), self.mark);
        }
        let counted = [(Variable::Local(LOCALS as u16 - 1), arena.counter())];
        let (infos, count) = maps();
        let words = cells(&vec![0; count]);
        let maps = Maps { infos: &infos, words: &words };
        let tables = arena.put_tables(&maps, Constants(CONSTANTS));
        let mut environment = arena.environment();
        // Only if no instruction reads it.
        let reads = [Op::PushLv, Op::PopLv, Op::MoveLv, Op::LogLv];
        if !self.lines.iter().any(|(op, _)| reads.contains(op)) {
            environment.counted = &counted;
        }
        environment.maps = &infos;
        environment.constants = Constants(CONSTANTS);
        environment.tables = tables.address();
        environment.processors = processors() as u32;
        environment.flags_live = self.flags_live;
        environment.tentative = self.tentative;
        environment.rdpid = self.rdpid;
        environment.info = arena.info(&handler, &environment, |info| {
            tables.describe(info);
            (info.excpt_log, info.autostacktrace) = (self.excpt_log as u32, self.autostacktrace.into());
            (info.heap, info.point) = (64, 7);
        });
        let turns = arena.word();
        environment.limits = self.last.then_some(Limits { hits: turns, ignore: 0, maxhits: 1 });
        let compiled = compile(&handler, &environment).expect("no program calls a facility");
        if let Some((moved, there)) = moved(&handler, &environment) {
            prop_assert_eq!(moved, there, "the handler of the same site elsewhere");
        }
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
        let turns = arena.at(turns).load(Relaxed);
        prop_assert_eq!((arena.sum(environment.hits), turns), if self.last { (0, 1) } else { (1, 0) });
        prop_assert_eq!(arena.at(environment.missed).load(Relaxed), 0);
        prop_assert_eq!(arena.at(environment.dropped).load(Relaxed), 0);
        let values = |address, count| {
            arena.variables(address, count).iter().map(|it| it.load(Relaxed)).collect::<Vec<_>>()
        };
        let mut locals = values(environment.locals, LOCALS);
        locals[LOCALS - 1] = locals[LOCALS - 1].wrapping_add(arena.sum(counted[0].1));
        let records = arena.records();
        for record in &records {
            let state = if self.tentative { layout::state::TENTATIVE } else { 1 };
            prop_assert_eq!(record.state, state);
            prop_assert_eq!((record.rsp, record.number), (registers.general[4], environment.number));
        }
        let plain = |values: &[AtomicU64]| values.iter().map(|it| it.load(Relaxed)).collect();
        let compiled_seen = Seen {
            logs: records.into_iter().map(|it| (it.codes.unwrap_or((5, 6)), it.log, it.trace)).collect(),
            // Whether it is disabled, and by whom.
            removed: match (arena.at(environment.over).load(Relaxed), self.last) {
                (0, false) | (1, true) => false,
                (over, _) => {
                    prop_assert_eq!(over, 1 << 32 | 1);
                    true
                }
            },
            locals,
            globals: values(environment.globals, GLOBALS),
            registers: registers.general,
            memory: memory_bytes().to_vec(),
            maps: contents(&Maps { words: tables.words(), ..maps }),
        };

        // The same, interpreted from the start.
        memory_bytes().copy_from_slice(&self.memory);
        let (locals, globals) = (cells(&self.locals), cells(&self.globals));
        let program = self.program(&code, (&locals, &globals), maps);
        let mut shared = Shared { general: self.registers, rip: environment.site, ..Shared::default() };
        shared.general[4] = registers.general[4];
        // Interrupts are on in user mode, and one bit is always set.
        shared.rflags = self.flags & Registers::FLAGS | 0x202;
        let mut state = Box::new(State::new());
        let outcome = vm::run(&program, 0, &mut state, &mut Native { registers: &mut shared });
        let kept = outcome.end != End::Abort && self.logmax > 0;
        let mut logs = Vec::new();
        if kept {
            let codes = (outcome.major.unwrap_or(5), outcome.minor.unwrap_or(6));
            logs.push((codes, state.log().to_vec(), Vec::new()));
            if !state.trace().is_empty() {
                logs.push(((0, 0), Vec::new(), state.trace().to_vec()));
            }
        }
        let seen = Seen {
            logs,
            removed: outcome.end == End::Remove,
            locals: plain(&locals),
            globals: plain(&globals),
            registers: shared.general,
            memory: memory_bytes().to_vec(),
            maps: contents(&maps),
        };
        prop_assert_eq!(&compiled_seen, &seen, "{:?}", outcome);
        if let Some(left) = &left {
            let stack: Vec<u64> = (0..state.depth()).map(|below| state.element(below)).collect();
            prop_assert_eq!(left.outcome, outcome);
            // Popped elements are not passed on: no instruction of the handler can see them. Below
            // its start the whole circular stack is visible, including them.
            if stack.len() < vm::STACK_WORDS / 2 {
                prop_assert_eq!(&left.stack, &stack);
            }
        }
        Ok(left.is_some())
    }
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

#[test]
fn compiled_code_does_what_the_interpreter_does() {
    // Without inlining strategies nest deeply.
    let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(all_agree).expect("a thread");
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn all_agree() {
    let _one = exclusive();
    stay();
    let mut arena = Arena::new();
    arena.mark_pages();
    let cases = std::env::var("JIT_CASES").ok().and_then(|it| it.parse().ok()).unwrap_or(3000);
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
        .unwrap_or_else(|failure| panic!("{}", shown(&failure)));
    left += left_count.get();
    whole += whole_count.get();
    println!("{left} left compiled code, {whole} did not");
    assert!(left > cases / 10 && whole > cases / 15);
}
