//! `count`, `latency` and `stacks`, on a program that calls a function five times.

use std::process::Command;

use crate::support::{dprobes, need, target};

/// Runs one of them on the program; what it writes to both outputs, apart.
#[track_caller]
fn asked(words: &[&str]) -> (String, String) {
    let program = target("places").expect("it was there");
    let output = dprobes().args(words).arg("--").arg(program).output().expect("dprobes starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let (said, told) = (text(output.stdout), text(output.stderr));
    // That of the program, except where it is a script's.
    assert!(matches!(output.status.code(), Some(0 | 9)), "{words:?}: {said}{told}");
    (said, told)
}

#[test]
fn the_three_questions_are_answered() {
    let program = need!("shortcuts", target("places"), "gcc");
    assert_eq!(Command::new(program).status().expect("it starts").code(), Some(9));
    let (_, told) = asked(&["count", "a.out:place_work"]);
    let line = told.lines().find(|line| line.starts_with("a.out:place_work:entry")).expect("it was counted");
    assert_eq!(line.split_whitespace().nth(2), Some("5"), "{told}");
    let (said, _) = asked(&["latency", "a.out:place_w*"]);
    assert!(said.contains("@calls[place_work]: count 5, average "), "{said}");
    let (_, buckets) = said.split_once("@ns[place_work]:\n").expect("a histogram");
    let counts = buckets
        .lines()
        .filter_map(|line| line.split_once(')')?.1.split_whitespace().next()?.parse::<u64>().ok());
    assert_eq!(counts.sum::<u64>(), 5, "{said}");
    let (said, _) = asked(&["stacks", "--depth", "1", "a.out:place_work"]);
    assert_eq!(said.trim(), "worked\n@calls[\n        place_work+0\n]: 5");
}

#[test]
fn what_cannot_be_asked_is_refused() {
    for (words, why) in [
        (&["latency", "a.out:f:return", "--", "true"][..], "whole functions are measured"),
        (&["stacks", "a.out:f:*", "--", "true"], "every instruction"),
        (&["count", "a.out:f", "--for", "1s", "--", "true"], "until it ends"),
        (&["count", "a.out:f", "--engine", "kernel", "--", "true"], "kernel"),
        (&["latency", "a.out:f", "-p", "1", "--", "true"], "cannot be used with"),
        (&["latency", "handle"], "must be named"),
        (&["-p", "1", "count", "a.out:f"], "options stand behind the command: `dprobes count -p ...`"),
    ] {
        let output = dprobes().args(words).output().expect("dprobes starts");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains(why), "{words:?}: {told}");
    }
}
