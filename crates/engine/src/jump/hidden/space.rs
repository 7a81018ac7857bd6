//! Collects an address space's own memory and writes the table of it.

use std::io;

use layout::PAGE;
use layout::hidden::changed_byte;

use super::HiddenRanges;
use crate::change::Change;
use crate::space::Space;

impl Space {
    /// Writes the table, if there is one, with changes that are about to be made.
    pub(crate) fn hide(&mut self, more: impl IntoIterator<Item = Change>) -> io::Result<()> {
        if self.shared.hidden.is_none() {
            return Ok(());
        }
        let mut secret = HiddenRanges::default();
        secret.ranges.extend(self.each_ours().map(|(start, size)| start..start + size));
        let Some(mut hidden) = self.shared.hidden.take() else { return Ok(()) };
        let bytes = &mut secret.bytes;
        let mut add = |change: &Change| {
            let both = change.original().iter().zip(change.written()).enumerate();
            let differ = both.filter(|(_, (original, written))| original != written);
            bytes.extend(differ.map(|(place, (&original, &written))| {
                changed_byte(change.address() + place as u64, original, written)
            }));
        };
        self.sites.each_change(&mut add);
        more.into_iter().for_each(|change| add(&change));
        let written = hidden.write(&self.code.memory, secret);
        hidden.shows = Some(self.plans.generation);
        self.shared.hidden = Some(hidden);
        written
    }

    /// Whether the table is older than the last change of the sites.
    pub(crate) fn hides_what_was(&self) -> bool {
        self.shared.hidden.as_ref().is_some_and(|hidden| hidden.shows != Some(self.plans.generation))
    }

    /// The first of these addresses that is hidden from handlers: memory of ours.
    pub(crate) fn first_hidden(&self, address: u64, length: usize) -> Option<u64> {
        let end = address.saturating_add(length as u64);
        let meets = |&(start, size): &(u64, u64)| start < end && address < start + size;
        self.each_ours().filter(meets).map(|(start, _)| start.max(address)).min()
    }

    /// Whether probes have changed code in the page of an address: handlers must not write there.
    pub(crate) fn is_probed_page(&self, address: u64) -> bool {
        let page = address & !(PAGE - 1)..(address | (PAGE - 1)).saturating_add(1);
        let mut is_probed = false;
        self.sites.each_change_near(page.clone(), |change| {
            let end = change.address() + change.original().len() as u64;
            is_probed |= change.address() < page.end && page.start < end;
        });
        is_probed
    }
}
