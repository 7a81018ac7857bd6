//! Takes a part of an address space's handler memory, and has it mapped where it is missing.

use std::rc::Rc;

use agent::image::{Entry, Image, image};
use layout::{CONTEXT_SIZE, Entries, LEAST_RING};
use process::Mapping;

use super::super::contexts::Contexts;
use super::super::rings::Rings;
use super::{HandlerMemory, TEXTS, Texts, is_low, low_place, places, without};
use crate::jump::Drafter;
use crate::observer::Note;

impl Drafter<'_, '_> {
    /// Chooses places for all parts in a process with these mappings. Only chooses: nothing is
    /// mapped or written.
    pub(crate) fn choose_handler_memory(
        &mut self,
        tid: i32,
        mappings: &[Mapping],
    ) -> Result<HandlerMemory, String> {
        if let Some(missing) = process::missing_instructions() {
            return Err(format!("the processor has no `{missing}`"));
        }
        let cells = self.sharing.cells.as_ref().ok_or("there is no memory to share with the process")?;
        let (processors, size) = (cells.processors(), cells.size());
        let heap = process::heap_start(tid);
        let places = places(mappings, heap, size, Contexts::size(processors) + TEXTS);
        let places = places.ok_or("the process has no room below 2 GiB")?;
        let contexts = Contexts::at(places.contexts, processors);
        let ring_size = self.choose_ring_size(tid, contexts.count());
        let image: &Image = image();
        Ok(HandlerMemory {
            identity: places.identity,
            cells: places.cells,
            contexts,
            ring_size,
            claims: false,
            entries: Entries {
                resume: image.entry(Entry::Resume, places.agent) as u32,
                wait: image.entry(Entry::Wait, places.agent) as u32,
            },
            faults: Rc::new(image.faults(places.agent).collect()),
            code: (places.agent, places.agent + image.code_size() as u64),
            give_up: image.entry(Entry::GiveUp, places.agent),
            texts: Rc::new(Texts::behind(&contexts)),
            hidden: 0,
            cells_size: size,
        })
    }

    /// Bytes of a ring in a process: as requested, or less if its limit of addresses requires it.
    fn choose_ring_size(&mut self, tid: i32, count: u32) -> u64 {
        // Half of what it may still map: the process needs some itself.
        let room = process::addresses_left(tid).map_or(u64::MAX, |left| left / 2);
        let sizes = std::iter::successors(Some(self.reader.ring_size), |size| Some(size / 2));
        let mut sizes = sizes.take_while(|&size| size >= LEAST_RING);
        let size = sizes.find(|&size| Rings::bytes(count, size) <= room).unwrap_or(LEAST_RING);
        if size < self.reader.ring_size {
            let note = format!("process {tid} has room for buffers of {} KiB only", size >> 10);
            self.messages.tell_once(Note::Other(note));
        }
        size
    }
}

/// Moves contexts, which are not mapped yet, if the process has mapped something at their place
/// meanwhile. `reserved` is what else is to be mapped: start and end of each.
pub(in crate::jump) fn move_contexts(
    handler_memory: &mut HandlerMemory,
    tid: i32,
    mappings: &[Mapping],
    reserved: impl Iterator<Item = (u64, u64)> + Clone,
) {
    let (base, size) = handler_memory.contexts.place();
    let size = size + TEXTS;
    let taken = mappings.iter().map(|mapping| (mapping.start, mapping.end)).chain(reserved.clone());
    if !taken.clone().any(|(start, end)| start < base + size && base < end) {
        return;
    }
    let gaps = process::low_gaps(mappings, process::heap_start(tid));
    let gaps = reserved.fold(gaps, |gaps, taken| without(gaps, taken.0..taken.1));
    if let Some(place) = low_place(&gaps, size, CONTEXT_SIZE, is_low(mappings)) {
        handler_memory.contexts = handler_memory.contexts.moved(place);
        handler_memory.texts = Rc::new(Texts::behind(&handler_memory.contexts));
    }
}
