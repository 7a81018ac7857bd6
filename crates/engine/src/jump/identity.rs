//! The identity page: what handlers know of their process and its threads.
//!
//! It says at which offset from the thread pointer a thread's libc keeps its id and its
//! `struct rseq`, while that is true of all threads of the address space. A *stranger* is a thread
//! of which it is not true: a vfork child, which shares its parent's memory, or one that the
//! program made without its libc. While there is a stranger, the page is cleared, and handlers read
//! what each thread was told of itself (`thread_ids`).
//!
//! A thread registers its `struct rseq` in its first instructions. Until then the `cpu_id` in it
//! must be negative, or the thread would be taken for a registered one that runs on that processor.
//! glibc leaves 0 there, or the data of the stack's last owner; so the tracer writes
//! `RSEQ_CPU_ID_UNINITIALIZED` there for each new thread of the libc.
//!
//! A program can set fs to anything, or unregister its `struct rseq` and reuse the memory, without
//! the tracer's knowledge. So the tracer writes a mark into the bytes of each known thread's
//! `struct rseq` that neither the kernel nor the libc uses, and handlers trust nothing at an offset
//! from fs unless the mark is there.
//!
//! A program that is being started is looked at again when it begins, and some times later: before
//! that its libc has set up nothing.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use layout::{RSEQ_CPU, RSEQ_SIGNATURE, RSEQ_UNUSED, RseqMark};
use process::Stopped;

mod followed;
pub(super) mod space;

/// What is known of all threads of an address space: offsets from the thread pointer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadLayout {
    /// Where a thread keeps its id; 0: nowhere.
    thread: u64,
    /// Where its `struct rseq` is; 0: nowhere.
    rseq: u64,
}

impl ThreadLayout {
    /// Whether it knows all that `other` does, and more.
    fn is_more_than(self, other: ThreadLayout) -> bool {
        let says = |new: u64, old: u64| new == old || old == 0;
        self != other && says(self.thread, other.thread) && says(self.rseq, other.rseq)
    }
}

/// `RSEQ_CPU_ID_UNINITIALIZED` of linux/rseq.h: `cpu_id` before a thread is registered.
const UNREGISTERED: i32 = -1;

/// Where x86-64 libcs keep the thread pointer itself, as an offset from it.
const SELF: u64 = 0x10;

/// How far from the thread pointer a `struct rseq` may be to be used: the libc's, or one in
/// thread-local memory. Memory farther away may be reused by the program for anything.
const NEAR: u64 = 1 << 16;

/// The mark of known threads, which differs in each session.
pub(crate) fn mark() -> RseqMark {
    static MARK: OnceLock<RseqMark> = OnceLock::new();
    *MARK.get_or_init(|| {
        /// AT_RSEQ_FEATURE_SIZE of linux/auxvec.h: how many bytes of a `struct rseq` the kernel
        /// uses.
        const FEATURES: libc::c_ulong = 27;
        // SAFETY: takes no pointers.
        let used = unsafe { libc::getauxval(FEATURES) };
        let used = u32::try_from(used).unwrap_or(RSEQ_UNUSED).clamp(RSEQ_UNUSED, 1 << 12);
        // Unlike common content of memory: not 0, -1 or small.
        let value = RandomState::new().hash_one(std::process::id()) as u32;
        RseqMark { at: used.next_multiple_of(4).cast_signed(), value: value | 0x4000_0100 }
    })
}

/// The delays after which a program that begins is looked at again, one after the other.
const RECHECK_DELAYS: [Duration; 3] =
    [Duration::from_millis(2), Duration::from_millis(30), Duration::from_millis(300)];

/// When the threads of an address space are looked at again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Looks {
    due: Option<Instant>,
    left: usize,
}

impl Looks {
    /// `begins`: the space's program is just being started.
    pub(crate) fn new(begins: bool) -> Looks {
        Looks { due: None, left: if begins { RECHECK_DELAYS.len() } else { 0 } }
    }

    /// Schedules the next look, if any is left: what was found may not be all.
    fn plan(&mut self) {
        if let Some(left) = self.left.checked_sub(1) {
            self.due = Some(Instant::now() + RECHECK_DELAYS[RECHECK_DELAYS.len() - self.left]);
            self.left = left;
        }
    }
}

/// The offset from the thread pointer at which all threads have their `struct rseq`: registered
/// ones and others; none if they differ.
fn common_rseq(threads: &[&Stopped]) -> Option<u64> {
    let offset = threads.iter().find_map(|thread| {
        let registration = thread.rseq_registration()?;
        let pointer = thread.registers().ok()?.fs_base();
        let size = u64::from(registration.size);
        let usable = registration.signature == RSEQ_SIGNATURE && size >= mark().at as u64 + 4;
        usable.then(|| registration.address.wrapping_sub(pointer))
    })?;
    let near = offset.cast_signed().unsigned_abs() <= NEAR;
    (near && threads.iter().all(|thread| has_rseq(thread, offset) && put_mark(thread, offset)))
        .then_some(offset)
}

/// Writes the mark of a known thread, whose `struct rseq` is at an offset from its thread pointer.
fn put_mark(thread: &Stopped, offset: u64) -> bool {
    let Ok(registers) = thread.registers() else { return false };
    let RseqMark { at, value } = mark();
    let address = registers.fs_base().wrapping_add(offset).wrapping_add(at as u64);
    process::write(thread.tid(), address, &value.to_le_bytes()).is_ok()
}

/// Whether a thread's `struct rseq` is at an offset from its thread pointer: it is registered
/// there, or the memory says "not registered".
fn has_rseq(thread: &Stopped, offset: u64) -> bool {
    let Ok(registers) = thread.registers() else { return false };
    let address = registers.fs_base().wrapping_add(offset);
    match thread.rseq_registration() {
        Some(registration) => registration.address == address && registration.signature == RSEQ_SIGNATURE,
        None => {
            let mut processor = [0; 4];
            process::read(thread.tid(), address.wrapping_add(RSEQ_CPU as u64), &mut processor).is_ok()
                && i32::from_le_bytes(processor) < 0
        }
    }
}

/// Whether a new thread is one of the known libc, and so will register its `struct rseq` where the
/// others have theirs. If so, writes "not registered" there.
fn will_have_rseq(thread: &Stopped, known: ThreadLayout) -> bool {
    let Ok(registers) = thread.registers() else { return false };
    let pointer = registers.fs_base();
    if known.thread == 0
        || thread.rseq_registration().is_some()
        || !process::keeps_its_id(thread, known.thread)
    {
        return false;
    }
    let mut own = [0; 8];
    let says = process::read(thread.tid(), pointer.wrapping_add(SELF), &mut own).is_ok();
    let address = pointer.wrapping_add(known.rseq).wrapping_add(RSEQ_CPU as u64);
    says && u64::from_le_bytes(own) == pointer
        && process::write(thread.tid(), address, &UNREGISTERED.to_le_bytes()).is_ok()
}
