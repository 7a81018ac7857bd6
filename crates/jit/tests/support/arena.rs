//! The memory of a probed process and its tracer, in the test's own process, below 2 GiB.

use dprobes_jit::{Compiled, Environment, Handler, Limits, Variable};
use layout::hidden;
use layout::{
    CONTEXT_SIZE, CONTROL, Context, Control, Entries, ExtraHeader, HEADER, HandlerInfo, Header, Identity,
    LOG_SHIFT, PAGE, PerProcessor, RSEQ_UNUSED, RseqMark, claim, flag, record_size, state,
};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Per-processor contexts in an arena.
pub(crate) const OWN: u32 = 2;
/// All contexts in an arena, including shared ones.
pub(crate) const CONTEXTS: u32 = 4;
/// Bytes of a ring.
pub(crate) const RING_SIZE: u64 = 4 << 20;
/// Processors that counters have words for.
const PROCESSORS: u32 = 64;
/// Bytes of an arena: its cells and code, its contexts, its rings, its table of what is hidden.
const SIZE: u64 = 64 << 20;
/// Where the first arena is.
const FIRST: u64 = 0x1000_0000;
/// Where the cells are, in an arena.
const CELLS: u64 = PAGE;
/// Local variables, and as many global ones.
pub(crate) const VARIABLES: u64 = 65_536;
/// Where the code is, in an arena.
const CODE: u64 = 8 << 20;
/// Bytes of code.
const CODE_SIZE: u64 = 4 << 20;
/// Where the contexts are, in an arena.
const CONTEXT_AREA: u64 = 12 << 20;
/// Where the rings are.
const RINGS: u64 = 16 << 20;
/// Where their control lines are.
const CONTROLS: u64 = RINGS + CONTEXTS as u64 * RING_SIZE;

/// The offset of the table of hidden memory, at first empty.
const HIDDEN: u64 = 40 << 20;

static NEXT: AtomicU64 = AtomicU64::new(FIRST);

/// An arena. Never freed, so that its addresses stay valid.
#[derive(Debug)]
pub(crate) struct Arena {
    base: u64,
    cell: u64,
    code: u64,
    /// Lost records reported by marks in what was read.
    pub(crate) lost: AtomicU64,
}

/// A record as it is in a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) state: u32,
    pub(crate) number: u32,
    pub(crate) processor: u32,
    pub(crate) tid: u32,
    /// The codes, if they may differ from the handler's.
    pub(crate) codes: Option<(u32, u32)>,
    pub(crate) rsp: u64,
    pub(crate) time: u64,
    pub(crate) log: Vec<u8>,
    pub(crate) trace: Vec<u8>,
}

unsafe extern "C" {
    static __rseq_offset: isize;
}

/// What marks this process's threads.
pub(crate) const MARK: RseqMark = RseqMark { at: RSEQ_UNUSED as i32, value: 0x4d41_524b };

/// The thread pointer of the calling thread (fs base).
fn thread_pointer() -> *mut u8 {
    let pointer: *mut u8;
    // SAFETY: the word at fs:0 is the thread pointer itself.
    unsafe { core::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly)) };
    pointer
}

/// The address of the calling thread's mark.
fn own_mark() -> *mut u32 {
    // SAFETY: glibc's struct rseq is there, with at least 32 bytes.
    unsafe { thread_pointer().offset(__rseq_offset).offset(MARK.at as isize).cast() }
}

/// The offset of a thread's id from its thread pointer in glibc.
fn tid_offset() -> u64 {
    /// The part of a `struct pthread` before its struct rseq that holds the id.
    const LOOKED_AT: usize = 0x900;
    // SAFETY: takes no pointers.
    let own = unsafe { libc::gettid() };
    (0..LOOKED_AT)
        .step_by(4)
        // SAFETY: a `struct pthread` is longer.
        .find(|&offset| unsafe { thread_pointer().add(offset).cast::<i32>().read() } == own)
        .expect("glibc has the id in its struct pthread") as u64
}

/// Marks the calling thread as known.
pub(crate) fn mark_thread() {
    // SAFETY: glibc and the kernel leave these bytes of the thread's own memory alone.
    unsafe { own_mark().write_volatile(MARK.value) };
}

/// Removes the mark.
pub(crate) fn unmark_thread() {
    // SAFETY: as above.
    unsafe { own_mark().write_volatile(0) };
}

