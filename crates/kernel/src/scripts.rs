//! The instructions that scripts are compiled to: on the frame, on maps, and what a handler knows
//! of its thread.

use bpf::{Alu, Cond, Helper, Insn, Label, Reg, Size};
use maps::Kind;
use vm::{Clock, Exception, Instruction, Op, Word};

use crate::compiler::Compiler;
use crate::emit::{REGISTERS, Top};
use crate::frame;
use crate::handler::AttachKind;
use crate::layout::Field;
use crate::refusal::Reason;
use crate::registers;
use crate::table_code::AGAIN;
use crate::table_function::Function;
use crate::tables::MAX_FRAMES;

/// `parm1` of INVALID_OPERAND: a map's number, or the length of a key or a value.
const MAP: i32 = 9;

/// How often the instructions of a run may begin again since others change what they need.
pub(crate) const TRIES: i32 = 256;

/// `sar`
pub(crate) fn shift_signed(c: &mut Compiler<'_>) {
    c.e.pop(Reg::R1);
    c.e.peek(Reg::R2, 0);
    sign_extend(c, Reg::R1);
    c.e.alu(Alu::And, Reg::R2, c.handler.word.bits() as i32 - 1);
    c.e.alu(Alu::Arsh, Reg::R1, Reg::R2);
    c.e.truncate(Reg::R1);
    c.e.poke(0, Reg::R1);
}

/// `push tid`
pub(crate) fn thread_id(c: &mut Compiler<'_>) {
    c.e.call(Helper::GET_CURRENT_PID_TGID);
    c.e.asm.push(Insn::mov32(Reg::R0, Reg::R0));
    c.e.push(Reg::R0);
}

/// `push rand`
pub(crate) fn random(c: &mut Compiler<'_>) {
    c.e.call(Helper::GET_PRANDOM_U32);
    c.e.asm.push(Insn::mov32(Reg::R0, Reg::R0));
    c.e.push(Reg::R0);
}

/// `push ids`
pub(crate) fn user_ids(c: &mut Compiler<'_>) {
    c.e.call(Helper::GET_CURRENT_UID_GID);
    c.e.truncate(Reg::R0);
    c.e.push(Reg::R0);
}

/// Extends a word by its sign to 64 bits.
fn sign_extend(c: &mut Compiler<'_>, reg: Reg) {
    if c.handler.word == Word::W4 {
        c.e.alu(Alu::Lsh, reg, 32);
        c.e.alu(Alu::Arsh, reg, 32);
    }
}

/// Pops two values and pushes whether the condition holds for them.
pub(crate) fn compare(c: &mut Compiler<'_>, condition: Cond) {
    let holds = c.e.asm.label();
    c.e.pop(Reg::R1);
    c.e.peek(Reg::R2, 0);
    if condition == Cond::Slt {
        sign_extend(c, Reg::R1);
        sign_extend(c, Reg::R2);
    }
    c.e.mov(Reg::R3, 1);
    c.e.jump_if(condition, Reg::R1, Reg::R2, holds);
    c.e.mov(Reg::R3, 0);
    c.e.asm.bind(holds);
    c.e.poke(0, Reg::R3);
}

/// Pops a dividend, then a divisor. Division by 0 is defined for programs in the kernel as for
/// these instructions.
pub(crate) fn unsigned(c: &mut Compiler<'_>, op: Alu) {
    c.e.pop(Reg::R1);
    c.e.peek(Reg::R2, 0);
    c.e.word_alu(op, Reg::R1, Reg::R2);
    c.e.poke(0, Reg::R1);
}

/// The same for signed numbers: by their absolute values.
pub(crate) fn signed(c: &mut Compiler<'_>, op: Alu) {
    c.e.pop(Reg::R1);
    c.e.peek(Reg::R2, 0);
    for (value, sign) in [(Reg::R1, Reg::R3), (Reg::R2, Reg::R4)] {
        sign_extend(c, value);
        c.e.mov(sign, value);
        c.e.alu(Alu::Arsh, sign, 63);
        c.e.alu(Alu::Xor, value, sign);
        c.e.alu(Alu::Sub, value, sign);
    }
    if op == Alu::Div {
        c.e.alu(Alu::Xor, Reg::R3, Reg::R4);
    }
    c.e.alu(op, Reg::R1, Reg::R2);
    c.e.alu(Alu::Xor, Reg::R1, Reg::R3);
    c.e.alu(Alu::Sub, Reg::R1, Reg::R3);
    c.e.truncate(Reg::R1);
    c.e.poke(0, Reg::R1);
}

