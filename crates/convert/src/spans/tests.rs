//! Calls, recursion, and what is lost.

use super::*;

const A: (u32, u32) = (1, 1);
const B: (u32, u32) = (1, 2);

/// A call in which there was no other.
fn end(start: u64, length: u64) -> Step {
    Step::End(Span { start, length, own: length, is_outermost: true, tag: 0 })
}

/// Start, length and own time of a call, and whether it is outermost.
fn ended(step: Step) -> (u64, u64, u64, bool) {
    match step {
        Step::End(span) => (span.start, span.length, span.own, span.is_outermost),
        other => panic!("{other:?}"),
    }
}

#[test]
fn threads_and_recursion() {
    let mut spans = Spans::default();
    assert_eq!(spans.enter(A, 0, 10, 1000), Step::Begin);
    assert_eq!(spans.enter(B, 0, 11, 9000), Step::Begin);
    assert_eq!(spans.enter(A, 0, 12, 900), Step::Begin);
    assert_eq!(spans.depth(A), 2);
    assert_eq!(ended(spans.end_call(A, 0, 15, 900)), (12, 3, 3, false));
    assert_eq!(spans.end_call(B, 0, 16, 9000), end(11, 5));
    assert_eq!(ended(spans.end_call(A, 0, 20, 1000)), (10, 10, 7, true));
    assert_eq!(spans.end_call(A, 0, 21, 1000), Step::Lone);
    assert_eq!((spans.entries, spans.returns, spans.frames), (0, 1, 0));
}

#[test]
fn what_is_left_without_a_return_is_told() {
    let mut spans = Spans::default();
    spans.enter(A, 0, 10, 1000);
    spans.enter(A, 1, 11, 900);
    spans.enter(A, 2, 12, 800);
    // What was in the calls without a return is not the own time of the call around them.
    spans.enter(A, 3, 13, 700);
    assert_eq!(spans.end_call(A, 3, 17, 700), end(13, 4));
    assert_eq!(ended(spans.end_call(A, 0, 20, 1000)), (10, 10, 6, true));
    let left: Vec<u32> = spans.left().iter().map(|left| left.function).collect();
    assert_eq!((left, spans.entries), (vec![2, 1], 2));
    // The record of a return was dropped; the stack pointer shows it.
    spans.enter(A, 0, 30, 1000);
    assert_eq!(spans.enter(A, 0, 40, 1000), Step::Begin);
    assert_eq!(spans.left(), [OpenCall { pid: 1, tid: 1, function: 0, start: 30 }]);
    assert_eq!(spans.end_call(A, 0, 45, 1000), end(40, 5));
    assert_eq!(spans.frames, 0);
}

#[test]
fn without_stack_pointers_the_innermost_is_meant() {
    let mut spans = Spans::default();
    spans.enter(A, 0, 10, 0);
    spans.enter(A, 0, 11, 0);
    assert_eq!(ended(spans.end_call(A, 0, 12, 0)), (11, 1, 1, false));
    assert_eq!(ended(spans.end_call(A, 0, 13, 0)), (10, 3, 2, true));
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
    assert_eq!(spans.end_call(A, 4, 6000, 4800), end(4800, 1200));
    assert_eq!(ended(spans.end_call(A, 2, 6000, 5000)), (5000, 1000, 0, true));
    assert_eq!(spans.left(), [OpenCall { pid: 1, tid: 1, function: 3, start: 4900 }]);
    assert_eq!(spans.enter(A, 5, 7000, 800), Step::Begin);
    assert_eq!(ended(spans.end_call(A, 0, 8000, 1000)), (1000, 7000, 6000, true));
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
            assert_eq!(spans.end_call(A, 1, time + 1, 100), end(time, 1));
        }
        start.elapsed()
    };
    // The shortest of several runs: other work on the machine makes some longer. Searching all
    // frames each time takes hundreds of times as long.
    let (mut few, mut many) = (below(4), below(4000));
    let turns: Vec<_> = (0..20).map(|_| (took(&mut few), took(&mut many))).collect();
    let least = |turns: &mut dyn Iterator<Item = std::time::Duration>| turns.min().expect("there are some");
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
    assert_eq!(spans.end_call(A, 0, at(12), 100), Step::Unsure);
    assert_eq!((spans.left().len(), spans.unsure), (1, 1));
    assert_eq!(spans.enter(A, 0, at(12), 100), Step::Begin);
    assert_eq!(spans.end_call(A, 0, at(13), 100), end(at(12), at(1)));
    assert_eq!(spans.enter(A, 0, at(29), 0), Step::Begin);
    assert_eq!(spans.end_call(A, 0, at(31), 0), end(at(29), at(2)));
    assert!(spans.end().is_empty());
}

#[test]
fn tags_are_kept_until_the_return() {
    let mut spans = Spans::default();
    assert_eq!(spans.innermost(A), None);
    for (function, number) in [(5, 0), (6, 1), (7, 2)] {
        spans.enter(A, function, number, 1000 - number);
        let (tag, caller) = spans.innermost(A).expect("it is in one");
        assert_eq!((*tag, caller), (0, (number > 0).then(|| 10 * number as u32)));
        *tag = 10 * (number as u32 + 1);
    }
    assert!(matches!(spans.end_call(A, 6, 9, 999), Step::End(Span { tag: 20, .. })));
    assert!(matches!(spans.end_call(A, 5, 9, 1000), Step::End(Span { tag: 10, .. })));
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

#[test]
fn gaps_that_come_one_by_one_are_remembered_and_bounded() {
    let mut losses = Losses::default();
    for number in 0..(MAX_LOSSES as u64 + 10) {
        losses.add(&Gap { from: number * 10, to: number * 10 + 1, ..Gap::default() });
    }
    assert_eq!(losses.0.len(), MAX_LOSSES);
    // The oldest are one: what is between them counts as lost, too.
    assert!(losses.any(5, 6) && !losses.any(1005, 1006) && losses.any(1009, 1010));
}
