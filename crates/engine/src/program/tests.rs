use super::*;
use crate::jump::Trust;

/// A probe that ignores its first two hits and then fires five times.
fn definition() -> rpn::Probe {
    rpn::Probe {
        point: "0".to_owned(),
        location: Location::Offset(0),
        watch: None,
        opcode: None,
        minor: 0,
        group: None,
        kind: None,
        ignore: 2,
        maxhits: 5,
        logonfault: false,
        mask: 0,
        heap: 0,
        entry: 0,
        end: 0,
        span: rpn::Span::default(),
        sites: Vec::new(),
    }
}

#[test]
fn what_one_domain_says_ends_nothing_of_another_and_no_count_overflows() {
    let (mut cells, mut probe, definition) = (Cells::new().expect("memory"), Probe::default(), definition());
    let [one, other] = ["one", "other"].map(|name| cells.domain(&Rc::new(Trust::named(name))).expect("room"));
    probe.placed.extend([one, other]);
    probe.state = State::Armed;
    let counted = probe.counted(&mut cells).expect("room");
    assert_eq!((counted.turn(one), counted.turn(one), counted.turn(other)), (1, 2, 1));
    for which in [MISSED, DROPPED, LIMITED_HITS, OVER] {
        counted.words.with(one, which, |word| word.store(u64::MAX, Ordering::Relaxed));
    }
    counted.count(MISSED);
    assert_eq!((counted.is_over(one), counted.is_over(other)), (true, false));
    let mut over = Vec::new();
    counted.each_over(|domain| over.push(domain));
    assert_eq!(over, [one]);
    let counts = probe.counts(&definition, None);
    assert_eq!((counts.hits, counts.ignored, counts.missed, counts.runs), (8, 3, 5, 0));
    assert_eq!(counts.dropped, u64::MAX);
    // It is over when it is in all domains.
    probe.ended.insert(one, State::Disabled);
    assert_eq!((probe.state(), probe.is_over_in(one), probe.is_over_in(other)), (State::Armed, true, false));
    // Counts stay when no process of a domain is left.
    probe.end_domain(&definition, one);
    cells.end_domain(one);
    let counts = probe.counts(&definition, None);
    assert_eq!((counts.hits, counts.ignored), (8, 3));
    assert!(!probe.is_over_in(one));
    probe.ended.insert(other, State::Removed);
    assert_eq!(probe.state(), State::Removed);
}

#[test]
fn what_the_tracer_has_closed_is_closed_in_the_domains_that_are_meant() {
    let (mut cells, mut probe) = (Cells::new().expect("memory"), Probe::default());
    let [one, other] = ["one", "other"].map(|name| cells.domain(&Rc::new(Trust::named(name))).expect("room"));
    let counted = probe.counted(&mut cells).expect("room");
    counted.close(Some(one));
    assert_eq!((counted.is_over(one), counted.is_over(other)), (true, false));
    counted.take_out(None);
    assert!(counted.is_over(other));
    let mut over = Vec::new();
    counted.each_over(|domain| over.push(domain));
    assert!(over.is_empty(), "no handler has ended it");
}