/// `push nsecs`
pub(crate) fn time(c: &mut Compiler<'_>, it: &Instruction) {
    let shape = c.handler.tables;
    let Some(clock) = Clock::of(it.operand) else { return c.invalid(it.offset) };
    c.e.call(if clock == Clock::Boot { Helper::KTIME_GET_BOOT_NS } else { Helper::KTIME_GET_NS });
    let add = match clock {
        Clock::Elapsed => shape.start.wrapping_neg(),
        Clock::Real => shape.real,
        Clock::Monotonic | Clock::Boot => 0,
    };
    if add != 0 {
        c.e.number(Reg::R1, add);
        c.e.alu(Alu::Add, Reg::R0, Reg::R1);
    }
    c.e.truncate(Reg::R0);
    c.e.push(Reg::R0);
}

/// Pops a key's offset (`A`), then its length (`B`), which must not be longer than the map's keys.
fn pop_key(c: &mut Compiler<'_>) {
    c.e.pop(Reg::R1);
    c.e.pop(Reg::R2);
    c.e.set(Field::A, Reg::R1);
    c.e.set(Field::B, Reg::R2);
}

/// Checks the key: its length, then that it is in the frame.
fn check_length(c: &mut Compiler<'_>, most: u32) {
    c.e.get(Reg::R2, Field::B);
    let long = c.e.raise(Exception::INVALID_OPERAND, MAP, Reg::R2);
    c.e.jump_if(Cond::Gt, Reg::R2, most as i32, long);
}

fn check_key(c: &mut Compiler<'_>) {
    c.e.get(Reg::R1, Field::A);
    c.e.get(Reg::R2, Field::B);
    frame::check(c, Reg::R1, Reg::R2);
}

/// An instruction on a map.
pub(crate) fn map(c: &mut Compiler<'_>, it: &Instruction) -> Result<(), Reason> {
    let before = c.e.top;
    let number = it.operand as u16;
    let Some(info) = c.handler.tables.infos.get(usize::from(number)).copied() else {
        c.raise_always(Exception::INVALID_OPERAND, MAP, number.into());
        return Ok(());
    };
    let kind = info.kind();
    match it.op {
        Op::Next | Op::Entries => return Err(Reason::Entries),
        Op::Update if kind == Kind::Tseries => return Err(Reason::Series),
        Op::Load | Op::Fetch if matches!(kind, Kind::Hist | Kind::Lhist | Kind::Tseries) => {
            return Err(Reason::Amount);
        }
        Op::StackOf | Op::KStackOf => return stack(c, it, number),
        Op::Depth => return Err(Reason::Depth),
        _ => pop_key(c),
    }
    let function = match it.op {
        Op::Update | Op::Put | Op::Bump => {
            c.e.pop(Reg::R1);
            sign_extend(c, Reg::R1);
            c.e.set(Field::C, Reg::R1);
            check_length(c, info.key);
            match (it.op, kind) {
                (Op::Update, Kind::Plain) => Some(Function::Bump),
                (Op::Update, Kind::Stacks) => None,
                (Op::Update, _) => Some(Function::Update),
                (Op::Put, Kind::Plain) => Some(Function::Put),
                (Op::Bump, Kind::Plain) => Some(Function::Bump),
                _ => None,
            }
        }
        Op::Fetch => {
            c.e.pop(Reg::R1);
            c.e.set(Field::C, Reg::R1);
            check_length(c, info.key);
            check_apart(c, info.value);
            Some(Function::Fetch)
        }
        Op::Store => {
            for field in [Field::C, Field::E] {
                c.e.pop(Reg::R1);
                c.e.set(field, Reg::R1);
            }
            check_length(c, info.key);
            c.e.get(Reg::R2, Field::E);
            let long = c.e.raise(Exception::INVALID_OPERAND, MAP, Reg::R2);
            c.e.jump_if(Cond::Gt, Reg::R2, info.value as i32, long);
            check_key(c);
            c.e.get(Reg::R1, Field::C);
            c.e.get(Reg::R2, Field::E);
            frame::check(c, Reg::R1, Reg::R2);
            Some(Function::Store).filter(|_| kind == Kind::Plain)
        }
        op => {
            check_length(c, info.key);
            Some(match op {
                Op::Erase => Function::Erase,
                Op::Load => Function::Load,
                Op::Has => Function::Has,
                _ => unreachable!("`instruction` gives only these here"),
            })
        }
    };
    if !matches!(it.op, Op::Fetch | Op::Store) {
        check_key(c);
    }
    let result = match it.op {
        Op::Fetch | Op::Erase | Op::Load | Op::Bump | Op::Has => Some(Field::D),
        _ => None,
    };
    match function {
        Some(function) => {
            if info.key > 0 {
                c.call_table(Function::Key, number);
            }
            c.call_table(function, number);
            begin_again(c, it, number, before);
        }
        None => c.e.set(Field::D, 0),
    }
    if let Some(result) = result {
        c.e.get(Reg::R1, result);
        c.e.truncate(Reg::R1);
        c.e.push(Reg::R1);
    }
    Ok(())
}

