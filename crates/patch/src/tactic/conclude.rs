//! The beginning and the end of a plan: what has changed in between.

use std::ops::Range;

use super::placed::{Placed, State};
use super::{Jump, Plan, Site};

impl Placed {
    /// Begins a plan, with this memory free.
    pub(super) fn begin(&mut self, free: &[Range<u64>]) {
        self.pads.begin(free);
        self.before.clear();
        self.held.clear();
    }

    /// Fills the plan with all differences from before, and with the sites asked for.
    pub(super) fn conclude(&mut self, asked: &[Site], plan: &mut Plan) {
        for (address, before) in std::mem::take(&mut self.before) {
            let old = before.as_ref().and_then(|before| Some((before, before.placement()?)));
            let now = self.entries.get_mut(&address);
            let new = now.as_ref().and_then(|entry| entry.placement());
            let same = new == old.map(|(_, placement)| placement);
            if let Some((before, placement)) = old.filter(|_| !same) {
                plan.restore.extend(placement.undone(address, before));
                if let Some(pad) = placement.pad.filter(|pad| new.and_then(|new| new.pad) != Some(*pad)) {
                    self.pads.give_back(pad);
                    plan.pads.push(pad);
                }
            }
            let Some(entry) = now else { continue };
            entry.rounds = 0;
            let is_asked = asked.binary_search_by_key(&address, |site| site.address).is_ok();
            let purpose = before.as_ref().map(|before| before.purpose);
            if same && !is_asked && purpose == Some(entry.purpose) {
                continue;
            }
            match &entry.state {
                State::Open => {}
                State::Trap(reason) => plan.traps.push((address, *reason)),
                State::Jump(placement) => plan.jumps.push(Jump {
                    address,
                    length: placement.group.as_ref().map_or(entry.length, |group| group.single).into(),
                    purpose: entry.purpose,
                    tactic: placement.tactic,
                    followers: placement.group.as_ref().map_or(Vec::new(), |group| group.followers.clone()),
                    pad: placement.pad,
                    code: placement.writes(address, entry.length),
                }),
            }
        }
        self.held.clear();
        plan.map = self.pads.finish();
    }
}
