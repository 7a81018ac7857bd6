//! What handlers know of their process and thread without asking the kernel: the identity page.
//!
//! It says how a thread's libc keeps its id and where the kernel keeps its processor, and that only while it holds for all
//! threads of the address space. A thread for which it does not (a vfork child, which has its parent's memory; one that the program has
//! made without its libc) is a *stranger*; while there is one, the page says nothing, and handlers ask the kernel.

use std::mem::offset_of;

use agent::layout::{Identity, RSEQ_CPU, RSEQ_SIGNATURE};
use process::{Event, Stopped};

use crate::space::Space;
use crate::tracer::Tracer;

/// How the threads of an address space are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// Where a thread keeps its id, from its thread pointer on; 0: nowhere.
    thread: u64,
    /// Where its `struct rseq` is, likewise.
    rseq: u64,
}

impl Tracer<'_> {
    /// Finds out how the threads of an address space are known, all of which are held; `thread` is the one that is being
    /// answered.
    pub(crate) fn identify_all(&mut self, number: u32, thread: &Stopped) {
        let Some(space) = self.spaces.get(&number) else { return };
        if space.ground.is_none() || space.known.is_some() {
            return;
        }
        let held = self.held.iter().filter_map(|event| match event {
            Event::Stopped(thread, _) => Some(thread),
            Event::Ended { .. } => None,
        });
        let stopped: Vec<&Stopped> = held.chain([thread]).collect();
        let mut threads = Vec::new();
        for tracked in self.threads.values().filter(|tracked| tracked.space == Some(number)) {
            match stopped.iter().find(|thread| thread.tid() == tracked.identity.tid) {
                Some(thread) => threads.push(*thread),
                // One that waits in the kernel: another time.
                None => return,
            }
        }
        let known = Known {
            thread: process::thread_id_offset(&threads).unwrap_or(0),
            rseq: common_rseq(&threads).unwrap_or(0),
        };
        let pid = self.threads.get(&thread.tid()).map(|tracked| tracked.identity.pid);
        let strangers: Vec<i32> = self
            .threads
            .values()
            .filter(|tracked| tracked.space == Some(number) && Some(tracked.identity.pid) != pid)
            .map(|tracked| tracked.identity.tid)
            .collect();
        if let Some(space) = self.spaces.get_mut(&number) {
            space.known = Some(known);
            space.pid = pid.unwrap_or(0);
            space.strangers.extend(strangers);
            space.write_identity();
        }
    }

    /// A new thread, or a forked child's first, has stopped before it has run.
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
            && (known.rseq == 0 || has_rseq(thread, known.rseq));
        if pid != space.pid || !is_known {
            changed |= space.strangers.insert(tid);
        }
        if changed {
            space.write_identity();
        }
    }
}

impl Space {
    /// A thread is no longer there.
    pub(crate) fn forget_stranger(&mut self, tid: i32) {
        if self.strangers.remove(&tid) && self.strangers.is_empty() {
            self.write_identity();
        }
    }

    /// Writes the identity page.
    fn write_identity(&self) {
        let (Some(ground), Some(known)) = (&self.ground, self.known) else { return };
        let (pid, known) = if self.strangers.is_empty() { (self.pid, known) } else { (0, Known::default()) };
        let write = |field: usize, bytes: &[u8]| {
            // It fails only if the process is gone.
            let _ = self.code.memory.poke(ground.identity + field as u64, bytes);
        };
        write(offset_of!(Identity, pid), &(pid as u32).to_le_bytes());
        write(offset_of!(Identity, tid_offset), &known.thread.to_le_bytes());
        write(offset_of!(Identity, rseq_offset), &known.rseq.to_le_bytes());
    }
}

/// Where all threads that have registered a `struct rseq` have it, from their thread pointers on, if the others have one there
/// that is not registered.
fn common_rseq(threads: &[&Stopped]) -> Option<u64> {
    let offset = threads.iter().find_map(|thread| {
        let registration = thread.rseq_registration()?;
        let pointer = thread.registers().ok()?.fs_base();
        (registration.signature == RSEQ_SIGNATURE).then(|| registration.address.wrapping_sub(pointer))
    })?;
    threads.iter().all(|thread| has_rseq(thread, offset)).then_some(offset)
}

/// Whether a thread has its `struct rseq` at an offset from its thread pointer: a registered one, or one that says that it is
/// not.
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
