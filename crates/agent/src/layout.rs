//! The memory that a probed process and its tracer share.
//!
//! All of it but the rings is mapped below 2 GiB ([`LOW_END`]), so that compiled code addresses it absolutely (a 32-bit
//! displacement), whatever module it was reached from. There are five kinds of area:
//!
//! | area | shared by | holds |
//! |---|---|---|
//! | [`Identity`] page | one address space; zeroed by the kernel in a forked child | who the process is, how its threads are known |
//! | cells | the processes of one trust domain | a program's variables; its counters, once per processor |
//! | sign of life | all processes of a tracer, which can only read it | one word that the reader of the rings changes |
//! | contexts | one address space; zeroed by the kernel in a forked child | [`Context`]s |
//! | rings | one address space, and the tracer; not there in a forked child | a [`Control`] for each ring, then the rings |
//! | code | one address space | the agent's own code; never written by the process |
//!
//! Addresses, sizes and the place of the next record are in contexts and in code: no other process can write there. What
//! compiled code reads from a ring's memory is one number, how far the reader has come, and any value of it is a place in the ring.
//!
//! Whatever the tracer reads here, the process can have overwritten: it is looked at as input, not believed.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The end of the addresses that a sign-extended 32-bit displacement reaches from 0.
pub const LOW_END: u64 = 1 << 31;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// The low bits of what `rdpid` gives that are the processor's number; the others are its node.
pub const PROCESSOR_MASK: u32 = 0xfff;

/// Who a process is: one private page for each address space, mapped with `MADV_WIPEONFORK`. A child finds it zeroed:
/// nothing is known then, until the tracer has filled it in again. What is not known here, the thread's own descriptors say
/// ([`crate::thread_id`]): no handler makes a system call.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Identity {
    /// The process id, or 0: not known (or several processes share the memory).
    pub pid: AtomicU32,
    /// The process whose memory this is, also while several processes share it; 0: not known.
    pub owner: AtomicU32,
    /// Where a thread keeps its id, as an offset from `fs` (the libc's `struct pthread`), or 0: not known.
    pub tid_offset: AtomicU64,
    /// Where a thread's registered `struct rseq` is, as an offset from `fs` (glibc's `__rseq_offset`), or 0: not known. It is set
    /// only where the kernel confirmed the place and glibc's signature ([`RSEQ_SIGNATURE`]).
    pub rseq_offset: AtomicU64,
    /// Not 0 while nobody of this address space is to wait, for room or for a context (with `--lossless`): the tracer waits for somebody in
    /// it.
    pub gives_up: AtomicU32,
    /// Not 0 where threads may not read the time stamp counter (`PR_SET_TSC`, which seccomp's strict mode does, too): what the tracer writes
    /// to `time` every few milliseconds stands for it.
    pub clockless: AtomicU32,
    /// The time stamp counter, a while ago.
    pub time: AtomicU64,
    /// The reader's last sign of life, where it has not changed for so long that the reader must be dead: no thread waits for it. 0: none.
    pub dead: AtomicU64,
    /// What is written here does not matter: the state of a record that there is not, so that what commits a record need
    /// not ask whether there is one.
    pub nothing: Line,
    /// Not 0 where a thread has looked for a context in vain (with `--lossless`): the tracer clears it.
    pub crowded: Line,
}

/// The signature that glibc registers, found before each place that a restartable sequence aborts to.
pub const RSEQ_SIGNATURE: u32 = 0x5305_3053;
/// Where `cpu_id` is in the kernel's `struct rseq`.
pub const RSEQ_CPU: i32 = 4;
/// Where `rseq_cs` is in the kernel's `struct rseq`.
pub const RSEQ_SECTION: i32 = 8;
/// The first byte behind what kernels up to 6.18 keep in a `struct rseq`; its size is at least 32 bytes.
pub const RSEQ_UNUSED: u32 = 28;

/// How a thread is known to be one whose `struct rseq` is where [`Identity::rseq_offset`] says: the tracer has written this mark into
/// the unused bytes of it. The number in [`RSEQ_CPU`] alone is no proof: in memory that is something else it may well be 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Where it is in the `struct rseq`.
    pub at: i32,
    /// Four bytes that are not there by chance.
    pub value: u32,
}

