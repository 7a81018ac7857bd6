//! Matches the returns of functions to their entries.
//!
//! Each thread has a stack of the functions that it is in. A return belongs to the innermost entry
//! of the same function with the same stack pointer: at `ret`, the stack pointer is what it was at
//! the function's first instruction. If stack pointers were not asked for, or no frame has that one
//! (a Go routine whose stack has moved), the return belongs to the innermost entry of the function.
//! Entries further in were left without a return: by an exception, by longjmp, or because the
//! record of the return was dropped. So was an entry whose place on the stack a later entry has
//! taken.
//!
//! A call's own time is its time without that of the calls in it whose entry and return are probed,
//! too. Calls in a call that was left without a return count for the call around it.
//!
//! Across a loss of records, a return may belong to another call, even with the same stack pointer:
//! its own entry, and the return of the entry found, may be among the lost records. So no pair is
//! formed across a loss, in any thread, since the trace does not say which threads lost records.

use trace::store::Gap;

use crate::event::Event;
use crate::facts::Side;
use crate::map::Map;

/// Most threads followed at a time.
const MAX_THREADS: usize = 1 << 16;
/// Most functions that a thread is in.
const MAX_FRAMES: usize = 1 << 12;
/// The same for all threads together.
const MAX_ALL: usize = 1 << 20;
/// Most time ranges of losses that are remembered while a trace is made.
const MAX_LOSSES: usize = 1 << 10;

/// The time ranges in which records may have been lost: disjoint and in ascending order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Losses(Vec<(u64, u64)>);

impl Losses {
    /// From the gaps that a trace reports.
    pub(crate) fn of(gaps: &[Gap]) -> Losses {
        let mut times: Vec<(u64, u64)> = gaps.iter().map(|gap| (gap.from, gap.to.max(gap.from))).collect();
        times.sort_unstable();
        let mut all: Vec<(u64, u64)> = Vec::new();
        for (start, end) in times {
            match all.last_mut() {
                Some((_, last)) if *last >= start => *last = end.max(*last),
                _ => all.push((start, end)),
            }
        }
        Losses(all)
    }

    /// Adds a gap, while a trace is made. Of so many, the oldest two become one.
    pub(crate) fn add(&mut self, gap: &Gap) {
        let old = std::mem::take(&mut self.0);
        let mut all: Vec<Gap> =
            old.into_iter().map(|(from, to)| Gap { from, to, ..Gap::default() }).collect();
        all.push(gap.clone());
        *self = Losses::of(&all);
        if let (true, [first, second, ..]) = (self.0.len() > MAX_LOSSES, &*self.0) {
            self.0[1] = (first.0, second.1);
            self.0.remove(0);
        }
    }

    /// Whether something may have been lost between two times.
    pub(crate) fn any(&self, from: u64, to: u64) -> bool {
        let next = self.0.partition_point(|&(_, end)| end < from);
        self.0.get(next).is_some_and(|&(start, _)| start <= to)
    }
}

/// A call of a function, with its entry and return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// When it was entered.
    pub(crate) start: u64,
    /// Its duration, in nanoseconds.
    pub(crate) length: u64,
    /// Its own time: without the calls in it.
    pub(crate) own: u64,
    /// Whether the function was not called by itself, directly or indirectly: the time of an inner
    /// call of a recursion is part of that of the outermost one.
    pub(crate) is_outermost: bool,
    /// What the entry was tagged with ([`Spans::innermost`]).
    pub(crate) tag: u32,
}

/// An entry without a known return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenCall {
    /// The process.
    pub(crate) pid: u32,
    /// The thread.
    pub(crate) tid: u32,
    /// The function.
    pub(crate) function: u32,
    /// When it was entered.
    pub(crate) start: u64,
}

/// What an entry or return means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The function begins.
    Begin,
    /// The function ends.
    End(Span),
    /// The function ends, but records may have been lost since an entry that looks like its own.
    /// That entry is the last of [`Spans::left`].
    Unsure,
    /// A return without an entry; or an entry that is not followed, since there are too many.
    Lone,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    function: u32,
    start: u64,
    sp: u64,
    /// The time of the calls in it that have returned.
    inner: u64,
    tag: u32,
}

