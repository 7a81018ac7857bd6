//! Plans the sites of one mapping, repeatedly and with fewer sites each time until the plan can be
//! carried out, and adds the result to the draft.
//!
//! In: the sites of a mapping, with their handlers compiled (`Group`). Out: jumps and traps in the
//! `Draft`, and the sites that are left.

use std::collections::{BTreeMap, HashMap};

use patch::tactic::{Plan, Reason};

use super::draft::{Basis, Draft, Group, PlannedJump};
use super::emit::{Emitted, Obstacle, emit, in_the_way};
use super::handlers::ReadySite;
use super::plan_input::PlanInput;
use crate::jump::not_jumped::NotJumped;
use crate::jump::text::Text;
use crate::reason::NoJump;
use crate::site::Planned;
use crate::site_use::{FAR, Use};

const ROUNDS: usize = 24;

impl Draft {
    /// Plans the sites of one mapping. If `strict`, no site may trap.
    pub(super) fn plan(&mut self, group: Group, input: &PlanInput<'_>, known: &mut Basis, strict: bool) {
        let Group { text, mut ready, mut others } = group;
        let there = known.planners.has(&self.module);
        let mut groups = input.fresh;
        let stays = |address: &u64| input.stays_a_jump(*address);
        let asked = others.extract_if(.., |(site, _)| stays(&site.0.address));
        let asked: Vec<_> = asked.map(|(site, _)| (in_the_way(site.0.address), site)).collect();
        asked.into_iter().for_each(|(obstacle, site)| self.give_no_jump([(site, obstacle.reason)], false));
        let mut why = NoJump::NoPlan;
        // Each round has fewer sites than the one before, or is the first one without groups.
        for _ in 0..ROUNDS {
            let mut planner = known.planners.planner(&self.module, input.limits);
            let plan = input.plan(&mut planner, &text, &ready, &others, groups);
            if strict {
                let none = plan.traps.iter().chain(&plan.refused);
                let gone: Vec<_> = none
                    .filter_map(|(at, why)| Some((ready.remove(at)?.planned, NoJump::from(*why))))
                    .collect();
                if !gone.is_empty() {
                    self.give_no_jump(gone, true);
                    continue;
                }
            }
            let mut room = known.room.clone();
            match emit(input, &plan, &text, &ready, &mut room) {
                Ok(emitted) => {
                    plan.map.iter().for_each(|run| known.reserve(run.start, run.end - run.start));
                    known.planners.set(self.module, planner);
                    known.room = room;
                    self.seen.extend(input.space.traps_in(text.range()));
                    return self.take(emitted, plan, text, ready, others);
                }
                // Perhaps a group has no room: without groups, its sites may have other jumps.
                Err(_) if groups => groups = false,
                Err(obstacles) => {
                    if let Some(first) = obstacles.first() {
                        why.clone_from(&first.reason);
                    }
                    if !self.yield_to(&obstacles, &mut ready, &mut others, strict) {
                        break;
                    }
                }
            }
        }
        // What was armed before stays as it is.
        self.give_no_jump(ready.into_values().map(|it| (it.planned, why.clone())), !there);
        self.give_no_jump(others.into_iter().map(|(site, _)| (site, why.clone())), !there);
    }

    /// Gives up sites around obstacles: those that were to be jumps will trap; if that does not
    /// help, or there are none, or none may trap, they are left as they are. Returns false if there
    /// is nothing to give up.
    fn yield_to(
        &mut self,
        obstacles: &[Obstacle],
        ready: &mut BTreeMap<u64, ReadySite>,
        others: &mut Vec<(Planned, NoJump)>,
        strict: bool,
    ) -> bool {
        let mut any = false;
        for Obstacle { at, reason, traps_too } in obstacles {
            let near = at.saturating_sub(FAR)..at.saturating_add(FAR);
            let found: Vec<u64> = ready.range(near.clone()).map(|(&site, _)| site).collect();
            let jumps =
                found.into_iter().filter_map(|site| Some((ready.remove(&site)?.planned, reason.clone())));
            let jumps: Vec<_> = jumps.collect();
            any |= !jumps.is_empty();
            if jumps.is_empty() || *traps_too {
                let traps = others.extract_if(.., |(site, _)| near.contains(&site.0.address));
                let traps: Vec<_> = traps.map(|(site, _)| (site, reason.clone())).collect();
                any |= !traps.is_empty();
                self.give_no_jump(traps, false);
            }
            match (strict, traps_too) {
                (true, _) => self.give_no_jump(jumps, true),
                (false, true) => self.give_no_jump(jumps, false),
                (false, false) => others.extend(jumps),
            }
        }
        any
    }

