//! What a user is told about calls that could not be put together.

use crate::plural::counted;
use crate::spans::Spans;

/// The remarks on calls, a sentence each. `open` is the number of functions that threads were in
/// when the trace ended; `unsure` and `uncounted` are added to what the calls themselves have of
/// these.
pub(crate) fn on_calls(spans: &Spans, open: usize, unsure: u64, uncounted: u64) -> Vec<String> {
    let all = [
        (
            spans.entries,
            "call ended without a return hit and is not timed",
            "calls ended without a return hit and are not timed",
        ),
        (
            open as u64,
            "call had not returned when the trace ended",
            "calls had not returned when the trace ended",
        ),
        (
            spans.unsure + unsure,
            "time spans lost records and is not counted: its ends may be of different calls",
            "times span lost records and are not counted: their ends may be of different calls",
        ),
        (
            spans.returns,
            "return has no entry in the trace and is not timed",
            "returns have no entry in the trace and are not timed",
        ),
        (
            spans.beyond + uncounted,
            "call is not timed: too many functions, or calls nested too deeply",
            "calls are not timed: too many functions, or calls nested too deeply",
        ),
    ];
    let told = all.into_iter().filter(|(count, ..)| *count > 0);
    told.map(|(count, one, many)| counted(count, one, many)).collect()
}