/// The functions that a thread is in.
#[derive(Debug, Default)]
struct Stack {
    frames: Vec<Frame>,
    /// The number of outermost frames whose stack pointers descend, as they do on one stack. These
    /// are searched by bisection, so deep calls are not slow.
    descending: usize,
    /// How often each function is in `frames`.
    counts: Map<u32, u32>,
    /// The time of the thread's last record.
    last: u64,
}

impl Stack {
    fn push(&mut self, frame: Frame) {
        *self.counts.entry(frame.function).or_default() += 1;
        let is_inside = self.frames.last().is_none_or(|last| frame.sp < last.sp);
        if frame.sp != 0 && is_inside && self.descending == self.frames.len() {
            self.descending += 1;
        }
        self.frames.push(frame);
    }

    /// The innermost matching frame with this stack pointer.
    fn find(&self, sp: u64, is_right: impl Fn(&Frame) -> bool) -> Option<usize> {
        let (outer, inner) = self.frames.split_at(self.descending);
        let is_it = |frame: &Frame| frame.sp == sp && is_right(frame);
        match inner.iter().rposition(is_it) {
            Some(place) => Some(outer.len() + place),
            None => {
                let place = outer.binary_search_by(|frame| sp.cmp(&frame.sp)).ok()?;
                is_right(&outer[place]).then_some(place)
            }
        }
    }

    /// Removes the innermost frame.
    fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop()?;
        self.descending = self.descending.min(self.frames.len());
        match self.counts.get_mut(&frame.function) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.counts.remove(&frame.function)),
        }
        Some(frame)
    }

    /// Adds the time of a call that has returned to that of the calls in the innermost frame.
    fn add_inner(&mut self, time: u64) {
        if let Some(frame) = self.frames.last_mut() {
            frame.inner = frame.inner.saturating_add(time);
        }
    }
}

/// The functions that each thread is in.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    threads: Map<(u32, u32), Stack>,
    frames: usize,
    /// Functions that the last step showed to be left without a return, innermost first.
    left: Vec<OpenCall>,
    /// Number of entries without a return so far.
    pub(crate) entries: u64,
    /// Number of returns without an entry so far.
    pub(crate) returns: u64,
    /// Number of entries not followed: too many at a time.
    pub(crate) beyond: u64,
    /// Number of returns not matched to an entry, since records may have been lost between them.
    pub(crate) unsure: u64,
    /// The time ranges of losses.
    pub(crate) losses: Losses,
}

impl Spans {
    /// For a trace with these losses.
    pub(crate) fn with(losses: Losses) -> Spans {
        Spans { losses, ..Spans::default() }
    }

    /// A thread enters a function; its stack pointer is 0 if unknown.
    pub(crate) fn enter(&mut self, (pid, tid): (u32, u32), function: u32, time: u64, sp: u64) -> Step {
        self.left.clear();
        if self.threads.len() >= MAX_THREADS && !self.threads.contains_key(&(pid, tid)) {
            self.threads.retain(|_, stack| !stack.frames.is_empty());
        }
        if self.threads.len() >= MAX_THREADS && !self.threads.contains_key(&(pid, tid)) {
            self.beyond += 1;
            return Step::Lone;
        }
        let stack = self.threads.entry((pid, tid)).or_default();
        stack.last = stack.last.max(time);
        if sp != 0
            && let Some(place) = stack.find(sp, |_| true)
        {
            end_calls((pid, tid), stack, place, &mut self.left);
        }
        self.frames -= self.left.len();
        self.entries += self.left.len() as u64;
        if stack.frames.len() >= MAX_FRAMES || self.frames >= MAX_ALL {
            self.beyond += 1;
            return Step::Lone;
        }
        stack.push(Frame { function, start: time, sp, inner: 0, tag: 0 });
        self.frames += 1;
        Step::Begin
    }

