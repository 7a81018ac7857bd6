//! Checks that the agent's machine gives the same answers as one that inspects the thread from
//! outside (memory, registers, the kernel's numbers), and leaves no trace in the thread.

use crate::common;
use std::arch::asm;
use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::common::{Bench, Left, Taken, low, protect};
use dprobes_agent::image::{Entry, image};
use layout::thread_id;
use libc::{c_void, iovec};
use testing::conformance::assemble;
use vm::{Fault, Machine, Program, Register, State, Word};

const PAGE: u64 = 4096;

/// Memory as the tracer accesses it: the mapped ranges and their protection.
struct Outside(Vec<(Range<u64>, String)>);

impl Outside {
    fn new() -> Outside {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("own mappings");
        let number = |text| u64::from_str_radix(text, 16).expect("hexadecimal");
        let ranges = maps.lines().map(|line| {
            let mut words = line.split_ascii_whitespace();
            let (start, end) = words.next().and_then(|it| it.split_once('-')).expect("a range");
            (number(start)..number(end), words.next().expect("rights").to_owned())
        });
        Outside(ranges.collect())
    }
}

impl Machine for Outside {
    fn register(&mut self, _: Register) -> u64 {
        0
    }
    fn set_register(&mut self, _: Register, _: u64) {}

    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        let local = iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let remote = iovec { iov_base: address as *mut c_void, iov_len: into.len() };
        // SAFETY: the local vector is `into`; the kernel checks the remote one.
        let count = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        let count = count.max(0) as u64;
        if count == into.len() as u64 { Ok(()) } else { Err(Fault { address: address.wrapping_add(count) }) }
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Fault> {
        let mut bytes = (0..from.len() as u64).map(|byte| address + byte);
        if let Some(refused) = bytes.find(|&address| !self.verify(address, true)) {
            return Err(Fault { address: refused });
        }
        // SAFETY: every byte was just found to be writable, and is the test's own.
        unsafe { (address as *mut u8).copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        Ok(())
    }

    fn verify(&mut self, address: u64, write: bool) -> bool {
        let found = self.0.iter().find(|(range, _)| range.contains(&address));
        found.is_some_and(|(_, rights)| rights.starts_with(if write { "rw" } else { "r" }))
    }

    fn pid(&mut self) -> u64 {
        0
    }
    fn processor(&mut self) -> u64 {
        0
    }
}

fn code(text: &str) -> Vec<u8> {
    assemble(&text.lines().map(str::to_owned).collect::<Vec<_>>(), Word::W8).code
}

fn program(code: &[u8]) -> Program<'_> {
    Program { code, logmax: 20_000, ..Program::default() }
}

/// The results of a program in the agent.
fn in_agent(bench: &mut Bench, text: &str) -> Left {
    let code = code(text);
    let info = bench.describe(&program(&code), 0);
    // Everything logged before has been read.
    let head = bench.context().head.load(Ordering::Relaxed);
    bench.control().tail.0.store(head, Ordering::Relaxed);
    let left = bench.run(&info);
    let record = bench.record_behind(head);
    assert_eq!((record.log, record.trace), (&*left.log, &*left.trace), "{text}");
    left
}

/// Maps pages, some of which cannot be written, read or found. Returns their start, and where a
/// writable page begins.
fn pages() -> u64 {
    // Writable; read only; not readable; writable; unmapped; writable; read only.
    let start = low(8 * PAGE, PAGE);
    for byte in 0..8 * PAGE {
        // SAFETY: fresh memory.
        unsafe { *((start + byte) as *mut u8) = b'a' + (byte % 23) as u8 };
    }
    protect(start + PAGE, PAGE, libc::PROT_READ);
    protect(start + 2 * PAGE, PAGE, libc::PROT_NONE);
    protect(start + 6 * PAGE, PAGE, libc::PROT_READ);
    // SAFETY: the page is the test's own.
    unsafe { assert_eq!(libc::munmap((start + 4 * PAGE) as *mut c_void, PAGE as usize), 0) };
    start
}