    /// Adds what is to be done for the sites of one mapping to the draft.
    fn take(
        &mut self,
        emitted: Emitted,
        plan: Plan,
        text: Text,
        mut ready: BTreeMap<u64, ReadySite>,
        others: Vec<(Planned, NoJump)>,
    ) {
        let Emitted { jumps, trampolines, code, pads, ways, demoted } = emitted;
        for (planned, jump) in jumps {
            let drafted = match (planned, ready.remove(&jump.shape.address)) {
                (_, Some(ready)) => PlannedJump { planned: ready.planned, jump, asked: true },
                (Some(planned), None) => PlannedJump { planned, jump, asked: false },
                (None, None) => continue,
            };
            self.jumps.push(drafted);
        }
        let reasons: HashMap<u64, (Reason, bool)> = plan
            .traps
            .iter()
            .map(|(address, reason)| (*address, (*reason, true)))
            .chain(plan.refused.iter().map(|(address, reason)| (*address, (*reason, false))))
            .collect();
        let asked: HashMap<u64, &NoJump> = match demoted.is_empty() {
            true => HashMap::new(),
            false => others.iter().map(|(site, reason)| (site.0.address, reason)).collect(),
        };
        for (site, tactic) in demoted {
            let address = site.0.address;
            let asked = asked.get(&address);
            let reason = match asked {
                Some(reason) => (*reason).clone(),
                None => {
                    let at = plan.traps.binary_search_by_key(&address, |trap| trap.0);
                    NoJump::Crowded(at.ok().map(|at| plan.traps[at].1))
                }
            };
            // If the site was to be armed, its trap is written below.
            let is_asked = asked.is_some() || ready.contains_key(&address);
            if let Some(change) = text.trap(address).filter(|_| !is_asked) {
                self.traps.push(change);
            }
            if is_asked && site.0.uses.iter().all(|wanted| *wanted == Use::Neighbour) {
                continue;
            }
            self.demoted.push(NotJumped { site, reason, can_trap: true, was: Some(tactic) });
        }
        let others = others.into_iter().map(|(site, reason)| (site, Some(reason)));
        for (site, own) in others.chain(ready.into_values().map(|ready| (ready.planned, None))) {
            let address = site.0.address;
            let planned = reasons.get(&address).map(|(reason, can_trap)| (NoJump::from(*reason), *can_trap));
            let (reason, can_trap) = planned.unwrap_or((NoJump::NotPlanned, false));
            if can_trap && let Some(change) = text.trap(address) {
                self.traps.push(change);
            }
            self.left.push(NotJumped { site, reason: own.unwrap_or(reason), can_trap, was: None });
        }
        for pad in pads {
            let at = plan.map.partition_point(|run| run.end <= pad.address);
            // A pad in a page that is mapped already is written separately.
            match plan.map.get(at).is_some_and(|run| run.contains(&pad.address)) {
                true => drop(self.bytes.new_page_pads.insert(pad.address, pad.bytes)),
                false => self.bytes.old_page_pads.push(pad),
            }
        }
        self.to_map.pads.extend(plan.map.iter().map(|run| (run.start, run.end - run.start)));
        self.trampolines.add(trampolines, ways);
        self.bytes.code.extend(code);
        self.bytes.restore.extend(plan.restore);
        self.texts.push(text);
    }
}
