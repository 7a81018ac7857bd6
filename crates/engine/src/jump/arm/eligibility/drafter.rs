//! Decides, site by site, whether a jump may be tried, and says why not.

use rpn::{FunctionPoint, Location};

use super::super::draft::drafter::Drafter;
use super::unsuitable;
use crate::program::Engine;
use crate::reason::NoJump;
use crate::site::Planned;
use crate::site_use::Use;

impl Drafter<'_, '_> {
    /// Checks, as far as possible without a plan, whether a site may become a jump. The error says
    /// why not.
    pub(crate) fn suits_a_jump(&self, number: u32, planned: &Planned) -> Result<(), NoJump> {
        let Some(space) = self.followed.spaces.get(&number) else {
            return Err(NoJump::Gone);
        };
        let site = &planned.0;
        for wanted in &site.uses {
            match *wanted {
                Use::Probe { program, .. } if self.programs[program].options.engine == Engine::Trap => {
                    return Err(NoJump::EngineTrap);
                }
                Use::Probe { program, .. } if self.programs[program].calls => {
                    return Err(NoJump::CallsFacility);
                }
                Use::Probe { program, .. } if self.programs[program].calls_plugins => {
                    return Err(NoJump::CallsPlugins);
                }
                Use::Probe { program, probe } if self.programs[program].acts[probe] => {
                    return Err(NoJump::Acts);
                }
                Use::Probe { program, probe } => {
                    let location = &self.programs[program].versions.main().probes[probe].location;
                    let is_return = matches!(location, Location::Points { point: FunctionPoint::Return, .. });
                    if is_return && site.displaced.is_taken(&patch::Registers::default()).is_some() {
                        return Err(NoJump::ReturnsIfTaken);
                    }
                }
                Use::MasksSignals => return Err(NoJump::MasksSignals),
                _ => return Err(NoJump::LinkerReports),
            }
        }
        if space.sites.get(&site.address).is_some_and(|armed| armed.jump().is_none()) {
            return Err(NoJump::TrapThere);
        }
        unsuitable(&site.displaced).map_or(Ok(()), Err)
    }
}
