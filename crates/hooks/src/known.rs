//! A known hook: its exits in order, its sites, and what waits for threads to leave before it is
//! freed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::entry::{Arming, Entry, Priority};
use crate::head::{ACTIVE, HookHeader};
use crate::list::{ExitInfo, HookInfo};
use crate::readers::Grace;
use crate::site::Site;
use crate::state::{Armed, Chain, State};
use crate::{Error, record, text};

/// A registered exit.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) entry: Arc<Entry>,
    pub(crate) arming: Option<Arc<Arming>>,
}

impl Member {
    pub(crate) fn is_armed(&self) -> bool {
        self.arming.as_ref().is_some_and(|arming| !arming.has_ended())
    }
}

/// The registry's data of a hook.
#[derive(Debug)]
pub(crate) struct RegisteredHook {
    pub(crate) head: &'static HookHeader,
    state: &'static State,
    /// Whether exits may register: it is identified and not deleted.
    pub(crate) eligible: bool,
    pub(crate) exits: Vec<Member>,
    sites: Vec<Site>,
    /// Whether the sites jump to the armed path.
    active: bool,
    waiting: RetireQueue,
}

// SAFETY: the chains belong to the owner of this value.
unsafe impl Send for RegisteredHook {}

/// Removed chains and exits that threads may still use, each with a ticket.
#[derive(Debug, Default)]
struct RetireQueue {
    chains: Vec<(u64, *mut Chain)>,
    entries: Vec<(u64, Arc<Entry>)>,
    /// The last ticket issued.
    drawn: u64,
    /// The last ticket whose threads have all left.
    over: u64,
    /// The current wait, and the last ticket that it covers.
    grace: Option<(u64, Grace)>,
}

impl RegisteredHook {
    pub(crate) fn new(head: &'static HookHeader) -> RegisteredHook {
        let state = head.state().unwrap_or_else(|| {
            // Never freed: a thread that has reached a site may be about to read it.
            let state = Box::leak(Box::new(State::new()));
            head.state.store(state, Ordering::Release);
            state
        });
        RegisteredHook {
            head,
            state,
            eligible: true,
            exits: Vec::new(),
            sites: Vec::new(),
            active: false,
            waiting: RetireQueue::default(),
        }
    }

    /// Adds a site, which becomes active if the others are.
    pub(crate) fn add_site(&mut self, site: Site) {
        self.sites.push(site);
        if self.active {
            // A site that cannot be written stays dormant, like those of a hook that cannot be
            // armed.
            let _ = text::set(&[site], true);
        }
    }

    pub(crate) fn has_sites(&self) -> bool {
        !self.sites.is_empty()
    }

    /// Forgets sites that will be unmapped.
    pub(crate) fn forget_sites(&mut self, sites: &[Site]) {
        self.sites.retain(|site| !sites.iter().any(|gone| gone.at == site.at));
    }

    /// The position of a new exit.
    pub(crate) fn place_for(&self, entry: &Entry) -> Result<usize, Error> {
        if !self.eligible {
            return Err(Error::UnknownHook);
        }
        let order: Vec<Priority> = self.exits.iter().map(|member| member.entry.priority).collect();
        place_among(&order, entry.priority, self.head.is_exclusive())
    }

    /// Writes each exit's number into its C record.
    pub(crate) fn number_records(&self) {
        for (place, member) in self.exits.iter().enumerate() {
            record::show_index(&member.entry, place + 1);
        }
    }

