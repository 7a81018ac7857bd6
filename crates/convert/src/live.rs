//! Calls as spans while a trace is made: what [`crate::convert`] does with a store, for records and
//! facts as a target gets them.
//!
//! ```text
//! fact    -> Info -> TraceFacts, TemplateSet      made anew before the next record
//! record  -> Order: a window of 100 ms -> Otlp -> a request, once a second at least
//! ```
//!
//! Memory is bounded, however long it lasts: of sites that processes map again and again, so many
//! are remembered; who makes no record for an hour is taken for gone.

use std::collections::HashSet;
use std::io;
use std::time::{Duration, Instant};

use trace::Record;
use trace::store::{About, Entry, Fact, Gap, Info};

use crate::event::{Event, Form};
use crate::facts::TraceFacts;
use crate::order::{Kept, Order};
use crate::otlp::{Carried, Otlp};
use crate::plural::counted;
use crate::template_set::TemplateSet;

/// How much earlier a record may be than one before it, in nanoseconds.
const WINDOW: u64 = 100_000_000;
/// How long spans wait for a request to be full.
const EVERY: Duration = Duration::from_secs(1);
/// How long a thread may make no record while it is in a call, in nanoseconds.
const SILENT: u64 = 3_600_000_000_000;
/// How often it is looked for such threads.
const LOOK: Duration = Duration::from_secs(60);
/// The most sites that are remembered.
const MAX_SITES: usize = 1 << 16;
/// The most other facts of a kind.
const MAX_FACTS: usize = 1 << 16;

/// Makes requests of spans while records come.
#[derive(Debug)]
pub struct LiveSpans<'a> {
    info: Info,
    /// What is in `info`, prepared.
    known: TraceFacts,
    sheet: TemplateSet,
    /// Whether there is more in `info`.
    is_stale: bool,
    /// The sites in `info`: program, probe, address.
    sites: HashSet<(u32, u32, u64)>,
    /// Sites beyond the limit.
    beyond: u64,
    order: Order,
    otlp: Otlp<'a>,
    /// The number of the next record.
    number: u64,
    /// That number when it was idle last, and since when it is so.
    seen: u64,
    since: Instant,
    sent: Instant,
    looked: Instant,
}

impl<'a> LiveSpans<'a> {
    /// Gives requests to `take`, as [`Otlp::new`] does, of a trace that begins.
    pub fn new(
        about: About,
        resource: impl Fn(&str, u32) -> String + Send + 'a,
        take: impl FnMut(&[u8], Carried) -> io::Result<()> + Send + 'a,
    ) -> LiveSpans<'a> {
        let host = about.host.clone();
        let mut info = Info::default();
        info.about = about;
        let known = TraceFacts::new(&info);
        let now = Instant::now();
        LiveSpans {
            otlp: Otlp::new(&known, &host, resource, take),
            sheet: TemplateSet::new(None, &info),
            known,
            info,
            is_stale: false,
            sites: HashSet::new(),
            beyond: 0,
            order: Order::new(WINDOW),
            number: 0,
            seen: 0,
            since: now,
            sent: now,
            looked: now,
        }
    }

    /// Takes a fact.
    pub fn fact(&mut self, fact: &Fact) {
        let info = &mut self.info;
        self.is_stale |= match fact {
            Fact::Program(program) => add(&mut info.programs, program),
            Fact::Probe(probe) => add(&mut info.probes, probe),
            Fact::Template(template) => add(&mut info.templates, template),
            Fact::Site(site) => {
                let is_new = !self.sites.contains(&(site.program, site.probe, site.address));
                let is_kept = is_new && self.sites.len() < MAX_SITES;
                if is_kept {
                    self.sites.insert((site.program, site.probe, site.address));
                    info.sites.push(site.clone());
                }
                self.beyond += u64::from(is_new && !is_kept);
                is_kept
            }
            Fact::Gap(gap) => {
                self.otlp.lost(gap);
                false
            }
            _ => false,
        };
    }

    /// Takes a record of a program.
    ///
    /// # Errors
    /// A request is not taken.
    pub fn record(&mut self, program: u32, record: &Record) -> io::Result<()> {
        if std::mem::take(&mut self.is_stale) {
            self.known = std::mem::take(&mut self.known).again(&self.info);
            self.sheet = TemplateSet::new(None, &self.info);
            self.otlp.learn(&self.known);
        }
        if record.tid == record.pid || !self.otlp.names(record.pid) {
            self.otlp.name_process(record.pid, &record.name);
        }
        self.order.push(&Entry { number: self.number, program, record });
        self.number += 1;
        self.give(false)?;
        // Reading the clock for each would take longer than the rest.
        if self.number.is_multiple_of(256) { self.send_in_time() } else { Ok(()) }
    }

    /// Gives records in order; `all`, or those before which none will come.
    fn give(&mut self, all: bool) -> io::Result<()> {
        while let Some(Kept { number, program, record }) = self.order.pop(all) {
            let template = self.sheet.get(*program, record.major, record.minor);
            let place = self.known.site(*program, record.probe, record.eip);
            self.otlp.record(&Event { number: *number, record, place, template })?;
        }
        Ok(())
    }

    fn send_in_time(&mut self) -> io::Result<()> {
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos() as u64;
            self.otlp.end_silent(now.saturating_sub(SILENT))?;
        }
        match self.sent.elapsed() >= EVERY {
            true => {
                self.sent = Instant::now();
                self.otlp.send()
            }
            false => Ok(()),
        }
    }

    /// Gives what has waited long enough, when no record comes.
    ///
    /// # Errors
    /// A request is not taken.
    pub fn idle(&mut self) -> io::Result<()> {
        if self.number != self.seen {
            (self.seen, self.since) = (self.number, Instant::now());
        } else if self.since.elapsed() >= 2 * Duration::from_nanos(WINDOW) {
            self.give(true)?;
        }
        self.send_in_time()
    }

    /// Records were lost between the last one and the next one.
    pub fn lost(&mut self) {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos() as u64;
        self.otlp.lost(&Gap { from: now.saturating_sub(WINDOW), to: now, ..Gap::default() });
    }

    /// Gives all. Returns remarks for the user, a sentence each.
    ///
    /// # Errors
    /// A request is not taken.
    pub fn finish(&mut self) -> io::Result<Vec<String>> {
        self.give(true)?;
        let mut remarks = self.otlp.finish()?;
        if self.beyond > 0 {
            remarks.push(counted(
                self.beyond,
                "place of a probe is beyond the limit of those that are remembered",
                "places of probes are beyond the limit of those that are remembered",
            ));
        }
        Ok(remarks)
    }
}

/// Adds a fact, up to the limit. Returns whether it is there.
fn add<T: Clone>(all: &mut Vec<T>, fact: &T) -> bool {
    let has_room = all.len() < MAX_FACTS;
    if has_room {
        all.push(fact.clone());
    }
    has_room
}

#[cfg(test)]
mod tests;
