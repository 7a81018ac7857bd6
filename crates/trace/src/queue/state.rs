//! What is known of a queue: what waits, what was lost, and why.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::time::Instant;

use super::{Block, Limits, Patience, Progress};

/// Notes that wait to be told, at most.
pub(super) const MOST_NOTES: usize = 64;

/// One of so many parts of a queue is for those who have asked whether it is ready.
const SPARE: u64 = 8;

/// The state of a queue, as the tracer and the thread share it.
#[derive(Debug)]
pub(super) struct State<B> {
    /// Blocks to be written, the oldest first.
    pub(super) full: VecDeque<B>,
    /// Blocks whose memory can be used again.
    pub(super) empty: Vec<B>,
    /// What is in the full blocks, and in the one that is being written.
    pub(super) waiting: Size,
    /// Records that were not given to the writer.
    pub(super) lost: u64,
    /// Records that the writer has lost.
    pub(super) lost_by_writer: u64,
    /// What went wrong first, or for good, until it is told.
    pub(super) failure: Option<io::Error>,
    /// Why the writer takes no records just now.
    pub(super) refusal: Option<(io::ErrorKind, String)>,
    /// Why it is given nothing any more.
    pub(super) failed: Option<(io::ErrorKind, String)>,
    /// What there is to tell beside.
    pub(super) notes: Notes,
    /// No more will come.
    pub(super) ends: bool,
    /// The records that the thread has with it, while it is with the writer.
    pub(super) in_hand: Option<u64>,
    /// The thread has nothing more to do.
    pub(super) ended: bool,
    /// The thread does not come back: what it has with it is counted.
    pub(super) left_alone: bool,
    /// The wait for room of those who only ask.
    pub(super) wait: Option<Wait>,
}

/// How much there is.
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

/// What there is to tell, the first of it.
#[derive(Debug, Default)]
pub(super) struct Notes {
    texts: Vec<String>,
    more: u64,
}

impl Notes {
    pub(super) fn push(&mut self, text: &str) {
        match self.texts.len() < MOST_NOTES {
            true => self.texts.push(text.to_owned()),
            false => self.more += 1,
        }
    }

    pub(super) fn take(&mut self) -> Vec<String> {
        let Notes { mut texts, more } = mem::take(self);
        if more > 0 {
            texts.push(format!("warning: {more} more messages of this kind"));
        }
        texts
    }
}

/// A wait for the writer.
#[derive(Debug)]
pub(super) struct Wait {
    begin: Instant,
    /// The writer's steps when they were last looked at, and when they had last changed.
    steps: u64,
    moved: Instant,
}

impl Wait {
    pub(super) fn new(progress: &Progress) -> Wait {
        let now = Instant::now();
        Wait { begin: now, steps: progress.steps(), moved: now }
    }

    /// Whether it is over. With `may_rest`, a writer that waits by its own will is not stuck.
    pub(super) fn is_over(&mut self, patience: Patience, progress: &Progress, may_rest: bool) -> bool {
        let before = mem::replace(&mut self.steps, progress.steps());
        if before != self.steps || (may_rest && progress.rests()) {
            self.moved = Instant::now();
        }
        self.moved.elapsed() > patience.stuck || self.begin.elapsed() > patience.longest
    }
}

// Not derived: that would ask it of blocks, too.
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
    /// Checks that records are still taken.
    pub(super) fn takes(&self) -> io::Result<()> {
        match (self.failed.as_ref().or(self.refusal.as_ref()), self.ends) {
            (Some((kind, text)), _) => Err(io::Error::new(*kind, text.clone())),
            (None, true) => Err(io::Error::new(io::ErrorKind::NotConnected, "it has ended")),
            (None, false) => Ok(()),
        }
    }

    /// Whether there is no room for a record behind this block.
    pub(super) fn is_full(&self, block: &B, limits: &Limits) -> bool {
        self.waiting.records + block.records() >= limits.records
            || self.waiting.bytes + block.bytes() >= limits.bytes
    }

    /// Whether there is soon no room. Who asks first puts some more records in before asking again, and must not have to wait for their room:
    /// the tracer looks after threads that wait.
    pub(super) fn is_nearly_full(&self, block: &B, limits: &Limits) -> bool {
        self.waiting.records + block.records() >= limits.records - limits.records / SPARE
            || self.waiting.bytes + block.bytes() >= limits.bytes - limits.bytes / SPARE as usize
    }

    /// What waits is lost.
    pub(super) fn lose_all(&mut self) {
        for block in self.full.drain(..) {
            self.lost += block.records();
            self.waiting.take(Size::of(&block));
        }
    }

    /// The thread does not come back from the writer.
    pub(super) fn leave_alone(&mut self, done: u64) {
        self.left_alone = true;
        self.lost += self.in_hand.take().unwrap_or_default().saturating_sub(done);
    }
}
