//! Spans of a trace that is being made.

use std::sync::{Arc, Mutex};

use trace::Items;
use trace::store::{Module, Probe, Program, Site};

use super::*;

/// What a collector has got: requests, and how many spans and records they carry.
type Got = Arc<Mutex<(Vec<String>, u64, u64)>>;

fn live() -> (LiveSpans<'static>, Got) {
    let got = Got::default();
    let own = Arc::clone(&got);
    let resource = |name: &str, pid: u32| format!("{{\"of\":\"{name} {pid}\"}}");
    let take = move |request: &[u8], carried: Carried| {
        let mut got = own.lock().expect("no panic");
        got.0.push(String::from_utf8(request.to_vec()).expect("text"));
        got.1 += carried.spans;
        got.2 += carried.records;
        Ok(())
    };
    let mut live = LiveSpans::new(About { host: "h".to_owned(), ..About::default() }, resource, take);
    live.fact(&Fact::from(Program { items: Items::ALL, module: "m".to_owned(), ..Program::default() }));
    for (number, point) in ["f", "f:return", "g", "g:return"].into_iter().enumerate() {
        live.fact(&Fact::from(Probe { number: number as u32, point: point.to_owned(), ..Probe::default() }));
    }
    live.fact(&Fact::from(Module { path: "/m".to_owned(), ..Module::default() }));
    (live, got)
}

/// The place of a probe is known.
fn place(live: &mut LiveSpans<'_>, probe: u32) {
    let symbol = if probe < 2 { "f" } else { "g" };
    let symbol = if probe.is_multiple_of(2) { symbol.to_owned() } else { format!("{symbol}+0x8") };
    live.fact(&Fact::from(Site { probe, address: u64::from(probe) << 4, symbol, ..Site::default() }));
}

/// A record of a probe, at a time in milliseconds.
fn record(live: &mut LiveSpans<'_>, probe: u32, time: u64) {
    let record = Record {
        probe,
        pid: 7,
        tid: 7,
        time: time * 1_000_000,
        eip: u64::from(probe) << 4,
        name: "app".to_owned(),
        ..Record::default()
    };
    live.record(0, &record).expect("it is taken");
}

/// The names and times of spans.
fn spans(got: &Got) -> Vec<(String, u64, u64)> {
    let requests = &got.lock().expect("no panic").0;
    let parts = requests.iter().flat_map(|request| request.split("{\"traceId\"").skip(1));
    let member = |part: &str, name: &str| {
        let rest = part.split_once(&format!("\"{name}\":\"")).expect("it is there").1;
        rest.split('"').next().expect("its end").to_owned()
    };
    let time = |part, name| member(part, name).parse::<u64>().expect("a number") / 1_000_000;
    let span = |part| (member(part, "name"), time(part, "startTimeUnixNano"), time(part, "endTimeUnixNano"));
    parts.map(span).collect()
}

#[test]
fn functions_that_come_later_do_not_change_the_numbers_of_those_before() {
    let (mut live, got) = live();
    // `g` first: in the order of sites of the whole trace, `f` comes before it.
    [2, 3].into_iter().for_each(|probe| place(&mut live, probe));
    record(&mut live, 2, 1);
    record(&mut live, 2, 2);
    [0, 1].into_iter().for_each(|probe| place(&mut live, probe));
    [(0, 3), (1, 4), (3, 5), (3, 6)].into_iter().for_each(|(probe, time)| record(&mut live, probe, time));
    assert_eq!(live.finish().expect("it is taken"), [""; 0]);
    assert_eq!(spans(&got), [("f".into(), 3, 4), ("g".into(), 2, 5), ("g".into(), 1, 6)]);
    let got = got.lock().expect("no panic");
    assert_eq!((got.1, got.2), (3, 6));
    assert!(got.0[0].contains("{\"of\":\"app 7\"}"), "{got:?}");
}

#[test]
fn records_within_the_window_are_put_in_order() {
    let (mut live, got) = live();
    (0..4).for_each(|probe| place(&mut live, probe));
    [(1, 12), (0, 10), (0, 300), (1, 301)]
        .into_iter()
        .for_each(|(probe, time)| record(&mut live, probe, time));
    assert_eq!(live.finish().expect("it is taken"), [""; 0]);
    assert_eq!(spans(&got), [("f".into(), 10, 12), ("f".into(), 300, 301)]);
}

#[test]
fn no_call_spans_a_loss() {
    let (mut live, got) = live();
    (0..4).for_each(|probe| place(&mut live, probe));
    record(&mut live, 0, 10);
    live.fact(&Fact::from(Gap { from: 20_000_000, to: 21_000_000, dropped: 1, ..Gap::default() }));
    record(&mut live, 1, 30);
    let remarks = live.finish().expect("it is taken");
    assert!(remarks[0].starts_with("1 call has no return"), "{remarks:?}");
    let got = got.lock().expect("no panic");
    assert!(got.0[0].contains("dprobes.no_return"), "{got:?}");
    // The record of the entry: that of the return has made nothing.
    assert_eq!((got.1, got.2), (1, 1));
}

#[test]
fn who_is_silent_for_an_hour_is_taken_for_gone() {
    let (mut live, got) = live();
    (0..4).for_each(|probe| place(&mut live, probe));
    // Long ago, by the clock.
    record(&mut live, 0, 10);
    record(&mut live, 2, 12);
    record(&mut live, 3, 14);
    live.give(true).expect("it is taken");
    live.looked -= LOOK;
    live.sent -= EVERY;
    live.idle().expect("it is taken");
    assert_eq!(spans(&got), [("g".into(), 12, 14), ("f".into(), 10, 14)]);
}

#[test]
fn sites_are_remembered_up_to_a_limit() {
    let (mut live, _) = live();
    for address in 0..MAX_SITES as u64 + 3 {
        live.fact(&Fact::from(Site { address, symbol: "f".to_owned(), ..Site::default() }));
    }
    // One that is known.
    live.fact(&Fact::from(Site { symbol: "f".to_owned(), ..Site::default() }));
    assert_eq!((live.info.sites.len(), live.beyond), (MAX_SITES, 3));
    let remarks = live.finish().expect("it is taken");
    assert_eq!(remarks, ["3 places of probes are beyond the limit of those that are remembered"]);
}