impl Default for Arena {
    fn default() -> Self {
        Arena::new()
    }
}

impl Arena {
    /// Fresh memory, all zeros except the rings' addresses and the identity.
    pub(crate) fn new() -> Arena {
        let base = NEXT.fetch_add(SIZE, Relaxed);
        assert!(base + SIZE <= layout::LOW_END);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        // SAFETY: MAP_FIXED_NOREPLACE replaces no existing mapping.
        let at = unsafe { libc::mmap(base as *mut _, SIZE as usize, all, flags, -1, 0) };
        assert_eq!(at as u64, base, "{}", std::io::Error::last_os_error());
        let arena = Arena {
            base,
            cell: base + CELLS + 2 * 8 * VARIABLES,
            code: base + CODE,
            lost: AtomicU64::new(0),
        };
        for number in 0..CONTEXTS {
            let ring = base + RINGS + u64::from(number) * RING_SIZE;
            arena.context(number).ring.store(ring, Relaxed);
            arena.context(number).ring_size.store(RING_SIZE, Relaxed);
            let control = base + CONTROLS + u64::from(number) * CONTROL;
            arena.context(number).control.store(control, Relaxed);
            arena.context(number).claim.store(claim::FREE, Relaxed);
        }
        arena.identity().pid.store(std::process::id(), Relaxed);
        arena.identity().owner.store(std::process::id(), Relaxed);
        // SAFETY: glibc sets it before main and never again.
        arena.identity().rseq_offset.store(unsafe { __rseq_offset } as u64, Relaxed);
        arena.identity().tid_offset.store(tid_offset(), Relaxed);
        mark_thread();
        arena
    }

    /// Gives some pages marks: handlers see the same, but must check more closely.
    pub(crate) fn mark_pages(&self) {
        let marks = [0, 0, hidden::MARK_OURS, hidden::BEFORE_OURS, 0, hidden::BELOW_STACK, 0];
        for page in 0..hidden::LEAF {
            // Seven does not divide the pages of a leaf, so that runs differ in what they find.
            self.mark(page << hidden::PAGE_BITS, marks[page as usize % marks.len()]);
        }
    }

    /// Marks the pages that share a mark with the one at an address.
    pub(crate) fn mark(&self, address: u64, mark: u8) {
        let page = address >> hidden::PAGE_BITS & u64::from(hidden::INDEX);
        // SAFETY: the leaf is part of the arena, and no handler runs.
        unsafe { ((self.base + HIDDEN + hidden::CLEAN_LEAF + page) as *mut u8).write(mark) };
    }

