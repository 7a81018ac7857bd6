//! Trees of calls, with what is odd in them.

use trace::store::Gap;

use super::*;
use crate::sample::{END, F, G, Hit, MAIN, POINT, info, play};

/// The lines of hits, and the remarks.
fn replay(info: &Info, depth: usize, hits: &[Hit<'_>]) -> (Vec<String>, Vec<String>) {
    let mut known = TraceFacts::new(info);
    let mut out = Vec::new();
    let remarks =
        play(&mut Replay::new(&mut out, info, &known.clone(), &Filter::default(), depth), &mut known, hits);
    let text = String::from_utf8(out).expect("text");
    (text.lines().skip(1).map(|line| line.trim_end().to_owned()).collect(), remarks)
}

#[test]
fn calls_of_two_threads_are_in_order_of_time() {
    let hits: &[Hit<'_>] = &[
        (1, MAIN, 10, 1000, &[]),
        (2, F, 15, 9000, &[7]),
        (1, F, 20, 900, &[1, 2]),
        (1, POINT, 21, 880, &[3]),
        (2, F + END, 1515, 9000, &[8]),
        (1, F + END, 25, 900, &[]),
        (1, G, 30, 900, &[]),
        (1, G + END, 12_340_030, 900, &[(-1_i64) as u64]),
        (1, MAIN + END, 12_340_040, 1000, &[]),
    ];
    let (lines, remarks) = replay(&info(), 64, hits);
    assert_eq!(
        lines,
        [
            "           app[1]   | main() {",
            "  1.50 µs  app[1:2] | f(7) = 8;",
            "           app[1]   |   f(1 2) {",
            "           app[1]   |     * a.out:f+0x4 3",
            "     5 ns  app[1]   |   } /* f */",
            "  12.3 ms  app[1]   |   g() = -1;",
            "  12.3 ms  app[1]   | } /* main */",
        ]
    );
    assert!(remarks.is_empty(), "{remarks:?}");
    // Of the thread 2 there is only the call; f hides what is in it.
    let (lines, remarks) = replay(&info(), 1, hits);
    assert_eq!(lines, ["  12.3 ms  app[1]   | main();", "  1.50 µs  app[1:2] | f(7) = 8;"]);
    assert_eq!(remarks, ["2 calls are deeper than --depth and are not shown"]);
}

#[test]
fn what_has_no_end_or_no_start_says_so() {
    let (lines, remarks) = replay(
        &info(),
        64,
        &[
            (1, G + END, 5, 800, &[]),
            (1, MAIN, 10, 1000, &[]),
            (1, F, 20, 900, &[]),
            (1, G, 30, 800, &[]),
            (1, MAIN + END, 50, 1000, &[]),
            (1, F, 60, 900, &[]),
        ],
    );
    assert_eq!(
        lines,
        [
            "           app[1]   | /* g: its entry is not in the trace */",
            "           app[1]   | main() {",
            "           app[1]   |   f() {",
            "           app[1]   |     g() {",
            "           app[1]   |     } /* g: left without a return */",
            "           app[1]   |   } /* f: left without a return */",
            "    40 ns  app[1]   | } /* main */",
            "           app[1]   | f() {",
        ]
    );
    assert_eq!(
        remarks,
        [
            "2 calls ended without a return hit and are not timed",
            "1 call had not returned when the trace ended",
            "1 return has no entry in the trace and is not timed",
        ]
    );
}

#[test]
fn losses_are_lines_and_no_call_spans_one() {
    let mut info = info();
    info.gaps_told.push(Gap { from: 25, to: 40, pid: 1, dropped: 3 });
    let (lines, remarks) = replay(
        &info,
        64,
        &[
            (1, MAIN, 10, 1000, &[]),
            (1, F, 20, 900, &[]),
            (1, F + END, 41, 900, &[]),
            (1, F, 50, 900, &[]),
            (1, F + END, 57, 900, &[]),
        ],
    );
    assert_eq!(
        lines,
        [
            "           app[1]   | main() {",
            "           app[1]   |   f() {",
            "           -- LOST 3 records of process 1 between +25 ns and +40 ns --",
            "           app[1]   |   } /* f: records were lost since an entry */",
            "     7 ns  app[1]   |   f();",
        ]
    );
    assert!(remarks.iter().any(|remark| remark.starts_with("1 time spans lost records")), "{remarks:?}");
}

#[test]
fn a_call_that_never_ends_holds_up_no_more_than_some_lines() {
    let mut hits: Vec<Hit<'_>> = vec![(2, MAIN, 1, 1000, &[])];
    for number in 0..60_000 {
        hits.push((1, F, 10 + 2 * number, 900, &[]));
        hits.push((1, F + END, 11 + 2 * number, 900, &[]));
    }
    let mut known = TraceFacts::new(&info());
    let mut out = Vec::new();
    let mut replay = Replay::new(&mut out, &info(), &known.clone(), &Filter::default(), 64);
    play(&mut replay, &mut known, &hits);
    hits.push((2, MAIN + END, 200_000, 1000, &[]));
    let text = String::from_utf8(out).expect("text");
    assert_eq!(text.matches("f();").count(), 60_000);
    assert_eq!(text.lines().nth(1).map(|line| line.ends_with("main() {")), Some(true));
}

#[test]
fn names_are_made_printable_and_depth_is_bounded() {
    let mut info = info();
    for site in &mut info.sites {
        site.symbol = site.symbol.replace('f', "f\u{1b}[2J");
    }
    let hits: Vec<Hit<'_>> = (0..500).map(|depth| (1, F, depth, 1_000_000 - depth, &[][..])).collect();
    let (lines, _) = replay(&info, 4000, &hits);
    assert_eq!(lines.len(), 500);
    assert!(lines.iter().all(|line| line.contains("f\\x1b[2J(") && line.len() < 320), "{lines:?}");
    assert!(lines[499].contains(" [+371] f"), "{}", lines[499]);
}
