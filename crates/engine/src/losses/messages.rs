//! Tells the observer of records dropped since it was last told.

use std::time::Instant;

use super::PAUSE;
use crate::messages::Messages;
use crate::observer::Lost;
use crate::programs::Programs;

impl Messages<'_> {
    /// Reports records dropped since the last report, if that was long enough ago.
    pub(crate) fn look_for_losses(&mut self, programs: &Programs) {
        if self.told.losses.last.is_none_or(|last| last.elapsed() >= PAUSE) {
            self.tell_losses(programs);
        }
    }

    /// Reports records dropped since the last report.
    pub(crate) fn tell_losses(&mut self, programs: &Programs) {
        self.told.losses.last = Some(Instant::now());
        if let Some((from, to, count)) = self.told.losses.own.take() {
            self.observer.lost(&Lost { pid: None, from, to, count });
        }
        for (number, program) in programs.iter() {
            for (probe, state) in program.probes.iter().enumerate() {
                let dropped = state.dropped();
                if dropped == 0 {
                    continue;
                }
                let told = self.told.losses.told.entry((number, probe)).or_default();
                let more = dropped.saturating_sub(std::mem::replace(told, dropped));
                if more > 0 {
                    self.observer.dropped(number, probe, more);
                }
            }
        }
    }
}
