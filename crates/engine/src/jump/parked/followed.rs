//! Asks threads that wait to stop, and lets parked threads run again.

use std::collections::BTreeSet;

use process::{Event, Stop};

use super::space::is_crowded;
use super::{Parked, Wait};
use crate::followed::Followed;
use crate::messages::Messages;
use crate::tracked::Activity;

impl Followed {
    /// The address spaces in which threads have found no free context while others wait for room.
    pub(crate) fn crowded(&self) -> Vec<u32> {
        let parked = self.threads.values().filter(|tracked| tracked.parked().is_some());
        let numbers: BTreeSet<u32> = parked.filter_map(|tracked| tracked.space).collect();
        numbers.into_iter().filter(|number| self.spaces.get(number).is_some_and(is_crowded)).collect()
    }

    /// Asks a thread that may wait to stop.
    pub(crate) fn ask_waiting(&mut self, tid: i32, wait: Wait) {
        if let Some(tracked) = self.threads.get_mut(&tid).filter(|tracked| !tracked.asked)
            && let Activity::Running(running) = &tracked.activity
        {
            tracked.asked = running.interrupt().is_ok();
            tracked.waits = Some(wait);
        }
    }

    /// Resumes a thread, if it is parked.
    pub(crate) fn unpark(&mut self, messages: &mut Messages<'_>, tid: i32) {
        if let Some(Parked { thread, .. }) = self.take_parked(tid) {
            let gone_on = self.go_on(thread, Stop::Interrupt);
            messages.tell_failure(gone_on);
        }
    }

    /// Resumes all parked threads, of one address space or of all.
    pub(crate) fn unpark_all(&mut self, messages: &mut Messages<'_>, of: Option<u32>) {
        self.parked_of(of).into_iter().for_each(|tid| self.unpark(messages, tid));
    }

    /// Counts the parked threads of an address space as held: as if they had just been asked to
    /// stop.
    pub(crate) fn hold_parked(&mut self, number: u32) {
        for tid in self.parked_of(Some(number)) {
            if let Some(Parked { thread, .. }) = self.take_parked(tid) {
                self.holds.events.push_back(Event::Stopped(thread, Stop::Interrupt));
            }
        }
    }

    fn parked_of(&self, space: Option<u32>) -> Vec<i32> {
        let parked = self.threads.iter().filter(|(_, tracked)| tracked.parked().is_some());
        let parked = parked.filter(|(_, tracked)| space.is_none() || tracked.space == space);
        parked.map(|(&tid, _)| tid).collect()
    }

    fn take_parked(&mut self, tid: i32) -> Option<Parked> {
        let tracked = self.threads.get_mut(&tid)?;
        tracked.parked()?;
        match std::mem::replace(&mut tracked.activity, Activity::Handled) {
            Activity::Parked(parked) => Some(parked),
            _ => None,
        }
    }
}
