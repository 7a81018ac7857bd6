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
use std::mem::offset_of;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use layout::{Identity, RSEQ_CPU, RSEQ_SIGNATURE, RSEQ_UNUSED, RseqMark};
use process::{Event, Stopped};

use crate::space::Space;
use crate::tracer::Tracer;

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

impl Tracer<'_> {
    /// Looks at a program that begins now: its libc may have set up more.
    pub(crate) fn identify_begun(&mut self, thread: &Stopped) {
        let Some(number) = self.threads.get(&thread.tid()).and_then(|tracked| tracked.space) else { return };
        if self.spaces.get(&number).is_some_and(|space| space.known.is_some()) {
            self.look(number, Some(thread));
        }
    }

    /// Looks at the address spaces that are due.
    pub(crate) fn identify_again(&mut self) {
        let now = Instant::now();
        let due = |space: &Space| space.looks.due.is_some_and(|due| due <= now);
        let numbers: Vec<u32> =
            self.spaces.iter().filter(|(_, space)| due(space)).map(|(&number, _)| number).collect();
        for number in numbers {
            if !self.holds.events.is_empty() {
                return;
            }
            if let Some(space) = self.spaces.get_mut(&number) {
                space.looks.due = None;
            }
            if self.hold(number).is_ok() {
                self.look(number, None);
            } else if let Some(space) = self.spaces.get_mut(&number) {
                space.looks.plan();
            }
        }
    }

    /// Looks at the threads of an address space, unless that was done. All are held, but for
    /// `thread`, which is being answered.
    pub(crate) fn identify_all(&mut self, number: u32, thread: Option<&Stopped>) {
        if self.spaces.get(&number).is_some_and(|space| space.known.is_none()) {
            self.look(number, thread);
        }
    }

    /// Looks at all threads of an address space, which are held. What was known stays until more is
    /// found.
    fn look(&mut self, number: u32, thread: Option<&Stopped>) {
        let Some(space) = self.spaces.get_mut(&number).filter(|space| space.ground.is_some()) else { return };
        let held = self.holds.events.iter().filter_map(|event| match event {
            Event::Stopped(thread, _) => Some(thread),
            Event::Ended { .. } => None,
        });
        let stopped: Vec<&Stopped> = held.chain(thread).collect();
        let mut threads = Vec::new();
        for tracked in self.threads.values().filter(|tracked| tracked.space == Some(number)) {
            match stopped.iter().find(|thread| thread.tid() == tracked.identity.tid) {
                Some(thread) => threads.push(*thread),
                // It waits in the kernel and cannot be stopped: try later.
                None => return space.looks.plan(),
            }
        }
        let Some(&first) = threads.first() else { return };
        let known = ThreadLayout {
            thread: process::thread_id_offset(&threads).unwrap_or(0),
            rseq: common_rseq(&threads).unwrap_or(0),
        };
        if known.thread == 0 || known.rseq == 0 {
            space.looks.plan();
        }
        if space.known.is_some_and(|before| !known.is_more_than(before)) {
            return;
        }
        let of = thread.unwrap_or(first).tid();
        let pid = self.threads.get(&of).map(|tracked| tracked.identity.pid);
        space.known = Some(known);
        space.pid = pid.unwrap_or(0);
        // It is true of all threads, except for those of another process in the same memory.
        space.unidentified_threads = self
            .threads
            .values()
            .filter(|tracked| tracked.space == Some(number) && Some(tracked.identity.pid) != pid)
            .map(|tracked| tracked.identity.tid)
            .collect();
        space.write_identity();
    }

    /// Checks a new thread, or a forked child's first, before it has run.
    pub(crate) fn identify(&mut self, thread: &Stopped) {
        let tid = thread.tid();
        let Some(tracked) = self.threads.get(&tid) else { return };
        let (pid, Some(number)) = (tracked.identity.pid, tracked.space) else { return };
        let Some(space) = self.spaces.get_mut(&number) else { return };
        let Some(known) = space.known.filter(|_| space.ground.is_some()) else { return };
        let mut changed = false;
        if space.pid == 0 {
            // A copy of its parent's address space, in which the page is all zeros.
            space.pid = pid;
            changed = true;
        }
        let is_known = (known.thread == 0 || process::keeps_its_id(thread, known.thread))
            && (known.rseq == 0
                || (has_rseq(thread, known.rseq) || will_have_rseq(thread, known))
                    && put_mark(thread, known.rseq));
        if pid != space.pid || !is_known {
            changed |= space.unidentified_threads.insert(tid);
        }
        if changed {
            space.write_identity();
        }
    }
}

impl Space {
    /// Removes a thread that is gone.
    pub(crate) fn forget_stranger(&mut self, tid: i32) {
        if self.unidentified_threads.remove(&tid) && self.unidentified_threads.is_empty() {
            self.write_identity();
        }
    }

    fn write_identity(&self) {
        let (Some(ground), Some(known)) = (&self.ground, self.known) else { return };
        let (pid, known) = if self.unidentified_threads.is_empty() {
            (self.pid, known)
        } else {
            (0, ThreadLayout::default())
        };
        let (first, end) = (offset_of!(Identity, pid), offset_of!(Identity, rseq_offset) + 8);
        let mut bytes = vec![0; end - first];
        let mut put =
            |field: usize, value: &[u8]| bytes[field - first..][..value.len()].copy_from_slice(value);
        put(offset_of!(Identity, pid), &(pid as u32).to_le_bytes());
        put(offset_of!(Identity, owner), &(self.pid as u32).to_le_bytes());
        put(offset_of!(Identity, tid_offset), &known.thread.to_le_bytes());
        put(offset_of!(Identity, rseq_offset), &known.rseq.to_le_bytes());
        // Fails only if the process is gone.
        let _ = self.code.memory.poke(ground.identity + first as u64, &bytes);
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
