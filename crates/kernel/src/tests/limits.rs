//! Limits: large programs, many hits, counts.

use std::sync::atomic::Ordering::Relaxed;

use vm::{End, Exception, Op, Program, Word};

use super::live;
use crate::{AttachKind, Globals, Maps, ProbeState, compile};

/// A program of the word 8 with these limits and no other.
fn program(code: &[u8]) -> Program<'_> {
    Program { word: Word::W8, code, logmax: 32768, ..Program::default() }
}

fn push(number: u64) -> Vec<u8> {
    [&[Op::Push as u8][..], &number.to_le_bytes()].concat()
}

/// Each of these is many times in a program of its own, which the verifier must accept.
#[test]
fn long_programs_are_accepted() {
    if !live::can_run("bpf: kernel: limits: long programs") {
        return;
    }
    let _alone = live::alone();
    let kinds: [(&str, Vec<u8>); 6] = [
        ("add", [push(1), push(2), vec![Op::Add as u8, Op::Ros as u8, 1]].concat()),
        ("log", [push(1), vec![Op::LogImm as u8, 1, 0]].concat()),
        ("push mem", [push(16), vec![Op::PushMem64 as u8, Op::Ros as u8, 1]].concat()),
        ("log str", [push(16), push(4096), vec![Op::LogStr as u8]].concat()),
        ("div", [push(7), push(9), vec![Op::Idiv as u8, Op::Ros as u8, 2]].concat()),
        ("jump", [push(0), vec![Op::Jnz as u8, 0, 0, 0, 0, 0, 0, 0, 0, Op::Ros as u8, 1]].concat()),
    ];
    for (name, piece) in kinds {
        for unknown in [false, true] {
            let mut code = Vec::new();
            if unknown {
                // From here on nothing is known of the top.
                code.extend([push(1000), vec![Op::RestoreTsp as u8]].concat());
            }
            code.extend(piece.repeat(1500));
            code.push(Op::Exit as u8);
            let done = live::run(&program(&code), 0, [0; 16], true).expect(name);
            let faults = matches!(name, "push mem" | "log str");
            assert_eq!(matches!(done.ran.outcome.end, End::Exception(_)), faults, "{name}");
            if name == "log" {
                assert_eq!(done.ran.log.len(), 1500 * 8);
            }
        }
    }
}

/// A handler that is accepted here is not too long for the verifier.
#[test]
fn the_longest_programs_are_accepted() {
    if !live::can_run("bpf: kernel: limits: longest programs") {
        return;
    }
    for piece in
        [[push(1), vec![Op::LogImm as u8, 1, 0]].concat(), vec![Op::Xchg as u8], vec![Op::DupImm as u8, 8]]
    {
        let start = [push(1000), vec![Op::RestoreTsp as u8]].concat();
        let refused = (1..).map(|size| size * 4000).find(|&count| {
            let code = [&start[..], &piece.repeat(count), &[Op::Exit as u8]].concat();
            let program = program(&code);
            live::compiles(&program).is_err()
        });
        let longest = refused.expect("some are too long") - 4000;
        let code = [&start[..], &piece.repeat(longest), &[Op::Exit as u8]].concat();
        live::load_at(AttachKind::Uprobe, &program(&code), 0, false).expect("it is compiled");
    }
}

#[test]
fn the_most_jumps_are_taken_and_not_one_more() {
    if !live::can_run("bpf: kernel: limits: jumps") {
        return;
    }
    let _alone = live::alone();
    let back = (-9_i64).to_le_bytes();
    let code = [push(1 << 40), vec![Op::Loop as u8], back.to_vec(), vec![Op::Exit as u8]].concat();
    let program = Program { jmpmax: u32::MAX, ..program(&code) };
    let done = live::run(&program, 0, [0; 16], false).expect("nothing is refused");
    let end = End::Exception(Exception { code: Exception::JMP_MAX.into(), parm1: 65535, parm2: 0 });
    assert_eq!(done.ran.outcome.end, end);
    assert_eq!(done.ran.stack[3], (1 << 40) - 65535);
}

