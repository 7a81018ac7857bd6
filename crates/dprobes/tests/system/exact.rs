//! Hits equal calls, with eight threads at the same probes, every time.

use crate::support::{Run, counting, need, target};

#[test]
fn hits_equal_calls_at_the_entry_the_middle_and_the_return_in_20_runs_of_20() {
    let program = need!("exact", target("exact"), "gcc");
    let points = counting(&program, ["exact_entry", "exact_mid", "exact_ret"]);
    for run in 1..=20 {
        let outcome = Run::new(&points).on([&program]).ended_with(0);
        assert!(
            outcome.stdout.starts_with("calls 40000 ") && outcome.stdout.ends_with(" ok\n"),
            "{outcome:#?}"
        );
        for minor in 1..=3 {
            assert_eq!(outcome.stats.hits(minor), 40_000, "run {run}, point {minor}: {outcome:#?}");
            assert_eq!(outcome.stats.runs(minor), 40_000, "run {run}, point {minor}: {outcome:#?}");
        }
        assert_eq!(outcome.stats.locals, [40_000; 3], "run {run}: {outcome:#?}");
    }
}
