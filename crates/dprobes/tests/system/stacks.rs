//! Stacks with little room, and data below them: a program that has them behaves the same probed
//! and unprobed.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::signals::number;
use crate::support::{Outcome, Run, Scratch, Stats, dprobes, go_target, need, repository, run, target};

fn program() -> Option<PathBuf> {
    target("stacks")
}

/// A program with these points in a module, each a symbol (with an offset) and its handler.
pub(crate) fn probes(module: &Path, points: &[(&str, &str)]) -> String {
    let mut text = format!("name = \"{}\"\nmodtype = user\nmajor = 1\nvars = 1\n", module.display());
    for (number, (point, handler)) in points.iter().enumerate() {
        text += &format!("offset = {point}\nminor = {}\n{handler}\nexit\n", number + 1);
    }
    text
}

/// Runs a program by each engine that it is built for, and compares its output and end with an
/// unprobed run.
#[track_caller]
pub(crate) fn same_as_unprobed(program: &Path, words: &[&str], text: &str) -> Vec<Outcome> {
    let (status, stdout, stderr) = run(Command::new(program).args(words));
    let engines: &[&str] = match std::env::var_os("DPROBES_TEST_ENGINE") {
        Some(_) => &[],
        None => &["--engine=auto", "--engine=trap"],
    };
    let mut outcomes = Vec::new();
    let mut probed = |options: &[&str]| {
        let run = options.iter().fold(Run::new(text), Run::option);
        let words = words.iter().map(std::ffi::OsStr::new);
        let outcome = run.on(std::iter::once(program.as_os_str()).chain(words));
        assert_eq!(
            (&outcome.stdout, outcome.status.code()),
            (&stdout, status.code()),
            "{stderr}{outcome:#?}"
        );
        outcomes.push(outcome);
    };
    match engines {
        [] => probed(&[]),
        engines => engines.iter().for_each(|engine| probed(&[engine])),
    }
    outcomes
}

/// Counts.
pub(crate) const COUNT: &str = "inc lv, 0\nabort";
/// Logs two words.
pub(crate) const LOG: &str = "push r, rip\npush r, rflags\nlog 2";
/// Only reads the flags.
const FLAGS: &str = "push r, rflags\nros 1\nabort";
/// Leaves compiled code, and logs.
pub(crate) const LEAVE: &str = "push 64\nmalloc\nfree\npush r, rip\nlog 1";

/// Bytes below the stack pointer that are the program's.
const RED_ZONE: u64 = 128;

/// The instructions of `stacks_leaf`.
const LEAF: [&str; 5] =
    ["stacks_leaf", "stacks_leaf + 3", "stacks_leaf + 6", "stacks_leaf + 10", "stacks_leaf + 15"];

#[test]
fn a_hit_without_room_is_missed_and_nothing_else() {
    let program = need!("stacks", program(), "gcc");
    for (mode, calls) in [("room", 246), ("stale", 123)] {
        for handler in [COUNT, FLAGS, LOG, LEAVE] {
            let text = probes(&program, &LEAF.map(|point| (point, handler)));
            for outcome in same_as_unprobed(&program, &[mode], &text) {
                for probe in &outcome.stats.probes {
                    assert_eq!(probe.hits, calls, "{mode}, {handler}: {outcome:#?}");
                }
            }
        }
    }
}

/// Like [`LOG`], without reading the flags.
const WORDS: &str = "push r, rip\npush r, rdi\nlog 2";
/// A condition that holds, before further statements.
const IF: &str = "push r, rdi\njnz holds\nabort\nholds:\n";
/// Logs a string.
const STRING: &str = "push 16\npush r, rsi\nlog str";

/// Bytes below the red zone that a handler of a kind takes, as documented.
fn documented(kind: &str) -> u64 {
    let page = repository().join("docs/jump-engine.md");
    let text = std::fs::read_to_string(page).expect("the page can be read");
    let row = text.lines().find_map(|line| line.strip_prefix(&format!("| {kind} | "))).expect("it has a row");
    row.split(' ').next().and_then(|word| word.parse().ok()).expect("a number of bytes")
}

