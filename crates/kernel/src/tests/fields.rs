//! Fields of tracepoints' records: the verifier accepts each kind of access.

use vm::{Op, Program, Word};

use super::live;
use crate::layout::Layout;
use crate::tracepoints::FieldAccess;
use crate::{AttachKind, Globals, Maps, Target, compile_for_tracepoint};

#[test]
fn each_access_to_a_record_is_verified() {
    if !live::can_run("kernel: fields") {
        return;
    }
    let mut fields = vec![
        FieldAccess::Inline { offset: 12 },
        FieldAccess::Located { offset: 8, from: 0 },
        FieldAccess::Located { offset: 12, from: 16 },
        FieldAccess::Thread,
        FieldAccess::Constant(u32::MAX),
    ];
    for (offset, size) in [(8, 1), (10, 2), (12, 4), (16, 8), (9, 2), (13, 4), (8185, 4), (8184, 8)] {
        fields.extend([true, false].map(|signed| FieldAccess::Integer { offset, size, signed }));
    }
    let mut code = Vec::new();
    for index in 0..fields.len() as u16 {
        let [low, high] = index.to_le_bytes();
        // Each may be an address: its byte is read, and its string is logged.
        code.extend([Op::PushField as u8, low, high, Op::DupImm as u8, 1, Op::Vfyr as u8]);
        code.extend([Op::Xchg as u8, Op::LogStr as u8]);
    }
    code.push(Op::Exit as u8);
    let fields: Vec<_> = fields.into_iter().map(Some).collect();
    for word in [Word::W4, Word::W8] {
        let program = Program { word, code: &code, logmax: 1024, ..Program::default() };
        let handler = live::handler(&program, 0);
        let globals = Globals::create(0).expect("a map");
        let maps =
            Maps::with(Layout::of(&handler), 1, 0, &globals, &live::SMALL, live::no_tables()).expect("maps");
        let target = Target { place: AttachKind::Tracepoint, ..live::target(maps.size(), false) };
        let compiled = compile_for_tracepoint(&handler, &target, &fields).expect("nothing is refused");
        live::load(&maps, &compiled);
    }
}

#[test]
fn what_the_verifier_refuses_has_its_place_in_the_bytecode() {
    if !live::can_run("kernel: fields") {
        return;
    }
    // No record has so many bytes.
    let beyond = FieldAccess::Integer { offset: 9000, size: 4, signed: false };
    let fields = [Some(FieldAccess::Thread), Some(beyond)];
    let good = [Op::PushField as u8, 0, 0, Op::LogImm as u8, 1, 0];
    let code = [&good[..], &good, &[Op::PushField as u8, 1, 0, Op::LogImm as u8, 1, 0], &good].concat();
    let code = [&code[..], &[Op::Exit as u8]].concat();
    let program = Program { word: Word::W8, code: &code, logmax: 1024, ..Program::default() };
    let handler = live::handler(&program, 0);
    let globals = Globals::create(0).expect("a map");
    let maps =
        Maps::with(Layout::of(&handler), 1, 0, &globals, &live::SMALL, live::no_tables()).expect("maps");
    let target = Target { place: AttachKind::Tracepoint, ..live::target(maps.size(), false) };
    let compiled = compile_for_tracepoint(&handler, &target, &fields).expect("the compiler does not know");
    let error = maps.load(&compiled, false).expect_err("the verifier refuses it");
    let insn = error.insn.expect("it says which");
    assert_eq!(compiled.code.source(insn), Some(12), "{error:?}");
    // Around the handler there is no bytecode.
    assert_eq!(compiled.code.source(0), None);
}
