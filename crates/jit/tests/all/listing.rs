//! Checks the machine code itself, decoded by an independent decoder.

use crate::support;
use crate::support::arena::Arena;
use dprobes_jit::{Compiled, Environment, Handler, Variable, compile};
use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter, Mnemonic};
use maps::{Kind, MapInfo};
use vm::{Op, Register, TABLE};

/// The assumed address of the code.
const ADDRESS: u64 = 0x7f00_0000_0000;

fn handler(code: &[u8]) -> Handler<'_> {
    Handler { logmax: 64, ..support::handler(code) }
}

/// The hot code, an instruction a line.
fn hot(compiled: &Compiled) -> Vec<String> {
    let mut bytes = Vec::new();
    compiled.append_at(ADDRESS, &mut bytes);
    let entry = compiled.entry();
    let mut decoder =
        Decoder::with_ip(64, &bytes[entry as usize..], ADDRESS + u64::from(entry), DecoderOptions::NONE);
    let mut formatter = IntelFormatter::new();
    let mut lines = Vec::new();
    while decoder.can_decode() {
        let instruction = decoder.decode();
        assert_ne!(instruction.mnemonic(), Mnemonic::INVALID, "{lines:#?}");
        let mut line = String::new();
        formatter.format(&instruction, &mut line);
        lines.push(line);
    }
    lines
}

fn environment<'a>(arena: &mut Arena) -> Environment<'a> {
    let mut environment = arena.environment();
    environment.flags_live = false;
    environment
}

#[test]
fn a_count_is_one_restartable_sequence_for_the_hit_and_one_for_the_variable() {
    let mut arena = Arena::new();
    let counter = arena.counter();
    let counted = [(Variable::Local(0), counter)];
    let mut environment = environment(&mut arena);
    environment.counted = &counted;
    let compiled = compile(&handler(&[Op::IncLvImm as u8, 0, 0, Op::Abort as u8]), &environment);
    let compiled = compiled.expect("compiles");
    let number = |address: u32| format!("{address:X}h");
    let (hits, variable) = (number(environment.hits.address), number(counter.address));
    let identity = number(environment.identity + 16);
    let mark = number(environment.mark.value);
    let cold = 0x7f00_0000_0040_u64;
    let at = |line: &str| {
        let line = line.replace("IDENTITY", &identity).replace("HITS", &hits);
        line.replace("VARIABLE", &variable).replace("MARK", &mark)
    };
    let expected = [
        "lea rsp,[rsp-80h]",
        "push rax",
        "push rcx",
        "mov rcx,[IDENTITY]",
        "test rcx,rcx",
        "je NONE",
        "cmp dword ptr fs:[rcx+1Ch],MARK",
        "jne NONE",
        "cmp qword ptr fs:[rcx+8],0",
        "jne NONE",
        "rdpid rax",
        "and eax,0FFFh",
        "cmp eax,fs:[rcx+4]",
        "jne NONE",
        "lea rax,[7F0000000000h]",
        "mov fs:[rcx+8],rax",
        "mov eax,fs:[rcx+4]",
        "shl eax,6",
        "inc qword ptr [rax+HITS]",
        "lea rax,[7F0000000020h]",
        "mov fs:[rcx+8],rax",
        "mov eax,fs:[rcx+4]",
        "shl eax,6",
        "inc qword ptr [rax+VARIABLE]",
        "mov qword ptr fs:[rcx+8],0",
        "pop rcx",
        "pop rax",
        "lea rsp,[rsp+80h]",
    ];
    let lines = hot(&compiled);
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, expected) in lines.iter().zip(expected) {
        match expected.strip_suffix("NONE") {
            // The position of the cold code.
            Some(jump) => {
                let target = line.strip_prefix(jump).expect("a jump").trim_end_matches('h');
                let target = u64::from_str_radix(target, 16).expect("a number");
                assert!((cold..ADDRESS + u64::from(compiled.entry())).contains(&target), "{line}");
            }
            None => assert_eq!(*line, at(expected)),
        }
    }
}

#[test]
fn every_instruction_becomes_code_that_another_decoder_can_read() {
    let mut arena = Arena::new();
    for row in TABLE {
        // Operands unknown at compile time, and known.
        for known in [false, true] {
            let mut code = Vec::new();
            for value in [1_u64, 2, 3] {
                if known {
                    code.push(Op::Push as u8);
                    code.extend(value.to_le_bytes());
                } else {
                    code.extend([Op::PushLvImm as u8, value as u8, 0]);
                }
            }
            code.push(row.op as u8);
            // 1 is a variable, a bit position or a count; as a register index it is %ds, as a
            // distance forward.
            let mut operand = [0; 8];
            operand[0] = if row.op == Op::ExitTo { 9 } else { 1 };
            code.extend(&operand[..row.operand.size(8)]);
            code.extend([Op::Nop as u8, Op::Exit as u8]);
            let mut environment = environment(&mut arena);
            environment.info = 0x1234;
            let compiled = compile(&handler(&code), &environment).expect("calls no facility");
            assert!(hot(&compiled).len() > 10, "{}", row.name);
            for guarded in compiled.guarded() {
                assert!((guarded.access as usize) < compiled.len() && guarded.repair < compiled.len() as u32);
            }
            arena.clear_code();
        }
    }
}

#[test]
fn a_handler_takes_as_much_stack_as_the_documentation_says() {
    /// The red zone is not touched.
    const RED_ZONE: u32 = 128;
    let mut arena = Arena::new();
    let counter = arena.counter();
    let counted = [(Variable::Local(0), counter)];
    let count = [Op::IncLvImm as u8, 0, 0, Op::Abort as u8];
    let log = [&[Op::PushLvImm as u8, 1, 0][..], &[Op::LogImm as u8, 1, 0], &[Op::Exit as u8]].concat();
    let leave = [Op::Malloc as u8, Op::Exit as u8];
    let mut taken = Vec::new();
    for (code, live) in [(&count[..], false), (&count, true), (&log, false), (&log, true), (&leave, true)] {
        let mut environment = environment(&mut arena);
        environment.counted = &counted;
        environment.flags_live = live;
        let compiled = compile(&handler(code), &environment).expect("compiles");
        taken.push(compiled.stack - RED_ZONE);
    }
    assert_eq!(taken, [16, 24, 40, 48, 216]);
    let maps = [MapInfo {
        kind: Kind::Count as u32,
        key: 24,
        value: 8,
        entries: 64,
        words: 4096,
        copies: 1,
        ..MapInfo::default()
    }];
    let number = |value: u64| [&[Op::Push as u8][..], &value.to_le_bytes()].concat();
    let keyed = |before: Vec<u8>| [before, number(0), vec![Op::Update as u8, 0, 0, Op::Abort as u8]].concat();
    let rdi = [&[Op::PushR as u8][..], &(Register::Rdi as u16).to_le_bytes()].concat();
    let word = keyed([number(1), rdi.clone(), vec![Op::PopF as u8, 0, 0], number(8)].concat());
    let text = keyed([number(1), number(24), rdi, number(0), vec![Op::StrF as u8]].concat());
    let stack = |code: &[u8], arena: &mut Arena| {
        let mut environment = environment(arena);
        (environment.maps, environment.tables) = (&maps, environment.locals);
        compile(&handler(code), &environment).expect("compiles").stack - RED_ZONE
    };
    assert_eq!([stack(&word, &mut arena), stack(&text, &mut arena)], [160, 240]);
}