/// The bytes of the pages that can be read.
fn readable(start: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for page in [0, 1, 3, 5, 6] {
        // SAFETY: they are mapped.
        bytes.extend_from_slice(unsafe { &*((start + page * PAGE) as *const [u8; PAGE as usize]) });
    }
    bytes
}

#[test]
fn memory_is_what_it_is_from_outside() {
    let mut bench = Bench::new();
    let start = pages();
    let mut addresses: Vec<u64> = (0..=7)
        .flat_map(|page| {
            [-17i64, -9, -8, -7, -5, -4, -3, -2, -1, 0, 1, 5]
                .map(|by| (start + page * PAGE).wrapping_add_signed(by))
        })
        .filter(|address| (start..start + 7 * PAGE - 32).contains(address))
        .collect();
    addresses.extend([
        0,
        8,
        0xfff,
        0x7fff_ffff_effc,
        0x7fff_ffff_fffc,
        0x8000_0000_0000,
        0x1234_5678_9abc_def0,
    ]);
    addresses.extend([
        0xffff_7fff_ffff_fffe,
        0xffff_8000_0000_0000,
        0xffff_ffff_ff60_0000,
        !0,
        !0 - 6,
        !0 - 100,
    ]);
    let mut outside = Outside::new();
    let mut state = Box::<State>::default();
    let mut compared = 0;
    for address in addresses {
        let mut texts: Vec<String> =
            ["vfyr", "vfyrw", "push mem u8", "push mem u16", "push mem u32", "push mem u64"]
                .map(|op| format!("push {address:#x}\n{op}\nlog 1\nexit"))
                .into();
        for size in ["u8", "u16", "u32", "u64"] {
            texts.push(format!("push {address:#x}\npush 0x1122334455667788\npop mem {size}\nexit"));
        }
        for length in [1, 2, 3, 5, 8, 13, 14, 29, 30, 100, 4096, 5000] {
            for op in ["log mrf", "log str"] {
                texts.push(format!("push {length}\npush {address:#x}\n{op}\nexit"));
            }
            for op in ["read fr", "read str"] {
                let read = format!("push {length}\npush {address:#x}\npush 3\n{op}");
                texts.push(format!("{read}\nlog 1\npush 5016\npush 0\nlog fr\nexit"));
            }
        }
        for text in texts {
            let before = readable(start);
            let bytes = code(&text);
            vm::run(&program(&bytes), 0, &mut state, &mut outside);
            let (written, log) = (readable(start), state.log().to_vec());
            let stack: Vec<u64> = (0..state.depth()).map(|below| state.element(below)).collect();
            for (page, bytes) in [0u64, 3, 5].iter().zip([0usize, 2, 3]) {
                let from = &before[bytes * PAGE as usize..(bytes + 1) * PAGE as usize];
                // SAFETY: these pages can be written.
                unsafe {
                    ((start + page * PAGE) as *mut u8).copy_from_nonoverlapping(from.as_ptr(), from.len())
                };
            }
            let left = in_agent(&mut bench, &text);
            assert_eq!(left.stack, stack, "{text}");
            assert_eq!(left.log, log, "{text}");
            assert!(readable(start) == written, "{text}");
            compared += 1;
        }
    }
    println!("{compared} programs");
    assert!(compared > 2000);
}