    /// A thread leaves a function.
    pub(crate) fn end_call(&mut self, (pid, tid): (u32, u32), function: u32, time: u64, sp: u64) -> Step {
        self.left.clear();
        let found = self.threads.get_mut(&(pid, tid)).and_then(|stack| {
            stack.last = stack.last.max(time);
            let same = |frame: &Frame| frame.function == function;
            let place = stack.find(sp, same).or_else(|| stack.frames.iter().rposition(same));
            place.map(|place| (stack, place))
        });
        let Some((stack, place)) = found else {
            self.returns += 1;
            return Step::Lone;
        };
        end_calls((pid, tid), stack, place + 1, &mut self.left);
        self.frames -= self.left.len();
        self.entries += self.left.len() as u64;
        let Some(frame) = stack.pop() else { return Step::Lone };
        self.frames -= 1;
        if self.losses.any(frame.start, time) {
            self.unsure += 1;
            stack.add_inner(frame.inner);
            self.left.push(OpenCall { pid, tid, function, start: frame.start });
            return Step::Unsure;
        }
        let length = time.saturating_sub(frame.start);
        stack.add_inner(length);
        Step::End(Span {
            start: frame.start,
            length,
            own: length.saturating_sub(frame.inner),
            is_outermost: !stack.counts.contains_key(&function),
            tag: frame.tag,
        })
    }

    /// Takes a record: a thread enters or leaves a function. None if it is of no function of which
    /// both are probed.
    pub(crate) fn step(&mut self, event: &Event<'_>) -> Option<Step> {
        let Event { record, place, .. } = event;
        let (thread, function) = ((record.pid, record.tid), place.function?);
        Some(match place.side {
            Side::Entry => self.enter(thread, function, record.time, record.esp),
            Side::Return => self.end_call(thread, function, record.time, record.esp),
            Side::Inside => return None,
        })
    }

    /// The number of functions that a thread is in.
    pub(crate) fn depth(&self, thread: (u32, u32)) -> usize {
        self.threads.get(&thread).map_or(0, |stack| stack.frames.len())
    }

    /// The tag of the innermost function that a thread is in, and that of its caller, if there is
    /// one. A new entry's tag is 0.
    pub(crate) fn innermost(&mut self, thread: (u32, u32)) -> Option<(&mut u32, Option<u32>)> {
        let (last, others) = self.threads.get_mut(&thread)?.frames.split_last_mut()?;
        Some((&mut last.tag, others.last().map(|caller| caller.tag)))
    }

    /// The functions that the last step showed to be left without a return, innermost first.
    pub(crate) fn left(&self) -> &[OpenCall] {
        &self.left
    }

    /// Ends what threads are in that have made no record since a time, as if the trace ended.
    /// Returns it, with the time of the thread's last record.
    pub(crate) fn end_silent(&mut self, since: u64) -> Vec<(OpenCall, u64)> {
        let silent = self.threads.extract_if(|_, stack| stack.last < since);
        let mut all = Vec::new();
        for (thread, mut stack) in silent {
            let (mut left, last) = (Vec::new(), stack.last);
            end_calls(thread, &mut stack, 0, &mut left);
            all.extend(left.into_iter().map(|call| (call, last)));
        }
        self.frames -= all.len();
        self.entries += all.len() as u64;
        all
    }

    /// Ends the trace; returns the functions that threads are still in, innermost first for each
    /// thread.
    pub(crate) fn end(&mut self) -> Vec<OpenCall> {
        let mut left = Vec::new();
        let mut threads: Vec<_> = self.threads.drain().collect();
        threads.sort_unstable_by_key(|(thread, _)| *thread);
        for (thread, mut stack) in threads {
            end_calls(thread, &mut stack, 0, &mut left);
        }
        self.frames = 0;
        left
    }
}

/// Removes the frames from `from` on and adds them to `left`.
fn end_calls((pid, tid): (u32, u32), stack: &mut Stack, from: usize, left: &mut Vec<OpenCall>) {
    while stack.frames.len() > from {
        let Some(Frame { function, start, inner, .. }) = stack.pop() else { return };
        stack.add_inner(inner);
        left.push(OpenCall { pid, tid, function, start });
    }
}

#[cfg(test)]
mod tests;
