//! The agent's part, for tests: the interpreter, with the registers in the context and a test's
//! memory.

use super::arena::{RING_SIZE, control_of};
use layout::{
    CALL, CLOCK_WORDS, ClockWords, Context, ExtraHeader, FRAME, FRAME_SIZE, HEADER, HandlerInfo, Header,
    MapCall, ProbeEnd, RESUME, Registers, Resume, STATE, UNSET, flag, record_size, state, status,
};
use std::cell::RefCell;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
pub(crate) use testing::conformance::number;
use vm::{
    Clock, Constants, End, Fault, Machine, Maps, Op, Outcome, PartialRun, ProbepointInfo, Program, Register,
    State,
};

/// The environment of an interpreter run, besides the registers in the context, and its result.
pub(crate) trait World {
    /// Provides the machine; its registers are those of the context before.
    fn run(&mut self, registers: &mut Registers, run: &mut dyn FnMut(&mut dyn DynMachine));
}

/// [`Machine`], as a trait object.
pub(crate) trait DynMachine {
    /// Resumes a run on this machine.
    fn resume(&mut self, program: &Program<'_>, middle: &PartialRun<'_>, state: &mut State) -> Outcome;

    /// [`Machine::stack_number`].
    fn stack_number(&mut self, maps: &Maps<'_>, map: usize, most: usize) -> Option<u64>;
}

impl<M: Machine> DynMachine for M {
    fn resume(&mut self, program: &Program<'_>, middle: &PartialRun<'_>, state: &mut State) -> Outcome {
        vm::resume(program, middle, state, self)
    }

    fn stack_number(&mut self, maps: &Maps<'_>, map: usize, most: usize) -> Option<u64> {
        Machine::stack_number(self, maps, map, most)
    }
}

/// The result of a run that left compiled code.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    pub(crate) offset: u32,
    pub(crate) outcome: Outcome,
    pub(crate) stack: Vec<u64>,
    pub(crate) log: Vec<u8>,
    pub(crate) trace: Vec<u8>,
}

thread_local! {
    /// The world of this thread's runs.
    pub(crate) static WORLD: RefCell<Option<Box<dyn World>>> = const { RefCell::new(None) };
    /// The result of the last run that left compiled code.
    pub(crate) static LEFT: RefCell<Option<Left>> = const { RefCell::new(None) };
}

/// The process itself: memory as /proc/self/mem reports it.
#[derive(Debug)]
pub(crate) struct Native<'a> {
    pub(crate) registers: &'a mut Registers,
}

/// Reads and writes processes without faults.
fn copy(address: u64, local: *mut u8, length: usize, write: bool) -> Result<(), Fault> {
    let mut done = 0;
    while done < length {
        let at = address.wrapping_add(done as u64);
        // Page by page: the first inaccessible byte is then the first of a piece.
        let piece = (4096 - at % 4096).min((length - done) as u64) as usize;
        // SAFETY: the pointer is into the caller's buffer of `length` bytes.
        let local = libc::iovec { iov_base: unsafe { local.add(done) }.cast(), iov_len: piece };
        let remote = libc::iovec { iov_base: at as *mut _, iov_len: piece };
        // SAFETY: the kernel checks the remote side; the local one is the caller's.
        let copied = unsafe {
            let process = libc::getpid();
            if write {
                libc::process_vm_writev(process, &local, 1, &remote, 1, 0)
            } else {
                libc::process_vm_readv(process, &local, 1, &remote, 1, 0)
            }
        };
        if copied != piece as isize {
            return Err(Fault { address: at });
        }
        done += piece;
    }
    Ok(())
}

impl Machine for Native<'_> {
    fn register(&mut self, register: Register) -> u64 {
        match (number(register), register) {
            (Some(number), _) => self.registers.general[number],
            (_, Register::Rip | Register::Eip) => self.registers.rip,
            (_, Register::Rflags | Register::Eflags) => self.registers.rflags,
            _ => 0,
        }
    }

    fn set_register(&mut self, register: Register, value: u64) {
        if let Some(number) = number(register) {
            self.registers.general[number] = value;
        }
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        copy(address, into.as_mut_ptr(), into.len(), false)
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Fault> {
        // All or nothing: a readable second page need not be writable.
        let last = address.wrapping_add(from.len() as u64 - 1);
        for end in [address, last] {
            if !self.verify(end, true) {
                let page_start = last & !4095;
                return Err(Fault {
                    address: if end == last && end != address { page_start } else { address },
                });
            }
        }
        copy(address, from.as_ptr().cast_mut(), from.len(), true)
    }

    fn verify(&mut self, address: u64, write: bool) -> bool {
        let mut byte = 0;
        copy(address, &mut byte, 1, false).is_ok() && (!write || copy(address, &mut byte, 1, true).is_ok())
    }

    fn pid(&mut self) -> u64 {
        std::process::id().into()
    }

    fn processor(&mut self) -> u64 {
        // SAFETY: it takes no arguments.
        (unsafe { libc::sched_getcpu() }) as u64
    }

    fn thread(&mut self) -> Option<u64> {
        // SAFETY: it takes no arguments.
        Some((unsafe { libc::gettid() }) as u64)
    }

    fn ids(&mut self) -> Option<(u32, u32)> {
        Some((1000, 100))
    }

    fn name(&mut self) -> Option<[u8; 16]> {
        Some(*b"abc\0\0\0\0\0\0\0\0\0\0\0\0\0")
    }

    // The clock of the tests' tables stands still.
    fn time(&mut self, clock: Clock) -> Option<u64> {
        Some(super::script_pieces::time(clock))
    }
}