#[test]
fn registers_that_compiled_code_has_not_stored_are_the_threads() {
    let mut bench = Bench::new();
    let names = [
        "cs", "ds", "es", "fs", "gs", "ss", "rip", "rflags", "fs_base", "gs_base", "fcw", "fsw", "ftw",
        "mxcsr", "fr0", "fr1",
    ];
    let _alone = common::alone_with_identity();
    common::identity().pid.store(0, Ordering::Relaxed);
    common::identity().owner.store(std::process::id(), Ordering::Relaxed);
    let mut text: String = names.iter().map(|name| format!("push r {name}\n")).collect();
    text += "push pid\npush procid\npush 0\npush r cpuid\npush 0x2b\npush 5\nseg2lin\nexit";
    bench.registers().rip = 0x1234;
    bench.registers().rflags = 0x246;
    let code = code(&text);
    let info = bench.begin(&bench.describe(&program(&code), 0));
    let entry = image().entry(Entry::Resume, common::loaded().base);
    let (fs_base, processor): (u64, u32);
    // SAFETY: the FPU's stack is emptied before and after; the entry keeps everything that
    // `extern "C"` keeps, and the affinity is this thread's.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        processor = libc::sched_getcpu() as u32;
        libc::CPU_SET(processor as usize, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
        asm!("mov {}, fs:[0]", out(reg) fs_base);
        asm!(
            "fninit", "fldpi", "fld1",
            "call {entry}",
            "fninit",
            entry = in(reg) entry,
            in("rdi") bench.context,
            in("rsi") info,
            clobber_abi("C"),
        );
    }
    let state = bench.state();
    let stack: Vec<u64> = (0..state.depth()).map(|below| state.element(below)).rev().collect();
    assert_eq!(&stack[..8], [0x33, 0, 0, 0, 0, 0x2b, 0x1234, 0x246]);
    assert_eq!(&stack[8..10], [fs_base, 0]);
    // The control word, the status word with its top at 6, two registers used, and the numbers 1
    // and pi.
    assert_eq!(&stack[10..14], [0x37f, 6 << 11, 0x0fff, 0x1f80]);
    assert_eq!(&stack[14..18], [0x3fff, 1 << 63, 0x4000, 0xc90f_daa2_2168_c235]);
    assert_eq!(stack[18], u64::from(std::process::id()), "the memory's process");
    assert_eq!(stack[19], u64::from(processor));
    let leaf = std::arch::x86_64::__cpuid(0);
    assert_eq!(&stack[20..24], [leaf.edx, leaf.ecx, leaf.ebx, leaf.eax].map(u64::from));
    assert_eq!(stack[24], 5);
    assert_eq!(stack.len(), 25);
}

#[test]
fn segments_that_there_are_not_have_no_address() {
    let mut bench = Bench::new();
    for selector in [0u64, 3, 8, 0x63, 0x6b, 0x73, 0x7b, 7, 0x2f, 0xffff, 0x1_0000] {
        let left = in_agent(&mut bench, &format!("push {selector}\npush 5\nseg2lin\nexit"));
        assert_eq!(left.stack[..2], [2, selector], "SEG_FAULT for {selector:#x}");
    }
    // A segment of the thread's own: entry -1 (any), base, limit, flags: 32 bits, in pages, usable.
    if let Some(number) = make_segment([!0, 0xabc000, 0xf_ffff, 0x51]) {
        let selector = number << 3 | 3;
        let left = in_agent(&mut bench, &format!("push {selector}\npush 5\nseg2lin\nexit"));
        assert_eq!(left.stack, [0xabc005], "entry {number}");
    } else {
        testing::skipped("segments", "a kernel that makes them for 64-bit processes");
    }
}