/// A counter that each processor counts for itself. Its value is the sum of its words.
///
/// The word of processor `p` is at `address + (p << shift)`. [`SPILL`](PerProcessor::spill) is one word more, for threads that
/// cannot use a restartable sequence: it alone is counted with a locked increment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerProcessor {
    /// The word of processor 0, below [`LOW_END`].
    pub address: u32,
    /// The distance between the words of two processors, as a power of two.
    pub shift: u8,
    /// The spill word's address, below [`LOW_END`].
    pub spill: u32,
}

/// Working memory of one hit at a time, claimed by the thread that hits.
///
/// Contexts follow one another at a distance of [`CONTEXT_SIZE`] bytes, the first at a multiple of that. The first ones belong
/// to a processor each, by its number: a thread that runs there claims it by a plain store that ends a restartable sequence, if it
/// is free; nobody else claims it ever. The others are shared: the first is taken whose `claim` is exchanged from FREE to TAKEN.
///
/// The memory is private, and zeroed by the kernel in a forked child: there all contexts are UNUSABLE, and hits that need one are
/// missed, until the tracer has given the child rings of its own.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Context {
    /// The thread that has it, for when that thread is killed. One store can say who claims it, together with `claim`.
    pub holder: AtomicU32,
    /// One of [`claim`]. Given back by a plain store of FREE.
    pub claim: AtomicU32,
    /// The address of the displaced instruction that comes after the handler that runs in it.
    pub site: AtomicU64,
    /// Bytes that were ever put into its ring. Written by the thread that has the context.
    pub head: AtomicU64,
    /// The value of [`Control::tail`] when the thread looked last: the reader's own is not touched while there is room. Behind a record that
    /// was lost the ring looks full here, so that the next one looks again, and leaves a mark.
    pub seen_tail: AtomicU64,
    /// The address of its ring.
    pub ring: AtomicU64,
    /// Bytes of its ring: a power of two from [`LEAST_RING`] to [`GREATEST_RING`].
    pub ring_size: AtomicU64,
    /// The address of its ring's [`Control`].
    pub control: AtomicU64,
    /// Of [`Control::lost`], those that marks in the ring tell ([`state::LOST`]).
    pub marked: AtomicU64,
    /// The program's registers, for handlers that leave compiled code: see [`Registers`].
    pub registers: Registers,
}

/// The values of [`Context::claim`].
pub mod claim {
    /// It has no ring: what a forked child finds.
    pub const UNUSABLE: u32 = 0;
    /// Nobody has it.
    pub const FREE: u32 = 1;
    /// A thread has it.
    pub const TAKEN: u32 = 2;
}

/// What a ring's writer and its reader tell each other. Those of all rings stand in front of the rings.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Control {
    /// [`Context::head`] behind the last record that was finished. Written by the thread that has the context.
    pub head: Line,
    /// Bytes that were ever taken out of the ring, or [`ABANDONED`]. Written by the reader.
    pub tail: Line,
    /// Records that were ever dropped since the ring had no room for them. Written by the thread that has the context.
    pub lost: Line,
    /// The id of the thread that waits for room, as it has it itself; 0: none does. Written by the thread that has the context.
    pub waiter: Line,
}

/// Bytes of a [`Control`].
pub const CONTROL: u64 = size_of::<Control>() as u64;

/// A word in a cache line of its own.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Line(pub AtomicU64);

/// The registers of the thread as it reached the site. Compiled code stores them before it calls the agent and loads them
/// after.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15: in the order of their numbers in machine code.
    pub general: [u64; 16],
    /// The site's address.
    pub rip: u64,
    /// The flags.
    pub rflags: u64,
}

/// Bytes from one context to the next: the [`Context`], the interpreter's working memory and a stack, which the agent's
/// code uses from the end down.
///
/// | offset | what is there |
/// |---|---|
/// | 0 | [`Context`] |
/// | [`RESUME`] | [`Resume`] |
/// | [`SAVED`] | [`Saved`] |
/// | [`STATE`] | the interpreter's working memory: a `vm::State` |
/// | [`SCRATCH`] | a record that has no room in the ring: a [`Header`], then [`SCRATCH_SIZE`] less its bytes |
/// | ... | unused |
/// | [`CONTEXT_SIZE`] | the end of the stack |
pub const CONTEXT_SIZE: u64 = 256 << 10;

