//! Chooses where memory for handlers goes: handler memory with its rings, and the table of hidden
//! memory.

use std::collections::BTreeSet;

use layout::hidden::SIZE;
use layout::{LEAST_RING, LOW_END, PAGE};
use process::Mapping;
use vm::{Effects, Word};

use super::draft::drafter::Drafter;
use super::draft::{Basis, Draft};
use crate::jump::handler_memory::HandlerMemory;
use crate::jump::rings::Rings;
use crate::messages::Messages;
use crate::observer::Note;
use crate::reader::Reader;
use crate::reason::NotMapped;
use crate::site::Planned;
use crate::site_use::Use;

impl Drafter<'_, '_> {
    /// Chooses places for handler memory in a process with these mappings. Nothing is mapped or
    /// written.
    pub(super) fn choose_handler_memory(
        &mut self,
        tid: i32,
        mappings: &[Mapping],
    ) -> Result<HandlerMemory, NotMapped> {
        let ring_size = |count| choose_ring_size(self.reader, self.messages, tid, count);
        HandlerMemory::choose(tid, mappings, self.sharing.cells.as_ref(), ring_size)
    }

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
) -> Result<(), NotMapped> {
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
    let place = *place.ok_or(NotMapped::NoneLow)?;
    known.reserve(place, SIZE);
    if let Some(handler_memory) = &mut known.handler_memory {
        handler_memory.hidden = place;
    }
    draft.to_map.hidden = Some(place);
    Ok(())
}

/// Bytes of a ring in a process: as requested, or less if its limit of addresses requires it.
fn choose_ring_size(reader: &Reader, messages: &mut Messages<'_>, tid: i32, count: u32) -> u64 {
    // Half of what it may still map: the process needs some itself.
    let room = process::addresses_left(tid).map_or(u64::MAX, |left| left / 2);
    let sizes = std::iter::successors(Some(reader.ring_size), |size| Some(size / 2));
    let mut sizes = sizes.take_while(|&size| size >= LEAST_RING);
    let size = sizes.find(|&size| Rings::bytes(count, size) <= room).unwrap_or(LEAST_RING);
    if size < reader.ring_size {
        let note = format!("process {tid} has address space for buffers of {} KiB only", size >> 10);
        messages.tell_once(Note::Other(note));
    }
    size
}
