//! What a reader keeps of maps by stacks for a graph.

use std::cell::RefCell;

use maps::Kind;

use super::Flame;
use crate::error::Error;
use crate::reader::Reader;
use crate::table::Selection;
use crate::world::World;

impl<'a> Reader<'a> {
    /// Collects what maps by stacks have had when they are cleared, and at the end.
    pub fn with_flame(mut self) -> Reader<'a> {
        self.flame = Some(RefCell::default());
        self
    }

    /// What was collected for a flame graph.
    pub fn flame(&self) -> Option<Flame> {
        self.flame.as_ref().map(RefCell::take)
    }

    /// Adds what a map has to the flame graph, if one is made.
    pub(crate) fn keep(&self, map: usize, world: &mut dyn World) -> Result<(), Error> {
        let Some(flame) = &self.flame else { return Ok(()) };
        let described = self.decoder.script.maps.get(map);
        // The frames of stacks are a map of their own.
        if described.is_none_or(|map| Kind::from_number(map.info.kind) == Some(Kind::Stacks)) {
            return Ok(());
        }
        let table = self.table(map, Selection::default(), world)?;
        table.into_iter().for_each(|table| flame.borrow_mut().table(&table));
        Ok(())
    }
}
