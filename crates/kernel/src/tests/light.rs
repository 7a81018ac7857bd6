//! Handlers that only count, and take no context.

use std::sync::atomic::Ordering::Relaxed;

use maps::{Kind, MapInfo, Value};
use vm::{Op, Program, Register, Word};

use super::live;
use crate::layout::Layout;
use crate::{Counts, Globals, Handler, Maps, Tables, Target, compile};

fn push(number: u64) -> Vec<u8> {
    [&[Op::Push as u8][..], &number.to_le_bytes()].concat()
}

/// Adds what an instruction pushes to a map without keys.
fn update(map: u8, value: Vec<u8>) -> Vec<u8> {
    [value, push(0), push(0), vec![Op::Update as u8, map, 0]].concat()
}

const KINDS: [Kind; 5] = [Kind::Count, Kind::Sum, Kind::Max, Kind::Hist, Kind::Avg];

#[test]
fn handlers_without_a_context_count_what_others_count() {
    if !live::can_run("bpf: kernel: light") {
        return;
    }
    let _alone = live::alone();
    let [low, high] = (Register::Rdx as u16).to_le_bytes();
    let register = vec![Op::PushR as u8, low, high];
    let mut code = vec![Op::IncLvImm as u8, 0, 0, Op::DecLvImm as u8, 1, 0];
    code.extend(update(0, push(1)));
    (1..5).for_each(|map| code.extend(update(map, register.clone())));
    code.extend(update(1, push(40)));
    code.push(Op::Exit as u8);
    let mut infos = KINDS.map(|kind| MapInfo { kind: kind as u32, ..MapInfo::default() }).to_vec();
    let words = maps::plan(&mut infos, 2, usize::MAX).expect("they are small");
    let mut results = Vec::new();
    for without_context in [false, true] {
        let tables = Tables::create(infos.clone(), words, Vec::new()).expect("a map");
        let program = Program { word: Word::W8, code: &code, ..Program::default() };
        let handler =
            Handler { locals: 2, tables: tables.shape(), is_script: true, ..live::handler(&program, 0) };
        let globals = Globals::create(0).expect("a map");
        let layout = Layout::of(&handler);
        let maps = Maps::with(layout, 1, 2, &globals, &live::SMALL, tables.clone()).expect("maps");
        let target = Target { without_context, ..live::target(maps.size(), true) };
        let compiled = compile(&handler, &target).expect("it is accepted");
        let length = compiled.code.insns().len();
        live::hits(&live::load(&maps, &compiled), 2, 500);
        assert_eq!(maps.counts()[0], Counts { hits: 1000, runs: 1000, ..Counts::default() });
        let locals: Vec<u64> = maps.locals().iter().map(|value| value.load(Relaxed)).collect();
        assert_eq!(locals, [1000, 0u64.wrapping_sub(1000)]);
        let values: Vec<Value> = (0..5).map(|map| tables.maps().view(map)[0].value.clone()).collect();
        assert_eq!(values[0], Value::Number(1000));
        assert_eq!(values[1], Value::Number(40_000));
        results.push((length, values));
    }
    // Only the one has the stack, the record and the steps.
    assert!(2 * results[1].0 < results[0].0, "{} {}", results[1].0, results[0].0);
    assert_eq!(results[0].1, results[1].1);
}

#[test]
fn a_handler_takes_a_context_only_for_a_record() {
    let with_end = |end: Op| [Op::IncLvImm as u8, 0, 0, end as u8];
    let cases = [(Op::Abort, 64, true), (Op::Abort, 0, true), (Op::Exit, 0, true), (Op::Exit, 64, false)];
    let size = crate::Size { probes: 1, processors: 2, contexts: 1, ring: 1 << 20 };
    for (end, logmax, is_light) in cases {
        let code = with_end(end);
        let program = Program { word: Word::W8, code: &code, ..Program::default() };
        let handler = Handler { locals: 1, logmax, ..live::handler(&program, 0) };
        let length = |without_context| {
            let target = Target { without_context, ..live::target(size, true) };
            compile(&handler, &target).expect("it is accepted").code.insns().len()
        };
        assert_eq!(2 * length(true) < length(false), is_light, "{end:?} {logmax}");
    }
}
