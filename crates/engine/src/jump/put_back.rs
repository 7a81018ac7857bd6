//! Moves threads that are between a site and its trampoline back to the site: they have executed
//! nothing of the handler yet.

use process::{Status, Stopped};

use crate::signal::SIGTRAP_BIT;
use crate::space::Space;

/// Moves a thread back to the site if it is on the way to the trampoline. `by_trap`: it is stopped
/// by a SIGTRAP.
pub(crate) fn put_back(space: &Space, thread: &mut Stopped, by_trap: bool) -> Result<(), process::Error> {
    let mut registers = thread.registers()?;
    if let Some(site) = space.jumps.way_from(registers.rip()) {
        // Or it has just executed the `int3` in front of that place, and the trap is still to be
        // answered.
        let before = registers.rip().wrapping_sub(1);
        let traps = || {
            by_trap || Status::read(thread.tid()).is_ok_and(|status| status.own_pending & SIGTRAP_BIT != 0)
        };
        if space.has_trapped(before) && traps() {
            return Ok(());
        }
        registers.set_rip(site);
        thread.set_registers(&registers)?;
    }
    Ok(())
}