/// Each kind of handler writes exactly as far below the stack pointer as the documentation says.
#[test]
fn a_handler_takes_no_more_of_the_stack_than_is_documented() {
    const CALLS: u64 = 20_000;
    const LOSSLESS: &[&str] = &["--lossless"];
    let program = need!("stacks", program(), "gcc");
    let (counts_if, logs_if) = (format!("{IF}{COUNT}"), format!("{IF}push r, rip\nlog 1"));
    for (kind, handler, options) in [
        ("counts", COUNT, &[][..]),
        ("counts where a condition holds", &counts_if, &[]),
        ("logs a word, or two", WORDS, &[]),
        ("logs a word where a condition holds", &logs_if, &[]),
        ("logs a string, of any length", STRING, &[]),
        ("leaves to the interpreter", LEAVE, &[]),
        ("logs a word, or two, with `--lossless`", WORDS, LOSSLESS),
        ("logs a string, or leaves to the interpreter, with `--lossless`", STRING, LOSSLESS),
        ("logs a string, or leaves to the interpreter, with `--lossless`", LEAVE, LOSSLESS),
    ] {
        let counts = handler.ends_with(COUNT);
        // Behind the first point no flags are read and nothing can fault; before the second the
        // flags are live, and a record waits for its commit.
        for (point, more) in [("stacks_leaf + 3", 0), ("stacks_leaf", if counts { 8 } else { 16 })] {
            // The ring is full now and then; threads that may wait do.
            let run = Run::new(&probes(&program, &[(point, handler)]))
                .option("--engine=jump")
                .option("--buffer=256K");
            let run = options.iter().fold(run, |run, option| run.option(option));
            let calls = CALLS.to_string();
            let outcome = run.on([program.as_os_str(), "depth".as_ref(), calls.as_ref()]).ended_with(0);
            let probe = &outcome.stats.probes[0];
            assert_eq!((probe.hits, probe.missed), (CALLS, 0), "{kind}: {outcome:#?}");
            assert_eq!(counts, probe.logged + probe.dropped == 0, "{kind}: {outcome:#?}");
            let below = number(&outcome.stderr, "deepest").saturating_sub(RED_ZONE);
            let most = documented(kind) + more;
            assert!((8..=most).contains(&below), "{kind}, {point}: {below} bytes, of {most}");
        }
    }
}

#[test]
fn what_is_below_a_stack_pointer_that_is_none_stays() {
    let program = need!("stacks", program(), "gcc");
    let points = [0, 3, 6, 8, 9, 12, 15, 17, 20].map(|offset| format!("stacks_sum + {offset}"));
    for handler in [COUNT, LOG, LEAVE] {
        let points: Vec<(&str, &str)> = points.iter().map(|point| (&**point, handler)).collect();
        for outcome in same_as_unprobed(&program, &["array"], &probes(&program, &points)) {
            for (number, probe) in outcome.stats.probes.iter().enumerate() {
                let calls = if (3..=6).contains(&number) { 64 } else { 8 };
                assert_eq!((probe.hits, probe.missed), (calls, 0), "{outcome:#?}");
                // Where the array is read, a handler has no stack.
                assert!(probe.engine == "trap" || !(2..=7).contains(&number), "{outcome:#?}");
            }
        }
    }
}

#[test]
fn a_record_that_waits_is_not_disturbed_by_the_next_handler() {
    let program = need!("stacks", program(), "gcc");
    for other in [COUNT, LEAVE, "push r, r9\npush r, r10\nadd\nlog 0"] {
        // The other handler makes no record that would wait for its commit, either.
        let text = probes(&program, &[("stacks_load", LOG), ("stacks_load", other)]);
        let text = text.replace("minor = 2\n", "minor = 2\nlogonfault = yes\n");
        for outcome in same_as_unprobed(&program, &["saved"], &text) {
            assert_eq!((outcome.stats.hits(1), outcome.stats.logged(1)), (100, 100), "{outcome:#?}");
            assert_eq!(outcome.stats.hits(2), 100, "{outcome:#?}");
        }
    }
}