/// Runs a handler many times at its site, in all threads.
#[test]
fn hits_are_counted_ignored_and_limited_exactly() {
    if !live::can_run("bpf: kernel: limits: hits") {
        return;
    }
    let _alone = live::alone();
    let code =
        [vec![Op::IncLvImm as u8, 0, 0], push(5), vec![Op::LogImm as u8, 1, 0, Op::Exit as u8]].concat();
    let locals = [const { std::sync::atomic::AtomicU64::new(0) }];
    let program = Program { locals: &locals, ..program(&code) };
    let handler = live::handler(&program, 0);
    let globals = Globals::create(0).expect("a map");
    let layout = crate::layout::Layout::of(&handler);
    let mut maps = Maps::with(layout, 1, 1, &globals, &live::SMALL, live::no_tables()).expect("maps");
    maps.limit(0, 10, 500);
    let compiled = compile(&handler, &live::target(maps.size(), false)).expect("nothing is refused");
    let threads = 4;
    live::hits(&live::load(&maps, &compiled), threads, 300);
    let counts = maps.counts()[0];
    assert_eq!((counts.hits, counts.ignored, counts.runs + counts.missed), (510, 10, 500));
    assert_eq!(counts.logged + counts.dropped, counts.runs);
    assert_eq!(maps.locals()[0].load(Relaxed), counts.runs);
    assert_eq!(maps.state(0), ProbeState::Disabled);
    let (mut last, mut records) = (0, 0);
    maps.drain(&mut |record| {
        assert!(record.time >= last, "in order of time");
        assert_eq!(record.log, 5_u64.to_le_bytes());
        (last, records) = (record.time, records + 1);
    });
    assert_eq!(records, counts.logged);
}

#[test]
fn records_without_room_are_counted() {
    if !live::can_run("bpf: kernel: limits: records") {
        return;
    }
    let _alone = live::alone();
    let code = [push(5), vec![Op::LogImm as u8, 1, 0, Op::Exit as u8]].concat();
    let program = program(&code);
    let handler = live::handler(&program, 0);
    let globals = Globals::create(0).expect("a map");
    let layout = crate::layout::Layout::of(&handler);
    let options = crate::MapsOptions { ring: 4096, ..live::SMALL };
    let mut maps = Maps::with(layout, 1, 0, &globals, &options, live::no_tables()).expect("maps");
    let compiled = compile(&handler, &live::target(maps.size(), false)).expect("nothing is refused");
    live::hits(&live::load(&maps, &compiled), 1, 500);
    let counts = maps.counts()[0];
    assert_eq!((counts.runs, counts.logged + counts.dropped), (500, 500));
    assert!(counts.logged > 0 && counts.dropped > 0, "{counts:?}");
    let mut records = 0;
    assert_eq!(maps.drain_all(&mut |_| records += 1), records);
    assert_eq!(records as u64, counts.logged);
}

/// More handlers at work than contexts: threads are preempted in one.
#[test]
fn a_hit_without_a_free_context_is_missed_and_counted() {
    if !live::can_run("bpf: kernel: limits: contexts") {
        return;
    }
    let _alone = live::alone();
    // Long enough that others are scheduled.
    let back = (-9_i64).to_le_bytes();
    let code = [push(60_000), vec![Op::Loop as u8], back.to_vec(), vec![Op::Exit as u8]].concat();
    let program = Program { jmpmax: 65_535, ..program(&code) };
    let handler = live::handler(&program, 0);
    let globals = Globals::create(0).expect("a map");
    let layout = crate::layout::Layout::of(&handler);
    let options = crate::MapsOptions { contexts: 1, ..live::SMALL };
    let maps = Maps::with(layout, 1, 0, &globals, &options, live::no_tables()).expect("maps");
    let compiled = compile(&handler, &live::target(maps.size(), false)).expect("nothing is refused");
    live::hits(&live::load(&maps, &compiled), 16, 20);
    let counts = maps.counts()[0];
    assert_eq!((counts.hits, counts.runs + counts.missed), (320, 320));
    assert!(maps.contexts().all(|context| context[0].load(Relaxed) == 0), "all are released");
}

#[test]
fn other_processes_are_not_probed_and_a_removed_probe_fires_no_more() {
    if !live::can_run("bpf: kernel: limits: processes") {
        return;
    }
    let _alone = live::alone();
    let code = [vec![Op::IncLvImm as u8, 0, 0, Op::Remove as u8]].concat();
    let locals = [const { std::sync::atomic::AtomicU64::new(0) }];
    let program = Program { locals: &locals, ..program(&code) };
    let handler = live::handler(&program, 0);
    let globals = Globals::create(0).expect("a map");
    let layout = crate::layout::Layout::of(&handler);
    let mut maps = Maps::with(layout, 1, 1, &globals, &live::SMALL, live::no_tables()).expect("maps");
    let target = crate::Target { filtered: true, ..live::target(maps.size(), false) };
    let loaded = live::load(&maps, &compile(&handler, &target).expect("nothing is refused"));
    maps.set_pids(&[1, 2]).expect("there is room");
    live::hits(&loaded, 1, 3);
    assert_eq!(maps.counts()[0].hits, 0);
    maps.set_pids(&[2, std::process::id()]).expect("there is room");
    live::hits(&loaded, 1, 3);
    assert_eq!((maps.counts()[0].hits, maps.locals()[0].load(Relaxed)), (1, 1));
    assert_eq!(maps.state(0), ProbeState::Removed);
    let mut ends = Vec::new();
    maps.drain_all(&mut |record| ends.push(record.end));
    assert_eq!(ends, [End::Remove]);
}