    /// The identity page.
    pub(crate) fn identity(&self) -> &'static Identity {
        // SAFETY: the arena is mapped for ever, the page is aligned and all zeros is a valid
        // Identity of atomics.
        unsafe { &*(self.base as *const Identity) }
    }

    /// A context.
    pub(crate) fn context(&self, number: u32) -> &'static Context {
        let at = self.base + CONTEXT_AREA + u64::from(number) * CONTEXT_SIZE;
        // SAFETY: as above. What is not atomic in it is looked at only while no hit runs.
        unsafe { &*(at as *const Context) }
    }

    /// The control line shared by the writer and reader of a context's ring.
    pub(crate) fn control(&self, number: u32) -> &'static Control {
        // SAFETY: as above.
        unsafe { &*((self.base + CONTROLS + u64::from(number) * CONTROL) as *const Control) }
    }

    /// A word of 8 bytes, 0 at first.
    pub(crate) fn word(&mut self) -> u32 {
        self.cell += 8;
        assert!(self.cell < self.base + CODE);
        (self.cell - 8) as u32
    }

    /// A per-processor counter.
    pub(crate) fn counter(&mut self) -> PerProcessor {
        let address = self.cell as u32;
        self.cell += u64::from(PROCESSORS) * 64;
        PerProcessor { address, shift: 6, spill: self.word() }
    }

    /// The word at an address of the arena's cells.
    pub(crate) fn at(&self, address: u32) -> &'static AtomicU64 {
        // SAFETY: the callers give addresses that `word` or `counter` gave, or those of variables:
        // mapped and aligned.
        unsafe { &*(u64::from(address) as *const AtomicU64) }
    }

    /// The sum of a counter.
    pub(crate) fn sum(&self, counter: PerProcessor) -> u64 {
        let words = (0..PROCESSORS).map(|processor| counter.address + (processor << counter.shift));
        words
            .chain([counter.spill])
            .fold(0, |sum: u64, address| sum.wrapping_add(self.at(address).load(Relaxed)))
    }

    /// The address of the local variables.
    pub(crate) fn locals(&self) -> u32 {
        (self.base + CELLS) as u32
    }

    /// The address of the global variables.
    pub(crate) fn globals(&self) -> u32 {
        (self.base + CELLS + 8 * VARIABLES) as u32
    }

    /// Variables, by the address of the first.
    pub(crate) fn variables(&self, address: u32, count: usize) -> &'static [AtomicU64] {
        assert!(count as u64 <= VARIABLES);
        // SAFETY: the arena has that many at each of the two addresses.
        unsafe { std::slice::from_raw_parts(u64::from(address) as *const AtomicU64, count) }
    }

    /// Copies bytes to executable memory; returns their address, aligned to 32.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> u64 {
        let at = self.code.next_multiple_of(32);
        self.code = at + bytes.len() as u64;
        assert!(self.code < self.base + CODE + CODE_SIZE);
        // SAFETY: the range is inside of the arena's code, where nothing else writes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
        at
    }

    /// Forgets all code and all words.
    pub(crate) fn clear_code(&mut self) {
        self.code = self.base + CODE;
        let first = self.base + CELLS + 2 * 8 * VARIABLES;
        while self.cell > first {
            self.cell -= 8;
            self.at(self.cell as u32).store(0, Relaxed);
        }
    }

    /// The code that jumps to a function from below 2 GiB.
    fn thunk(&mut self, function: u64) -> u32 {
        let mut bytes = vec![0x48, 0xb8];
        bytes.extend(function.to_le_bytes());
        bytes.extend([0xff, 0xe0]);
        self.put(&bytes) as u32
    }

    /// An environment, with the arena's data.
    pub(crate) fn environment(&mut self) -> Environment<'static> {
        let agent = Entries {
            resume: self.thunk(super::native::resume_entry()),
            wait: self.thunk(super::native::wait_entry()),
            map: self.thunk(super::native::map_entry()),
        };
        Environment {
            identity: self.base as u32,
            contexts: (self.base + CONTEXT_AREA) as u32,
            own_contexts: OWN,
            shared_contexts: CONTEXTS - OWN,
            ring_size: RING_SIZE as u32,
            locals: self.locals(),
            globals: self.globals(),
            maps: &[],
            constants: vm::Constants::default(),
            tables: 0,
            processors: 0,
            counted: &[],
            hits: self.counter(),
            missed: self.word(),
            dropped: self.word(),
            over: self.word(),
            removable: false,
            limits: None,
            agent,
            info: 0,
            number: 77,
            site: 0x5555_1234_5678,
            flags_live: true,
            tentative: false,
            mark: MARK,
            waits: false,
            lossless: None,
            hidden: (self.base + HIDDEN) as u32,
            rdpid: true,
        }
    }

    /// The address of the interpreter's description of a handler. `change` sets `heap` and so on.
    pub(crate) fn info(
        &mut self,
        handler: &Handler<'_>,
        environment: &Environment<'_>,
        change: impl FnOnce(&mut HandlerInfo),
    ) -> u32 {
        let code = self.put(handler.code) as u32;
        let tentative = environment.tentative;
        let mut info = HandlerInfo {
            code,
            code_length: handler.code.len() as u32,
            entry: handler.entry as u32,
            jmpmax: handler.jmpmax,
            insmax: handler.insmax,
            logmax: handler.logmax as u32,
            excpt_log: 1024,
            mask: handler.mask.into(),
            locals: environment.locals,
            local_count: handler.locals.into(),
            globals: environment.globals,
            global_count: handler.globals.into(),
            major: handler.major,
            minor: handler.minor,
            record: if tentative { state::TENTATIVE } else { state::COMMITTED },
            lossless: environment.lossless.is_some().into(),
            dropped: environment.dropped,
            over: environment.over,
            ..HandlerInfo::default()
        };
        change(&mut info);
        // SAFETY: HandlerInfo is repr(C) without padding that is read: it is copied as bytes.
        let bytes =
            unsafe { std::slice::from_raw_parts((&raw const info).cast::<u8>(), size_of::<HandlerInfo>()) };
        self.put(bytes) as u32
    }

    /// Places a compiled handler, with a jump back to the test behind it; returns its address.
    pub(crate) fn place(&mut self, compiled: &Compiled, behind: &[u8]) -> u64 {
        let address = self.code.next_multiple_of(32);
        let mut bytes = Vec::new();
        compiled.append_at(address, &mut bytes);
        bytes.extend_from_slice(behind);
        // jmp *0(%rip)
        bytes.extend([0xff, 0x25, 0, 0, 0, 0]);
        bytes.extend(super::native::way_back().to_le_bytes());
        let at = self.put(&bytes);
        assert_eq!(at, address);
        at
    }

    /// Takes all records out of all rings.
    pub(crate) fn records(&self) -> Vec<Taken> {
        (0..CONTEXTS).flat_map(|number| self.records_of(number)).collect()
    }

    /// Takes all records out of a ring.
    pub(crate) fn records_of(&self, number: u32) -> Vec<Taken> {
        let context = self.context(number);
        let ring = context.ring.load(Relaxed);
        let mut taken = Vec::new();
        let control = self.control(number);
        let (mut tail, head) = (control.tail.0.load(Relaxed), control.head.0.load(Relaxed));
        assert!(head - tail <= RING_SIZE, "more than there is: {tail:#x} to {head:#x}");
        while tail < head {
            let at = ring + tail % RING_SIZE;
            let left = RING_SIZE - tail % RING_SIZE;
            // SAFETY: a record's first 8 bytes never cross the end of the ring.
            let status = unsafe { &*(at as *const AtomicU32) }.load(Relaxed);
            let state = status & state::BITS;
            if state == state::SKIP {
                tail += left;
                continue;
            }
            if state == state::LOST {
                // SAFETY: likewise.
                let count = unsafe { *((at + 4) as *const u32) };
                self.lost.fetch_add(count.into(), Relaxed);
                tail += layout::LOST_MARK as u64;
                continue;
            }
            let log = (status >> LOG_SHIFT) as usize;
            assert!(record_size(log, None) as u64 <= left);
            // SAFETY: the record lies within the ring, which no one writes now.
            let header = unsafe { &*(at as *const Header) };
            // SAFETY: likewise.
            let bytes = |from: usize, count| unsafe {
                std::slice::from_raw_parts((at as usize + from) as *const u8, count)
            };
            let more = (status & flag::MORE != 0).then(|| {
                assert!(record_size(log, Some(0)) as u64 <= left);
                // SAFETY: likewise.
                unsafe { *((at as usize + record_size(log, None)) as *const ExtraHeader) }
            });
            let traces = more.map_or(0, |more| more.traces as usize);
            let size = record_size(log, more.map(|_| traces));
            assert!(size as u64 <= left && size as u64 <= head - tail, "{size}");
            tail += size as u64;
            taken.push(Taken {
                state,
                number: header.number,
                processor: header.processor,
                tid: header.tid,
                codes: more.map(|more| (more.major, more.minor)),
                rsp: header.rsp,
                time: header.time,
                log: bytes(HEADER, log).to_vec(),
                trace: bytes(record_size(log, Some(0)), traces).to_vec(),
            });
        }
        assert_eq!(tail, head);
        control.tail.0.store(tail, Relaxed);
        taken
    }

    /// Empties all rings, unread, and frees all contexts.
    pub(crate) fn forget(&self) {
        for number in 0..CONTEXTS {
            let context = self.context(number);
            self.control(number).tail.0.store(context.head.load(Relaxed), Relaxed);
            context.claim.store(claim::FREE, Relaxed);
        }
    }

    /// Whether no context is claimed.
    pub(crate) fn all_free(&self) -> bool {
        (0..CONTEXTS).all(|number| self.context(number).claim.load(Relaxed) == claim::FREE)
    }
}

/// The control line of a context's ring.
pub(crate) fn control_of(context: &Context) -> &'static Control {
    // SAFETY: every context of an arena has the address of its ring's, which is mapped for ever.
    unsafe { &*(context.control.load(Relaxed) as *const Control) }
}

/// Types that tests use often.
pub(crate) type Counted = (Variable, PerProcessor);
/// Likewise.
pub(crate) type Limit = Limits;
