//! Chooses the places of handler memory.

use std::rc::Rc;

use agent::image::{Entry, Image, image};
use layout::{CONTEXT_SIZE, Entries};
use process::Mapping;

use super::super::cells::Cells;
use super::super::contexts::Contexts;
use super::{HandlerMemory, TEXTS, Texts, is_low, low_place, places, without};
use crate::reason::NotMapped;

impl HandlerMemory {
    /// Chooses places for all parts in a process with these mappings. Only chooses: nothing is
    /// mapped or written. `ring_size` chooses the bytes of a ring, of which there are so many.
    pub(in crate::jump) fn choose(
        tid: i32,
        mappings: &[Mapping],
        cells: Option<&Cells>,
        ring_size: impl FnOnce(u32) -> u64,
    ) -> Result<HandlerMemory, NotMapped> {
        if let Some(missing) = process::missing_instructions() {
            return Err(NotMapped::Processor(missing));
        }
        let cells = cells.ok_or(NotMapped::NoneShared)?;
        let (processors, size) = (cells.processors(), cells.size());
        let heap = process::heap_start(tid);
        let places = places(mappings, heap, size, Contexts::size(processors) + TEXTS);
        let places = places.ok_or(NotMapped::NoneLow)?;
        let contexts = Contexts::at(places.contexts, processors);
        let ring_size = ring_size(contexts.count());
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
                map: image.entry(Entry::Map, places.agent) as u32,
            },
            faults: Rc::new(image.faults(places.agent).collect()),
            code: (places.agent, places.agent + image.code_size() as u64),
            give_up: image.entry(Entry::GiveUp, places.agent),
            texts: Rc::new(Texts::behind(&contexts)),
            hidden: 0,
            cells_size: size,
        })
    }

    /// Moves contexts, which are not mapped yet, if the process has mapped something at their place
    /// meanwhile. `reserved` is what else is to be mapped: start and end of each.
    pub(in crate::jump) fn move_contexts(
        &mut self,
        tid: i32,
        mappings: &[Mapping],
        reserved: impl Iterator<Item = (u64, u64)> + Clone,
    ) {
        let (base, size) = self.contexts.span();
        let size = size + TEXTS;
        let taken = mappings.iter().map(|mapping| (mapping.start, mapping.end)).chain(reserved.clone());
        if !taken.clone().any(|(start, end)| start < base + size && base < end) {
            return;
        }
        let gaps = process::low_gaps(mappings, process::heap_start(tid));
        let gaps = reserved.fold(gaps, |gaps, taken| without(gaps, taken.0..taken.1));
        if let Some(place) = low_place(&gaps, size, CONTEXT_SIZE, is_low(mappings)) {
            self.contexts = self.contexts.moved(place);
            self.texts = Rc::new(Texts::behind(&self.contexts));
        }
    }
}
