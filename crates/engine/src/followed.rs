//! The followed threads and their address spaces: what is asked of a thread, and how it is resumed.

use std::rc::Rc;

use process::{Stop, Stopped};

use crate::detach::Departure;
use crate::hold::Holds;
use crate::ledger::Ledger;
use crate::messages::Messages;
use crate::new_threads::NewThreads;
use crate::restart;
use crate::space::Space;
use crate::spaces::Spaces;
use crate::threads::Threads;
use crate::tracked::{Activity, InSlot};

/// What is followed.
#[derive(Debug)]
pub(crate) struct Followed {
    pub(crate) threads: Threads,
    pub(crate) spaces: Spaces,
    /// Threads that are not followed yet.
    pub(crate) new_threads: NewThreads,
    pub(crate) holds: Holds,
    /// Which processes are being let go.
    pub(crate) departure: Departure,
}

impl Followed {
    /// Nothing is followed yet. Changes to address spaces are entered in the ledger.
    pub(crate) fn new(ledger: Option<Rc<Ledger>>) -> Followed {
        Followed {
            threads: Threads::default(),
            spaces: Spaces::new(ledger),
            new_threads: NewThreads::default(),
            holds: Holds::default(),
            departure: Departure::default(),
        }
    }

    /// Asks a thread to stop. Its stop is handled like any event.
    pub(crate) fn ask(&mut self, messages: &mut Messages<'_>, tid: i32) {
        self.unpark(messages, tid);
        if let Some(tracked) = self.threads.get_mut(&tid)
            && !tracked.asked
            && let Activity::Running(running) = &tracked.activity
        {
            tracked.asked = running.interrupt().is_ok();
        }
    }

    /// Whether processes of an address space are about to be let go.
    pub(crate) fn leaves(&self, number: u32) -> bool {
        let mut threads = self.threads.values().filter(|tracked| tracked.space == Some(number));
        threads.any(|tracked| self.departure.who.includes(tracked.identity.pid))
    }

    /// Takes the instructions that a thread still has to execute: the one in its slot, and those
    /// that signals delay.
    pub(crate) fn unexecuted(&mut self, tid: i32) -> Vec<InSlot> {
        let Some(tracked) = self.threads.get_mut(&tid) else { return Vec::new() };
        let in_slot = tracked.in_slot.take();
        let space = tracked.space.and_then(|space| self.spaces.get_mut(&space));
        let interrupted = space.map_or_else(Vec::new, |space| space.interrupted.of_thread(tid));
        in_slot.into_iter().chain(interrupted).collect()
    }

    /// Whether no thread is followed or about to be.
    pub(crate) fn is_alone(&self) -> bool {
        self.threads.is_empty()
            && self.new_threads.newborn.is_empty()
            && self.new_threads.announced.is_empty()
    }

    /// Resumes a thread from [`Stop::Interrupt`] or [`Stop::Group`] as if it had not been stopped.
    pub(crate) fn go_on(&mut self, mut thread: Stopped, stop: Stop) -> Result<(), process::Error> {
        if let Stop::Group(_) = stop {
            let tid = thread.tid();
            let running = thread.listen();
            self.threads.set_activity(tid, Activity::Running(running));
            return Ok(());
        }
        let mut registers = thread.registers()?;
        if restart::restart(thread.tid(), &mut registers) {
            thread.set_registers(&registers)?;
        }
        self.resume(thread, 0);
        Ok(())
    }

    /// Resumes a thread. One that is to be let go is asked to stop again.
    pub(crate) fn resume(&mut self, thread: Stopped, signal: i32) {
        let tid = thread.tid();
        self.threads.tell_ids(&self.spaces, &thread);
        if let Some(space) = self.space_of(tid) {
            space.note_memory();
        }
        let looks_at_calls = signal == 0 && self.threads.get(&tid).is_some_and(|tracked| tracked.calls > 0);
        let running = if looks_at_calls { thread.resume_to_call() } else { thread.resume(signal) };
        let asked = self.is_leaving(tid) && running.interrupt().is_ok();
        if let Some(tracked) = self.threads.get_mut(&tid) {
            tracked.asked = asked;
            tracked.activity = Activity::Running(running);
        }
    }

    /// The address space of a thread.
    pub(crate) fn space_of(&mut self, tid: i32) -> Option<&mut Space> {
        let space = self.threads.get(&tid)?.space?;
        self.spaces.get_mut(&space)
    }

    /// Asks one more thread of each address space to stop in which modules are to be looked for.
    /// Returns whether there is one.
    pub(crate) fn ask_stale(&mut self, messages: &mut Messages<'_>) -> bool {
        // That needs a stopped thread. The thread that was asked may be blocked where no tracer can
        // stop it, so another one is asked.
        let stale = self.spaces.iter().filter(|(_, space)| space.modules.stale);
        let stale: Vec<u32> = stale.map(|(&number, _)| number).collect();
        stale.iter().for_each(|&number| self.ask_one(messages, number));
        !stale.is_empty()
    }

    /// Asks one more thread of an address space to stop.
    pub(crate) fn ask_one(&mut self, messages: &mut Messages<'_>, number: u32) {
        let mut candidates = self.threads.iter();
        let candidate = candidates.find(|(_, thread)| thread.space == Some(number) && !thread.asked);
        if let Some((&tid, _)) = candidate {
            self.ask(messages, tid);
        }
    }
}
