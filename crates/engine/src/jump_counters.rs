//! The counters of a probe that fires by jumps: their sums, and ending it in a domain.

use std::sync::atomic::Ordering;

use layout::ProbeEnd;

use crate::jump::{Counter, Domain, Words};
use crate::program::has_limits;

/// What a probe's jumps have counted, in all processes together.
#[derive(Debug)]
pub(crate) struct JumpCounters {
    /// Hits: runs, misses and ignored hits.
    pub(crate) hits: Counter,
    /// The words [`MISSED`] to [`OVER`].
    pub(crate) words: Words,
}

/// Index in [`JumpCounters::words`]: hits whose handler could not run.
pub(crate) const MISSED: usize = 0;

/// Index: records that were dropped.
pub(crate) const DROPPED: usize = 1;

/// Index: hits of a probe with `ignore` or `maxhits`.
pub(crate) const LIMITED_HITS: usize = 2;

/// Index: a [`layout::ProbeEnd`]. Its lower half is not 0 once no run may start any more, its upper
/// half once the probe is removed.
pub(crate) const OVER: usize = 3;

/// In the lower half of the word [`OVER`]: no run may start.
const CLOSED: u64 = 1;

/// In its upper half: a handler has removed the probe, or the tracer disarms it.
const BY_HANDLER: u64 = (ProbeEnd::BY_HANDLER as u64) << 32;

const BY_TRACER: u64 = (ProbeEnd::BY_TRACER as u64) << 32;

/// The number of words.
pub(crate) const COUNTED: usize = 4;

impl JumpCounters {
    /// The sum of one kind of word over all domains.
    pub(crate) fn sum(&self, which: usize) -> u64 {
        let mut sum = 0u64;
        self.words.each(which, |_, word| sum = sum.saturating_add(word.load(Ordering::Relaxed)));
        sum
    }

    fn word(&self, which: usize, domain: Domain) -> u64 {
        self.words.with(domain, which, |word| word.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// For a probe with `ignore` or `maxhits`: the ignored hits, and all hits that count. Each
    /// domain has its own limits.
    pub(crate) fn turns(&self, definition: &rpn::Probe) -> (u64, u64) {
        let last = definition.ignore.saturating_add(definition.maxhits);
        let (mut ignored, mut hits) = (0u64, 0u64);
        self.words.each(LIMITED_HITS, |_, word| {
            let turns = word.load(Ordering::Relaxed);
            ignored = ignored.saturating_add(turns.min(definition.ignore));
            hits = hits.saturating_add(turns.min(last));
        });
        (ignored, hits)
    }

    /// Whether the probe is over in a domain.
    pub(crate) fn is_over(&self, domain: Domain) -> bool {
        self.word(OVER, domain) as u32 != 0
    }

    /// The domains in which a handler, not the tracer, has ended the probe.
    pub(crate) fn each_over(&self, mut action: impl FnMut(Domain)) {
        self.words.each(OVER, |domain, word| {
            let word = word.load(Ordering::Relaxed);
            if word as u32 != 0 && (word & BY_HANDLER != 0 || word & BY_TRACER == 0) {
                action(domain);
            }
        });
    }

    /// Whether a handler in a domain has removed the probe.
    pub(crate) fn is_removed_by_handler(&self, domain: Domain) -> bool {
        self.word(OVER, domain) & BY_HANDLER != 0
    }

    /// No run of the handler starts from now on: in one domain, or in all.
    pub(crate) fn close(&self, domain: Option<Domain>) {
        self.end(domain, CLOSED);
    }

    /// As [`JumpCounters::close`]; long runs end soon, too.
    pub(crate) fn take_out(&self, domain: Option<Domain>) {
        self.end(domain, CLOSED | BY_TRACER);
    }

    fn end(&self, only: Option<Domain>, how: u64) {
        self.words.each(OVER, |domain, word| {
            if only.is_none_or(|only| only == domain) {
                word.fetch_or(how, Ordering::Relaxed);
            }
        });
    }

    /// Counts a hit of a probe with `ignore` or `maxhits` in a domain. Returns its number, from 1.
    pub(crate) fn turn(&self, domain: Domain) -> u64 {
        self.words.with(domain, LIMITED_HITS, |word| word.fetch_add(1, Ordering::Relaxed) + 1).unwrap_or(1)
    }

    /// Adds one to a word, on behalf of the tracer.
    pub(crate) fn count(&self, which: usize) {
        self.words.with(Domain::OWN, which, |word| word.fetch_add(1, Ordering::Relaxed));
    }

    /// The hits counted by jumps in a domain.
    pub(crate) fn hits_of(&self, definition: &rpn::Probe, domain: Domain) -> u64 {
        let last = definition.ignore.saturating_add(definition.maxhits);
        if has_limits(definition) {
            self.word(LIMITED_HITS, domain).min(last)
        } else {
            self.hits.value_of(domain)
        }
    }
}