/// The world of a process.
#[derive(Debug)]
pub(crate) struct NativeWorld;

impl World for NativeWorld {
    fn run(&mut self, registers: &mut Registers, run: &mut dyn FnMut(&mut dyn DynMachine)) {
        run(&mut Native { registers });
    }
}

/// Runs something on this thread's machine.
fn on_machine<T>(registers: &mut Registers, mut run: impl FnMut(&mut dyn DynMachine) -> T) -> T {
    let mut world = WORLD.with(|world| world.borrow_mut().take()).unwrap_or_else(|| Box::new(NativeWorld));
    let mut result = None;
    world.run(registers, &mut |machine| result = Some(run(machine)));
    WORLD.with(|place| *place.borrow_mut() = Some(world));
    result.expect("a world runs")
}

/// The agent's `resume`.
///
/// # Safety
///
/// This thread has claimed the context, and its [`Resume`] and the info are as compiled code sets
/// them.
pub(crate) unsafe fn resume(context: *mut Context, info: *const HandlerInfo) -> u64 {
    // SAFETY: the caller's; the state is all zeros or as the last run left it.
    let (middle, frame, state, info) = unsafe {
        (
            &*context.byte_add(RESUME as usize).cast::<Resume>(),
            std::slice::from_raw_parts(context.byte_add(FRAME as usize).cast::<u8>(), FRAME_SIZE as usize),
            &mut *context.byte_add(STATE as usize).cast::<State>(),
            &*info,
        )
    };
    // SAFETY: addresses and lengths of the info are those of the test's arena.
    let (code, locals, globals) = unsafe {
        (
            slice::<u8>(info.code.into(), info.code_length),
            slice(info.locals.into(), info.local_count),
            slice(info.globals.into(), info.global_count),
        )
    };
    // SAFETY: likewise.
    let (infos, words, constants) = unsafe {
        (
            slice(info.maps.into(), info.map_count),
            slice(info.tables.into(), info.table_words),
            slice(info.constants.into(), info.constants_length),
        )
    };
    let words = words.get(CLOCK_WORDS..).unwrap_or(&[]);
    let code_of = |code: u32| (code != UNSET).then_some(code);
    // SAFETY: compiled code gives the record that it has begun.
    let log = unsafe { slice::<u8>(middle.log, middle.log_length) };
    let resumed = PartialRun {
        offset: middle.offset as usize,
        top: middle.top as usize,
        elements: &middle.elements[..middle.element_count as usize],
        words: &middle.words[..middle.word_count as usize],
        texts: &middle.texts[..middle.text_count as usize],
        frame,
        calls: &middle.calls[..middle.call_count as usize],
        calls_made: middle.calls_made,
        jumps: middle.jumps,
        instructions: middle.instructions,
        log,
        complete: middle.complete as usize,
        major: code_of(middle.major),
        minor: code_of(middle.minor),
    };
    let program = Program {
        code,
        jmpmax: info.jmpmax,
        insmax: info.insmax,
        logmax: info.logmax as usize,
        mask: info.mask as u16,
        locals,
        globals,
        excpt_log: info.excpt_log as usize,
        autostacktrace: info.autostacktrace != 0,
        heap: info.heap as usize,
        maps: Maps { infos, words },
        constants: Constants(constants),
        point: ProbepointInfo {
            // SAFETY: as above.
            module: unsafe { slice::<u8>(info.module.into(), info.module_length) },
            offset: info.point,
            id: info.id,
            major: info.major,
            minor: info.minor,
        },
        ..Program::default()
    };
    // SAFETY: the context is this thread's.
    let registers = unsafe { &mut (*context).registers };
    let before = *registers;
    let outcome = on_machine(registers, |machine| machine.resume(&program, &resumed, state));
    LEFT.with(|left| {
        *left.borrow_mut() = Some(Left {
            offset: middle.offset,
            outcome,
            stack: (0..state.depth()).map(|below| state.element(below)).collect(),
            log: state.log().to_vec(),
            trace: state.trace().to_vec(),
        });
    });
    // SAFETY: the context is this thread's.
    let context = unsafe { &*context };
    let mut record = 0;
    let lost = outcome.end == End::Remove && info.over != 0 && {
        // SAFETY: it is the address of a word of the arena.
        let over = unsafe { &*(u64::from(info.over) as *const ProbeEnd) };
        over.closed.store(1, SeqCst);
        over.removed.swap(ProbeEnd::BY_HANDLER, SeqCst) != 0
    };
    if outcome.end != End::Abort && info.logmax > 0 && !lost {
        let codes = (outcome.major.unwrap_or(info.major), outcome.minor.unwrap_or(info.minor));
        record = write(context, info, &before, middle, codes, state.log(), &[]);
        if !state.trace().is_empty() {
            write(context, info, &before, middle, (0, 0), &[], state.trace());
        }
    }
    record
}