/// Where a context's [`Resume`] is.
pub const RESUME: u64 = PAGE;

/// Where a context's [`Saved`] is.
pub const SAVED: u64 = PAGE + 0xc00;

/// Where a context's `vm::State` is.
pub const STATE: u64 = 2 * PAGE;

/// Where a context's scratch record is. Compiled code writes a record here that it knows will be dropped.
pub const SCRATCH: u64 = 128 << 10;

/// Bytes of a scratch record: the header, the largest log, what may follow it, and 8 bytes that may be written behind it.
pub const SCRATCH_SIZE: u64 = record_size(vm::LOG_LIMIT, Some(0)) as u64 + 8;

/// What the agent keeps of the program while it runs on a context.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Saved {
    /// xmm0 to xmm15.
    pub vectors: [u128; 16],
    /// The stack pointer.
    pub stack: u64,
    /// The address of the [`HandlerInfo`].
    pub handler: u64,
}

/// Stands in [`Control::tail`] for a reader that will not read any more: nobody waits for room then, and what has no room is
/// dropped. It stands for the same, and for all rings, in the word by which the reader shows that it lives. That is a word
/// that only the tracer can write, and which changes several times a second; if the reader dies, whoever is left stores this there. If
/// nobody is left, a thread that has waited for long (2^35 counts of the time stamp counter, 7 to 20 seconds) and has not
/// seen the word change says so to its process, in [`Identity::dead`].
pub const ABANDONED: u64 = u64::MAX;

/// The most elements of the stack that compiled code hands over.
pub const RESUME_ELEMENTS: usize = 96;

/// Stands for a code that a handler did not set, in [`Resume`].
pub const UNSET: u32 = u32::MAX;

/// Where a run is that leaves compiled code: [`vm::Middle`] as compiled code stores it. Of `elements` and `calls`, as many
/// are set as there are.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Resume {
    /// The time stamp counter when the hit began to log, or when it left compiled code.
    pub time: u64,
    /// Where what it has logged is.
    pub log: u64,
    /// Bytes that it has logged.
    pub log_length: u32,
    /// Bytes logged when the last logging that succeeded had ended.
    pub complete: u32,
    /// The offset in the bytecode of the next instruction.
    pub offset: u32,
    /// The slot of the stack's top.
    pub top: u32,
    /// Jumps that were taken.
    pub jumps: u32,
    /// Calls that were made.
    pub calls_made: u32,
    /// Instructions that were executed; 0 where the run cannot come to `insmax`.
    pub instructions: u32,
    /// The major code that it set, or [`UNSET`].
    pub major: u32,
    /// The minor code that it set, or [`UNSET`].
    pub minor: u32,
    /// Elements of the stack in `elements`; all others are 0.
    pub element_count: u32,
    /// Calls in `calls`.
    pub call_count: u32,
    /// The number that its record gets ([`Header::number`]).
    pub number: u32,
    /// The elements of the stack.
    pub elements: [vm::Element; RESUME_ELEMENTS],
    /// The calls that have not returned, the outermost first.
    pub calls: [vm::Call; vm::CALL_DEPTH],
}

/// What the interpreter needs to know of a handler: written by the tracer, once for each probepoint, below [`LOW_END`].
/// All addresses are below it too.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandlerInfo {
    /// The probepoint's offset in its module, as stack traces name it.
    pub point: u64,
    /// The address of the bytecode.
    pub code: u32,
    /// Bytes of bytecode.
    pub code_length: u32,
    /// The offset of the handler's first instruction in it.
    pub entry: u32,
    /// Jumps that a run may take.
    pub jmpmax: u32,
    /// Instructions that a run may execute.
    pub insmax: u32,
    /// Bytes that a run may log. 0: it makes no record.
    pub logmax: u32,
    /// Bytes of stack traces.
    pub excpt_log: u32,
    /// Bytes of heap.
    pub heap: u32,
    /// The exceptions that are raised.
    pub mask: u32,
    /// 1 where every exception leaves a stack trace, else 0.
    pub autostacktrace: u32,
    /// The address of the local variables, 8 bytes each.
    pub locals: u32,
    /// Local variables.
    pub local_count: u32,
    /// The address of the global variables, 8 bytes each.
    pub globals: u32,
    /// Global variables.
    pub global_count: u32,
    /// The address of the module's name.
    pub module: u32,
    /// Bytes of it.
    pub module_length: u32,
    /// The program's number (`id =`).
    pub id: u32,
    /// The program's major code: that of records where the handler sets none.
    pub major: u32,
    /// The probe's minor code, likewise.
    pub minor: u32,
    /// The state that its records get: [`state::COMMITTED`] or [`state::TENTATIVE`].
    pub record: u32,
    /// 1 where a full ring is waited for, 0 where the record is dropped.
    pub lossless: u32,
    /// The address of the counter of dropped records: 8 bytes, counted with a locked increment.
    pub dropped: u32,
    /// The address of the probe's [`Over`]. 0: there is none, and nothing ends it.
    pub over: u32,
    /// The address of the table of what handlers do not see ([`crate::hidden`]). 0: the program accesses no memory.
    pub hidden: u32,
}

