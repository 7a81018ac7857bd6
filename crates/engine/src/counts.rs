//! What is counted for a probepoint, and its state.

use std::collections::BTreeMap;

use crate::reason::NoJump;

/// How the sites of a probe fire. A site in two processes counts twice, unless one process was
/// forked from the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteCounts {
    /// Jumps, by the name of the tactic.
    pub jumps: BTreeMap<&'static str, usize>,
    /// Traps, by the reason why they are not jumps.
    pub traps: BTreeMap<String, usize>,
    /// Sites that the kernel watches, by the kind of its probe (`uprobe`, `kprobe`). They are
    /// counted once, however many processes map the file.
    pub kernel: BTreeMap<&'static str, usize>,
}

impl SiteCounts {
    /// Counts a site that became a jump; `before` is the tactic of its former jump.
    pub(crate) fn jump(&mut self, tactic: &'static str, before: Option<&'static str>) {
        self.no_jump(before);
        *self.jumps.entry(tactic).or_insert(0) += 1;
    }

    /// Counts more sites that are jumps by a tactic.
    pub(crate) fn jumps_more(&mut self, tactic: &'static str, count: usize) {
        *self.jumps.entry(tactic).or_insert(0) += count;
    }

    /// A site is no longer a jump by this tactic.
    fn no_jump(&mut self, before: Option<&'static str>) {
        if let Some(count) = before.and_then(|before| self.jumps.get_mut(before)) {
            *count = count.saturating_sub(1);
            self.jumps.retain(|_, count| *count > 0);
        }
    }

    /// Counts sites that the kernel watches by a kind of probe.
    pub fn watched_by_kernel(&mut self, kind: &'static str, count: usize) {
        *self.kernel.entry(kind).or_insert(0) += count;
    }

    /// Counts a site that traps; `before` is the tactic of its former jump.
    pub(crate) fn trap(&mut self, reason: &NoJump, before: Option<&'static str>) {
        self.no_jump(before);
        *self.traps.entry(general(&reason.to_string())).or_insert(0) += 1;
    }
}

/// The state of a probepoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Its module is not mapped yet.
    #[default]
    Waiting,
    /// It fires.
    Armed,
    /// It has been hit `maxhits` times.
    Disabled,
    /// Its handler has removed it.
    Removed,
    /// It could not be placed.
    Refused,
}

impl State {
    /// The state's name, as reports show it.
    pub fn name(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Armed => "armed",
            State::Disabled => "disabled",
            State::Removed => "removed",
            State::Refused => "refused",
        }
    }

    /// Whether the probepoint will never fire again.
    pub fn is_over(self) -> bool {
        matches!(self, State::Disabled | State::Removed)
    }
}

/// What has been counted at a probepoint. `hits = runs + ignored + missed`; of the runs that ended
/// with a record, `logged` records were written and `dropped` were not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times the probepoint was reached.
    pub hits: u64,
    /// Times its handler ran.
    pub runs: u64,
    /// Hits passed over by `ignore`.
    pub ignored: u64,
    /// Hits whose handler could not run.
    pub missed: u64,
    /// Records written.
    pub logged: u64,
    /// Records dropped: the probed instruction faulted, or the record could not be written.
    pub dropped: u64,
}

/// A reason without its instruction and numbers, so that reasons which differ only in them are
/// counted together.
pub(crate) fn general(reason: &str) -> String {
    let parts = reason.split('`').enumerate();
    let parts: Vec<&str> = parts.map(|(number, part)| if number % 2 == 1 { "..." } else { part }).collect();
    let words = parts.join("`");
    let words = words.split(' ').map(|word| if word.starts_with("0x") { "N" } else { word });
    words.collect::<Vec<_>>().join(" ")
}
