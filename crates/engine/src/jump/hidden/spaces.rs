//! Maps the table of hidden memory, and writes it again where memory was mapped or unmapped.

use layout::hidden::SIZE;
use process::{Stop, Stopped};

use super::Hidden;
use crate::mapping::Called;
use crate::spaces::Spaces;

impl Spaces {
    /// Maps the table at `base`.
    pub(in crate::jump) fn map_hidden(
        &mut self,
        number: u32,
        thread: Stopped,
        stop: Stop,
        base: u64,
    ) -> Called<()> {
        let (thread, stop, mapped) = self.map_pieces(number, thread, stop, &[(base, SIZE)])?;
        if let Some(space) = self.get_mut(&number) {
            if mapped.is_ok() {
                let mappings = process::maps(thread.tid()).unwrap_or_default();
                let limit = process::stack_limit(thread.tid());
                space.shared.hidden = Some(Hidden::new(base, &mappings, limit));
                space.mapped.mappings += 1;
            }
            if let Some(handler_memory) = &mut space.shared.handler_memory {
                handler_memory.hidden = if mapped.is_ok() { base } else { 0 };
            }
        }
        Ok((thread, stop, mapped))
    }

    /// Rewrites the tables that are older than the last change of their sites.
    pub(crate) fn hide_again(&mut self) {
        for space in self.values_mut().filter(|space| space.hides_what_was()) {
            // Fails only if the process is gone.
            let _ = space.hide([]);
        }
    }
}
