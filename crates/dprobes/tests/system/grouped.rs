//! Jumps over several instructions: where nothing else fits, in a program that has not begun. They count every call, nobody is ever seen amid
//! what they cover, and they make room for a probe there.

use std::path::{Path, PathBuf};

use crate::support::{Outcome, Run, Scratch, counting, dprobes, need, run, target};

/// The functions of the program under test.
const FUNCTIONS: usize = 16;

fn program() -> Option<PathBuf> {
    target("grouped")
}

fn points(offset: &str) -> Vec<String> {
    (0..FUNCTIONS).map(|number| format!("grouped_{number}{offset}")).collect()
}

/// Counts, without records, at every function.
fn everywhere(program: &Path) -> String {
    counting(program, points("")).replace("modtype = user\n", "modtype = user\nlogmax = 0\n")
}

/// A run with these arguments, in which all probes are grouped and have each been hit so often.
#[track_caller]
fn grouped(program: &Path, arguments: &[&str], hits: u64) -> Outcome {
    let words = std::iter::once(program.as_os_str()).chain(arguments.iter().map(|word| word.as_ref()));
    let outcome = Run::new(&everywhere(program)).option("--engine=jump").on(words).ended_with(0);
    assert_eq!(outcome.stats.probes.len(), FUNCTIONS);
    for probe in &outcome.stats.probes {
        assert_eq!((probe.engine.as_str(), probe.tactic.as_deref()), ("jump", Some("grouped")), "{probe:?}");
        assert_eq!((probe.hits, probe.runs, probe.missed), (hits, hits, 0), "{probe:?}");
    }
    assert!(outcome.stats.locals.iter().all(|&count| count == hits), "{:?}", outcome.stats.locals);
    assert!(outcome.stdout.contains(" wrong 0 shown 0 "), "{outcome:#?}");
    outcome
}

#[test]
fn every_hit_of_eight_threads_is_counted_once() {
    let program = need!("jump", program(), "gcc");
    let outcome = grouped(&program, &["8", "20000"], 160_000);
    assert_eq!(outcome.stdout, "calls 2560000 wrong 0 shown 0 signals 0\n");
}

#[test]
fn signals_come_when_what_a_jump_covers_is_done() {
    let program = need!("jump", program(), "gcc");
    let outcome = grouped(&program, &["-s", "2", "300000"], 600_000);
    let signals = outcome.stdout.trim_end().rsplit(' ').next().and_then(|count| count.parse::<u64>().ok());
    assert!(signals > Some(20), "{outcome:#?}");
}

#[test]
fn children_keep_what_their_parents_have() {
    let program = need!("jump", program(), "gcc");
    let outcome = grouped(&program, &["-f", "60"], 60);
    assert_eq!(outcome.stdout, "calls 960 wrong 0 shown 0 signals 0\n");
}

#[test]
fn a_program_that_steps_itself_comes_through() {
    let program = need!("jump", program(), "gcc");
    let outcome = grouped(&program, &["-t", "20"], 20);
    // What a jump covers is one step, all else as many as ever.
    let alone = std::process::Command::new(&program).args(["-t", "20"]).output().expect("it runs");
    let steps = |text: &str| text.trim_end().rsplit(' ').next().and_then(|count| count.parse::<u64>().ok());
    let (alone, probed) = (steps(&String::from_utf8_lossy(&alone.stdout)), steps(&outcome.stdout));
    assert_eq!(probed.map(|steps| steps + 2 * 20 * FUNCTIONS as u64), alone, "{outcome:#?}");
}

/// A second program has probes on instructions that the first one's jumps cover: neither loses a hit.
#[test]
fn probes_on_what_jumps_cover_take_the_groups_apart() {
    let program = need!("jump", program(), "gcc");
    for offset in ["+1", "+4"] {
        for engine in ["--engine=jump", "--engine=auto"] {
            let scratch = Scratch::new();
            let second = counting(&program, points(offset)).replace("major = 1\n", "major = 2\n");
            let second = scratch.file("second.rpn", &second);
            let outcome = Run::new(&everywhere(&program)).option(&second).option(engine).on([
                program.as_os_str(),
                "4".as_ref(),
                "300".as_ref(),
            ]);
            // With jumps alone it may be told that there is none; what is armed is complete.
            if engine == "--engine=jump" && outcome.status.code() != Some(0) {
                assert!(outcome.stderr.contains("no jump can stand there"), "{outcome:#?}");
                continue;
            }
            let outcome = outcome.ended_with(0);
            assert_eq!(outcome.stats.probes.len(), 2 * FUNCTIONS);
            assert!(outcome.stdout.contains(" wrong 0 shown 0 "), "{outcome:#?}");
            for probe in &outcome.stats.probes {
                let refused = outcome.stderr.contains("nothing can be written there");
                assert!(probe.hits == 1200 || refused && probe.hits == 0, "{probe:?} {}", outcome.stderr);
            }
        }
    }
}

/// What is taken out while threads are in it is the program's again.
#[test]
fn probes_that_are_over_leave_threads_where_they_are() {
    let program = need!("jump", program(), "gcc");
    let text = everywhere(&program).replace("minor = ", "maxhits = 5000\nminor = ");
    let words = [program.as_os_str(), "8".as_ref(), "20000".as_ref()];
    let outcome = Run::new(&text).option("--engine=jump").on(words).ended_with(0);
    assert!(outcome.stdout.starts_with("calls 2560000 wrong 0 shown 0 "), "{outcome:#?}");
    for probe in &outcome.stats.probes {
        assert_eq!((probe.tactic.as_deref(), probe.runs), (Some("grouped"), 5000), "{probe:?}");
    }
}

#[test]
fn a_list_of_tactics_foresees_them() {
    let program = need!("jump", program(), "gcc");
    let path = program.to_str().expect("it is plain");
    let (status, stdout, stderr) = run(dprobes().args(["list", "--tactics", "--json", path, "grouped_*"]));
    assert!(status.success(), "{stderr}");
    let value: serde_json::Value = serde_json::from_str(&stdout).expect("it is JSON");
    assert_eq!(value["modules"][0]["jump"]["grouped"], FUNCTIONS, "{stdout}");
}
