//! Frees the memory and the number of a removed program once no thread can need it.

use std::rc::Rc;

use super::{Forgotten, give_back};
use crate::jump::Drainer;
use crate::tracked::Tracked;

impl Drainer<'_, '_> {
    /// Frees everything of a removed program as soon as possible.
    pub(crate) fn forget(&mut self, number: usize) {
        if self.programs.get(number).is_some_and(|program| !program.inserted) {
            self.sharing.forgotten.push(Forgotten { number, mark: None });
            self.forget_programs();
        }
    }

    /// Frees the programs to be forgotten that nothing refers to any more.
    pub(crate) fn forget_programs(&mut self) {
        if self.sharing.forgotten.is_empty() || self.followed.threads.values().any(Tracked::has_records) {
            return;
        }
        let mut forgotten = std::mem::take(&mut self.sharing.forgotten);
        forgotten.retain_mut(|Forgotten { number, mark }| {
            let Some(program) = self.programs.get(*number) else { return false };
            if Rc::strong_count(&program.alive) > 1 {
                return true;
            }
            let mark = mark.get_or_insert_with(|| self.mark());
            if !self.is_past(mark) {
                return true;
            }
            let Some(program) = self.programs.remove(*number) else { return false };
            self.sharing.mortal.retain(|(of, _)| of != number);
            self.messages.told.forget(*number);
            for space in self.followed.spaces.values_mut() {
                // The plan contains a copy of the handlers' descriptions.
                space.modules.foreseen = None;
                space
                    .shared
                    .handler_memory
                    .iter_mut()
                    .for_each(|handler_memory| handler_memory.forget(*number));
            }
            if let Some(cells) = &mut self.sharing.cells {
                give_back(program, cells);
            }
            false
        });
        self.sharing.forgotten = forgotten;
    }
}
