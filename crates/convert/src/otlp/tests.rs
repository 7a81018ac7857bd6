//! Requests of spans.

use trace::Record;

use super::*;
use crate::facts::ProbeSite;

fn place(side: Side) -> ProbeSite {
    ProbeSite {
        number: None,
        program: 0,
        probe: 0,
        module: "a.out".to_owned(),
        point: "f".to_owned(),
        symbol: "f".to_owned(),
        function: (side != Side::Inside).then_some(0),
        side,
        items: trace::Items::ALL,
    }
}

/// The requests that these records give: thread, side, time, stack pointer.
fn requests(records: &[(u32, Side, u64, u64)]) -> (Vec<String>, Vec<String>) {
    let mut requests = Vec::new();
    let mut remarks = Vec::new();
    let known = TraceFacts::default();
    let resource = |name: &str, pid: u32| format!("{{\"of\":\"{name} {pid}\"}}");
    let take = |bytes: &[u8], _: Carried| {
        requests.push(String::from_utf8(bytes.to_vec()).expect("text"));
        Ok(())
    };
    let mut otlp = Otlp::new(&known, "host", resource, take);
    for (number, &(tid, side, time, esp)) in records.iter().enumerate() {
        let record = Record { pid: tid, tid, time, esp, ..Record::default() };
        let event = Event { number: number as u64, record: &record, place: &place(side), template: None };
        otlp.record(&event).expect("a vector takes everything");
    }
    remarks.extend(otlp.finish().expect("a vector takes everything"));
    drop(otlp);
    (requests, remarks)
}

/// The values of a member in all spans, in their order.
fn all(request: &str, member: &str) -> Vec<String> {
    let before = format!("\"{member}\":\"");
    let parts = request.split(&before).skip(1);
    parts.map(|part| part.split('"').next().unwrap_or_default().to_owned()).collect()
}

use Side::{Entry, Inside, Return};

#[test]
fn calls_in_calls_are_of_one_trace() {
    let (requests, remarks) = requests(&[
        (1, Entry, 10, 100),
        (1, Entry, 11, 90),
        (2, Entry, 12, 100),
        (1, Return, 13, 90),
        (1, Return, 14, 100),
        (2, Return, 15, 100),
        (1, Entry, 16, 100),
        (1, Return, 17, 100),
        (1, Inside, 18, 100),
    ]);
    let [request] = &*requests else { panic!("{requests:?}") };
    assert_eq!(remarks, ["1 record is no call, and left out"]);
    assert_eq!(all(request, "startTimeUnixNano"), ["11", "10", "16", "12"]);
    assert_eq!(all(request, "endTimeUnixNano"), ["13", "14", "17", "15"]);
    let (spans, traces) = (all(request, "spanId"), all(request, "traceId"));
    assert_eq!(all(request, "parentSpanId"), [spans[1].clone()]);
    assert_eq!(traces[0], traces[1]);
    let apart: std::collections::BTreeSet<_> = traces.iter().chain(&spans).collect();
    assert_eq!(apart.len(), 3 + 4, "{request}");
    assert_eq!(request.matches("\"resource\":").count(), 2);
}

#[test]
fn a_call_without_a_return_is_marked() {
    let (requests, remarks) = requests(&[(1, Entry, 10, 100), (1, Entry, 11, 90), (1, Return, 20, 100)]);
    assert_eq!(requests[0].matches("dprobes.no_return").count(), 1);
    assert_eq!(all(&requests[0], "endTimeUnixNano"), ["20", "20"]);
    assert_eq!(remarks, ["1 call has no return in the trace; its span ends where that was noticed"]);
}

#[test]
fn many_spans_are_several_requests() {
    let calls = (0..3000).flat_map(|call| [(1, Entry, call, 100), (1, Return, call, 100)]);
    let (requests, _) = requests(&calls.collect::<Vec<_>>());
    assert_eq!(requests.len(), 3);
    let count: usize = requests.iter().map(|request| request.matches("\"spanId\"").count()).sum();
    assert_eq!(count, 3000);
    assert_eq!(requests.len(), requests.iter().filter(|request| request.ends_with("]}]}]}")).count());
}
