//! Random programs: the kernel does what the interpreter does.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use testing::conformance::{Execution, Interpreter, Region, TestMachine};
use vm::{Context, Op, Operand, ProbepointInfo, Program, Register, RegisterSet, TABLE, Word};

use super::live;
use super::memory::Moved;

/// A generator of numbers (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

/// Where the memory of programs is: two pages.
const MEMORY: u64 = 0x10_0000;
const LENGTH: u64 = 0x2000;

/// A value that programs are likely to find interesting.
fn value(random: &mut Random, word: Word) -> u64 {
    let value = match random.below(10) {
        0..=3 => random.below(8),
        4 => random.below(40),
        5 => random.below(8).wrapping_neg(),
        6 => MEMORY + random.below(LENGTH + 1),
        7 => MEMORY + random.of(&[0, 4093, 4096 - 128, LENGTH - 200, LENGTH - 3, LENGTH]),
        8 => random.of(&[1 << 31, 1 << 63, u64::MAX >> 1, u32::MAX.into(), 1024, 1023, 0x8000, 0x1000, 0x20]),
        _ => random.next(),
    };
    word.truncate(value)
}

/// The instructions of random programs: those that no reason refuses, and that give the same in
/// every process.
fn instructions() -> Vec<Op> {
    let left_out = [
        Op::Vfyrw,
        Op::Seg2lin,
        Op::Callk,
        Op::PopMem8,
        Op::PopMem16,
        Op::PopMem32,
        Op::PopMem64,
        Op::PopR,
        Op::PopU,
        Op::PushPid,
        Op::PushProcid,
    ];
    // From here on they are what scripts are compiled to: they want maps and a frame, which these
    // programs have not. The conformance cases and scripts have them.
    let before = |op: &Op| (*op as u8) < Op::PushF as u8;
    TABLE.iter().map(|row| row.op).filter(before).filter(|op| !left_out.contains(op)).collect()
}

/// A program's bytecode.
fn code(random: &mut Random, word: Word, ops: &[Op]) -> Vec<u8> {
    let length = 4 + random.below(60) as usize;
    let mut chosen: Vec<Op> = Vec::new();
    // Values first, so that the stack is seldom empty.
    for place in 0..length {
        let op = match random.below(8) {
            0..=2 => Op::Push,
            3 if place > 4 => {
                random.of(&[Op::Exit, Op::Log, Op::LogImm, Op::Loop, Op::Jnz, Op::Call, Op::Sx])
            }
            _ => random.of(ops),
        };
        if op.row().context == Context::Kernel && !random.one_in(10) {
            continue;
        }
        chosen.push(op);
    }
    // Handlers of exceptions, so that more is executed.
    if random.one_in(2) {
        chosen.insert(0, Op::Sx);
        chosen.insert(chosen.len() / 2, Op::Sx);
    }
    chosen.push(Op::Exit);
    let mut starts = Vec::new();
    let mut end = 0;
    for op in &chosen {
        starts.push(end);
        end += 1 + op.row().operand.size(word.bytes());
    }
    let mut code = Vec::new();
    for op in chosen {
        code.push(op as u8);
        let size = op.row().operand.size(word.bytes());
        let operand = match op.row().operand {
            Operand::None => 0,
            Operand::U8 if op == Op::ExitTo => random.below(5),
            Operand::U8 => random.of(&[0, 1, 3, 7, 8, 9, 33, 255]),
            Operand::U16 => random.of(&[0, 1, 2, 3, 5, 16, 17, 40, 300]),
            Operand::Local | Operand::Global if random.one_in(15) => random.below(4),
            Operand::Local | Operand::Global => 0,
            Operand::Field => random.below(3),
            Operand::Register => register(random, word),
            Operand::Bit if random.one_in(10) => random.of(&[0, 33, 63, 64, 65]),
            Operand::Bit => random.of(&[1, 2, 31, 32]),
            Operand::S16 => random.of(&[0, 1, 2, 5, 0xffff, 0xfffe, 0xff00, 1000]),
            Operand::Word => value(random, word),
            Operand::Label | Operand::Proc => {
                let target =
                    if random.one_in(20) { random.below(end as u64 + 2) } else { random.of(&starts) as u64 };
                target.wrapping_sub((code.len() + size) as u64)
            }
        };
        code.extend(&operand.to_le_bytes()[..size]);
    }
    if random.one_in(20) {
        code.truncate(random.below(code.len() as u64) as usize);
        code.push(Op::Exit as u8);
    }
    code
}

