//! What the program cannot tell: registers, flags and the red zone after a hit.

mod support;

use agent::layout::PerProcessor;
use dprobes_jit::{Environment, Handler, compile};
use proptest::prelude::*;
use support::arena::Arena;
use support::native::{Registers, enter, exclusive};
use vm::{DEFAULT_MASK, Op};

/// A handler of this code, with the usual limits.
fn handler(code: &[u8]) -> Handler<'_> {
    Handler {
        code,
        entry: 0,
        jmpmax: 256,
        logmax: 1024,
        mask: DEFAULT_MASK,
        locals: 4,
        globals: 4,
        major: 5,
        minor: 6,
    }
}

#[test]
fn a_count() {
    let _one = exclusive();
    let mut arena = Arena::new();
    let code = [Op::IncLvImm as u8, 0, 0, Op::Abort as u8];
    let environment: Environment<'_> = arena.environment();
    let compiled = compile(&handler(&code), &environment).expect("compiles");
    let at = arena.place(&compiled, &[]);
    let mut registers = Registers::default();
    for number in 0..16 {
        registers.general[number] = 0x1111_1111_1111_1101_u64.wrapping_mul(number as u64);
    }
    for _ in 0..1000 {
        let mut after = registers.clone();
        enter(&compiled, at, &mut after);
        registers.general[4] = after.general[4];
        assert_eq!(after.general, registers.general);
    }
    let hits: PerProcessor = environment.hits;
    assert_eq!(arena.sum(hits), 1000);
    assert_eq!(arena.at(arena.locals()).load(std::sync::atomic::Ordering::Relaxed), 1000);
}
