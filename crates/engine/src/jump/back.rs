//! Threads that are between a site and its trampoline are put back to the site: they have done nothing yet.

use process::{Event, Stopped};

use crate::hold::Held;
use crate::space::Space;
use crate::tracer::Tracer;

impl Tracer<'_> {
    /// Puts all threads of an address space back that are on their way to a trampoline.
    pub(crate) fn bring_back(&mut self, number: u32, _held: &Held) {
        let Some(space) = self.spaces.get(&number) else { return };
        for event in &mut self.held {
            let Event::Stopped(thread, _) = event else { continue };
            if self.threads.get(&thread.tid()).and_then(|tracked| tracked.space) == Some(number) {
                // It fails only if the thread has been killed.
                let _ = put_back(space, thread);
            }
        }
    }
}

/// Puts a thread back to the site from which it is on its way to a trampoline.
pub(crate) fn put_back(space: &Space, thread: &mut Stopped) -> Result<(), process::Error> {
    let mut registers = thread.registers()?;
    if let Some(site) = space.jumps.way_from(registers.rip()) {
        registers.set_rip(site);
        thread.set_registers(&registers)?;
    }
    Ok(())
}
