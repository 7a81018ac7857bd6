//! The memory of a script's maps: shared with the probed processes, or with the kernel.

use std::sync::Arc;

use maps::Maps;
use vm::{Clock, Constants};

/// The maps and constants of a running script.
#[derive(Clone, Debug)]
pub(super) enum Memory {
    /// In the probed processes.
    Processes(engine::Tables),
    /// In the kernel.
    Kernel(Arc<kernel::Tables>),
}

impl Memory {
    /// The maps.
    pub(super) fn maps(&self) -> Maps<'_> {
        match self {
            Memory::Processes(tables) => tables.maps(),
            Memory::Kernel(tables) => tables.maps(),
        }
    }

    /// The constants.
    pub(super) fn constants(&self) -> Constants<'_> {
        match self {
            Memory::Processes(tables) => tables.constants(),
            Memory::Kernel(tables) => tables.constants(),
        }
    }

    /// A time as handlers have it.
    pub(super) fn time(&self, clock: Clock) -> u64 {
        match self {
            Memory::Processes(tables) => tables.time(clock),
            Memory::Kernel(tables) => tables.time(clock),
        }
    }
}
