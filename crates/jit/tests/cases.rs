//! Runs the conformance cases as compiled code.
//!
//! A case's memory consists of regions that page protection cannot represent, so none of it is
//! mapped: every access faults, leaves compiled code, and is done by the interpreter on the case's
//! machine. `random.rs` tests compiled code with mapped memory.

mod support;

use dprobes_jit::{Handler, Unsupported, compile};
use layout::Registers as Shared;
use maps::Kind;
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{LazyLock, Mutex, PoisonError};
use support::arena::Arena;
use support::interpreter::{DynMachine, LEFT, WORLD, World};
use support::native::{Registers, enter, exclusive};
use support::script_pieces::processors;
use testing::Trials;
use testing::conformance::{self, Execution, GENERAL, Interpreter, Ran, TestMachine, number};
use vm::{End, Instruction, Machine, Maps, Op, Outcome, Program, Register, Word};

/// Compiled code, with a tally of what it did.
struct Native {
    arena: Arena,
    interpreter: Interpreter,
    tentative: bool,
    compiled: usize,
    left: usize,
    interpreted: usize,
}

/// The world of a case: its machine, with the general registers from the context.
struct CaseWorld(std::rc::Rc<std::cell::RefCell<TestMachine>>);

impl World for CaseWorld {
    fn run(&mut self, _: &mut Shared, run: &mut dyn FnMut(&mut dyn DynMachine)) {
        run(&mut *self.0.borrow_mut());
    }
}

/// Whether a program depends on things that cannot be chosen here: the processor, the thread, the
/// time, the stack pointer, flags, half of the instruction pointer, or a stack that is refused: the
/// agent refuses none.
fn asks_for_the_real_thing(program: &Program<'_>, machine: &mut TestMachine) -> bool {
    let real = [Register::Esp, Register::Rsp, Register::Eflags, Register::Rflags];
    // What was added where and when is not what all copies amount to.
    let is_of_now = |map: u64| {
        let info = program.maps.infos.get(map as usize);
        info.is_some_and(|info| info.kind == Kind::Tseries as u32 || info.copies > 1 && info.key > 0)
    };
    instructions(program.code).any(|it| match it.op {
        Op::Update => is_of_now(it.operand),
        Op::PushProcid | Op::PushTid | Op::PushNsecs => true,
        Op::StackOf => machine.stack(&mut [0]).is_none(),
        Op::PushR | Op::PushU => it.register().is_some_and(|register| real.contains(&register)),
        _ => false,
    })
}

/// Whether a program names a register by two names: the machine of the cases keeps them apart.
fn names_a_register_twice(code: &[u8]) -> bool {
    let mut named = [None; 16];
    let registers = instructions(code).filter_map(|it| it.register());
    registers.filter_map(|register| Some((register, number(register)?))).any(|(register, place)| {
        named[place].replace(register).is_some_and(|other: Register| other != register)
    })
}

/// The instructions of a program.
fn instructions(code: &[u8]) -> impl Iterator<Item = Instruction> {
    vm::instructions(code, Word::W8).filter_map(|it| it.instruction())
}