    /// Makes the sites active.
    pub(crate) fn activate(&mut self) -> io::Result<()> {
        if !self.active {
            text::set(&self.sites, true)?;
            self.active = true;
            self.head.flags.fetch_or(ACTIVE, Ordering::SeqCst);
            self.head.active.store(1, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Makes the sites dormant if nothing is armed.
    pub(crate) fn deactivate_if_unused(&mut self) {
        if self.active && !self.exits.iter().any(|member| member.arming.is_some()) {
            self.head.active.store(0, Ordering::SeqCst);
            self.head.flags.fetch_and(!ACTIVE, Ordering::SeqCst);
            // If that fails, hits find nothing armed: slow, but correct. The next arming finds the
            // sites active.
            self.active = text::set(&self.sites, false).is_err();
        }
    }

    /// Installs a new chain of the armed exits, which is not in effect yet. Returns the old one.
    pub(crate) fn prepare(&mut self, version: u64) -> Option<*mut Chain> {
        let armed = |member: &Member| {
            let arming = member.arming.as_ref().filter(|arming| !arming.has_ended())?;
            Some(Armed { entry: Arc::clone(&member.entry), arming: Arc::clone(arming) })
        };
        let exits: Box<[Armed]> = self.exits.iter().filter_map(armed).collect();
        let quiesced = exits.iter().any(|armed| armed.entry.conditions.quiesced);
        let old = self.state.chain.load(Ordering::SeqCst);
        let new = Box::new(Chain { version, exits, quiesced, previous: old });
        self.state.chain.store(Box::into_raw(new), Ordering::SeqCst);
        (!old.is_null()).then_some(old)
    }

    /// Keeps a replaced chain until no thread can use it. Returns the ticket that is over then.
    pub(crate) fn retire(&mut self, chain: Option<*mut Chain>) -> u64 {
        self.waiting.drawn += 1;
        if let Some(chain) = chain {
            self.waiting.chains.push((self.waiting.drawn, chain));
        }
        self.waiting.drawn
    }

    /// Keeps an exit's function as long as the chains of the last ticket.
    pub(crate) fn keep(&mut self, entry: Arc<Entry>) {
        self.waiting.entries.push((self.waiting.drawn, entry));
    }

    /// Whether all threads that were inside when a ticket was issued have left.
    pub(crate) fn is_over(&mut self, ticket: u64) -> bool {
        self.waiting.over >= ticket || {
            self.waiting.look(self.state);
            self.waiting.over >= ticket
        }
    }

    #[allow(clippy::vec_box, reason = "they are given away as they were made")]
    /// Hands out what no thread can use any more.
    pub(crate) fn collect(&mut self, chains: &mut Vec<Box<Chain>>, entries: &mut Vec<Arc<Entry>>) {
        let waiting = &mut self.waiting;
        waiting.look(self.state);
        let over = waiting.over;
        // SAFETY: `prepare` made it by `Box::into_raw` and has returned it once; no thread can
        // reach it any more.
        let boxed = |(_, chain)| unsafe { Box::from_raw(chain) };
        chains.extend(waiting.chains.extract_if(.., |(ticket, _)| *ticket <= over).map(boxed));
        entries.extend(waiting.entries.extract_if(.., |(ticket, _)| *ticket <= over).map(|(_, entry)| entry));
    }

    pub(crate) fn info(&self) -> HookInfo {
        let exits = self.exits.iter().enumerate().map(|(place, member)| ExitInfo {
            name: member.entry.name.clone(),
            index: place + 1,
            priority: member.entry.priority,
            conditions: member.entry.conditions,
            armed: member.is_armed(),
            missed: member.entry.missed.load(Ordering::Relaxed),
            panics: member.entry.panics.load(Ordering::Relaxed),
        });
        HookInfo {
            name: self.head.name(),
            parameters: self.head.parameters(),
            exclusive: self.head.is_exclusive(),
            active: self.head.is_active(),
            sites: self.sites.len(),
            exits: exits.collect(),
        }
    }
}

impl RetireQueue {
    /// Checks whether threads have left.
    fn look(&mut self, state: &State) {
        if self.over == self.drawn {
            return;
        }
        let (ticket, grace) = self.grace.get_or_insert_with(|| (self.drawn, Grace::begin()));
        // Twice, since one check may only change the phase.
        if grace.is_over(&state.readers) || grace.is_over(&state.readers) {
            self.over = *ticket;
            self.grace = None;
        }
    }
}

/// The position of an exit among the registered ones, if it is allowed there.
fn place_among(exits: &[Priority], new: Priority, exclusive: bool) -> Result<usize, Error> {
    let has = |priority| exits.contains(&priority);
    if !exits.is_empty() && (exclusive || new == Priority::Only || has(Priority::Only)) {
        return Err(Error::Exclusive);
    }
    match new {
        Priority::First if has(Priority::First) => Err(Error::FirstTaken),
        Priority::Last if has(Priority::Last) => Err(Error::LastTaken),
        Priority::First | Priority::Only => Ok(0),
        Priority::Lifo => Ok(usize::from(has(Priority::First))),
        Priority::Unspecified => Ok(exits.len() - usize::from(has(Priority::Last))),
        Priority::Last => Ok(exits.len()),
    }
}
