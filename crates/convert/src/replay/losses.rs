//! What was lost, told between the records.

use trace::store::{Filter, Gap, Info};

use crate::report::{count_of, duration};

/// The losses of a trace, each told once its time has passed.
#[derive(Debug)]
pub(super) struct Losses {
    /// The latest first.
    left: Vec<Gap>,
    start: u64,
}

impl Losses {
    /// Those within a filter.
    pub(super) fn new(info: &Info, filter: &Filter) -> Losses {
        let mut left = info.gaps();
        left.retain(|gap| {
            filter.from.is_none_or(|from| gap.to >= from)
                && filter.to.is_none_or(|to| gap.from <= to)
                && (gap.pid == 0 || filter.pids.is_empty() || filter.pids.contains(&gap.pid))
        });
        left.reverse();
        Losses { left, start: info.about.start }
    }

    /// The next loss that ended by this time, as a line.
    pub(super) fn next(&mut self, until: u64) -> Option<String> {
        let gap = self.left.pop_if(|gap| gap.to <= until)?;
        let count = if gap.dropped > 0 { count_of(gap.dropped, "record") } else { "records".to_owned() };
        let process = if gap.pid == 0 { String::new() } else { format!(" of process {}", gap.pid) };
        let since = |time: u64| duration(time.saturating_sub(self.start));
        let from = if gap.from == 0 { "the start".to_owned() } else { format!("+{}", since(gap.from)) };
        Some(format!("-- LOST {count}{process} between {from} and +{} --", since(gap.to)))
    }
}
