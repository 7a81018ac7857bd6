//! The state of a queue: what waits, what was lost, and why.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::time::Instant;

use super::{Block, Limits, Patience, Progress};

/// The most messages for the user that are kept.
pub(super) const MAX_NOTES: usize = 64;

/// The last 1/8 of a queue is reserved for callers that have asked whether it is ready.
const SPARE: u64 = 8;

/// The state of a queue that the tracer and the thread share.
#[derive(Debug)]
pub(super) struct State<B> {
    /// Blocks to be written, oldest first.
    pub(super) full: VecDeque<B>,
    /// Empty blocks for reuse.
    pub(super) empty: Vec<B>,
    /// The size of the full blocks and of the one that is being written.
    pub(super) waiting: Size,
    /// Records that were not given to the writer.
    pub(super) lost: u64,
    /// Records that the writer has lost.
    pub(super) lost_by_writer: u64,
    /// The first failure, or the final one, until it is reported.
    pub(super) failure: Option<io::Error>,
    /// Why the writer takes no records at present.
    pub(super) refusal: Option<(io::ErrorKind, String)>,
    /// Why the writer has failed for good.
    pub(super) failed: Option<(io::ErrorKind, String)>,
    /// Messages for the user.
    pub(super) notes: Notes,
    /// No more blocks will come.
    pub(super) ends: bool,
    /// While the thread is inside the writer: the number of records that it holds.
    pub(super) in_hand: Option<u64>,
    /// The thread has ended.
    pub(super) ended: bool,
    /// The thread does not return and is abandoned; its records are counted as lost.
    pub(super) left_alone: bool,
    /// The current wait for room of a caller that polls `is_ready`.
    pub(super) wait: Option<Wait>,
}

/// An amount of queued data.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    pub(super) records: u64,
    pub(super) messages: u64,
    pub(super) bytes: usize,
}

impl Size {
    pub(super) fn of(block: &impl Block) -> Size {
        Size { records: block.records(), messages: block.messages(), bytes: block.bytes() }
    }

    pub(super) fn add(&mut self, other: Size) {
        self.records += other.records;
        self.messages += other.messages;
        self.bytes += other.bytes;
    }

    pub(super) fn take(&mut self, other: Size) {
        self.records -= other.records;
        self.messages -= other.messages;
        self.bytes -= other.bytes;
    }
}

/// The first messages for the user, and a count of the others.
#[derive(Debug, Default)]
pub(super) struct Notes {
    texts: Vec<String>,
    more: u64,
}

impl Notes {
    pub(super) fn push(&mut self, text: &str) {
        match self.texts.len() < MAX_NOTES {
            true => self.texts.push(text.to_owned()),
            false => self.more += 1,
        }
    }

    pub(super) fn take(&mut self) -> Vec<String> {
        let Notes { mut texts, more } = mem::take(self);
        if more > 0 {
            let plural = if more == 1 { "" } else { "s" };
            texts.push(format!("warning: {more} more message{plural} of this kind"));
        }
        texts
    }
}

/// A wait for the writer.
#[derive(Debug)]
pub(super) struct Wait {
    begin: Instant,
    /// The writer's step count at the last check, and when it last changed.
    steps: u64,
    moved: Instant,
}

impl Wait {
    pub(super) fn new(progress: &Progress) -> Wait {
        let now = Instant::now();
        Wait { begin: now, steps: progress.steps(), moved: now }
    }

    /// Whether the wait is over. With `may_rest`, a writer that waits on purpose is not stuck.
    pub(super) fn is_over(&mut self, patience: Patience, progress: &Progress, may_rest: bool) -> bool {
        let before = mem::replace(&mut self.steps, progress.steps());
        if before != self.steps || (may_rest && progress.rests()) {
            self.moved = Instant::now();
        }
        self.moved.elapsed() > patience.stuck || self.begin.elapsed() > patience.longest
    }
}

// Not derived, because that would need `B: Default`.
impl<B> Default for State<B> {
    fn default() -> State<B> {
        State {
            full: VecDeque::new(),
            empty: Vec::new(),
            waiting: Size::default(),
            lost: 0,
            lost_by_writer: 0,
            failure: None,
            refusal: None,
            failed: None,
            notes: Notes::default(),
            ends: false,
            in_hand: None,
            ended: false,
            left_alone: false,
            wait: None,
        }
    }
}

impl<B: Block> State<B> {
    /// Checks that the writer still takes records.
    pub(super) fn takes(&self) -> io::Result<()> {
        match (self.failed.as_ref().or(self.refusal.as_ref()), self.ends) {
            (Some((kind, text)), _) => Err(io::Error::new(*kind, text.clone())),
            (None, true) => Err(io::Error::new(io::ErrorKind::NotConnected, "it has ended")),
            (None, false) => Ok(()),
        }
    }

    /// Whether there is no room for a record after this block.
    pub(super) fn is_full(&self, block: &B, limits: &Limits) -> bool {
        self.waiting.records + block.records() >= limits.records
            || self.waiting.bytes + block.bytes() >= limits.bytes
    }

    /// Whether there is soon no room. A caller that asks this adds some more records before it asks
    /// again, and must not have to wait for their room: the tracer has waiting threads to serve.
    pub(super) fn is_nearly_full(&self, block: &B, limits: &Limits) -> bool {
        self.waiting.records + block.records() >= limits.records - limits.records / SPARE
            || self.waiting.bytes + block.bytes() >= limits.bytes - limits.bytes / SPARE as usize
    }

    /// Drops all waiting blocks. Their records are lost.
    pub(super) fn lose_all(&mut self) {
        for block in self.full.drain(..) {
            self.lost += block.records();
            self.waiting.take(Size::of(&block));
        }
    }

    /// Abandons a thread that does not return from the writer.
    pub(super) fn abandon(&mut self, done: u64) {
        self.left_alone = true;
        self.lost += self.in_hand.take().unwrap_or_default().saturating_sub(done);
    }
}
