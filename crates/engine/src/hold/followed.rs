//! Stops the threads of an address space, and keeps their events.

use std::collections::HashSet;
use std::time::Instant;

use process::{Event, Stop};

use super::{BRISK, Held, LOOK_AFTER, PAUSE, STOP_TIMEOUT, is_as_good_as_stopped, tid_of};
use crate::followed::Followed;
use crate::reason::NotHeld;
use crate::signal::{PUT_BACK, SI_KERNEL, set_fault_address};
use crate::tracked::Activity;

impl Followed {
    /// Stops all threads of an address space except the one being handled, which is stopped
    /// already.
    ///
    /// # Errors
    /// A thread does not stop, or the process ends or executes a new program meanwhile.
    pub(crate) fn hold(&mut self, number: u32) -> Result<Held, NotHeld> {
        self.holds.begin();
        self.hold_parked(number);
        let start = Instant::now();
        let stopped: HashSet<i32> = self.holds.events.iter().map(tid_of).collect();
        let mut moving = HashSet::new();
        for (&tid, tracked) in self.threads.iter_mut() {
            if tracked.space != Some(number) || stopped.contains(&tid) {
                continue;
            }
            if let Activity::Running(running) = &tracked.activity {
                // A thread that is gone reports its end when it is waited for.
                tracked.asked = tracked.asked || running.interrupt().is_ok();
                moving.insert(tid);
            }
        }
        if self.holds.events.iter().any(|event| self.ends(event, number)) {
            return Err(NotHeld::Replaced);
        }
        let mut idle = 0;
        while !moving.is_empty() {
            match process::wait(false) {
                Ok(Some(event)) => {
                    idle = 0;
                    moving.remove(&tid_of(&event));
                    let ends = self.ends(&event, number);
                    let event = self.put_before_its_trap(event, number);
                    self.holds.events.push_back(event);
                    if ends {
                        return Err(NotHeld::Replaced);
                    }
                }
                Ok(None) => {
                    idle += 1;
                    if idle % LOOK_AFTER == 0 {
                        moving.retain(|&tid| !is_as_good_as_stopped(tid));
                    }
                    if start.elapsed() > STOP_TIMEOUT {
                        return Err(NotHeld::NotAllAtOnce);
                    }
                    if idle < BRISK { std::thread::yield_now() } else { std::thread::sleep(PAUSE) }
                }
                Err(error) => return Err(NotHeld::Wait(error.into())),
            }
        }
        Ok(Held(()))
    }

    /// Moves a thread that has just hit an `int3` of ours back to it until the hit is handled.
    /// Otherwise the hit is lost if the tracer dies while many threads are held. The kernel keeps
    /// the signal until the tracer takes the next event; if it is still kept when the tracer dies,
    /// it says where the thread is to continue.
    fn put_before_its_trap(&mut self, event: Event, number: u32) -> Event {
        let Event::Stopped(mut thread, Stop::Signal(libc::SIGTRAP)) = event else { return event };
        let tid = thread.tid();
        if let Ok(info) = thread.signal_info()
            && info.si_code == SI_KERNEL
            && let Ok(mut registers) = thread.registers()
            && let Some(tracked) = self.threads.get_mut(&tid).filter(|tracked| tracked.space == Some(number))
            && let Some(space) = self.spaces.get(&number)
        {
            let site = registers.rip().wrapping_sub(1);
            if space.has_trapped(site) {
                registers.set_rip(site);
                let mut said = info;
                said.si_code = PUT_BACK;
                set_fault_address(&mut said, site);
                // The order matters. Fails only if the thread was killed.
                tracked.before_trap =
                    thread.set_signal_info(&said).is_ok() && thread.set_registers(&registers).is_ok();
                // From here on it stays at that address, even if the tracer dies.
                if let Ok(Some(killed)) = process::take_last_stop() {
                    return killed;
                }
            }
        }
        Event::Stopped(thread, Stop::Signal(libc::SIGTRAP))
    }

    /// Whether an event ends an address space: a process in it has executed a new program.
    fn ends(&self, event: &Event, number: u32) -> bool {
        let Event::Stopped(thread, Stop::Exec { .. }) = event else { return false };
        // All threads of the process are gone; the one that called exec has the process id now.
        self.threads
            .values()
            .any(|tracked| tracked.space == Some(number) && tracked.identity.pid == thread.tid())
    }
}