/// Checks that key and value are in the frame and have no byte in common.
fn check_apart(c: &mut Compiler<'_>, value: u32) {
    let apart = c.e.asm.label();
    check_key(c);
    c.e.get(Reg::R1, Field::C);
    c.e.mov(Reg::R2, value as i32);
    frame::check(c, Reg::R1, Reg::R2);
    c.e.get(Reg::R2, Field::A);
    c.e.get(Reg::R3, Field::B);
    let overlap = c.e.raise(Exception::INVALID_OPERAND, frame::OFFSET, Reg::R1);
    c.e.jump_if(Cond::Eq, Reg::R3, 0, apart);
    c.e.alu(Alu::Add, Reg::R3, Reg::R2);
    c.e.jump_if(Cond::Le, Reg::R3, Reg::R1, apart);
    c.e.mov(Reg::R3, Reg::R1);
    c.e.alu(Alu::Add, Reg::R3, value as i32);
    c.e.jump_if(Cond::Gt, Reg::R3, Reg::R2, overlap);
    c.e.asm.bind(apart);
}

/// If the result in `R0` says so, has the instruction begin again in the next step; too often, and
/// it is lost.
fn begin_again(c: &mut Compiler<'_>, it: &Instruction, number: u16, before: Top) {
    let (done, exhausted) = (c.e.asm.label(), c.e.asm.label());
    let after = c.e.top;
    c.e.jump_if(Cond::Ne, Reg::R0, AGAIN, done);
    c.e.get(Reg::R1, Field::Tries);
    c.e.jump_if(Cond::Eq, Reg::R1, 0, exhausted);
    c.e.alu(Alu::Add, Reg::R1, -1);
    c.e.set(Field::Tries, Reg::R1);
    c.e.top = before;
    c.e.flush();
    c.e.set(Field::Next, it.offset as i32);
    c.e.end_step();
    c.e.asm.bind(exhausted);
    c.e.top = after;
    c.call_table(Function::Lose, number);
    if it.op == Op::Fetch {
        // As if there were no entry. A script's frame is not cleared before a run: what is there
        // may be another process's.
        c.e.get(Reg::R2, Field::C);
        c.e.alu(Alu::And, Reg::R2, frame::LIMIT - 1);
        c.in_frame(Reg::R1, Reg::R2);
        c.e.mov(Reg::R2, c.handler.tables.infos[usize::from(number)].value as i32);
        c.zeros(Reg::R3);
        c.e.call(Helper::PROBE_READ_KERNEL);
    }
    c.e.set(Field::D, 0);
    c.e.set(Field::Erased, 0);
    c.e.asm.bind(done);
}

/// Of `get_stack`: the stack of the process.
const USER: i32 = 1 << 8;

/// `R0` = how many bytes of a stack, at most `R8`, are behind `place` bytes of the key; negative if
/// there is none.
fn walk(c: &mut Compiler<'_>, place: i32, flags: i32) {
    c.e.mov(Reg::R1, REGISTERS);
    c.e.part(Reg::R2, c.layout.key + place);
    c.e.mov(Reg::R3, Reg::R8);
    c.e.mov(Reg::R4, flags);
    c.e.call(Helper::GET_STACK);
}

