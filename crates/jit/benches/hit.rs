//! Measures what a hit costs, in nanoseconds more than the same call without a probe:
//! `cargo bench -p dprobes-jit`.
//!
//! A small function is called in a loop, first unchanged, then with a jump to a trampoline instead
//! of its first three instructions: the compiled handler, these instructions, the jump back. Both
//! are measured in turn, seven times; prints the median of the differences, with the least and the
//! greatest. Times are processor time of the thread.

#[path = "../tests/support/mod.rs"]
mod support;

use dprobes_jit::{Handler, Variable, compile};
use std::hint::black_box;
use std::time::Instant;
use support::arena::Arena;
use vm::{Op, Register};

/// `push rbp; mov rbp, rsp; mov [rbp-8], rdi`, which the jump displaces.
const DISPLACED: [u8; 8] = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0x7d, 0xf8];
/// The rest: `mov rax, [rbp-8]; lea rax, [rax+rax*2]; add rax, rsi; pop rbp; ret`.
const REST: [u8; 13] = [0x48, 0x8b, 0x45, 0xf8, 0x48, 0x8d, 0x04, 0x40, 0x48, 0x01, 0xf0, 0x5d, 0xc3];

/// Calls of one measurement.
const CALLS: u64 = 4_000_000;

fn push(value: u64) -> Vec<u8> {
    [&[Op::Push as u8][..], &value.to_le_bytes()].concat()
}

fn register(register: Register) -> Vec<u8> {
    [&[Op::PushR as u8][..], &(register as u16).to_le_bytes()].concat()
}

/// A handler's code, and whether its local variable 0 is counted once per processor.
fn handlers(text: u64) -> Vec<(&'static str, Vec<u8>, bool, f64)> {
    let count = vec![Op::IncLvImm as u8, 0, 0];
    let abort = vec![Op::Abort as u8];
    let exit = vec![Op::Exit as u8];
    let jz = |distance: u64| [&[Op::Jz as u8][..], &distance.to_le_bytes()].concat();
    let conditional = || {
        [register(Register::Rdi), push(0x2000_0000), vec![Op::Sub as u8], jz(1), abort.clone(), exit.clone()]
    };
    let two = [register(Register::Rdi), register(Register::Rsi), vec![Op::LogImm as u8, 2, 0], exit.clone()];
    let string = [push(64), push(text), vec![Op::LogStr as u8], exit.clone()];
    vec![
        ("hit only", abort.clone(), true, 5.0),
        ("count", [count.clone(), abort.clone()].concat(), true, 5.0),
        ("count, shared", [count, abort.clone()].concat(), false, f64::MAX),
        ("conditional, not logging", conditional().concat(), true, 5.0),
        ("log of two arguments", two.concat(), true, 25.0),
        ("log of a string of 16 bytes", string.concat(), true, 50.0),
    ]
}

/// Processor time of the thread in nanoseconds, which excludes other load.
fn spent_by_thread() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: time is a live timespec.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// A handler of the probe with a minor code.
fn handler(code: &[u8], minor: u32) -> Handler<'_> {
    Handler { locals: 1, globals: 0, major: 1, minor, ..support::handler(code) }
}

/// Nanoseconds per call.
fn measure(function: extern "C" fn(u64, u64) -> u64, arena: &Arena, drain: bool) -> f64 {
    let (mut sum, mut spent) = (0, 0.0);
    // A ring holds some 50,000 records: it is emptied between measurements, not in them.
    for _ in 0..CALLS / 20_000 {
        let start = spent_by_thread();
        for argument in 0..20_000 {
            sum = function(argument, sum);
        }
        spent += spent_by_thread() - start;
        if drain {
            for number in 0..support::arena::CONTEXTS {
                let context = arena.context(number);
                let head = context.head.load(std::sync::atomic::Ordering::Relaxed);
                arena.control(number).tail.0.store(head, std::sync::atomic::Ordering::Relaxed);
            }
        }
    }
    black_box(sum);
    spent / CALLS as f64
}

