//! Finds the kept code of a module that an address space has mapped.

use std::rc::Rc;

use process::{Mapping, Module, Page, PageMap};

use super::{CodeCache, Kept, is_of, key};
use crate::space::Space;

impl CodeCache {
    /// The code of a module's mapping, if it is known and the process has not changed it, except
    /// for our sites.
    pub(in crate::jump) fn known(
        &self,
        space: &Space,
        module: &Module,
        mapping: &Mapping,
    ) -> Option<Rc<Kept>> {
        let (_, kept) = self.known.get(&key(module, mapping)).filter(|_| is_of(module, mapping))?;
        let mut own = Vec::new();
        let pages = PageMap::open(space.code.process).ok()?;
        let mut note = |run: process::Run| {
            if run.page == Page::Private {
                own.push(run.addresses);
            }
        };
        pages.runs(mapping.start..mapping.end, &mut note).ok()?;
        let mut bytes = Vec::new();
        for addresses in own {
            let from = usize::try_from(addresses.start - mapping.start).ok()?;
            let expected =
                kept.bytes.get(from..from + usize::try_from(addresses.end - addresses.start).ok()?)?;
            bytes.resize(expected.len(), 0);
            space.code.memory.peek(addresses.start, &mut bytes).ok()?;
            space.sites.hide(addresses.start, &mut bytes);
            if bytes != expected {
                return None;
            }
        }
        Some(Rc::clone(kept))
    }
}
