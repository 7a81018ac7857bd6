//! What is done in an address space while its threads are held: threads are put back to their
//! sites, jumps are removed, trampolines are freed.

use process::{Event, Stop};

use super::put_back::put_back;
use crate::followed::Followed;
use crate::hold::Held;

impl Followed {
    /// Frees trampolines that no site leads to and in which no thread of the address space is.
    pub(crate) fn free_trampolines(&mut self, number: u32, _held: &Held) {
        if !self.spaces.get(&number).is_some_and(|space| space.jumps.has_retired()) {
            return;
        }
        let mut places = Vec::new();
        for tid in self.threads.values().filter(|tracked| tracked.space == Some(number)) {
            let tid = tid.identity.tid;
            match process::blocked_at(tid).ok().flatten() {
                Some(rip) => places.push(rip),
                // The thread may be anywhere.
                None => return,
            }
        }
        if let Some(space) = self.spaces.get_mut(&number) {
            // The agent may be running on behalf of one.
            let handler_memory =
                space.shared.handler_memory.as_ref().filter(|_| space.shared.rings.is_some());
            let claimed = handler_memory
                .map_or_else(Vec::new, |handler_memory| handler_memory.contexts.claimed(&space.code.memory));
            space.jumps.free(|trampoline| {
                places.iter().any(|&rip| trampoline.contains(rip)) || claimed.contains(&trampoline.site())
            });
        }
    }

    /// Moves all threads of an address space back that are on the way to a trampoline.
    pub(crate) fn bring_back(&mut self, number: u32, _held: &Held) {
        let Some(space) = self.spaces.get(&number) else { return };
        for event in &mut self.holds.events {
            let Event::Stopped(thread, stop) = event else { continue };
            let by_trap = *stop == Stop::Signal(libc::SIGTRAP);
            if self.threads.get(&thread.tid()).and_then(|tracked| tracked.space) == Some(number) {
                // It fails only if the thread has been killed.
                let _ = put_back(space, thread, by_trap);
            }
        }
    }

    /// Removes sites that nobody uses any more from an address space. If its threads cannot be
    /// held, the sites stay and do nothing.
    pub(crate) fn take_out_jumps(&mut self, number: u32, addresses: &[u64]) {
        if let Ok(held) = self.hold(number) {
            self.bring_back(number, &held);
            if let Some(space) = self.spaces.get_mut(&number) {
                space.take_out_planned(addresses, &held);
                self.free_trampolines(number, &held);
            }
        }
    }
}
