//! Plans the arming of a running process without stopping it.
//!
//! ```text
//!     a thread is asked to stop       it lets the engine see what is loaded from now on (`Placer::watch`), and goes on
//!     the programs are placed         as plans and drafts, for which the process is only read
//!     a thread is asked to stop       the drafts are carried out (`Placer::refresh`)
//! ```
//!
//! If a library is loaded meanwhile, the loading thread is stopped until everything is armed, and
//! the plans are not used. A program that has not begun is stopped anyway: there everything is done
//! at once.

use crate::jump::Draft;
use crate::module_key::ModuleKey;
use crate::placed_report::About;
use crate::site_plans::Plan;

mod placer;

/// The plan for one program in one module.
pub(crate) struct Preplan {
    here: (usize, ModuleKey),
    /// The refused probepoints and the remarks.
    pub(crate) plan: Plan,
    pub(crate) draft: Draft,
    /// The number of planned sites, and their probes.
    pub(crate) count: usize,
    pub(crate) probes: Vec<About>,
}

impl std::fmt::Debug for Preplan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Preplan {{ here: {:?}, count: {} }}", self.here, self.count)
    }
}

impl Preplan {
    /// Takes the plan for a program in a module.
    pub(crate) fn take(all: &mut Vec<Preplan>, here: (usize, ModuleKey)) -> Option<Preplan> {
        let place = all.iter().position(|foreseen| foreseen.here == here)?;
        Some(all.remove(place))
    }
}
