//! Decides, site by site, whether a jump may be tried, and says why not.

use rpn::{FunctionPoint, Location};

use super::super::draft::drafter::Drafter;
use super::unsuitable;
use crate::program::Engine;
use crate::site::Planned;
use crate::site_use::Use;

impl Drafter<'_, '_> {
    /// Checks, as far as possible without a plan, whether a site may become a jump. The error says
    /// why not.
    pub(crate) fn suits_a_jump(&self, number: u32, planned: &Planned) -> Result<(), String> {
        let Some(space) = self.followed.spaces.get(&number) else {
            return Err("the process is gone".to_owned());
        };
        let site = &planned.0;
        for wanted in &site.uses {
            match *wanted {
                Use::Probe { program, .. } if self.programs[program].options.engine == Engine::Trap => {
                    return Err("`--engine trap`".to_owned());
                }
                Use::Probe { program, .. } if self.programs[program].calls => {
                    return Err(
                        "a handler of its program calls a facility, which may show all threads".to_owned()
                    );
                }
                Use::Probe { program, .. } if self.programs[program].calls_plugins => {
                    return Err(
                        "a handler of its program calls plugins, which are not in the process".to_owned()
                    );
                }
                Use::Probe { program, probe } => {
                    let location = &self.programs[program].versions.main().probes[probe].location;
                    let is_return = matches!(location, Location::Points { point: FunctionPoint::Return, .. });
                    if is_return && site.displaced.is_taken(&patch::Registers::default()).is_some() {
                        return Err("the function returns there only if the jump is taken".to_owned());
                    }
                }
                Use::MasksSignals => return Err("libc blocks all signals there".to_owned()),
                _ => return Err("the dynamic linker reports loaded modules there".to_owned()),
            }
        }
        if space.sites.get(&site.address).is_some_and(|armed| armed.jump().is_none()) {
            return Err("a trap is there already".to_owned());
        }
        unsuitable(&site.displaced).map_or(Ok(()), Err)
    }
}
