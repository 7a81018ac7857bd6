//! Benchmark of the interpreter: nanoseconds per hit, median of 15 rounds.
//! `cargo bench -p dprobes-vm`.
//!
//! The machine is as cheap as possible, so that the numbers are the interpreter's own.

use dprobes_vm::{DEFAULT_MASK, Fault, Machine, Op, Program, Register, State, Word, run};
use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// A machine whose registers read as their index, and whose memory holds [`TEXT`].
struct Cheap;

/// The contents of memory: strings of 15 bytes.
const TEXT: &[u8; 4096] = &{
    let mut text = [b'a'; 4096];
    let mut end = 15;
    while end < text.len() {
        text[end] = 0;
        end += 16;
    }
    text
};

impl Machine for Cheap {
    fn register(&mut self, register: Register) -> u64 {
        register as u64
    }
    fn set_register(&mut self, _: Register, _: u64) {}
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        let start = (address % 16) as usize;
        match TEXT.get(start..start + into.len()) {
            Some(bytes) => into.copy_from_slice(bytes),
            None => into.fill(b'a'),
        }
        Ok(())
    }
    fn write(&mut self, _: u64, _: &[u8]) -> Result<(), Fault> {
        Ok(())
    }
    fn verify(&mut self, _: u64, _: bool) -> bool {
        true
    }
    fn pid(&mut self) -> u64 {
        1
    }
    fn processor(&mut self) -> u64 {
        2
    }
}

fn main() {
    let local = |op: Op| vec![op as u8, 0, 0];
    let register = |register: Register| {
        let [low, high] = (register as u16).to_le_bytes();
        vec![Op::PushR as u8, low, high]
    };
    let word = |op: Op, value: i64| [vec![op as u8], value.to_le_bytes().to_vec()].concat();
    let plain = |op: Op| vec![op as u8];
    let handlers = [
        ("exit", vec![plain(Op::Exit)]),
        ("count: inc lv 0", vec![local(Op::IncLvImm), plain(Op::Exit)]),
        (
            "log two registers and the pid",
            vec![
                register(Register::Rdi),
                register(Register::Rsi),
                plain(Op::PushPid),
                vec![Op::LogImm as u8, 3, 0],
                plain(Op::Exit),
            ],
        ),
        (
            "log a string of 15 bytes",
            vec![word(Op::Push, 256), word(Op::Push, 0x1000), plain(Op::LogStr), plain(Op::Exit)],
        ),
        (
            "10 rounds of: push lv, add, pop lv, loop",
            vec![
                word(Op::Push, 10),
                local(Op::PushLvImm),
                local(Op::PushLvImm),
                plain(Op::Add),
                local(Op::PopLvImm),
                word(Op::Loop, -19),
                plain(Op::Exit),
            ],
        ),
    ];
    let locals = [AtomicU64::new(1)];
    let mut state = Box::new(State::new());
    for (name, handler) in handlers {
        let code = handler.concat();
        let program = Program {
            word: Word::W8,
            code: &code,
            jmpmax: 256,
            logmax: 1024,
            mask: DEFAULT_MASK,
            locals: &locals,
            globals: &[],
            ..Program::default()
        };
        const HITS: u32 = 200_000;
        let mut rounds: Vec<f64> = (0..15)
            .map(|_| {
                let start = Instant::now();
                for _ in 0..HITS {
                    black_box(run(black_box(&program), 0, &mut state, &mut Cheap));
                    black_box(state.log());
                }
                start.elapsed().as_secs_f64() * 1e9 / f64::from(HITS)
            })
            .collect();
        rounds.sort_by(f64::total_cmp);
        println!("{:8.1} ns  {name}", rounds[rounds.len() / 2]);
    }
}
