//! What a handler becomes, to be read in review.

use vm::{Op, Program, Word};

use super::live;
use crate::{Size, compile};

#[test]
fn a_handler_that_logs_a_register_and_counts() {
    // push r, rdi; log 1; inc lv, 0; exit
    let code = [Op::PushR as u8, 4, 1, Op::LogImm as u8, 1, 0, Op::IncLvImm as u8, 0, 0, Op::Exit as u8];
    let locals = [const { std::sync::atomic::AtomicU64::new(0) }];
    let program = Program { word: Word::W8, code: &code, locals: &locals, ..Program::default() };
    let size = Size { probes: 1, processors: 2, contexts: 1, ring: 1 << 20 };
    let compiled = compile(&live::handler(&program, 0), &live::target(size, true)).expect("it is accepted");
    insta::assert_snapshot!(compiled.code.to_string());
}
