//! Tests that no instruction has an effect that its row in the table does not list, on random
//! stacks and machines.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;

use crate::properties::{interesting, machine};
use crate::test_machine::TestMachine;
use crate::{
    Clock, ControlFlow, Effects, End, Fault, Machine, Op, Operand, Program, Register, Row, RunAccess, State,
    TABLE, Word, run,
};

/// A machine that notes which effects the interpreter asks for.
struct Watched {
    machine: TestMachine,
    seen: Effects,
}

impl Watched {
    fn note(&mut self, effects: Effects) -> &mut TestMachine {
        self.seen = self.seen.and(effects);
        &mut self.machine
    }
}

impl Machine for Watched {
    fn register(&mut self, register: Register) -> u64 {
        self.note(Effects::READS_REGISTERS).register(register)
    }

    fn wide_register(&mut self, register: Register) -> Option<u128> {
        self.note(Effects::READS_REGISTERS).wide_register(register)
    }

    fn cpuid(&mut self, leaf: u32) -> Option<[u32; 4]> {
        self.note(Effects::READS_REGISTERS).cpuid(leaf)
    }

    fn model_specific_register(&mut self, number: u32) -> Option<u64> {
        self.note(Effects::READS_REGISTERS).model_specific_register(number)
    }

    fn set_register(&mut self, register: Register, value: u64) {
        self.note(Effects::WRITES_REGISTERS).set_register(register, value);
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.note(Effects::READS_MEMORY).read(address, into)
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Fault> {
        self.note(Effects::WRITES_MEMORY).write(address, from)
    }

    fn verify(&mut self, address: u64, write: bool) -> bool {
        self.note(Effects::VERIFIES_MEMORY).verify(address, write)
    }

    fn pid(&mut self) -> u64 {
        self.machine.pid()
    }

    fn processor(&mut self) -> u64 {
        self.machine.processor()
    }

    fn task(&mut self) -> Option<u64> {
        self.machine.task()
    }

    fn field(&mut self, index: u16) -> Option<u64> {
        self.machine.field(index)
    }

    fn thread(&mut self) -> Option<u64> {
        self.machine.thread()
    }

    fn time(&mut self, clock: Clock) -> Option<u64> {
        self.machine.time(clock)
    }

    fn random(&mut self) -> Option<u32> {
        self.machine.random()
    }

    fn parent(&mut self) -> Option<u32> {
        self.machine.parent()
    }

    fn signal(&mut self, _: u64, _: bool) -> bool {
        self.note(Effects::ACTS).calls.is_some()
    }

    fn override_function(&mut self, _: u64) -> bool {
        self.note(Effects::ACTS).calls.is_some()
    }

    fn ids(&mut self) -> Option<(u32, u32)> {
        self.machine.ids()
    }

    fn name(&mut self) -> Option<[u8; 16]> {
        self.machine.name()
    }

    fn stack(&mut self, frames: &mut [u64]) -> Option<usize> {
        self.note(Effects::READS_MEMORY.and(Effects::READS_REGISTERS));
        frames.fill(7);
        Some(frames.len())
    }

    fn linear_address(&mut self, selector: u16, offset: u64) -> Option<u64> {
        self.machine.linear_address(selector, offset)
    }

    fn read_port(&mut self, port: u16, size: usize) -> Option<u32> {
        self.note(Effects::USES_PORTS).read_port(port, size)
    }

    fn write_port(&mut self, port: u16, size: usize, value: u32) -> bool {
        self.note(Effects::USES_PORTS).write_port(port, size, value)
    }

    fn call_registered(&mut self, run: &mut dyn RunAccess) -> bool {
        self.note(Effects::CALLS_PLUGINS).call_registered(run)
    }
}

/// A test program: pushes, then one instruction, then `exit`.
#[derive(Debug)]
struct Single {
    word: Word,
    row: Row,
    operand: u64,
    pushed: Vec<u64>,
    logmax: usize,
    locals: Vec<u64>,
    globals: Vec<u64>,
    machine: TestMachine,
}

/// Stack elements that are compared: more than any instruction here pops or pushes, except those
/// that copy.
const SHOWN: usize = 16;

/// One constant, `a`.
const CONSTANTS: [u8; 21] = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, b'a'];