/// The Go functions probed: two that do not check for stack space, and one that does.
const GO: [&str; 3] = ["main.leaf", "main.big", "main.deep"];

/// Runs the program of goroutines with every instruction of a function probed: it behaves as
/// unprobed, and the hits of returns equal the calls.
#[track_caller]
fn goroutines(program: &Path, engine: &str, counts: [&str; 2], function: &str, handler: &str) {
    let (status, stdout, _) = run(Command::new(program).args(counts));
    assert!(status.success());
    let calls = match function {
        // As deep as the remainder by 60, and one more.
        "main.deep" => 0,
        _ => number(&stdout, "calls"),
    };
    let scratch = Scratch::new();
    let stats = scratch.path().join("stats");
    let mut command = dprobes();
    command.args(["run", "--engine", engine, "--lossless", "--at", &format!("a.out:{function}:*")]);
    command.args(["--do", handler, "-o", "/dev/null", "--stats"]).arg(&stats);
    command.arg("--").arg(program).args(counts);
    let (status, probed, stderr) = run(&mut command);
    assert_eq!((status.code(), &probed), (Some(0), &stdout), "{engine}, {function}, {handler}: {stderr}");
    let stats = Stats::read(&stats).expect("an account");
    let probe = &stats.probes[0];
    if calls > 0 {
        let hits: Vec<u64> = probe.places.iter().flatten().map(|place| place.hits).collect();
        assert!(hits.iter().all(|&hits| hits == calls), "{engine}, {function}, {handler}: {probe:#?}");
        assert_eq!(probe.engine, "trap", "{function}");
    } else {
        assert!(probe.hits > 0 && (engine == "trap" || probe.engine == "jump"), "{engine}: {probe:#?}");
    }
    assert_eq!(probe.missed, 0, "{engine}, {function}, {handler}: {probe:#?}");
}

#[test]
fn goroutines_at_the_end_of_their_stacks_keep_what_is_theirs() {
    let program = need!("stacks", go_target("goroutines"), "go");
    for (number, function) in GO.into_iter().enumerate() {
        let handlers = [COUNT, LOG, LEAVE];
        for handler in testing::rounds(&handlers[number..=number], &handlers) {
            goroutines(&program, "auto", ["1", "400"], function, &handler.replace('\n', "; "));
        }
    }
    goroutines(&program, "auto", ["1", "2000"], "main.deep", &LEAVE.replace('\n', "; "));
    goroutines(&program, "trap", ["1", "100"], "main.deep", &COUNT.replace('\n', "; "));
}

/// A goroutine that is descheduled before an instruction whose hit is counted neither loses that
/// hit nor hits again when it goes on, although other goroutines run on the same thread meanwhile.
#[test]
fn goroutines_without_a_processor_have_hit_once() {
    const GOROUTINES: u64 = 40;
    const EACH: u64 = 60;
    let program = need!("stacks", go_target("preempted"), "go");
    let counts = [GOROUTINES.to_string(), EACH.to_string()];
    let (_, unprobed, _) = run(Command::new(&program).args(&counts));
    let scratch = Scratch::new();
    let stats = scratch.path().join("stats");
    let mut command = dprobes();
    command.args(["run", "--engine", "trap", "--lossless", "--at", "a.out:main.work:*", "--do", "log 0"]);
    command.args(["-o", "/dev/null", "--stats"]).arg(&stats).arg("--").arg(&program).args(&counts);
    let (status, probed, stderr) = run(&mut command);
    assert_eq!((status.code(), &probed), (Some(0), &unprobed), "{stderr}");
    let stats = Stats::read(&stats).expect("an account");
    let hits: Vec<u64> = stats.probes[0].places.iter().flatten().map(|place| place.hits).collect();
    // Possible counts of an instruction: once in the function, in the loop, or where the loop ends;
    // none of them asks for more stack.
    let possible = [0, GOROUTINES, GOROUTINES * EACH, GOROUTINES * (EACH + 1)];
    assert!(hits.iter().all(|hits| possible.contains(hits)), "{:#?}", stats.probes);
    assert!(hits.contains(&possible[1]) && hits.contains(&possible[2]), "{:#?}", stats.probes);
}
