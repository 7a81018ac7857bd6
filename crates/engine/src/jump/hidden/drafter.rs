//! Writes the tables of hidden memory again where memory was mapped or unmapped.

use std::collections::BTreeSet;

use layout::hidden::SIZE;
use layout::{LOW_END, PAGE};
use process::Mapping;
use vm::{Effects, Word};

use super::super::draft::{Basis, Draft};
use crate::jump::Drafter;
use crate::site::Planned;
use crate::site_use::Use;

impl Drafter<'_, '_> {
    /// Whether handlers of these sites access memory.
    pub(in crate::jump) fn accesses_memory(&self, sites: &[Planned]) -> bool {
        let mut programs = BTreeSet::new();
        for wanted in sites.iter().flat_map(|site| &site.0.uses) {
            if let Use::Probe { program, .. } = *wanted {
                programs.insert(program);
            }
        }
        let code = |number: usize| &self.programs[number].versions.of_word(Word::W8).code;
        programs.into_iter().any(|number| vm::may(code(number), Word::W8, Effects::ACCESSES_MEMORY))
    }
}

/// Chooses a place for the table, unless it has one.
pub(in crate::jump) fn choose_hidden(
    tid: i32,
    mappings: &[Mapping],
    known: &mut Basis,
    draft: &mut Draft,
) -> Result<(), String> {
    let Some(handler_memory) =
        known.handler_memory.as_ref().filter(|handler_memory| handler_memory.hidden == 0)
    else {
        return Ok(());
    };
    let mut taken = mappings.to_vec();
    // Contexts are mapped later, perhaps.
    taken.extend(handler_memory.claimed().map(|(start, size)| Mapping::anonymous(start, start + size, None)));
    let reserved = known.taken(tid, &[]).into_iter();
    taken.extend(reserved.map(|(start, end, _)| Mapping::anonymous(start, end, None)));
    let gaps = process::low_gaps(&taken, process::heap_start(tid));
    let is_low = mappings.iter().any(|mapping| mapping.executable && mapping.end <= LOW_END);
    let places = process::low_places(&gaps, SIZE, PAGE);
    let place = if is_low { places.iter().max() } else { places.first() };
    let place = *place.ok_or("the process has no room below 2 GiB")?;
    known.reserve(place, SIZE);
    if let Some(handler_memory) = &mut known.handler_memory {
        handler_memory.hidden = place;
    }
    draft.hidden = Some(place);
    Ok(())
}
