//! Tells the observer of each probe that was armed.

use process::Module;

use super::About;
use crate::messages::Messages;
use crate::observer::Placed;
use crate::spaces::Spaces;

impl Messages<'_> {
    /// Reports which of these probes are armed.
    pub(crate) fn tell_placed(
        &mut self,
        spaces: &Spaces,
        number: u32,
        pid: i32,
        module: &Module,
        probes: &[About],
    ) {
        let Some(space) = spaces.get(&number) else { return };
        for &(address, program, probe) in probes {
            let Some(armed) = space.sites.get(&address) else { continue };
            let tactic = armed.jump().map(|jump| jump.tactic);
            let engine = if tactic.is_some() { "jump" } else { "trap" };
            self.observer.placed(&Placed { pid, program, probe, module, address, engine, tactic });
        }
    }
}
