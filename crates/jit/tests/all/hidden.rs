//! Which memory accesses compiled code makes itself, depending on the marks of their pages.

use crate::support::arena::Arena;
use crate::support::handler;
use crate::support::interpreter::LEFT;
use crate::support::native::{Registers, enter, exclusive};
use dprobes_jit::{Handler, compile};
use layout::hidden::{BEFORE_OURS, BELOW_STACK, MARK_OURS};
use vm::{Op, Register};

/// Two pages of the program.
fn pages() -> u64 {
    let all = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), 3 * 4096, all, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    };
    assert_ne!(at, libc::MAP_FAILED);
    at as u64
}

/// A handler that accesses the memory at rdi.
fn accessing(op: Op) -> Vec<u8> {
    let rdi = [&[Op::PushR as u8][..], &(Register::Rdi as u16).to_le_bytes()].concat();
    let number = |value: u64| [&[Op::Push as u8][..], &value.to_le_bytes()].concat();
    let log = |count: u8| vec![Op::LogImm as u8, count, 0];
    let (before, after) = match op {
        Op::LogStr | Op::LogMrf => ([number(16), rdi].concat(), Vec::new()),
        // Its length remains on the stack.
        Op::StrF => ([number(16), rdi, number(8)].concat(), log(1)),
        Op::PopMem8 | Op::PopMem64 => ([rdi, number(0x55)].concat(), Vec::new()),
        _ => (rdi, log(1)),
    };
    [before, vec![op as u8], after, vec![Op::Exit as u8]].concat()
}

#[test]
fn what_may_be_ours_is_left_to_the_interpreter() {
    let _one = exclusive();
    let start = pages();
    // SAFETY: the memory is the test's own.
    unsafe { std::ptr::copy_nonoverlapping(c"a string".as_ptr(), start as *mut _, 9) };
    // For each: its size, and how it ends if it crosses into the next page.
    let ops = [
        (Op::PushMem8, 1),
        (Op::PushMem16, 2),
        (Op::PushMem32, 4),
        (Op::PushMem64, 8),
        (Op::PopMem8, 1),
        (Op::PopMem64, 8),
        (Op::Vfyr, 1),
        (Op::LogMrf, 16),
        (Op::LogStr, 16),
        (Op::StrF, 16),
    ];
    for (op, size) in ops {
        let code = accessing(op);
        let handler: Handler<'_> = handler(&code);
        let mut arena = Arena::new();
        let mut environment = arena.environment();
        environment.info = arena.info(&handler, &environment, |_| {});
        let compiled = compile(&handler, &environment).expect("compiles");
        let at = arena.place(&compiled, &[]);
        let leaves = |mark: u8, address: u64| {
            arena.mark(address, mark);
            LEFT.with(|left| *left.borrow_mut() = None);
            let mut registers = Registers::default();
            registers.general[7] = address;
            enter(&compiled, at, &mut registers);
            arena.mark(address, 0);
            arena.forget();
            LEFT.with(|left| left.borrow_mut().take().is_some())
        };
        let (inside, last) = (start, start + 4096 - size);
        for address in [inside, last] {
            assert!(!leaves(0, address), "{op:?} of the program's memory");
            assert!(leaves(MARK_OURS, address), "{op:?} of what may be ours");
            assert!(!leaves(BEFORE_OURS, address), "{op:?} before what may be ours");
            let below = address < (&raw const address) as u64;
            assert_eq!(leaves(BELOW_STACK, address), below, "{op:?} where a stack may grow");
        }
        if size > 1 {
            assert!(!leaves(0, last + 1), "{op:?} across two pages");
            assert!(leaves(BEFORE_OURS, last + 1), "{op:?} that ends in what may be ours");
        }
        let above = u64::MAX.wrapping_shr(17);
        assert_eq!(leaves(0, above), op != Op::Vfyr, "{op:?} of what is not there faults");
    }
}

#[test]
fn what_is_on_the_stack_is_there() {
    let _one = exclusive();
    let code = accessing(Op::PushMem64);
    let handler: Handler<'_> = handler(&code);
    let mut arena = Arena::new();
    let mut environment = arena.environment();
    environment.info = arena.info(&handler, &environment, |_| {});
    let compiled = compile(&handler, &environment).expect("compiles");
    let at = arena.place(&compiled, &[]);
    let here = 7_u64;
    let address = (&raw const here) as u64;
    arena.mark(address, BELOW_STACK);
    LEFT.with(|left| *left.borrow_mut() = None);
    let mut registers = Registers::default();
    registers.general[7] = address;
    enter(&compiled, at, &mut registers);
    assert!(LEFT.with(|left| left.borrow_mut().take().is_none()), "above the stack pointer of the site");
}
