//! Random programs for all executions: usual ones, and rare but valid ones.
#![allow(dead_code, reason = "each test uses its own part")]

use layout::hidden;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestError;
use vm::{Op, Operand, Register};

use super::script_pieces::{compiled_piece, script_piece};

/// Local variables; the last is only counted.
pub(crate) const LOCALS: usize = 4;
/// Global variables.
pub(crate) const GLOBALS: usize = 3;
/// The size of the memory that programs use, at the end of a page followed by an unmapped one.
pub(crate) const MEMORY: usize = 256;

/// One instruction; the operand of a jump is the number of the instruction it goes to.
pub(crate) type Line = (Op, u64);

/// Where the memory is.
pub(crate) fn memory() -> u64 {
    use std::sync::OnceLock;
    static AT: OnceLock<u64> = OnceLock::new();
    *AT.get_or_init(|| {
        // SAFETY: a fresh mapping; its second page is given back at once, and so is what lies
        // before it left alone.
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

/// Special values of words.
pub(crate) fn interesting() -> impl Strategy<Value = u64> {
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

/// The instructions of programs, frequent ones several times.
pub(crate) fn ops() -> Vec<Op> {
    use Op::*;
    let common = [
        Push, Push, Push, Push, Push, PushR, PushR, PushR, PopR, Add, Sub, Mul, Neg, And, Or, Xor, RolImm,
        Rol, RorImm, Ror, ShlImm, Shl, ShrImm, Shr, Div, Idiv, PblImm, PbrImm, PzlImm, PzrImm, Pbl, Pzr,
        Xchg, DupImm, Ros, Jmp, Jlt, Jle, Jgt, Jge, Jz, Jnz, Jz, Jnz, Loop, LogImm, LogImm, LogB, LogW, LogD,
        Log, LogStr, LogMrf, LogLv, LogGv, PushLvImm, PopLvImm, MoveLvImm, IncLvImm, DecLvImm, PushGvImm,
        PopGvImm, MoveGvImm, IncGvImm, PushLv, PopLv, IncGv, MoveGv, PushMem8, PushMem16, PushMem32,
        PushMem64, PopMem8, PopMem16, PopMem32, PopMem64, PushPid, PushProcid, SetMinImm, SetMajImm, SetMin,
        SetMaj, PushLp, PushPlp, Vfyr, Nop, PushWid, Call, Call,
    ];
    let rare = [
        Exit, Abort, Remove, Ret, PopLp, PushX, Malloc, LogSt, Ux, Rx, PushStp, SaveTsp, Vfyrw, Dup, PushU,
        PopU, Exit, Ret, Ret,
    ];
    [&common[..], &common, &common, &rare].concat()
}

pub(crate) fn line() -> impl Strategy<Value = Line> {
    let register = proptest::sample::select(&REGISTERS[..]);
    (proptest::sample::select(ops()), interesting(), register, any::<u16>()).prop_map(
        |(op, word, register, number)| {
            let operand = match op.row().operand {
                // A few exceed the last one.
                Operand::Local => u64::from(number % 23 / 5),
                Operand::Global => u64::from(number % 22 / 7),
                Operand::Register => register as u64,
                Operand::Bit => u64::from(number % 66),
                Operand::U8 if op == Op::ExitTo => 9,
                Operand::U8 => u64::from(number % 7),
                Operand::U16 if matches!(op, Op::LogImm | Op::LogB | Op::LogW | Op::LogD) => {
                    u64::from(number % 5)
                }
                Operand::Label | Operand::Proc => number.into(),
                _ => word,
            };
            // The last one is only counted.
            let counts = matches!(op, Op::IncLvImm | Op::DecLvImm);
            let counted = LOCALS as u64 - 1;
            let operand =
                if op.row().operand == Operand::Local && operand == counted && !counts { 0 } else { operand };
            (op, operand)
        },
    )
}

/// Code that is always interpreted: exception handlers, and stack slots.
fn wild() -> impl Strategy<Value = Vec<Line>> {
    use Op::*;
    let alone = [Ux, Rx, PushX, SaveSbp, SaveTsp, LogSt, PurgeSt, PushStp, Dup, Free];
    let after_push = [RestoreSbp, RestoreTsp, PushSbp, PushTsp, CopySbp, CopyTsp, PopStp, PopLp];
    let by_number = [PushSbpImm, PopSbpImm, CopySbpImm, PushTspImm, PopTspImm, CopyTspImm];
    let range = [TraceLv, TraceGv, TracePv];
    prop_oneof![
        4 => any::<u16>().prop_map(|to| vec![(Sx, to.into())]),
        2 => proptest::sample::select(alone.to_vec()).prop_map(|op| vec![(op, 0)]),
        2 => (interesting(), proptest::sample::select(after_push.to_vec()))
            .prop_map(|(value, op)| vec![(Push, value), (op, 0)]),
        2 => (any::<i16>(), proptest::sample::select(by_number.to_vec()))
            .prop_map(|(index, op)| vec![(op, (index % 9) as u64)]),
        2 => (interesting(), 0..70_u64, proptest::sample::select(range.to_vec()))
            .prop_map(|(first, count, op)| vec![(Push, first), (Push, count), (op, 0)]),
        // A division by zero, an invalid variable, and an exception raised by the program.
        2 => Just(vec![(Push, 1), (Push, 0), (Div, 0)]),
        1 => Just(vec![(IncLvImm, 9)]),
        1 => any::<u16>().prop_map(|code| vec![(Push, 2), (Push, 1), (Push, code.into()), (Rx, 0)]),
    ]
}

/// Too many instructions for every path to be followed, with operands that look like other
/// instructions.
fn filling() -> impl Strategy<Value = Vec<Line>> {
    let piece = proptest::sample::select(vec![
        vec![(Op::Nop, 0)],
        vec![(Op::Push, 0x010e), (Op::Ros, 1)],
        vec![(Op::Push, 0x0c0c_030e_020e), (Op::Ros, 1)],
        vec![(Op::IncGvImm, 0)],
    ]);
    (piece, 4100..4200_usize).prop_map(|(piece, count)| piece.repeat(count / piece.len() + 1))
}

/// A program: most are usual, some wild, some in part of a script, a few long.
pub(crate) fn lines() -> impl Strategy<Value = Vec<Line>> {
    let none = || Just(Vec::new()).boxed();
    prop_oneof![
        12 => lines_with(none(), none()),
        4 => lines_with(vec(wild(), 1..8).prop_map(|pieces| pieces.concat()).boxed(), none()),
        4 => lines_with(vec(script_piece(), 1..16).prop_map(|pieces| pieces.concat()).boxed(), none()),
        1 => lines_with(none(), filling().boxed()),
        1 => lines_with(wild().boxed(), filling().boxed()),
    ]
}

/// A program with extra code at its start and in its middle; with mostly forward jumps, or any.
fn lines_with(
    middle: BoxedStrategy<Vec<Line>>,
    first: BoxedStrategy<Vec<Line>>,
) -> impl Strategy<Value = Vec<Line>> {
    let piece = prop_oneof![
        1 => (interesting(), proptest::sample::select(vec![Op::PopStp, Op::PopLp]), 0..3_usize).prop_map(
            |(value, op, more)| {
                let traces = vec![(Op::LogSt, 0); more];
                [traces.clone(), vec![(Op::Push, value), (op, 0)], traces].concat()
            },
        ),
        8 => line().prop_map(|line| vec![line]),
        2 => compiled_piece(),
        // Combinations that are rare by chance: a known address or count below an instruction.
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
        // Not to be used as an address: the memory there is the test's own, and differs between the
        // runs.
        1 => proptest::sample::select(vec![Register::Rsp, Register::Esp])
            .prop_map(|register| vec![(Op::PushR, register as u64), (Op::LogImm, 1)]),
        1 => (1..5_u64, any::<u16>()).prop_map(|(count, to)| vec![(Op::Push, count), (Op::Loop, to.into())]),
    ];
    (first, vec(piece, 1..25), middle, any::<u16>(), 0..4_u8).prop_map(
        |(first, pieces, middle, at, backward)| {
            let (before, after) = pieces.split_at(usize::from(at) % (pieces.len() + 1));
            let mut lines = [first, before.concat(), middle, after.concat()].concat();
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
        },
    )
}

pub(crate) fn assemble(lines: &[Line]) -> Vec<u8> {
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

/// `jmpmax` and `insmax`: too few, enough, and counted in compiled code.
pub(crate) fn jumps_and_instructions() -> impl Strategy<Value = (u32, u32)> {
    prop_oneof![
        6 => (prop_oneof![0..12_u32, Just(256)], Just(vm::INSTRUCTIONS)),
        1 => (0..257_u32, 0..100_u32),
        1 => (Just(vm::JUMP_LIMIT), 8193..20_000_u32),
    ]
}

/// `excpt_log` and whether every exception leaves a trace.
pub(crate) fn traces() -> impl Strategy<Value = (usize, bool)> {
    (prop_oneof![0..300_usize, Just(1024)], any::<bool>())
}

/// The pages of the memory that programs use.
pub(crate) fn memory_pages() -> impl Iterator<Item = u64> {
    let page = 1 << hidden::PAGE_BITS;
    (memory() & !(page - 1)..memory() + MEMORY as u64).step_by(page as usize)
}

/// The memory that programs use.
pub(crate) fn memory_bytes() -> &'static mut [u8] {
    // SAFETY: it is mapped for ever, and only one test uses it at a time.
    unsafe { std::slice::from_raw_parts_mut(memory() as *mut u8, MEMORY) }
}

/// A failure, and the input without a line for each number in it.
pub(crate) fn shown<T: std::fmt::Debug>(failure: &TestError<T>) -> String {
    match failure {
        TestError::Fail(reason, input) => format!("{reason}\nThe least input found: {input:?}"),
        TestError::Abort(reason) => format!("no result: {reason}"),
    }
}
