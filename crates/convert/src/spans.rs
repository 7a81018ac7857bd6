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
//! Across a loss of records, a return may belong to another call, even with the same stack pointer:
//! its own entry, and the return of the entry found, may be among the lost records. So no pair is
//! formed across a loss, in any thread, since the trace does not say which threads lost records.

use trace::store::Gap;

use crate::map::Map;

/// Most threads followed at a time.
const MAX_THREADS: usize = 1 << 16;
/// Most functions that a thread is in.
const MAX_FRAMES: usize = 1 << 12;
/// The same for all threads together.
const MAX_ALL: usize = 1 << 20;

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
    /// A return without an entry; or an entry that is not followed, since there are too many.
    Lone,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    function: u32,
    start: u64,
    sp: u64,
}

/// The functions that a thread is in.
#[derive(Debug, Default)]
struct Stack {
    frames: Vec<Frame>,
    /// The number of outermost frames whose stack pointers descend, as they do on one stack. These
    /// are searched by bisection, so deep calls are not slow.
    descending: usize,
}

impl Stack {
    fn push(&mut self, frame: Frame) {
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

    /// Removes the frames from `place` on, innermost first.
    fn cut(&mut self, place: usize) -> impl Iterator<Item = Frame> {
        self.descending = self.descending.min(place);
        self.frames.drain(place..).rev()
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
        if sp != 0
            && let Some(place) = stack.find(sp, |_| true)
        {
            leave((pid, tid), stack, place, &mut self.left);
        }
        self.frames -= self.left.len();
        self.entries += self.left.len() as u64;
        if stack.frames.len() >= MAX_FRAMES || self.frames >= MAX_ALL {
            self.beyond += 1;
            return Step::Lone;
        }
        stack.push(Frame { function, start: time, sp });
        self.frames += 1;
        Step::Begin
    }

    /// A thread leaves a function.
    pub(crate) fn leave(&mut self, (pid, tid): (u32, u32), function: u32, time: u64, sp: u64) -> Step {
        self.left.clear();
        let found = self.threads.get_mut(&(pid, tid)).and_then(|stack| {
            let same = |frame: &Frame| frame.function == function;
            let place = stack.find(sp, same).or_else(|| stack.frames.iter().rposition(same));
            place.map(|place| (stack, place))
        });
        let Some((stack, place)) = found else {
            self.returns += 1;
            return Step::Lone;
        };
        leave((pid, tid), stack, place + 1, &mut self.left);
        self.frames -= self.left.len();
        self.entries += self.left.len() as u64;
        match stack.cut(place).next() {
            Some(frame) if self.losses.any(frame.start, time) => {
                self.frames -= 1;
                self.unsure += 1;
                self.left.push(OpenCall { pid, tid, function, start: frame.start });
                Step::Lone
            }
            Some(frame) => {
                self.frames -= 1;
                Step::End(Span { start: frame.start, length: time.saturating_sub(frame.start) })
            }
            None => Step::Lone,
        }
    }

    /// The functions that the last step showed to be left without a return, innermost first.
    pub(crate) fn left(&self) -> &[OpenCall] {
        &self.left
    }

    /// Ends the trace; returns the functions that threads are still in, innermost first for each
    /// thread.
    pub(crate) fn end(&mut self) -> Vec<OpenCall> {
        let mut left = Vec::new();
        let mut threads: Vec<_> = self.threads.drain().collect();
        threads.sort_unstable_by_key(|(thread, _)| *thread);
        for (thread, mut stack) in threads {
            leave(thread, &mut stack, 0, &mut left);
        }
        self.frames = 0;
        left
    }
}

/// Removes the frames from `from` on and adds them to `left`.
fn leave((pid, tid): (u32, u32), stack: &mut Stack, from: usize, left: &mut Vec<OpenCall>) {
    let gone = stack.cut(from);
    left.extend(gone.map(|Frame { function, start, .. }| OpenCall { pid, tid, function, start }));
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: (u32, u32) = (1, 1);
    const B: (u32, u32) = (1, 2);

    fn end(start: u64, length: u64) -> Step {
        Step::End(Span { start, length })
    }

    #[test]
    fn threads_and_recursion() {
        let mut spans = Spans::default();
        assert_eq!(spans.enter(A, 0, 10, 1000), Step::Begin);
        assert_eq!(spans.enter(B, 0, 11, 9000), Step::Begin);
        assert_eq!(spans.enter(A, 0, 12, 900), Step::Begin);
        assert_eq!(spans.leave(A, 0, 15, 900), end(12, 3));
        assert_eq!(spans.leave(B, 0, 16, 9000), end(11, 5));
        assert_eq!(spans.leave(A, 0, 20, 1000), end(10, 10));
        assert_eq!(spans.leave(A, 0, 21, 1000), Step::Lone);
        assert_eq!((spans.entries, spans.returns, spans.frames), (0, 1, 0));
    }

    #[test]
    fn what_is_left_without_a_return_is_told() {
        let mut spans = Spans::default();
        spans.enter(A, 0, 10, 1000);
        spans.enter(A, 1, 11, 900);
        spans.enter(A, 2, 12, 800);
        assert_eq!(spans.leave(A, 0, 20, 1000), end(10, 10));
        let left: Vec<u32> = spans.left().iter().map(|left| left.function).collect();
        assert_eq!((left, spans.entries), (vec![2, 1], 2));
        // The record of a return was dropped; the stack pointer shows it.
        spans.enter(A, 0, 30, 1000);
        assert_eq!(spans.enter(A, 0, 40, 1000), Step::Begin);
        assert_eq!(spans.left(), [OpenCall { pid: 1, tid: 1, function: 0, start: 30 }]);
        assert_eq!(spans.leave(A, 0, 45, 1000), end(40, 5));
        assert_eq!(spans.frames, 0);
    }

    #[test]
    fn without_stack_pointers_the_innermost_is_meant() {
        let mut spans = Spans::default();
        spans.enter(A, 0, 10, 0);
        spans.enter(A, 0, 11, 0);
        assert_eq!(spans.leave(A, 0, 12, 0), end(11, 1));
        assert_eq!(spans.leave(A, 0, 13, 0), end(10, 3));
        spans.enter(A, 7, 20, 0);
        assert_eq!(spans.end(), [OpenCall { pid: 1, tid: 1, function: 7, start: 20 }]);
    }

    #[test]
    fn another_stack_within_is_followed() {
        let mut spans = Spans::default();
        // A signal handler on a stack of its own, at higher addresses; calls in it descend again.
        for (function, sp) in [(0, 1000), (1, 900), (2, 5000), (3, 4900), (4, 4800)] {
            assert_eq!(spans.enter(A, function, sp, sp), Step::Begin);
        }
        assert_eq!(spans.leave(A, 4, 6000, 4800), end(4800, 1200));
        assert_eq!(spans.leave(A, 2, 6000, 5000), end(5000, 1000));
        assert_eq!(spans.left(), [OpenCall { pid: 1, tid: 1, function: 3, start: 4900 }]);
        assert_eq!(spans.enter(A, 5, 7000, 800), Step::Begin);
        assert_eq!(spans.leave(A, 0, 8000, 1000), end(1000, 7000));
        assert_eq!((spans.left().len(), spans.frames), (2, 0));
    }

    #[test]
    fn deep_calls_take_no_longer_each() {
        let below = |frames| {
            let mut spans = Spans::default();
            (0..frames).for_each(|depth| {
                spans.enter(A, 0, depth, 1 << 40 | (frames - depth));
            });
            spans
        };
        let took = |spans: &mut Spans| {
            let start = std::time::Instant::now();
            for time in 0..10_000 {
                assert_eq!(spans.enter(A, 1, time, 100), Step::Begin);
                assert_eq!(spans.leave(A, 1, time + 1, 100), end(time, 1));
            }
            start.elapsed()
        };
        // The shortest of several runs: other work on the machine makes some longer. Searching all
        // frames each time takes hundreds of times as long.
        let (mut few, mut many) = (below(4), below(4000));
        let turns: Vec<_> = (0..20).map(|_| (took(&mut few), took(&mut many))).collect();
        let least =
            |turns: &mut dyn Iterator<Item = std::time::Duration>| turns.min().expect("there are some");
        let few = least(&mut turns.iter().map(|turn| turn.0));
        let many = least(&mut turns.iter().map(|turn| turn.1));
        assert!(many < few * 20, "{few:?}, {many:?}");
    }

    #[test]
    fn nothing_is_put_together_across_a_loss() {
        let at = |seconds: u64| seconds * 1_000_000_000;
        let gap = |from, to| Gap { from: at(from), to: at(to), dropped: 1, pid: 0 };
        let losses = Losses::of(&[gap(9, 11), gap(18, 20), gap(8, 10)]);
        assert_eq!(losses.0, [(at(8), at(11)), (at(18), at(20))]);
        let mut spans = Spans::with(losses);
        // The return of this call and the entry of the next were lost.
        assert_eq!(spans.enter(A, 0, at(7), 100), Step::Begin);
        assert_eq!(spans.leave(A, 0, at(12), 100), Step::Lone);
        assert_eq!((spans.left().len(), spans.unsure), (1, 1));
        assert_eq!(spans.enter(A, 0, at(12), 100), Step::Begin);
        assert_eq!(spans.leave(A, 0, at(13), 100), end(at(12), at(1)));
        assert_eq!(spans.enter(A, 0, at(29), 0), Step::Begin);
        assert_eq!(spans.leave(A, 0, at(31), 0), end(at(29), at(2)));
        assert!(spans.end().is_empty());
    }

    #[test]
    fn depth_is_limited() {
        let mut spans = Spans::default();
        for depth in 0..MAX_FRAMES as u64 {
            assert_eq!(spans.enter(A, 0, depth, 1_000_000 - depth), Step::Begin);
        }
        assert_eq!(spans.enter(A, 0, 1, 1), Step::Lone);
        assert_eq!(spans.beyond, 1);
    }
}