/// What can be observed after a run.
#[derive(PartialEq)]
struct Seen {
    effects: Effects,
    end: End,
    stack: Vec<u64>,
    log: Vec<u8>,
    locals: Vec<u64>,
    globals: Vec<u64>,
}

/// Programs with one of these instructions.
fn single(rows: &'static [Row]) -> impl Strategy<Value = Single> {
    prop_oneof![Just(Word::W4), Just(Word::W8)].prop_flat_map(move |word| {
        let row = proptest::sample::select(rows);
        let register = proptest::sample::select(Register::ALL);
        // To the `exit`, or out of the code: elsewhere there are other instructions.
        let distance = prop_oneof![3 => Just(0), 1 => Just(1_u64 << 20)];
        let operand = (interesting(word), register, distance, any::<u8>());
        let operand = (row, operand).prop_map(|(row, (value, register, distance, byte))| {
            let operand = match row.operand {
                Operand::Label | Operand::Proc => distance,
                Operand::Local | Operand::Global | Operand::Field => u64::from(byte % 6),
                Operand::Register => register as u64,
                Operand::U8 | Operand::Bit => u64::from(byte % 70),
                _ => value,
            };
            (row, operand)
        });
        let variables = || vec(any::<u64>(), 0..6);
        (operand, vec(interesting(word), 0..5), 0..60_usize, variables(), variables(), machine(word))
            .prop_map(move |((row, operand), pushed, logmax, locals, globals, machine)| Single {
                word,
                row,
                operand,
                pushed,
                logmax,
                locals,
                globals,
                machine,
            })
    })
}

impl Single {
    /// Runs it with these variables.
    fn run(&self, state: &mut State, locals: &[u64], globals: &[u64]) -> Seen {
        let mut code = Vec::new();
        let mut add = |op: Op, operand: u64| {
            code.push(op as u8);
            code.extend(&operand.to_le_bytes()[..op.row().operand.size(self.word.bytes())]);
        };
        self.pushed.iter().for_each(|&value| add(Op::Push, value));
        add(self.row.op, self.operand);
        add(Op::Exit, 0);
        let atomic = |values: &[u64]| values.iter().copied().map(AtomicU64::new).collect::<Vec<_>>();
        let plain = |values: &[AtomicU64]| values.iter().map(|it| it.load(Relaxed)).collect::<Vec<_>>();
        let (local, global) = (atomic(locals), atomic(globals));
        let mut infos = [maps::MapInfo { key: 8, value: 8, entries: 4, ..maps::MapInfo::default() }];
        let size = maps::plan(&mut infos, 1, 1 << 20).expect("it is small");
        let words: Vec<AtomicU64> = (0..size).map(|_| AtomicU64::new(0)).collect();
        let program = Program {
            word: self.word,
            code: &code,
            jmpmax: 10,
            logmax: self.logmax,
            mask: 0xffff,
            locals: &local,
            globals: &global,
            excpt_log: 100,
            heap: 40,
            constants: crate::Constants(&CONSTANTS),
            maps: crate::Maps { infos: &infos, words: &words },
            ..Program::default()
        };
        let mut watched = Watched { machine: self.machine.clone(), seen: Effects::NONE };
        let outcome = run(&program, 0, state, &mut watched);
        let mut effects = watched.seen;
        let mut note = |seen: bool, effect: Effects| {
            if seen {
                effects = effects.and(effect);
            }
        };
        note(outcome.major.or(outcome.minor).is_some(), Effects::SETS_CODES);
        note(outcome.end == End::Remove, Effects::REMOVES);
        note(matches!(outcome.end, End::ExitTo(_)), Effects::CALLS_FACILITY);
        note(matches!(outcome.end, End::Exception(_)), Effects::RAISES);
        note(!state.trace().is_empty(), Effects::USES_STACK_TRACE);
        Seen {
            effects,
            end: outcome.end,
            stack: (0..SHOWN).map(|below| state.element(below)).collect(),
            log: state.log().to_vec(),
            locals: plain(&local),
            globals: plain(&global),
        }
    }

