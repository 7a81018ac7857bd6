//! Removes probes that handlers have ended: by `remove`, or by their last allowed run (`maxhits`).

use crate::program::{Program, has_limits};

mod disarmer;

/// Whether a probe can be ended by a handler.
pub(crate) fn can_end_itself(program: &Program, probe: usize) -> bool {
    has_limits(&program.versions.main().probes[probe]) || program.removes
}