impl Execution for Native {
    fn run(&mut self, program: &Program<'_>, entry: usize, machine: &mut TestMachine) -> Ran {
        let start = machine.clone();
        // The stack of compiled code is not visible. If it ends a run, the stack is not compared.
        let stack = {
            let copy = |variables: &[std::sync::atomic::AtomicU64]| {
                variables.iter().map(|it| it.load(Relaxed).into()).collect::<Vec<_>>()
            };
            let (locals, globals) = (copy(program.locals), copy(program.globals));
            let words = copy(program.maps.words);
            let maps = Maps { words: &words, ..program.maps };
            let program = Program { locals: &locals, globals: &globals, maps, ..*program };
            self.interpreter.run(&program, entry, &mut machine.clone())
        };
        let handler = Handler {
            code: program.code,
            entry,
            jmpmax: program.jmpmax,
            insmax: program.insmax,
            logmax: program.logmax,
            mask: program.mask,
            locals: program.locals.len() as u16,
            globals: program.globals.len() as u16,
            major: program.point.major,
            minor: program.point.minor,
        };
        self.arena.clear_code();
        let site = machine.registers.get(&(Register::Rip as u16)).copied();
        let site = site.or(machine.registers.get(&(Register::Eip as u16)).copied()).unwrap_or(0);
        let mut environment = self.arena.environment();
        (environment.site, environment.tentative) = (site, self.tentative);
        let module = self.arena.put(program.point.module) as u32;
        let tables = self.arena.put_tables(&program.maps, program.constants);
        environment.maps = program.maps.infos;
        environment.constants = program.constants;
        environment.tables = tables.address();
        environment.processors = processors() as u32;
        environment.info = self.arena.info(&handler, &environment, |info| {
            info.excpt_log = program.excpt_log as u32;
            info.heap = program.heap as u32;
            info.autostacktrace = program.autostacktrace.into();
            (info.module, info.module_length) = (module, program.point.module.len() as u32);
            (info.point, info.id) = (program.point.offset, program.point.id);
            tables.describe(info);
        });
        let compiled = match compile(&handler, &environment) {
            Ok(compiled) if !asks_for_the_real_thing(program, machine) => compiled,
            other => {
                assert!(!matches!(other, Err(Unsupported::Facility(_)) if !has_facility(program.code)));
                self.interpreted += 1;
                return self.interpreter.run(program, entry, machine);
            }
        };
        self.arena.identity().pid.store(machine.pid as u32, Relaxed);
        let at = self.arena.place(&compiled, if self.tentative { &[] } else { &[0x90] });
        for (address, values) in
            [(environment.locals, program.locals), (environment.globals, program.globals)]
        {
            for (shared, value) in self.arena.variables(address, values.len()).iter().zip(values) {
                shared.store(value.load(Relaxed), Relaxed);
            }
        }
        let mut registers = Registers::default();
        for (&index, &value) in &machine.registers {
            let register = Register::from_index(index).expect("a register");
            if let Some(place) = number(register) {
                registers.general[place] = value;
            }
        }
        let before = registers.general;
        let world = std::rc::Rc::new(std::cell::RefCell::new(start));
        WORLD.with(|place| {
            *place.borrow_mut() = Some(Box::new(RegisterWorld(CaseWorld(world.clone()), before)))
        });
        LEFT.with(|left| *left.borrow_mut() = None);
        enter(&compiled, at, &mut registers);
        let left = LEFT.with(|left| left.borrow_mut().take());
        WORLD.with(|place| *place.borrow_mut() = None);
        *machine = world.borrow().clone();
        // Values that compiled code popped are only in the registers.
        let names = |place: usize| {
            let pops = instructions(program.code).filter(|it| matches!(it.op, Op::PopR | Op::PopU));
            let used = pops.filter_map(|it| it.register()).find(|it| number(*it) == Some(place));
            used.unwrap_or(GENERAL[place])
        };
        for place in (0..16).filter(|place| *place != 4) {
            if registers.general[place] != before[place] {
                machine.registers.insert(names(place) as u16, registers.general[place]);
            }
        }
        for (address, values) in
            [(environment.locals, program.locals), (environment.globals, program.globals)]
        {
            for (shared, value) in self.arena.variables(address, values.len()).iter().zip(values) {
                value.store(shared.load(Relaxed), Relaxed);
            }
        }
        for (shared, value) in tables.words().iter().zip(program.maps.words) {
            value.store(shared.load(Relaxed), Relaxed);
        }
        assert_eq!(self.arena.sum(environment.hits), 1, "hits");
        assert_eq!(self.arena.at(environment.missed).load(Relaxed), 0);
        assert!(self.arena.all_free(), "a context is still claimed");
        let records = self.arena.records();
        let over = self.arena.at(environment.over).load(Relaxed) == 1 << 32 | 1;
        let log_record = records.iter().find(|record| record.trace.is_empty());
        if let Some(left) = left {
            self.left += 1;
            let kept = left.outcome.end != End::Abort && program.logmax > 0;
            assert_eq!(log_record.is_some(), kept);
            return Ran { outcome: left.outcome, stack: left.stack, log: left.log, trace: left.trace };
        }
        self.compiled += 1;
        let end = match (&log_record, over) {
            (_, true) => End::Remove,
            (None, _) if program.logmax > 0 => End::Abort,
            // It is unknown which of the two it was.
            (None, _) => stack.outcome.end,
            (Some(_), _) => End::Exit,
        };
        let codes = log_record.and_then(|record| record.codes);
        let code = |got: Option<u32>, default: u32| got.filter(|got| *got != default);
        let outcome = Outcome {
            end,
            major: code(codes.map(|it| it.0), handler.major).or(stack.outcome.major),
            minor: code(codes.map(|it| it.1), handler.minor).or(stack.outcome.minor),
        };
        if let Some(record) = log_record {
            let (major, minor) = record.codes.unwrap_or((handler.major, handler.minor));
            assert_eq!(major, stack.outcome.major.unwrap_or(handler.major));
            assert_eq!(minor, stack.outcome.minor.unwrap_or(handler.minor));
            assert_eq!(record.number, environment.number);
            assert_eq!(record.tid, unsafe_tid());
            assert_eq!(record.rsp, registers.general[4]);
        }
        Ran {
            outcome,
            stack: stack.stack,
            log: log_record.map_or(Vec::new(), |record| record.log.clone()),
            trace: Vec::new(),
        }
    }
}