/// Whether a probe is over, for its handlers wherever they run.
#[repr(C, align(8))]
#[derive(Debug, Default)]
pub struct Over {
    /// Not 0: no run of the handler begins any more. Set by the run that is the last of `maxhits` when it begins, by the run
    /// that ends with `remove`, and by the tracer.
    pub closed: AtomicU32,
    /// Not 0: the probe is removed. A run that ends with `remove` sets [`Over::BY_HANDLER`]; if it finds anything set it makes
    /// no record: of all runs that remove a probe one is the first. The tracer sets [`Over::BY_TRACER`]. A run that takes
    /// long ends where it finds anything.
    pub removed: AtomicU32,
}

impl Over {
    /// A run has ended with `remove`.
    pub const BY_HANDLER: u32 = 1;
    /// The tracer takes the probe out.
    pub const BY_TRACER: u32 = 2;
}

/// The entries of the agent that compiled code calls, by their addresses below [`LOW_END`].
///
/// Arguments and results are those of `extern "C"`, and so are the registers that are kept. The code there switches to
/// the context's own stack ([`CONTEXT_SIZE`] from its start, down), saves and restores xmm0 to xmm15, and the flags as they
/// were: compiled code may be called with the direction flag set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// `resume(context: *mut Context, handler: *const HandlerInfo) -> u64`: goes on with the run in the context's [`Resume`],
    /// on [`Context::registers`], to its end, and makes its records. The context stays claimed. The result is the address
    /// of its record, if that is TENTATIVE, or that of [`Identity::nothing`]. Stack traces are part of the record.
    pub resume: u32,
    /// `wait(context: *mut Context, bytes: u64) -> u64`: returns 1 when that many bytes of the context's ring are free, with
    /// [`Context::seen_tail`] set; 0 when they will never be, since nobody reads. Only `--lossless` calls it.
    pub wait: u32,
}

/// The header of a record in a ring. The bytes that the handler logged follow, up to a multiple of 8, then a [`More`] if there is one, then its
/// stack traces, up to a multiple of 8. A record never wraps: one that does not fit before the end of the ring begins at its start, behind
/// the word [`state::SKIP`]. Where records were lost, a [`MARK`] stands.
///
/// What is the same in all records of a handler at a site is not here: the tracer knows it by the site's number. Nor is the process: a ring
/// belongs to one address space.
///
/// ```text
///  0  4  status: 1 state, 1 flags, 2 bytes that the handler logged
///  4  4  number of the site
///  8  8  time stamp counter
/// 16  4  thread
/// 20  4  processor
/// 24  8  stack pointer at the site
/// ```
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    /// A [`status`]. The lowest byte, one of [`state`], is changed when the record is committed or dropped.
    pub status: AtomicU32,
    /// The site, with the probe whose handler has run there: a number that the tracer gave the two.
    pub number: u32,
    /// The time stamp counter.
    pub time: u64,
    /// The thread.
    pub tid: u32,
    /// The processor (with its node, as `rdpid` gives them).
    pub processor: u32,
    /// The stack pointer at the site.
    pub rsp: u64,
}

/// Bytes of a [`Header`].
pub const HEADER: usize = size_of::<Header>();