/// The stack of a process where a function returns: at most `R8` bytes into the key, and how many
/// these are into the field `B`. The frame pointer is the caller's again, by which the kernel would
/// leave out the caller; the return address is at the stack pointer.
fn stack_at_return(c: &mut Compiler<'_>, none: Label) {
    const ADDRESS: i32 = 8;
    let ended = c.e.asm.label();
    c.e.jump_if(Cond::Eq, Reg::R8, 0, none);
    c.e.part(Reg::R2, c.layout.key);
    c.e.load(Size::Double, Reg::R1, REGISTERS, registers::IP);
    c.e.store(Size::Double, Reg::R2, 0, Reg::R1);
    c.e.set(Field::B, ADDRESS);
    c.e.jump_if(Cond::Eq, Reg::R8, ADDRESS, ended);
    c.e.part(Reg::R1, c.layout.key + ADDRESS);
    c.e.mov(Reg::R2, ADDRESS);
    c.e.load(Size::Double, Reg::R3, REGISTERS, registers::SP);
    c.e.call(Helper::PROBE_READ_USER);
    c.e.jump_if(Cond::Ne, Reg::R0, 0, ended);
    c.e.set(Field::B, 2 * ADDRESS);
    c.e.alu(Alu::Add, Reg::R8, -2 * ADDRESS);
    c.e.jump_if(Cond::Sle, Reg::R8, 0, ended);
    c.e.jump_if(Cond::Gt, Reg::R8, (8 * MAX_FRAMES) as i32, ended);
    // Without the first, which is the probed instruction.
    walk(c, 2 * ADDRESS, USER | 1);
    c.e.jump_if(Cond::Sle, Reg::R0, 0, ended);
    c.e.alu(Alu::Add, Reg::R0, 2 * ADDRESS);
    c.e.set(Field::B, Reg::R0);
    c.e.asm.bind(ended);
}

/// `stack` and `kstack`: pops the most frames. The kernel walks the stack of a process by its frame
/// pointers, and its own in its own way.
fn stack(c: &mut Compiler<'_>, it: &Instruction, number: u16) -> Result<(), Reason> {
    if c.handler.word == Word::W4 && it.op == Op::StackOf {
        return Err(Reason::Stack);
    }
    let before = c.e.top;
    let (few, none, done) = (c.e.asm.label(), c.e.asm.label(), c.e.asm.label());
    let info = c.handler.tables.infos[usize::from(number)];
    c.e.pop(Reg::R8);
    let after = c.e.top;
    c.e.jump_if(Cond::Le, Reg::R8, MAX_FRAMES as i32, few);
    c.e.mov(Reg::R8, MAX_FRAMES as i32);
    c.e.asm.bind(few);
    c.e.alu(Alu::Lsh, Reg::R8, 3);
    c.e.set(Field::D, 0);
    if info.kind() == Kind::Stacks && info.key > 0 {
        // The kernel clears what is behind the stack only as far as the frames asked for. Behind
        // them is what the place had before: a longer stack, or a key of another map.
        c.e.part(Reg::R1, c.layout.key);
        c.e.mov(Reg::R2, 8 * MAX_FRAMES as i32);
        c.zeros(Reg::R3);
        c.e.call(Helper::PROBE_READ_KERNEL);
        match it.op == Op::StackOf && c.target.returns && c.target.place == AttachKind::Uprobe {
            true => stack_at_return(c, none),
            false => {
                walk(c, 0, if it.op == Op::KStackOf { 0 } else { USER });
                c.e.jump_if(Cond::Sle, Reg::R0, 0, none);
                c.e.set(Field::B, Reg::R0);
            }
        }
        c.call_table(Function::Intern, number);
        begin_again(c, it, number, before);
        c.e.asm.jump(done);
        c.e.asm.bind(none);
        c.e.set(Field::D, 0);
        c.e.asm.bind(done);
    }
    c.e.top = after;
    c.e.get(Reg::R1, Field::D);
    c.e.push(Reg::R1);
    Ok(())
}