    /// The effects that running it shows.
    fn effects(&self, state: &mut State) -> Effects {
        let Single { locals, globals, .. } = self;
        let seen = self.run(state, locals, globals);
        let mut effects = seen.effects;
        // If a variable's value changes anything but the variable, it has been read.
        let other = |values: &[u64]| values.iter().map(|value| value ^ 0x55).collect::<Vec<_>>();
        for (reads, changed) in [
            (Effects::READS_LOCALS, self.run(state, &other(locals), globals)),
            (Effects::READS_GLOBALS, self.run(state, locals, &other(globals))),
        ] {
            let came = |it: &Seen| (it.end, it.stack.clone(), it.log.clone());
            if came(&changed) != came(&seen) {
                effects = effects.and(reads);
            }
        }
        effects
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn an_instruction_does_nothing_that_its_row_does_not_say(single in single(TABLE)) {
        let mut allowed = single.row.effects;
        if allowed.contains(Effects::WRITES_MEMORY) {
            // To find the faulting address of a store that passes the last address.
            allowed = allowed.and(Effects::VERIFIES_MEMORY);
        }
        if allowed.contains(Effects::CALLS_PLUGINS) {
            allowed = allowed.and(Effects::LOGS);
        }
        let mut state = State::new();
        let effects = single.effects(&mut state);
        for (name, effect) in Effects::ALL {
            prop_assert!(
                allowed.contains(*effect) || !effects.contains(*effect),
                "{} shows {name}", single.row.name
            );
        }
        let seen = single.run(&mut state, &single.locals, &single.globals);
        let (locals, globals) = (seen.locals != single.locals, seen.globals != single.globals);
        prop_assert!(!locals || allowed.intersects(Effects::WRITES_LOCALS.and(Effects::COUNTS_LOCALS)));
        prop_assert!(!globals || allowed.intersects(Effects::WRITES_GLOBALS.and(Effects::COUNTS_GLOBALS)));
        let logs = Effects::LOGS.and(Effects::CUTS_LOG);
        prop_assert!(seen.log.is_empty() || allowed.intersects(logs));
        // Only an end of its own, or an exception, prevents the run from reaching `exit`.
        let ends = single.row.transfer == ControlFlow::End || matches!(seen.end, End::Exception(_));
        prop_assert!(seen.end == End::Exit || ends);
    }
}

#[test]
fn what_can_be_seen_of_an_effect_is_seen_of_each_instruction_that_has_it() {
    let visible = [
        Effects::RAISES,
        Effects::READS_MEMORY,
        Effects::WRITES_MEMORY,
        Effects::VERIFIES_MEMORY,
        Effects::READS_REGISTERS,
        Effects::WRITES_REGISTERS,
        Effects::SETS_CODES,
        Effects::REMOVES,
        Effects::CALLS_FACILITY,
        Effects::CALLS_PLUGINS,
        Effects::USES_PORTS,
    ];
    let visible = visible.into_iter().fold(Effects::NONE, Effects::and);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut state = State::new();
    for rows in TABLE.chunks(1) {
        let [row] = rows else { unreachable!("chunks of one") };
        let wanted = row.effects.intersection(visible);
        let strategy = single(rows);
        let mut found = Effects::NONE;
        for _ in 0..2000 {
            if found.contains(wanted) {
                break;
            }
            let single = strategy.new_tree(&mut runner).expect("nothing is rejected").current();
            found = found.and(single.effects(&mut state));
        }
        // `rx` raises the exception on the stack, and a random number is unlikely to be an
        // exception's code.
        assert!(row.op == Op::Rx || found.contains(wanted), "{}: {wanted:?}, {found:?}", row.name);
    }
}
