//! Makes a site ready for a jump: all its handlers compiled, and the code that commits their
//! record.
//!
//! In: a planned site, and the handler memory of its address space. Out: `ReadySite`; or the site
//! again, with the reason (`NoJump`). One handler is compiled in `compile/compiler.rs`.

use process::Mapping;

use super::super::compile::At;
use super::super::compile::compiler::HandlerCompiler;
use super::{Handlers, ReadySite, is_accessible};
use crate::jump::HandlerMemory;
use crate::jump::trampoline::Commit;
use crate::reason::NoJump;
use crate::site::Planned;
use crate::site_use::Use;

impl HandlerCompiler<'_> {
    /// Compiles the handlers of a site: those that it has already, then those of the probes that it
    /// is planned for. `ahead` is the program's code from the site on, `arming` the number of the
    /// arming. Returns the site and the reason if that fails.
    pub(crate) fn make_ready(
        &mut self,
        number: u32,
        planned: Planned,
        handler_memory: &mut HandlerMemory,
        mappings: &[Mapping],
        (ahead, arming): (&[u8], u32),
    ) -> Result<ReadySite, Box<(Planned, NoJump)>> {
        match self.compile_all(number, &planned, handler_memory, mappings, (ahead, arming)) {
            Ok((handlers, commit)) => Ok(ReadySite { planned, handlers, commit }),
            Err(reason) => Err(Box::new((planned, reason))),
        }
    }

    fn compile_all(
        &mut self,
        number: u32,
        planned: &Planned,
        handler_memory: &mut HandlerMemory,
        mappings: &[Mapping],
        (ahead, arming): (&[u8], u32),
    ) -> Result<Handlers, NoJump> {
        let site = &planned.0;
        let displaced = &site.displaced;
        let may_fault =
            displaced.may_fault_in_trampoline(|range, written| is_accessible(mappings, &range, written));
        let there = self.spaces.get(&number).and_then(|space| space.sites.get(&site.address));
        let mut uses = there.map_or_else(Vec::new, |armed| armed.site().uses.clone());
        for wanted in &site.uses {
            if !uses.contains(wanted) {
                uses.push(*wanted);
            }
        }
        let mut handlers = Vec::with_capacity(uses.len());
        let (mut tentative, mut makes_it) = (0, 0);
        for wanted in uses {
            if let Use::Probe { program, probe } = wanted {
                let known = At { site, may_fault, ahead, waits: tentative > 0, arming };
                let compiled = self.compile(handler_memory, (program, probe), known)?;
                if compiled.claims {
                    let ringless = self.spaces.get(&number).and_then(|space| space.shared.ringless.clone());
                    ringless.map_or(Ok(()), Err)?;
                    handler_memory.claims = true;
                }
                if compiled.tentative {
                    (tentative, makes_it) = (tentative + 1, handlers.len());
                }
                handlers.push((wanted, compiled.code));
            }
        }
        let delta = displaced.stack_delta().and_then(|delta| i32::try_from(delta).ok());
        let commit = match (tentative, delta) {
            (0, _) => None,
            (1, Some(delta)) if !displaced.transfers_control() => {
                Some(Commit { code: jit::Compiled::commit(delta), handler: makes_it })
            }
            (1, _) => {
                return Err(NoJump::NextUnknown(displaced.text().to_owned()));
            }
            _ => {
                return Err(NoJump::SeveralWait(displaced.text().to_owned()));
            }
        };
        Ok((handlers, commit))
    }
}
