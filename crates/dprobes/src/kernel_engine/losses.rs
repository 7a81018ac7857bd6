//! Tells of records that were lost: in a full ring, or because no target took them.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use engine::{Lost, Observer};

use super::attaching::Program;
use super::report;
use super::taking::Told;

/// Time between two reports.
const EVERY: Duration = Duration::from_secs(1);

/// What was told of losses.
#[derive(Debug)]
pub(super) struct Losses {
    /// Dropped records, by program and probe: all, and those that no target took.
    told: HashMap<(usize, usize), (u64, u64)>,
    /// When they were last told, also by the wall clock.
    reported: (Instant, u64),
}

impl Losses {
    /// None yet.
    pub(super) fn new() -> Losses {
        Losses { told: HashMap::new(), reported: (Instant::now(), wall()) }
    }

    /// Tells of records that were lost since it was last told, if that was long enough ago or it is
    /// to be `now`.
    pub(super) fn tell(
        &mut self,
        programs: &[Program],
        told: &mut Told,
        observer: &mut dyn Observer,
        now: bool,
    ) {
        if !now && self.reported.0.elapsed() < EVERY {
            return;
        }
        let (_, since) = std::mem::replace(&mut self.reported, (Instant::now(), wall()));
        if let Some((from, to, count)) = told.untaken.take() {
            observer.lost(&Lost { pid: None, from, to, count });
        }
        for (number, program) in programs.iter().enumerate() {
            let counted = program.maps.counts();
            for probe in 0..program.probes.len() {
                let (all, untaken) = report::dropped(program, &counted, probe);
                let told = self.told.entry((number, probe)).or_default();
                let more = all.saturating_sub(told.0);
                let in_rings = more.saturating_sub(untaken.saturating_sub(told.1));
                *told = (all, untaken);
                if in_rings > 0 {
                    observer.lost(&Lost { pid: None, from: since, to: self.reported.1, count: in_rings });
                }
                if more > 0 {
                    observer.dropped(number, probe, more);
                }
            }
        }
    }
}

/// Nanoseconds since 1970.
fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}
