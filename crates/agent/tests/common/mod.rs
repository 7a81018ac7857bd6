//! Loads the agent into the test's own process, with the setup that a tracer makes.
//!
//! A signal handler acts as the tracer: it moves a thread that faults in the agent as the fault
//! table says.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

mod low;

use std::collections::BTreeMap;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use dprobes_agent::image::{Entry, Settings, image};
use layout::{
    CALL, CLOCK_WORDS, CONTEXT_SIZE, CONTROL, Clock, Context, Control, ExtraHeader, FRAME, HEADER,
    HandlerInfo, Header, Identity, LOG_SHIFT, MapCall, RESUME, RING_SIZE, Resume, SCRATCH, SCRATCH_SIZE,
    STATE, UNSET, flag, record_size, state,
};
use libc::{c_int, c_void, siginfo_t};
pub use low::{low, protect};
use maps::MapInfo;
use vm::{FRAME_LIMIT, Program, State};

/// The agent loaded in this process.
pub struct Loaded {
    pub base: u64,
    pub end: u64,
    pub identity: u64,
    pub reader: u64,
    pub stacks: u64,
    faults: BTreeMap<u64, u64>,
}

static LOADED: OnceLock<Loaded> = OnceLock::new();

/// Loads the agent into this process, once.
pub fn loaded() -> &'static Loaded {
    LOADED.get_or_init(|| {
        let image = image();
        let base = low(image.size() as u64, 4096);
        let identity = low(4096, 4096);
        let reader = low(4096, 4096);
        let stacks = low(4096, 4096);
        let settings = Settings { identity: identity as u32, reader: reader as u32, stacks: stacks as u32 };
        let bytes = image.at(base, settings);
        // SAFETY: the memory is fresh and has that size.
        unsafe { (base as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        protect(base, bytes.len() as u64, libc::PROT_READ | libc::PROT_EXEC);
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            // SAFETY: all zeros is a valid sigaction; the handler has the type required by
            // SA_SIGINFO.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = repair as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
                assert_eq!(libc::sigaction(signal, &action, null_mut()), 0);
            }
        }
        Loaded {
            base,
            end: base + image.size() as u64,
            identity,
            reader,
            stacks,
            faults: image.faults(base).collect(),
        }
    })
}