/// The agent's `map`.
///
/// # Safety
///
/// This thread has claimed the context, and the info and the [`MapCall`] are as compiled code sets
/// them.
pub(crate) unsafe fn map(context: *mut Context, info: *const HandlerInfo) -> u64 {
    // SAFETY: the caller's.
    let (call, frame, registers, info) = unsafe {
        (
            &*context.byte_add(CALL as usize).cast::<MapCall>(),
            std::slice::from_raw_parts_mut(context.byte_add(FRAME as usize).cast::<u8>(), vm::FRAME_LIMIT),
            &mut (*context).registers,
            &*info,
        )
    };
    CALLS.fetch_add(1, Relaxed);
    // SAFETY: addresses and lengths of the info are those of the test's arena.
    let (infos, words) =
        unsafe { (slice(info.maps.into(), info.map_count), slice(info.tables.into(), info.table_words)) };
    let words: &[AtomicU64] = words;
    let (clock, words) = words.split_at_checked(CLOCK_WORDS).unwrap_or_default();
    let maps = Maps { infos, words };
    if call.op == Op::StackOf as u32 {
        let most = call.value.min(vm::FRAMES_LIMIT as u64) as usize;
        let number = on_machine(registers, |machine| machine.stack_number(&maps, call.map as usize, most));
        return number.unwrap_or(0);
    }
    call.carry_out(&maps, frame, || ClockWords(clock).monotonic(0))
}

/// Makes a record; returns its address.
fn write(
    context: &Context,
    info: &HandlerInfo,
    registers: &Registers,
    middle: &Resume,
    (major, minor): (u32, u32),
    log: &[u8],
    trace: &[u8],
) -> u64 {
    let size = record_size(log.len(), Some(trace.len())) as u64;
    let mut head = context.head.load(Relaxed);
    let left = RING_SIZE - head % RING_SIZE;
    let skipped = if left < size { left } else { 0 };
    if head + skipped + size - control_of(context).tail.0.load(Relaxed) > RING_SIZE {
        // SAFETY: the address of a counter of the arena.
        unsafe { &*(u64::from(info.dropped) as *const std::sync::atomic::AtomicU64) }.fetch_add(1, Relaxed);
        return 0;
    }
    let ring = context.ring.load(Relaxed);
    // SAFETY: the ring has room for it, and belongs to this thread as long as it has the context.
    unsafe {
        if skipped > 0 {
            ((ring + head % RING_SIZE) as *mut u32).write(state::SKIP);
            head += skipped;
        }
        let at = ring + head % RING_SIZE;
        (at as *mut Header).write(Header {
            status: status(info.record, flag::MORE, log.len()).into(),
            number: middle.number,
            time: middle.time,
            tid: context.holder.load(Relaxed),
            processor: 0,
            rsp: registers.general[4],
        });
        let data = (at + HEADER as u64) as *mut u8;
        // The log may be there already; the state has a copy.
        std::ptr::copy_nonoverlapping(log.as_ptr(), data, log.len());
        let more = (at as usize + record_size(log.len(), None)) as *mut ExtraHeader;
        more.write(ExtraHeader { major, minor, traces: trace.len() as u64 });
        std::ptr::copy_nonoverlapping(trace.as_ptr(), more.add(1).cast(), trace.len());
        context.head.store(head + size, SeqCst);
        control_of(context).head.0.store(head + size, SeqCst);
        at
    }
}

/// # Safety
///
/// There are that many elements.
unsafe fn slice<'a, T>(address: u64, count: u32) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts(address as *const T, count as usize) }
}

/// Calls of [`map`].
pub(crate) static CALLS: AtomicU64 = AtomicU64::new(0);

/// Whether the reader simulated by [`wait`] is dead.
pub(crate) static DEAD: AtomicBool = AtomicBool::new(false);

/// The agent's `wait`: acts as the reader.
///
/// # Safety
///
/// This thread has claimed the context.
pub(crate) unsafe fn wait(context: *mut Context, bytes: u64) -> u64 {
    // SAFETY: the caller's.
    let context = unsafe { &*context };
    let head = context.head.load(Relaxed);
    assert!(bytes <= RING_SIZE);
    assert!(RING_SIZE - (head - control_of(context).tail.0.load(Relaxed)) < bytes, "there was room");
    if DEAD.load(Relaxed) {
        return 0;
    }
    // Everything is read.
    control_of(context).tail.0.store(head, SeqCst);
    context.seen_tail.store(head, SeqCst);
    1
}
