//! Reads the code of a module that an address space has mapped.

use std::rc::Rc;

use process::{Mapping, Module};

use super::super::code_cache::{CodeCache, Kept};
use super::{AROUND, CLOSE, Text};
use crate::space::Space;

impl Text {
    /// Reads the code of a module's mapping, or takes it from `code_cache`. If it may be needed
    /// `again`, it is kept there.
    pub(crate) fn read(
        space: &Space,
        module: &Module,
        mapping: &Mapping,
        texts: &mut CodeCache,
        again: bool,
    ) -> Option<Text> {
        let start = mapping.start;
        let known = texts.known(space, module, mapping);
        let code = match known {
            Some(code) => code,
            None => {
                let mut bytes = vec![0; usize::try_from(mapping.end - start).ok()?];
                space.code.memory.peek(start, &mut bytes).ok()?;
                space.sites.hide(start, &mut bytes);
                let code = Rc::new(Kept::of(bytes));
                if again {
                    texts.keep(module, mapping, &code);
                }
                code
            }
        };
        Some(Text { start, code })
    }

    /// Whether the program still has these bytes at and around the places of changes, which are
    /// ascending. Places outside of this code are ignored.
    pub(crate) fn is_still(&self, space: &Space, places: &[u64]) -> bool {
        let range = self.range();
        let own = places.partition_point(|place| *place < range.start)
            ..places.partition_point(|place| *place < range.end);
        let mut rest = &places[own];
        let mut found = Vec::new();
        while let Some(first) = rest.first() {
            let count = 1 + rest.windows(2).take_while(|pair| pair[1] - pair[0] < CLOSE).count();
            let (piece, others) = rest.split_at(count);
            rest = others;
            let start = first.saturating_sub(AROUND).max(range.start);
            let end = piece[count - 1].saturating_add(AROUND).min(range.end);
            let Some(expected) = self.at(start, (end - start) as usize) else { return false };
            found.resize(expected.len(), 0);
            if space.code.memory.peek(start, &mut found).is_err() {
                return false;
            }
            space.sites.hide(start, &mut found);
            if found != expected {
                return false;
            }
        }
        true
    }
}