fn main() {
    let mut arena = Arena::new();
    let text = arena.put(b"sixteen letters.\0");
    let body = arena.put(&[&DISPLACED[..], &REST].concat());
    // SAFETY: it is the code of a function of that type.
    let function: extern "C" fn(u64, u64) -> u64 = unsafe { std::mem::transmute(body) };
    println!("{:<32}{:>8}  [{:>6} .. {:>6}]  bytes", "ns per hit over none", "median", "least", "most");
    // The thread id's offset, as the tracer would find it.
    arena.identity().tid_offset.store(tid_offset(), std::sync::atomic::Ordering::Relaxed);
    for (name, code, own_counter, bar) in handlers(text) {
        let counters = [(Variable::Local(0), arena.counter())];
        let mut environment = arena.environment();
        environment.flags_live = false;
        if own_counter {
            environment.counted = &counters;
        }
        let handler = handler(&code, 2);
        let compiled = compile(&handler, &environment).expect("compiles");
        let mut trampoline = arena.put(&[]);
        let mut bytes = Vec::new();
        compiled.append_at(trampoline, &mut bytes);
        bytes.extend(DISPLACED);
        let back = trampoline + bytes.len() as u64 + 5;
        bytes.push(0xe9);
        bytes.extend(((body + 8).wrapping_sub(back) as i32).to_le_bytes());
        trampoline = arena.put(&bytes) + u64::from(compiled.entry());
        let mut jump = vec![0xe9];
        jump.extend((trampoline.wrapping_sub(body + 5) as i32).to_le_bytes());
        jump.extend([0x90; 3]);
        let write = |bytes: &[u8]| {
            // SAFETY: no thread is in the function now, and it has these bytes.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), body as *mut u8, bytes.len()) };
        };
        let mut differences: Vec<f64> = (0..7)
            .map(|_| {
                write(&DISPLACED);
                let without = measure(function, &arena, false);
                write(&jump);
                measure(function, &arena, true) - without
            })
            .collect();
        write(&DISPLACED);
        differences.sort_by(f64::total_cmp);
        let hits = arena.sum(environment.hits);
        assert_eq!(hits, 7 * CALLS, "every hit is counted");
        let dropped = arena.at(environment.dropped).load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(dropped, 0, "no record is dropped");
        let (least, median, most) = (differences[0], differences[3], differences[6]);
        let verdict = if bar == f64::MAX {
            String::new()
        } else {
            format!("bar {bar}: {}", if median <= bar { "met" } else { "missed" })
        };
        println!("{name:<32}{median:>8.2}  [{least:>6.2} .. {most:>6.2}]  {:>5}  {verdict}", compiled.len());
    }
    compile_time(&mut arena);
}

/// The offset of a thread's id in glibc, found as the tracer does: a word above the thread pointer
/// that holds the id.
fn tid_offset() -> u64 {
    let (tid, mut pointer): (i32, u64);
    // SAFETY: gettid takes no arguments.
    tid = unsafe { libc::gettid() };
    // SAFETY: x86-64's ABI has the thread pointer's own value at fs:0.
    unsafe { std::arch::asm!("mov {}, fs:[0]", out(reg) pointer) };
    (0..2048)
        .step_by(4)
        // SAFETY: glibc's struct pthread is larger than that.
        .find(|offset| unsafe { *((pointer + offset) as *const i32) } == tid)
        .expect("glibc keeps the thread's id behind its thread pointer")
}

/// The time to compile and place many handlers.
fn compile_time(arena: &mut Arena) {
    let counters = [(Variable::Local(0), arena.counter())];
    let mut environment = arena.environment();
    environment.counted = &counters;
    let mut bytes = Vec::new();
    for (name, code, ..) in handlers(0x1234) {
        let start = Instant::now();
        let count = 50_000;
        for site in 0..count {
            environment.site = 0x7f00_0000_0000 + 16 * site;
            let handler = handler(&code, site as u32);
            bytes.clear();
            compile(&handler, &environment).expect("compiles").append_at(0x7f12_3456_0000, &mut bytes);
            black_box(&bytes);
        }
        println!("{name:<32}{:>8.1} ms for {count} sites", start.elapsed().as_secs_f64() * 1e3);
    }
}