/// What only some records have: [`flag::MORE`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct More {
    /// The major code of this record. Without it, it is that of its program.
    pub major: u32,
    /// The minor code of this record. Without it, it is that of its probe.
    pub minor: u32,
    /// Bytes of its stack traces; they are shown as a record of their own, with major and minor code 0.
    pub traces: u64,
}

/// Bytes of a [`More`].
pub const MORE: usize = size_of::<More>();

/// [`Header::status`] of a record with so many bytes of log.
pub const fn status(state: u32, flags: u32, log: usize) -> u32 {
    state | flags | (log as u32) << LOG_SHIFT
}

/// Bytes that say, between two records, that others were lost there: [`state::LOST`] in 4 bytes, and how many in 4. It is written before
/// the next record that has room.
pub const MARK: usize = 8;

/// Where the number of logged bytes begins in a [`status`].
pub const LOG_SHIFT: u32 = 16;

/// The bits that [`status`] can have beside state and length.
pub mod flag {
    /// A [`More`](super::More) follows the log.
    pub const MORE: u32 = 1 << 8;
    /// The handler makes no record of its log, and there is nothing but its stack traces.
    pub const NO_LOG: u32 = 1 << 9;
}

/// Bytes of a record with so many of log, and so many of stack traces if it has a [`More`].
pub const fn record_size(log: usize, traces: Option<usize>) -> usize {
    let more = match traces {
        Some(traces) => MORE + traces.next_multiple_of(8),
        None => 0,
    };
    HEADER + log.next_multiple_of(8) + more
}

/// The states of a record in a ring: the lowest byte of its [`status`].
pub mod state {
    /// The bits that are the state.
    pub const BITS: u32 = 0xff;
    /// Its instruction has completed.
    pub const COMMITTED: u32 = 1;
    /// Its instruction has not completed: the reader waits.
    pub const TENTATIVE: u32 = 2;
    /// Its instruction faulted: it is passed over and counted.
    pub const DROPPED: u32 = 3;
    /// Nothing is here: the next record is at the start of the ring.
    pub const SKIP: u32 = 4;
    /// No record, but a [`MARK`](super::MARK).
    pub const LOST: u32 = 5;
}

/// Bytes of a ring where nothing else is asked for: a sixth of a second of two million small records a second.
pub const RING_SIZE: u64 = 16 << 20;
/// Bytes of a ring, at least: several of the largest records.
pub const LEAST_RING: u64 = 256 << 10;
/// Bytes of a ring, at most.
pub const GREATEST_RING: u64 = 64 << 20;

const _: () = {
    assert!(size_of::<Context>() as u64 <= PAGE);
    assert!(RESUME + size_of::<Resume>() as u64 <= SAVED);
    assert!(SAVED + size_of::<Saved>() as u64 <= STATE);
    assert!(STATE + size_of::<vm::State>() as u64 <= SCRATCH);
    assert!(LEAST_RING.is_power_of_two() && RING_SIZE.is_power_of_two() && GREATEST_RING.is_power_of_two());
    assert!(LEAST_RING >= 2 * (record_size(vm::LOG_LIMIT, Some(vm::TRACE_LIMIT)) as u64 + 8));
    // A length is two bytes.
    assert!(vm::LOG_LIMIT <= u16::MAX as usize);
    // No stack of less than this is left for the agent's code.
    assert!(CONTEXT_SIZE - SCRATCH - SCRATCH_SIZE >= 64 << 10);
    assert!(CONTEXT_SIZE.is_power_of_two());
};

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn the_fields_are_where_compiled_code_expects_them() {
        assert_eq!((HEADER, MORE), (32, 16));
        assert_eq!((offset_of!(Control, head), offset_of!(Control, tail)), (0, 64));
        assert_eq!(offset_of!(Control, lost), 128);
        assert!(offset_of!(Context, marked) + 8 <= 64);
        assert_eq!(offset_of!(Context, registers) % 64, 0);
    }

    const _: () = assert!(size_of::<Context>() as u64 <= PAGE);
    const _: () = assert!(RESUME + size_of::<Resume>() as u64 <= STATE);
    const _: () = assert!(STATE + size_of::<vm::State>() as u64 <= SCRATCH);
    /// No stack of less than this is left for the agent's code.
    const _: () = assert!(CONTEXT_SIZE - SCRATCH - SCRATCH_SIZE >= 64 << 10);
}
