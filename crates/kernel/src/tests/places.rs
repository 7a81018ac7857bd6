//! Programs for other places than uprobes: breakpoints are hit, kernel probes are verified.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use bpf::{Access, Breakpoint, Feature, KernelPlace, Kprobe};
use vm::{End, Op, Program, Register, Word};

use super::live;
use crate::{AttachKind, Globals, Maps, Target, compile, cookie};

/// A word of this program, for breakpoints.
static WATCHED: AtomicU64 = AtomicU64::new(0);

fn push(number: u64) -> Vec<u8> {
    [&[Op::Push as u8][..], &number.to_le_bytes()].concat()
}

/// Logs a register.
fn log_register(op: Op, register: Register) -> Vec<u8> {
    let [low, high] = (register as u16).to_le_bytes();
    vec![op as u8, low, high, Op::LogImm as u8, 1, 0]
}

#[test]
fn a_breakpoint_on_data_tells_the_address_and_what_is_there() {
    if !live::can_run("bpf: kernel: places: breakpoint") {
        return;
    }
    let address = WATCHED.as_ptr() as u64;
    let code = [push(address), vec![Op::PushMem64 as u8, Op::LogImm as u8, 1, 0, Op::Exit as u8]].concat();
    let program = Program { word: Word::W8, code: &code, ..Program::default() };
    let handler = live::handler(&program, 0);
    let globals = Globals::create(0).expect("a map");
    let layout = crate::layout::Layout::of(&handler);
    let mut maps = Maps::with(layout, 1, 0, &globals, &live::SMALL, live::no_tables()).expect("maps");
    let target = Target { place: AttachKind::UserBreakpoint, ..live::target(maps.size(), false) };
    let loaded = live::load(&maps, &compile(&handler, &target).expect("nothing is refused"));
    let thread = Some(nix_thread());
    let breakpoint = Breakpoint {
        address,
        length: 8,
        access: Access::Write,
        thread,
        processor: None,
        inherit: false,
        kernel: false,
    };
    let Ok(link) = breakpoint.attach(&loaded, cookie(0, 9)) else {
        return testing::skipped("optional: kernel: breakpoints", "hardware breakpoints");
    };
    WATCHED.store(black_box(0x1234), Relaxed);
    WATCHED.store(black_box(0x5678), Relaxed);
    drop(link);
    WATCHED.store(black_box(1), Relaxed);
    let mut logs = Vec::new();
    maps.drain_all(&mut |record| {
        assert_eq!((record.address, record.site, record.end), (address, 9, End::Exit));
        logs.push(record.log.to_vec());
    });
    // The processor tells of a write when it is done.
    assert_eq!(logs, [0x1234_u64.to_le_bytes(), 0x5678_u64.to_le_bytes()]);
}

/// This thread's number.
fn nix_thread() -> u32 {
    // SAFETY: the call has no arguments and no effect.
    unsafe { libc::gettid() as u32 }
}

/// The verifier accepts kernel probes that use all that they can: memory of both kinds, registers,
/// strings, the task.
#[test]
fn kernel_probes_are_verified() {
    if !live::can_run("bpf: kernel: places: kernel probes") {
        return;
    }
    let code = [
        log_register(Op::PushR, Register::Rip),
        log_register(Op::PushR, Register::Rflags),
        vec![Op::PushTask as u8, Op::PushMem64 as u8, Op::LogImm as u8, 1, 0],
        push(40),
        push(0xffff_ffff_8100_0000),
        vec![Op::LogStr as u8],
        push(5000),
        push(0x1000),
        vec![Op::LogMrf as u8, Op::PushTask as u8, Op::Vfyr as u8, Op::LogSt as u8, Op::Exit as u8],
    ]
    .concat();
    let program = Program { word: Word::W8, code: &code, autostacktrace: true, ..Program::default() };
    for place in [AttachKind::Kprobe, AttachKind::Kretprobe, AttachKind::KernelBreakpoint] {
        live::load_at(place, &program, 0, false).expect("nothing is refused");
    }
}

/// A function of the kernel is probed in all processes: only here, so that others are not slowed.
#[test]
fn a_kernel_probe_sees_its_address_and_reads_the_kernel() {
    let test = "optional: kernel: kprobes";
    if !live::can_run("bpf: kernel: places: kprobes") {
        return;
    }
    if !Feature::Kprobe.is_available() {
        return testing::skipped(test, "kprobes");
    }
    let code = [
        log_register(Op::PushR, Register::Rip),
        push(4),
        vec![Op::PushR as u8, 0x10, 1, Op::LogMrf as u8, Op::Exit as u8],
    ]
    .concat();
    let program = Program { word: Word::W8, code: &code, ..Program::default() };
    let handler = live::handler(&program, 0);
    let globals = Globals::create(0).expect("a map");
    let layout = crate::layout::Layout::of(&handler);
    let mut maps = Maps::with(layout, 1, 0, &globals, &live::SMALL, live::no_tables()).expect("maps");
    let target = Target { place: AttachKind::Kprobe, filtered: true, ..live::target(maps.size(), false) };
    maps.set_pids(&[std::process::id()]).expect("there is room");
    let loaded = live::load(&maps, &compile(&handler, &target).expect("nothing is refused"));
    let place = KernelPlace::Symbol { name: "__x64_sys_getppid", offset: 0 };
    let link = Kprobe { place, on_return: false }.attach(&loaded, cookie(0, 3)).expect("a kprobe");
    // SAFETY: the call has no arguments and no effect.
    unsafe { libc::getppid() };
    drop(link);
    let mut records = 0;
    maps.drain_all(&mut |record| {
        assert_eq!((record.site, record.tgid, record.end), (3, std::process::id(), End::Exit));
        assert!(record.ip as i64 <= 0, "{:#x} is in the kernel", record.ip);
        assert_eq!(record.log[..8], record.ip.to_le_bytes());
        assert_eq!(record.log[8..11], [0, 4, 0]);
        records += 1;
    });
    assert_eq!(records, 1);
}

/// A program that pops memory, where the kernel lets it.
#[test]
fn stores_are_verified_or_refused() {
    let test = "optional: a kernel program that writes memory";
    if !live::can_run("bpf: kernel: places: stores") {
        return;
    }
    if !Feature::WriteMemory.is_available() {
        return testing::skipped(test, "a kernel that lets programs write memory");
    }
    let code = [push(16), push(5), vec![Op::PopMem64 as u8, Op::Exit as u8]].concat();
    let program = Program { word: Word::W8, code: &code, ..Program::default() };
    live::load_at(AttachKind::Uprobe, &program, 0, false).expect("nothing is refused");
}