/// The case's machine, with the handler's changes to the registers so far.
struct RegisterWorld(CaseWorld, [u64; 16]);

impl World for RegisterWorld {
    fn run(&mut self, registers: &mut Shared, run: &mut dyn FnMut(&mut dyn DynMachine)) {
        {
            let mut machine = self.0.0.borrow_mut();
            let named: Vec<u16> = machine.registers.keys().copied().collect();
            for place in (0..16).filter(|place| *place != 4) {
                if registers.general[place] == self.1[place] {
                    continue;
                }
                let name = named
                    .iter()
                    .copied()
                    .find(|index| Register::from_index(*index).and_then(number) == Some(place));
                machine.registers.insert(name.unwrap_or(GENERAL[place] as u16), registers.general[place]);
            }
        }
        self.0.run(registers, run);
    }
}

fn unsafe_tid() -> u32 {
    // SAFETY: it takes no arguments.
    (unsafe { libc::gettid() }) as u32
}

fn has_facility(code: &[u8]) -> bool {
    instructions(code).any(|it| it.op == Op::ExitTo && (1..=3).contains(&it.operand))
}

/// One commits each record at once, the other when the instruction has completed.
static WAYS: [LazyLock<Mutex<Native>>; 2] =
    [LazyLock::new(|| Mutex::new(Native::new(false))), LazyLock::new(|| Mutex::new(Native::new(true)))];

impl Native {
    fn new(tentative: bool) -> Native {
        Native {
            arena: Arena::new(),
            interpreter: Interpreter::new(),
            tentative,
            compiled: 0,
            left: 0,
            interpreted: 0,
        }
    }
}

/// Compiled code and its signal handler are the process's, and the thread that it runs in is
/// marked: one case runs at a time.
fn main() -> ExitCode {
    let mut trials = Trials::new();
    trials.one_at_a_time();
    for (way, suffix) in WAYS.iter().zip(["", " (tentative)"]) {
        for case in conformance::all().into_iter().filter(|case| case.words.contains(&Word::W8)) {
            let name = format!("{}{suffix}", case.title);
            if names_a_register_twice(&case.assemble(Word::W8).code) {
                trials.ignore(name);
                continue;
            }
            trials.check(name, move || {
                let _one = exclusive();
                case.check(Word::W8, &mut *way.lock().unwrap_or_else(PoisonError::into_inner))
            });
        }
    }
    trials.run_and(|| {
        for way in &WAYS {
            let Native { compiled, left, interpreted, .. } =
                *way.lock().unwrap_or_else(PoisonError::into_inner);
            println!("{compiled} compiled, {left} left, {interpreted} interpreted");
            assert!(compiled > 100 && left > 100 && interpreted < 50);
        }
    })
}