/// Makes a segment of the thread's own as 32-bit code does (set_thread_area); returns its number,
/// if the kernel supports that.
fn make_segment(description: [u32; 4]) -> Option<u32> {
    let place = low(PAGE, PAGE);
    let result: i64;
    // SAFETY: a page of the test's own, of which the kernel reads and writes a description. The
    // call may clear r8 to r11.
    unsafe {
        (place as *mut [u32; 4]).write(description);
        asm!(
            "xchg rdi, rbx", "int 0x80", "xchg rdi, rbx",
            inout("rax") 243i64 => result, inout("rdi") place => _,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
        (result == 0).then(|| *(place as *const u32))
    }
}

#[test]
fn a_thread_reads_its_process_where_it_was_told_and_handlers_see_no_segment_there() {
    let _alone = common::alone_with_identity();
    let mut bench = Bench::new();
    common::identity().pid.store(0, Ordering::Relaxed);
    common::identity().owner.store(77, Ordering::Relaxed);
    let asked = |bench: &mut Bench| in_agent(bench, "push pid\nexit").stack;
    assert_eq!(asked(&mut bench), [77], "it was not told");
    for number in [1, 0x7_ffff, 0xf_ffff, 0x10_0000, 0x1f_ffff, 0x20_0000, 0x35_5555, 0x3f_ffff] {
        let (limit, flags) = thread_id::describe(number);
        if make_segment([thread_id::PROCESS.into(), 0, limit, flags]).is_none() {
            return testing::skipped("segments", "a kernel that makes them for 64-bit processes");
        }
        assert!(thread_id::is_number(0, flags) && !thread_id::is_number(4, flags));
        assert_eq!(asked(&mut bench), [u64::from(number)]);
        let selector = u64::from(thread_id::selector(thread_id::PROCESS));
        let left = in_agent(&mut bench, &format!("push {selector}\npush 5\nseg2lin\nexit"));
        assert_eq!(left.stack[..2], [2, selector], "SEG_FAULT");
        let left = in_agent(&mut bench, &format!("push {selector}\npop r es\npush 77\nexit"));
        assert!(!left.stack.contains(&77), "{:x?}", left.stack);
    }
    // A segment of the program's is not taken for the tracer's, whatever its limit is.
    for flags in [0x51, 0x41, 0x01, 0x19, 0x59] {
        make_segment([thread_id::PROCESS.into(), 0, 0x1234, flags]).expect("it could before");
        assert_eq!(asked(&mut bench), [77], "{flags:#x}");
        assert!(!thread_id::is_number(0, flags), "{flags:#x}");
    }
}

#[test]
fn segment_registers_that_a_handler_sets_are_set_and_bases_stay() {
    let mut bench = Bench::new();
    let left = in_agent(
        &mut bench,
        "push r fs_base\npush r fs\npop r fs\npush 0x2b\npop r ds\npush r ds\n\
         push 0\npop r ds\npush 0\npop r fs\npush r fs_base\nexit",
    );
    let [after, ds, before] = left.stack[..] else { panic!("{:x?}", left.stack) };
    assert_eq!((ds, before), (0x2b, after));
    let left = in_agent(&mut bench, "push 0xfff3\npop r es\npush 77\nexit");
    assert!(!left.stack.contains(&77), "one that there is not ends the handler: {:x?}", left.stack);
    // Thread-local storage is still accessible.
    std::thread_local!(static WORD: std::cell::Cell<u32> = const { std::cell::Cell::new(5) });
    assert_eq!(WORD.get(), 5);
}

#[test]
fn vectors_are_the_programs_and_so_is_all_else_afterwards() {
    let mut bench = Bench::new();
    let text: String = (0..16).map(|number| format!("push r xmm{number}\n")).collect();
    // Code in the agent that uses vectors.
    let code = code(&(text + "push 300\npush r rsp\nlog mrf\nlog 32\nlog st\nexit"));
    let here = [7u8; 4096];
    bench.registers().general[4] = here.as_ptr() as u64;
    let info = bench.begin(&bench.describe(&program(&code), 0));
    let vectors = bench.call_with_everything(Entry::Resume, info, 0xc03).1;
    let Taken { log, trace, .. } = bench.record(0);
    assert_eq!(log.len(), 303 + 32 * 8);
    assert!(!trace.is_empty());
    let words: Vec<u64> =
        log[303..].chunks_exact(8).map(|it| u64::from_le_bytes(it.try_into().expect("8"))).collect();
    // Top first, and the least significant half on top.
    let pushed: Vec<u64> = vectors.iter().rev().flatten().copied().collect();
    assert_eq!(words, pushed);
}

#[test]
fn a_run_that_cannot_be_ended_is_dropped_and_counted() {
    let mut bench = Bench::new();
    let code = code("push 1\nlog 1\nexit");
    let mut info = bench.describe(&program(&code), 0);
    let good = info;
    // There is no code at this address: the agent faults without a fault table entry, and is sent
    // to `dprobes_give_up`.
    info.code = 0x1000;
    let nothing = std::ptr::from_ref(&common::identity().dummy_state) as u64;
    for times in 1..=3 {
        let left = bench.run(&info);
        assert_eq!(left.result, nothing);
        assert_eq!(bench.dropped.load(Ordering::Relaxed), times);
    }
    assert_eq!(bench.context().head.load(Ordering::Relaxed), 0);
    assert_eq!(bench.run(&good).log, 1u64.to_le_bytes());
}