/// A register that every process can have, or one that no user process may read.
fn register(random: &mut Random, word: Word) -> u64 {
    loop {
        let register = random.of(Register::ALL);
        let general = testing::conformance::number(register).is_some_and(|number| number != 4);
        let refused = register.context() == Context::Kernel
            || (word == Word::W4 && register.set() == RegisterSet::Long);
        if general || (refused && random.one_in(30)) {
            return register as u64;
        }
    }
}

/// Compares the two on one program.
fn check(seed: u64, ops: &[Op]) -> bool {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..8 {
        random.next();
    }
    let word = random.of(&[Word::W4, Word::W8]);
    let bytes = (0..LENGTH)
        .map(|place| if place % 37 == 0 || random.one_in(50) { 0 } else { b'a' + (place % 23) as u8 });
    let memory = vec![Region { start: MEMORY, bytes: bytes.collect(), writable: true }];
    let mut machine = TestMachine { word, memory, ..TestMachine::default() };
    let moved = Moved::map(&machine).expect("it is low");
    let code = code(&mut random, word, ops);
    let moved_code = moved.code(&code);
    let variables = || [7, 0, u64::MAX].map(AtomicU64::new);
    let (locals, globals) = (variables(), variables());
    let program = Program {
        word,
        code: &code,
        jmpmax: random.of(&[0, 3, 40, 256]),
        insmax: random.of(&[0, 5, 37, 200, 5000, vm::INSTRUCTIONS]),
        logmax: random.of(&[0, 2, 9, 64, 100, 1024, 32768]),
        mask: random.of(&[vm::DEFAULT_MASK, 0xffff, 0, 0x1fff]),
        locals: &locals[..3 - random.below(4).saturating_sub(1) as usize],
        globals: &globals[..3 - random.below(4).saturating_sub(1) as usize],
        excpt_log: random.of(&[0, 20, 60, 100, 1024]),
        autostacktrace: random.one_in(4),
        heap: random.of(&[0, 16, 300, 16384]),
        point: ProbepointInfo { module: b"app", offset: 5, id: 1, major: 2, minor: 3 },
        ..Program::default()
    };
    let mut registers = [0; 16];
    for (number, register) in registers.iter_mut().enumerate() {
        let whole = testing::conformance::GENERAL[number];
        *register = if number == 4 { 0 } else { value(&mut random, Word::W8) };
        let names = Register::ALL.iter().filter(|it| testing::conformance::number(**it) == Some(number));
        debug_assert!(names.clone().any(|it| *it == whole));
        machine.registers.extend(names.map(|name| (*name as u16, *register)));
    }
    let (kernel_locals, kernel_globals) = (variables(), variables());
    let in_kernel = Program {
        code: &moved_code,
        locals: &kernel_locals[..program.locals.len()],
        globals: &kernel_globals[..program.globals.len()],
        ..program
    };
    let Ok(done) = live::run(&in_kernel, 0, registers, random.one_in(2)) else { return false };
    // The interpreter has the memory where it is in this process: values are not moved back.
    machine.memory[0].start = moved.actual(MEMORY);
    let moved_program = Program { code: &moved_code, ..program };
    let expected = Interpreter::new().run(&moved_program, 0, &mut machine);
    let text = |program: &Program<'_>| {
        let list = vm::instructions(program.code, word).map(|it| match it.instruction() {
            Some(it) => format!("{:4}: {} {:#x}", it.offset, it.row().name, it.operand),
            None => format!("      {it:?}"),
        });
        list.collect::<Vec<_>>().join("\n")
    };
    let context = || format!("seed {seed}\n{}\n{moved_program:?}", text(&moved_program));
    let mut ran = done.ran;
    if done.partly && expected.stack.len() > 512 {
        // What was popped from an empty stack, and no instruction could see.
        ran.stack.clone_from(&expected.stack);
    }
    assert_eq!(ran, expected, "{}", context());
    let values = |variables: &[AtomicU64]| variables.iter().map(|it| it.load(Relaxed)).collect::<Vec<_>>();
    assert_eq!(values(&kernel_locals), values(&locals), "{}", context());
    assert_eq!(values(&kernel_globals), values(&globals), "{}", context());
    true
}

#[test]
fn random_programs_give_what_the_interpreter_gives() {
    if !live::can_run("bpf: kernel: random") {
        return;
    }
    let _alone = live::alone();
    let ops = instructions();
    let first = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = match first {
        Some(seed) => seed..seed + 1,
        None => 1..testing::rounds(200, 5000),
    };
    let count = seeds.end - seeds.start;
    let ran = seeds.filter(|&seed| check(seed, &ops)).count() as u64;
    assert!(ran > count / 2, "only {ran} of {count} were not refused");
}
