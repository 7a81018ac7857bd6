//! Every conformance case, in the kernel.

use std::collections::BTreeMap;
use std::path::Path;

use testing::conformance::{Case, Execution, Interpreter, Ran, TestMachine, read};
use vm::{Context, End, Op, Program, Register, Word};

use super::memory::Moved;
use super::{live, site};
use crate::AttachKind;

/// How a case went.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Went {
    Ran,
    Refused(String),
    /// The verifier accepts it, but a hit cannot be as the case wants it.
    Verified,
    /// This process cannot have the case's memory.
    NoSuchMemory,
}

/// The kernel.
struct Kernel {
    sleepable: bool,
    went: Went,
}

impl Execution for Kernel {
    fn run(&mut self, program: &Program<'_>, entry: usize, machine: &mut TestMachine) -> Ran {
        if let Some(went) = as_kernel_probe(program, entry, machine).or_else(|| as_thread(program, entry)) {
            self.went = went;
            return Interpreter::new().run(program, entry, machine);
        }
        if only_loaded() {
            self.went = loaded(AttachKind::Uprobe, program, entry, self.sleepable);
            return Interpreter::new().run(program, entry, machine);
        }
        let Some(moved) = Moved::map(machine).filter(|moved| !moved.is_ambiguous(program.code)) else {
            self.went = Went::NoSuchMemory;
            return Interpreter::new().run(program, entry, machine);
        };
        let code = moved.code(program.code);
        let moved_program = Program { code: &code, ..*program };
        let mut registers = [0; 16];
        for (&index, &value) in &machine.registers {
            if let Some(number) = site::number(index) {
                registers[number] = value;
            }
        }
        let before = registers;
        let done = match live::run(&moved_program, entry, registers, self.sleepable) {
            Ok(done) => done,
            Err(refusal) => {
                self.went = Went::Refused(refusal.reason.to_string());
                return Interpreter::new().run(program, entry, machine);
            }
        };
        moved.read(machine);
        for (number, register) in testing::conformance::GENERAL.into_iter().enumerate() {
            if number != 4 && done.registers[number] != before[number] {
                let low = machine.registers.keys().copied().find(|&it| site::number(it) == Some(number));
                let name = low.unwrap_or_else(|| named(program.code, program.word, number, register));
                machine.registers.insert(name, done.registers[number]);
            }
        }
        let mut ran = done.ran.clone();
        let asks = vm::instructions(program.code, program.word)
            .any(|it| it.instruction().is_some_and(|it| it.op == Op::PushProcid));
        for value in &mut ran.stack {
            *value = moved.of_case(as_in_case(*value, &done, machine, asks));
        }
        if let End::Exception(exception) = &mut ran.outcome.end {
            moved.exception(exception);
        }
        moved.bytes(&mut ran.log);
        moved.bytes(&mut ran.trace);
        ran
    }
}

/// The name by which a program sets a register.
fn named(code: &[u8], word: Word, number: usize, whole: Register) -> u16 {
    let names = vm::instructions(code, word).filter_map(|it| it.instruction()?.register());
    let names = names.filter(|register| testing::conformance::number(*register) == Some(number));
    names.last().unwrap_or(whole) as u16
}

/// What the case chose and this process cannot: its number, the processor, the probe's address.
fn as_in_case(value: u64, done: &live::Done, machine: &TestMachine, asks_processor: bool) -> u64 {
    let site = site::address(done.site);
    let register = |register: Register| machine.registers.get(&(register as u16)).copied();
    if value == std::process::id().into() && machine.pid != 0 {
        machine.pid
    } else if asks_processor && value == done.cpu.into() && machine.processor != 0 {
        machine.processor
    } else if value == site {
        register(Register::Rip).unwrap_or(value)
    } else if value == site & 0xffff_ffff {
        register(Register::Eip).unwrap_or(value)
    } else {
        value
    }
}

/// How a case goes of which the result depends on the thread and the time.
fn as_thread(program: &Program<'_>, entry: usize) -> Option<Went> {
    let asks = |op| {
        matches!(
            op,
            Op::PushTid
                | Op::PushNsecs
                | Op::PushRand
                | Op::PushIds
                | Op::PushParent
                | Op::Signal
                | Op::CommF
                | Op::StackOf
                | Op::KStackOf
        )
    };
    let mut instructions = vm::instructions(program.code, program.word).filter_map(|it| it.instruction());
    instructions.any(|it| asks(it.op)).then(|| loaded(AttachKind::Uprobe, program, entry, false))
}

/// How a case goes whose machine is one of the kernel: no kernel probe can be hit as it wants.
fn as_kernel_probe(program: &Program<'_>, entry: usize, machine: &TestMachine) -> Option<Went> {
    let kernel = |index: &u16| {
        Register::from_index(*index).is_some_and(|register| register.context() == Context::Kernel)
    };
    let grants = !machine.ports.is_empty()
        || machine.task.is_some()
        || !machine.fields.is_empty()
        || !machine.model_specific.is_empty()
        || machine.wide.keys().any(kernel);
    grants.then(|| loaded(AttachKind::Kprobe, program, entry, false))
}

/// How a case goes that the verifier is to accept, and that is not run.
fn loaded(place: AttachKind, program: &Program<'_>, entry: usize, sleepable: bool) -> Went {
    match live::load_at(place, program, entry, sleepable) {
        Ok(()) => Went::Verified,
        Err(refusal) => Went::Refused(refusal.reason.to_string()),
    }
}

/// The variable with which programs are loaded, and not run.
pub(super) const ONLY_LOADED: &str = "DPROBES_CASES_ONLY_LOADED";

fn only_loaded() -> bool {
    std::env::var_os(ONLY_LOADED).is_some()
}

/// Runs the cases of a file, with programs that may sleep or not.
fn file(name: &str) {
    let test = format!("bpf: kernel: cases: {name}");
    if !live::can_run(&test) {
        return;
    }
    let _alone = live::alone();
    let path = testing::conformance::folder().join(format!("{name}.case"));
    let mut failed = Vec::new();
    let mut tally: BTreeMap<Went, usize> = BTreeMap::new();
    let cases: Vec<Case> = read(Path::new(&path));
    for case in &cases {
        for &word in &case.words {
            for sleepable in [false, true] {
                let mut kernel = Kernel { sleepable, went: Went::Ran };
                if let Err(error) = check(case, word, &mut kernel) {
                    failed.push(error);
                }
                *tally.entry(kernel.went).or_default() += 1;
            }
        }
    }
    println!("{tally:#?}");
    assert!(failed.is_empty(), "{}\n{} failed of {}", failed.join("\n"), failed.len(), 4 * cases.len());
}

/// Checks a case; a panic is an error too.
fn check(case: &Case, word: Word, kernel: &mut Kernel) -> Result<(), String> {
    let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case.check(word, kernel)));
    checked.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(format!("{} ({word:?}): {}", case.name, text.unwrap_or_default()))
    })
}

macro_rules! files {
    ($($test:ident)*) => {
        /// The files of the cases.
        pub(super) const FILES: &[&str] = &[$(stringify!($test)),*];

        $(#[test]
        fn $test() {
            file(stringify!($test));
        })*
    };
}

files! {
    arithmetic comparison data exception execution frame frame_string global heap hostile internal kernel
    local logging map map_kind memory_log register stack system thread trace wide
}