/// Handles a fault in the agent as the tracer does.
extern "C" fn repair(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the arguments promised by SA_SIGINFO.
    unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        let registers = &mut context.uc_mcontext.gregs;
        let rip = registers[libc::REG_RIP as usize] as u64;
        match LOADED.get().and_then(|loaded| loaded.faults.get(&rip)) {
            Some(&to) => {
                registers[libc::REG_RIP as usize] = to as i64;
                registers[libc::REG_RAX as usize] = (*info).si_addr() as i64;
            }
            None if LOADED.get().is_some_and(|loaded| (loaded.base..loaded.end).contains(&rip)) => {
                let way_out = image().entry(Entry::GiveUp, LOADED.get().expect("just found").base);
                registers[libc::REG_RIP as usize] = way_out as i64;
            }
            None => {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

/// A context with its ring, and room for descriptions of handlers. A copy refers to the same, for
/// the thread that reads.
#[derive(Clone)]
pub struct Bench {
    pub context: u64,
    pub ring: u64,
    info: u64,
    /// The counter of dropped records, and the word that says whether the probe is disabled
    /// (`Over`).
    pub dropped: &'static AtomicU64,
    pub over: &'static AtomicU64,
    /// Room for bytecode, a name, variables, maps and constants.
    room: u64,
}

/// The layout of a [`Bench`]'s room.
const NAME: u64 = 0x10_0000;
const LOCALS: u64 = 0x11_0000;
const GLOBALS: u64 = 0x19_0000;
const MAPS: u64 = 0x21_0000;
const CONSTANTS: u64 = 0x22_0000;
const TABLES: u64 = 0x23_0000;
const ROOM: u64 = 0x33_0000;

/// The results of a run.
#[derive(Debug)]
pub struct Left {
    /// The return value of the entry point.
    pub result: u64,
    /// The elements pushed and not popped, top first.
    pub stack: Vec<u64>,
    pub log: Vec<u8>,
    pub trace: Vec<u8>,
}

impl Bench {
    pub fn new() -> Bench {
        loaded();
        let context = low(CONTEXT_SIZE, CONTEXT_SIZE);
        let ring = low(RING_SIZE, 4096);
        let info = low(4096, 4096);
        let bench = Bench {
            context,
            ring,
            info,
            // SAFETY: the words are mapped as long as the process lives.
            dropped: unsafe { &*((info + 2048) as *const AtomicU64) },
            // SAFETY: likewise.
            over: unsafe { &*((info + 2056) as *const AtomicU64) },
            room: low(ROOM, 4096),
        };
        bench.context().ring.store(ring, Ordering::Relaxed);
        bench.context().ring_size.store(RING_SIZE, Ordering::Relaxed);
        bench.context().control.store(low(CONTROL, 4096), Ordering::Relaxed);
        bench
    }

    pub fn context(&self) -> &Context {
        // SAFETY: fresh memory of this size.
        unsafe { &*(self.context as *const Context) }
    }

    /// The control line shared by the ring's writer and reader.
    pub fn control(&self) -> &Control {
        // SAFETY: the memory that `new` has made for it.
        unsafe { &*(self.context().control.load(Ordering::Relaxed) as *const Control) }
    }

    pub fn registers(&mut self) -> &mut layout::Registers {
        // SAFETY: as above; nothing else uses them between runs.
        unsafe { &mut (*(self.context as *mut Context)).registers }
    }

    pub fn resume(&mut self) -> &mut Resume {
        // SAFETY: as above.
        unsafe { &mut *((self.context + RESUME) as *mut Resume) }
    }

    pub fn state(&self) -> &State {
        // SAFETY: the agent's interpreter is the one that this test is built with, and its state
        // was all zeros.
        unsafe { &*((self.context + STATE) as *const State) }
    }

    /// The description of a program, whose bytes and variables are copied below 2 GiB.
    pub fn describe(&self, program: &Program<'_>, entry: usize) -> HandlerInfo {
        assert!(program.code.len() as u64 <= NAME && program.point.module.len() <= 0x1_0000);
        let copy = |at: u64, bytes: &[u8]| {
            // SAFETY: there is room for that many bytes there.
            unsafe { ((self.room + at) as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            (self.room + at) as u32
        };
        let words = |at: u64, values: &[AtomicU64]| {
            let values: Vec<u8> =
                values.iter().flat_map(|value| value.load(Ordering::Relaxed).to_le_bytes()).collect();
            copy(at, &values)
        };
        let maps: Vec<u8> = program.maps.infos.iter().flat_map(map_bytes).collect();
        assert!(maps.len() as u64 <= CONSTANTS - MAPS && program.maps.words.len() < 1 << 16);
        words(TABLES + 8 * CLOCK_WORDS as u64, program.maps.words);
        HandlerInfo {
            maps: copy(MAPS, &maps),
            map_count: program.maps.infos.len() as u32,
            tables: (self.room + TABLES) as u32,
            table_words: (CLOCK_WORDS + program.maps.words.len()) as u32,
            threads: 0,
            constants: copy(CONSTANTS, program.constants.0),
            constants_length: program.constants.0.len() as u32,
            hidden: 0,
            point: program.point.offset,
            code: copy(0, program.code),
            code_length: program.code.len() as u32,
            entry: entry as u32,
            jmpmax: program.jmpmax,
            insmax: program.insmax,
            logmax: program.logmax.min(u32::MAX as usize) as u32,
            excpt_log: program.excpt_log.min(u32::MAX as usize) as u32,
            heap: program.heap.min(u32::MAX as usize) as u32,
            mask: program.mask.into(),
            autostacktrace: program.autostacktrace.into(),
            locals: words(LOCALS, program.locals),
            local_count: program.locals.len() as u32,
            globals: words(GLOBALS, program.globals),
            global_count: program.globals.len() as u32,
            module: copy(NAME, program.point.module),
            module_length: program.point.module.len() as u32,
            id: program.point.id,
            major: program.point.major,
            minor: program.point.minor,
            record: state::COMMITTED,
            lossless: 0,
            dropped: std::ptr::from_ref(self.dropped) as u32,
            over: std::ptr::from_ref(self.over) as u32,
        }
    }

    /// Sets the clock before the maps so that handlers see these times: monotonic, elapsed, since
    /// the system's start, and since 1970.
    pub fn set_clock(&self, [monotonic, elapsed, boot, real]: [Option<u64>; 4]) {
        // SAFETY: the room is mapped, and any words are a clock.
        let clock = unsafe { &*((self.room + TABLES) as *const Clock) };
        let now = monotonic.or(elapsed).unwrap_or(0);
        let less = |time: Option<u64>| time.map_or(0, |time| time.wrapping_sub(now));
        for (word, value) in [
            (&clock.monotonic, now),
            // Whatever the time stamp counter counts, the clock stands still.
            (&clock.rate, 0),
            (&clock.start, now.wrapping_sub(elapsed.unwrap_or(0))),
            (&clock.boot, less(boot)),
            (&clock.real, less(real)),
        ] {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Copies the variables and the maps back.
    pub fn take_variables(&self, program: &Program<'_>) {
        let maps = TABLES + 8 * CLOCK_WORDS as u64;
        for (at, values) in [(LOCALS, program.locals), (GLOBALS, program.globals), (maps, program.maps.words)]
        {
            for (number, value) in values.iter().enumerate() {
                // SAFETY: `describe` has put them there.
                let now = unsafe { *((self.room + at + 8 * number as u64) as *const u64) };
                value.store(now, Ordering::Relaxed);
            }
        }
    }

    /// Prepares the context for the start of a run.
    pub fn begin(&mut self, info: &HandlerInfo) -> u64 {
        // SAFETY: the page is the test's.
        unsafe { (self.info as *mut HandlerInfo).write(*info) };
        let resume = self.resume();
        (resume.time, resume.log, resume.log_length, resume.complete) = (99, 0, 0, 0);
        (resume.offset, resume.top, resume.jumps, resume.calls_made) = (info.entry, 0, 0, 0);
        resume.instructions = 0;
        (resume.major, resume.minor) = (UNSET, UNSET);
        (resume.element_count, resume.call_count, resume.number) = (0, 0, 7);
        self.info
    }

    /// Runs a handler from its start.
    pub fn run(&mut self, info: &HandlerInfo) -> Left {
        let info = self.begin(info);
        let result = self.call(info);
        let state = self.state();
        Left {
            result,
            stack: (0..state.depth()).map(|below| state.element(below)).collect(),
            log: state.log().to_vec(),
            trace: state.trace().to_vec(),
        }
    }

    /// Resumes the run in the context.
    pub fn call(&self, info: u64) -> u64 {
        let entry = image().entry(Entry::Resume, loaded().base);
        // SAFETY: the entry is mapped, and its arguments are as required.
        unsafe {
            let resume: extern "C" fn(u64, u64) -> u64 = std::mem::transmute(entry as *const ());
            resume(self.context, info)
        }
    }

    /// Calls an entry point with values in all registers that it must keep, and with these flags.
    /// Returns its result and what was in the vector registers, after checking that all is as before
    /// (of the flags: the direction).
    pub fn call_with_everything(&self, entry: Entry, info: u64, flags: u64) -> (u64, [[u64; 2]; 16]) {
        #[repr(C, align(16))]
        struct Registers {
            vectors: [[u64; 2]; 16],
            /// rbx, rbp, r12 to r15, flags, mxcsr.
            words: [u64; 8],
        }
        let entry = image().entry(entry, loaded().base);
        let vectors: [[u64; 2]; 16] = std::array::from_fn(|number| [number as u64 * 3 + 1, !(number as u64)]);
        let words = [1, 2, 3, 4, 5, 6, flags, 0x1fa0];
        let before = Registers { vectors, words };
        let mut after = Registers { vectors: [[0; 2]; 16], words: [0; 8] };
        let result: u64;
        // SAFETY: rbx and rbp, which are reserved by the compiler, are restored; so are the
        // direction flag and mxcsr.
        unsafe {
            std::arch::asm!(
                "push rbx", "push rbp", "push {after}", "sub rsp, 8",
                "stmxcsr [rsp]",
                "push {entry}",
                ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
                "movups xmm\\number, [{before} + 16 * \\number]",
                ".endr",
                "ldmxcsr [{before} + 256 + 56]",
                "mov rbx, [{before} + 256]", "mov rbp, [{before} + 264]", "mov r12, [{before} + 272]",
                "mov r13, [{before} + 280]", "mov r14, [{before} + 288]", "mov r15, [{before} + 296]",
                "push qword ptr [{before} + 256 + 48]", "popfq",
                "call [rsp]",
                "pushfq", "cld",
                "mov rcx, [rsp + 24]",
                "pop qword ptr [rcx + 256 + 48]",
                ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
                "movups [rcx + 16 * \\number], xmm\\number",
                ".endr",
                "stmxcsr [rcx + 256 + 56]",
                "mov [rcx + 256], rbx", "mov [rcx + 264], rbp", "mov [rcx + 272], r12",
                "mov [rcx + 280], r13", "mov [rcx + 288], r14", "mov [rcx + 296], r15",
                "pop rcx", "ldmxcsr [rsp]", "add rsp, 16", "pop rbp", "pop rbx",
                before = in(reg) &raw const before,
                after = in(reg) &raw mut after,
                entry = in(reg) entry,
                in("rdi") self.context,
                in("rsi") info,
                lateout("rax") result,
                out("r12") _, out("r13") _, out("r14") _, out("r15") _,
                clobber_abi("C"),
            );
        }
        assert_eq!(after.vectors, vectors);
        assert_eq!(&after.words[..6], &words[..6]);
        assert_eq!((after.words[6] ^ flags) & 0x400, 0, "the direction");
        assert_eq!(after.words[7], 0x1fa0);
        (result, vectors)
    }

    /// What is asked of [`Entry::Map`], and the frame.
    pub fn map_call(&mut self) -> (&mut MapCall, &mut [u8]) {
        // SAFETY: they are in the context, apart from one another.
        unsafe {
            (
                &mut *((self.context + CALL) as *mut MapCall),
                std::slice::from_raw_parts_mut((self.context + FRAME) as *mut u8, FRAME_LIMIT),
            )
        }
    }

    /// The record at a place in the ring.
    pub fn record(&self, place: u64) -> Taken<'_> {
        let (at, left) = (self.ring + place % RING_SIZE, RING_SIZE - place % RING_SIZE);
        // SAFETY: the ring is mapped; the lengths are looked at.
        unsafe {
            let header = &*(at as *const Header);
            let status = header.status.load(Ordering::Relaxed);
            let log = (status >> LOG_SHIFT) as usize;
            let more = (status & flag::MORE != 0).then(|| {
                assert!(record_size(log, Some(0)) as u64 <= left);
                *((at + record_size(log, None) as u64) as *const ExtraHeader)
            });
            let traces = more.map_or(0, |more| more.traces as usize);
            let size = record_size(log, more.map(|_| traces)) as u64;
            assert!(size <= left);
            let slice =
                |from: usize, length| std::slice::from_raw_parts((at + from as u64) as *const u8, length);
            let trace = slice(record_size(log, Some(0)), traces);
            let has_log = status & flag::NO_LOG == 0;
            Taken { header, state: status & state::BITS, has_log, log: slice(HEADER, log), more, trace, size }
        }
    }

    /// The record of a run before which this many bytes had been written to the ring.
    pub fn record_behind(&self, head: u64) -> Taken<'_> {
        let at = self.ring + head % RING_SIZE;
        // SAFETY: the ring is mapped.
        let skips = unsafe { (at as *const u32).read() } == state::SKIP;
        self.record(if skips { head.next_multiple_of(RING_SIZE) } else { head })
    }

    /// The stack that the agent may use.
    pub fn stack(&mut self) -> &mut [u8] {
        let start = SCRATCH + SCRATCH_SIZE;
        // SAFETY: it is part of the context, and nobody else looks at it between runs.
        unsafe {
            std::slice::from_raw_parts_mut((self.context + start) as *mut u8, (CONTEXT_SIZE - start) as usize)
        }
    }
}

/// The bytes of a map's description.
fn map_bytes(map: &MapInfo) -> Vec<u8> {
    let sizes = [map.kind, map.signed, map.key, map.value, map.entries];
    let halves = sizes.into_iter().chain([map.copies, map.place, map.words, map.evicts, 0]);
    let whole = [map.a, map.b, map.c];
    let bytes: Vec<u8> =
        halves.flat_map(u32::to_le_bytes).chain(whole.iter().flat_map(|it| it.to_le_bytes())).collect();
    assert_eq!(bytes.len(), size_of::<MapInfo>());
    bytes
}

/// A record in the ring.
pub struct Taken<'a> {
    pub header: &'a Header,
    pub state: u32,
    pub has_log: bool,
    pub log: &'a [u8],
    pub more: Option<ExtraHeader>,
    pub trace: &'a [u8],
    /// Size of the whole record.
    pub size: u64,
}

/// As long as it is held, no other test changes the identity page, of which there is one.
pub fn alone_with_identity() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The identity page of this process.
pub fn identity() -> &'static Identity {
    // SAFETY: it is mapped as long as the process is.
    unsafe { &*(loaded().identity as *const Identity) }
}
