//! Makes a libc's system calls that block all signals sites of the engine, before the first probe
//! traps in the same code.
//!
//! Each such site costs a stop for every thread that starts or ends. So they exist only in modules
//! in which a probe traps: only the libc's own code runs while everything is blocked.

use process::{Error, Module, Stop, Stopped};

use super::Guard;
use crate::jump::ToArm;
use crate::module_key::module_key;
use crate::placing::Work;
use crate::placing::placer::Placer;
use crate::reason::NotArmed;
use crate::site::Planned;
use crate::site_plans::{self, Checks, Expected};
use crate::site_use::Use;
use patch::Argument;

impl Placer<'_, '_> {
    /// Arms the calls of a module that block all signals, if a probe is to trap in the module and
    /// the process has the guard's handler; once for each module. If that is refused, threads block
    /// all signals as before.
    pub(crate) fn lend_sets(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        work: &mut Work,
    ) -> Result<(Stopped, Stop), Error> {
        let key = module_key(&work.module);
        if self.followed.spaces.get(&number).is_none_or(|space| space.modules.blocking.contains(&key))
            || self.cache.blocks.of(&work.module.image).is_empty()
        {
            return Ok((thread, stop));
        }
        // The first call installs the guard.
        let (mut thread, mut stop, _) = self.followed.spaces.with_calls(number, thread, stop, &[], Ok)?;
        let Some(space) = self.followed.spaces.get_mut(&number) else { return Ok((thread, stop)) };
        if !space.calls.guard.as_ref().is_some_and(Guard::answers) {
            return Ok((thread, stop));
        }
        space.modules.blocking.insert(key);
        let is_planned = space.plans.planners.has(&key);
        let mut sites = self.plan_blocks(number, thread.tid(), &work.module);
        if let Some(program) = work.program.filter(|_| is_planned) {
            let sites_of = ToArm::Planned(std::mem::take(&mut sites));
            let (stopped, now, left) =
                self.armer().arm_jumps(number, thread, stop, &work.module, sites_of, false, None)?;
            (thread, stop) = (stopped, now);
            sites = self.settle_left(thread.tid(), work, program, left.unwrap_or_default());
        }
        if sites.is_empty() {
            return Ok((thread, stop));
        }
        let (thread, stop, area) = self.followed.spaces.slot_area(number, thread, stop, &sites)?;
        let addresses: Vec<u64> = sites.iter().map(|site| site.0.address).collect();
        if area.map_err(NotArmed::from).and_then(|area| self.arm(number, area, sites)).is_err() {
            self.give_up_traps(number, &addresses);
        } else if let Some(space) = self.followed.spaces.get_mut(&number) {
            space.calls.trapping.clear();
        }
        Ok((thread, stop))
    }

    /// Plans sites for those calls, as far as possible. A call is left out if its signal set in
    /// memory differs from that in the file.
    fn plan_blocks(&mut self, number: u32, tid: i32, module: &Module) -> Vec<Planned> {
        let blocks = self.cache.blocks.of(&module.image);
        let checks = Checks { opcodes: false, ..self.checks(tid) };
        let Some(space) = self.followed.spaces.get(&number) else { return Vec::new() };
        let text = space.text();
        let plan = |block: &super::mask_calls::MaskCall| {
            let lent = block.lent(module.bias);
            if let Argument::Address(address) = lent.argument {
                let mut set = [0; 8];
                space.code.memory.peek(address, &mut set).ok()?;
                if u64::from_le_bytes(set) != block.set {
                    return None;
                }
            }
            let mut site =
                site_plans::site(Expected::default(), block.vaddr, Use::MasksSignals, module, &text, checks)
                    .ok()?;
            if !site.0.displaced.enters_kernel() {
                return None;
            }
            site.0.displaced = site.0.displaced.clone().with_argument(lent);
            Some(site)
        };
        blocks.iter().filter_map(plan).collect()
    }
}
