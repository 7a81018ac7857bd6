//! The agent in another process, mapped there by that process's own system calls before its first
//! instruction, with the tracer handling faults.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use dprobes_agent::image::{Entry, Settings, image};
use image::Machine;
use layout::thread_id;
use layout::{CONTEXT_SIZE, Context, HEADER, HandlerInfo, PAGE, RESUME, RING_SIZE, Resume, UNSET, state};
use process::{
    Caller, Event, Memory, OwnSegment, StartOptions, Stop, Stopped, find_syscall, heap_start, look_at,
    low_gaps, low_places, maps, shared_memory,
};
use testing::conformance::assemble;
use vm::Word;

/// Waits for the next stop of a thread, or its end.
fn news(tid: i32) -> Event {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(event) = look_at(tid).expect("it is traced") {
            return event;
        }
        assert!(Instant::now() < deadline, "no news");
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn stopped(tid: i32) -> (Stopped, Stop) {
    match news(tid) {
        Event::Stopped(thread, stop) => (thread, stop),
        Event::Ended { status, .. } => panic!("it has ended: {status:#x}"),
    }
}

/// The size of the shared memory: a context, its ring, and then the handler's description.
const RING: u64 = CONTEXT_SIZE;
const HANDLER: u64 = RING + layout::RING_SIZE;
const CONTROLS: u64 = HANDLER + 2 * PAGE;
const SHARED: u64 = CONTROLS + PAGE;

#[test]
fn a_handler_runs_in_a_process_that_has_not_begun() {
    let command = ["/bin/sleep", "0.05"].map(OsString::from);
    let running = process::start(&command, &StartOptions::default()).expect("it starts");
    let pid = running.tid();
    let (thread, stop) = stopped(pid);
    assert!(matches!(stop, Stop::Exec { .. }), "{stop:?}");

    // Memory: the agent and a page for its identity, private; all else shared.
    let mappings = maps(pid).expect("its mappings");
    let memory = Memory::open(pid).expect("its memory");
    let syscall = find_syscall(&memory, &mappings, Machine::X86_64).expect("it makes system calls");
    let code_size = (image().size() as u64 + 1).next_multiple_of(PAGE);
    let size = (SHARED + code_size + 2 * PAGE).next_multiple_of(CONTEXT_SIZE);
    let place = low_places(&low_gaps(&mappings, heap_start(pid)), size, CONTEXT_SIZE)[0];
    let (code, identity) = (place + SHARED, place + SHARED + code_size);
    let shared = shared_memory(SHARED).expect("memory");
    let caller = Caller::begin(thread, stop, syscall).unwrap_or_else(|(_, error)| panic!("{error}"));
    let (caller, done) = caller.map(identity, PAGE, libc::PROT_READ | libc::PROT_WRITE).expect("it lives");
    done.expect("there is room");
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let (caller, done) = caller.share(shared.as_fd(), place, SHARED, protection, identity).expect("it lives");
    done.expect("there is room");
    let (caller, done) = caller.map(code, code_size, libc::PROT_READ | libc::PROT_EXEC).expect("it lives");
    done.expect("there is room");
    let (mut thread, _) = caller.end().expect("it lives");
    let mut bytes = image().at(code, Settings { identity: identity as u32, reader: 0, stacks: 0 });
    // A breakpoint at the return address of the call.
    bytes.push(0xcc);
    memory.poke(code, &bytes).expect("private memory can be written");

    // A handler that logs its process id, then unmapped memory, then, in its exception handler, the
    // top of the stack.
    let text =
        "push pid\nlog 1\nsx h\npush 8\npush 0xdead0000\nlog mrf\nexit\nh: push 8\npush r rsp\nlog mrf\nexit";
    let assembled = assemble(&text.lines().map(str::to_owned).collect::<Vec<_>>(), Word::W8);
    let registers = thread.registers().expect("its registers");
    let handler = HandlerInfo {
        code: (place + HANDLER + PAGE) as u32,
        code_length: assembled.code.len() as u32,
        jmpmax: 256,
        insmax: vm::INSTRUCTIONS,
        logmax: 1024,
        mask: vm::DEFAULT_MASK.into(),
        record: state::COMMITTED,
        ..HandlerInfo::default()
    };
    let file = File::from(shared);
    // SAFETY: plain structures of integers without uninitialized padding.
    let raw = |place: *const u8, size| unsafe { std::slice::from_raw_parts(place, size) }.to_vec();
    let put = |at, bytes: &[u8]| file.write_all_at(bytes, at).expect("it is large enough");
    put(HANDLER, &raw((&raw const handler).cast(), size_of::<HandlerInfo>()));
    put(HANDLER + PAGE, &assembled.code);
    put(std::mem::offset_of!(Context, ring) as u64, &(place + RING).to_le_bytes());
    put(std::mem::offset_of!(Context, ring_size) as u64, &RING_SIZE.to_le_bytes());
    put(std::mem::offset_of!(Context, control) as u64, &(place + CONTROLS).to_le_bytes());
    let general = std::mem::offset_of!(Context, registers) as u64;
    put(general, &registers.general().iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<_>>());
    for field in [std::mem::offset_of!(Resume, major), std::mem::offset_of!(Resume, minor)] {
        put(RESUME + field as u64, &UNSET.to_le_bytes());
    }

    // The call, as compiled code makes it.
    let stack = registers.rsp() - 256;
    memory.poke(stack, &(code + image().size() as u64).to_le_bytes()).expect("the stack can be written");
    let mut call = registers;
    call.set_rsp(stack);
    call.set_rip(image().entry(Entry::Resume, code));
    call.set_rdi(place);
    let mut general = call.general();
    general[6] = place + HANDLER;
    call.set_general(&general);
    call.set_orig_rax(!0);
    thread.set_registers(&call).expect("it lives");
    // Tell it its process id by a descriptor, if the kernel can; otherwise by its memory.
    let owner = identity + std::mem::offset_of!(layout::Identity, owner) as u64;
    let (limit, flags) = thread_id::describe(pid as u32);
    let told = OwnSegment { base: 0, limit, flags };
    match thread.set_own_segment(thread_id::PROCESS, Some(told)) {
        Ok(()) => assert_eq!(thread.own_segment(thread_id::PROCESS), Some(told)),
        Err(_) => memory.poke(owner, &pid.to_le_bytes()).expect("private memory can be written"),
    }
    thread.resume(0);
    let faults: std::collections::BTreeMap<u64, u64> = image().faults(code).collect();
    let mut repaired = 0;
    let mut thread = loop {
        let (mut thread, stop) = stopped(pid);
        let mut now = thread.registers().expect("it lives");
        match stop {
            Stop::Signal(libc::SIGSEGV) => {
                let to =
                    faults.get(&now.rip()).unwrap_or_else(|| panic!("a fault at {:#x}", now.rip() - code));
                // SAFETY: of this signal, the address is what is there.
                now.set_rax(unsafe { thread.signal_info().expect("it lives").si_addr() } as u64);
                now.set_rip(*to);
                thread.set_registers(&now).expect("it lives");
                repaired += 1;
                thread.resume(0);
            }
            Stop::Signal(libc::SIGTRAP) => break thread,
            other => panic!("{other:?}"),
        }
    };
    assert!(repaired > 0);
    let after = thread.registers().expect("it lives");
    assert_eq!(after.rsp(), stack + 8);
    assert_eq!(after.rax(), identity + std::mem::offset_of!(layout::Identity, dummy_state) as u64);

    // The record, read from here; the program has noticed nothing.
    let mut record = vec![0; HEADER + 8 + 11 + 11 + 11];
    file.read_exact_at(&mut record, RING).expect("it is large enough");
    assert_eq!(u32::from(record[0]), state::COMMITTED);
    assert_eq!(record[HEADER..HEADER + 8], u64::from(pid as u32).to_le_bytes());
    // A fault record: its token, 8 bytes, the address. Then memory: the number of arguments, 2, is
    // on top of the stack.
    assert_eq!(record[HEADER + 8..HEADER + 11], [0xff, 8, 0]);
    assert_eq!(record[HEADER + 11..HEADER + 19], 0xdead_0000u64.to_le_bytes());
    assert_eq!(record[HEADER + 22..HEADER + 30], 2u64.to_le_bytes());
    if thread.set_own_segment(thread_id::PROCESS, None).is_ok() {
        assert_eq!(thread.own_segment(thread_id::PROCESS), None);
    }
    thread.set_registers(&registers).expect("it lives");
    thread.resume(0);
    loop {
        match news(pid) {
            Event::Stopped(thread, Stop::Signal(signal)) => drop(thread.resume(signal)),
            Event::Stopped(thread, _) => drop(thread.resume(0)),
            Event::Ended { status, .. } => {
                assert_eq!(status, 0);
                return;
            }
        }
    }
}
