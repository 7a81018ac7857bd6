//! Code mixed with data: tables and literals inside functions, instructions that are skipped, calls
//! that return elsewhere, bytes that the dynamic linker writes. Whatever is probed, the program
//! behaves as unprobed.

use std::path::Path;
use std::process::Command;

use crate::i386::target_32;
use crate::support::{Outcome, Run, counting, dprobes, need, run, target, variant};

/// The output of a program unprobed.
fn alone(program: &Path) -> String {
    let (status, stdout, stderr) = run(&mut Command::new(program));
    assert!(status.success(), "{status}: {stderr}");
    stdout
}

/// A run with counting probes at these points, which must change nothing.
#[track_caller]
fn unchanged(program: &Path, engine: &str, points: &[&str]) -> Outcome {
    let outcome = Run::new(&counting(program, points.iter().copied()))
        .option(format!("--engine={engine}"))
        .on([program.as_os_str()])
        .ended_with(0);
    assert_eq!(outcome.stdout, alone(program), "{engine} {points:?}: {outcome:#?}");
    outcome
}

/// A run with one point, which may be refused: whether it was accepted, and the output.
fn once(program: &Path, engine: &str, point: &str) -> (bool, String, String) {
    let at = format!("{}:{point}", program.file_name().unwrap_or_default().to_string_lossy());
    let mut command = dprobes();
    command.args(["run", "--engine", engine, "--at", &at, "--do", "inc lv, 0; abort", "--"]).arg(program);
    let (status, stdout, stderr) = run(&mut command);
    (status.success(), stdout, stderr)
}

/// Functions of the program under test, and how often the first instruction of each runs.
const FUNCTIONS: [&str; 8] =
    ["in_table", "in_call", "argument", "divides", "loads", "behind_call", "one_later", "jumped_over"];

#[test]
fn data_and_what_is_passed_over_stay_as_they_are() {
    let program = need!("doubtful", target("doubtful"), "gcc");
    let each: Vec<String> = FUNCTIONS.iter().map(|name| format!("{name}:*")).collect();
    let each: Vec<&str> = each.iter().map(String::as_str).collect();
    for engine in ["auto", "trap"] {
        for point in &each {
            unchanged(&program, engine, &[point]);
        }
        let outcome = unchanged(&program, engine, &each);
        assert!(outcome.stderr.contains("may be data"), "{outcome:#?}");
        let entries = unchanged(&program, engine, &FUNCTIONS);
        for probe in &entries.stats.probes {
            assert_eq!((probe.hits, probe.missed), (50, 0), "{engine}: {probe:?}");
        }
    }
}

/// Jumps over several instructions, one of which faults and is skipped, or is the return point of a
/// call.
#[test]
fn groups_are_not_entered_at_a_follower() {
    let program = need!("doubtful", target("doubtful"), "gcc");
    for offset in 0..24 {
        for function in ["divides", "loads"] {
            // Not each offset is an instruction's.
            let (done, stdout, stderr) = once(&program, "auto", &format!("{function}:{offset:x}"));
            if done {
                assert_eq!(stdout, alone(&program), "{function}:{offset:x}: {stderr}");
            }
        }
    }
}

/// Code that jumps past a prefix, next to instructions for which neighbours are moved: overlapping
/// instructions are not moved.
#[test]
fn instructions_that_overlap_stay_where_they_are() {
    let program = need!("overlapping", target("overlapping"), "gcc");
    let alone = alone(&program);
    // Where landing pads fit depends on the memory map: runs differ in what they move.
    let again = vec!["short*:*"; testing::rounds(0, 3)];
    for points in ["short*:*", "prefixed*:*", "*:*"].into_iter().chain(again) {
        for engine in ["auto", "trap"] {
            let (done, stdout, stderr) = once(&program, engine, points);
            assert!(done, "{engine} {points}: {stderr}");
            assert_eq!(stdout, alone, "{engine} {points}: {stderr}");
        }
    }
}

#[test]
fn what_cannot_be_told_from_data_is_refused() {
    let program = need!("doubtful", target("doubtful"), "gcc");
    for engine in ["auto", "trap"] {
        for point in ["in_call:a", "behind_call:8", "in_table:17", "jumped_over:9"] {
            let (done, _, stderr) = once(&program, engine, point);
            assert!(!done && stderr.contains("may be data"), "{point}: {stderr}");
            assert!(stderr.contains("--dont-verify-opcodes"), "{point}: {stderr}");
        }
        // The option overrides the check: the instruction after the data is a real one.
        let insisted = Run::new(&counting(&program, ["in_call:12"]))
            .option("--dont-verify-opcodes")
            .option(format!("--engine={engine}"))
            .on([program.as_os_str()])
            .ended_with(0);
        assert_eq!(insisted.stdout, alone(&program), "{insisted:#?}");
        assert_eq!(insisted.stats.hits(1), 50, "{insisted:#?}");
        // A script and its shortcuts do the same.
        let script = ["trace", "-q", "-e", "uprobe:a.out:in_call+0x12 { @ = count(); }", "-c"];
        for (words, counts) in [(&script[..], "@: 50"), (&["count", "a.out:in_call:12", "--"], " 50 ")] {
            let (command, words) = words.split_first().expect("there is one");
            for (option, status, said) in
                [(None, 125, "--dont-verify-opcodes"), (Some("--dont-verify-opcodes"), 0, counts)]
            {
                let mut all = dprobes();
                all.args([*command, "--engine", engine]).args(option).args(words).arg(&program);
                let (outcome, stdout, stderr) = run(&mut all);
                assert_eq!(outcome.code(), Some(status), "{engine}: {stderr}");
                assert!(format!("{stdout}{stderr}").contains(said), "{engine}: {stdout}{stderr}");
            }
        }
        // An offset behind a pattern is one in each function, in lists, too.
        let pattern = "uprobe:a.out:in_cal*+0x12";
        let script = format!("{pattern} {{ @[probe] = count(); }}");
        for (words, said) in [(["-e", &script], "in_call+18]: 50"), (["-l", pattern], "in_call+18\n")] {
            let mut command = dprobes();
            command.args(["trace", "-q", "--engine", engine, "--dont-verify-opcodes"]).args(words);
            let (outcome, stdout, stderr) = run(command.arg("-c").arg(&program));
            assert!(outcome.success() && stdout.contains(said), "{engine}: {stdout}{stderr}");
        }
    }
}

#[test]
fn bytes_that_the_dynamic_linker_writes_are_left_alone() {
    let program = need!("doubtful", target("textrel"), "gcc");
    let not_position_independent = variant("textrel", "textrel-plain", &["-no-pie"]);
    let programs = [Some(program), target_32("textrel", &["-pie", "-Wl,-z,notext"])];
    for program in programs.into_iter().flatten() {
        for engine in ["auto", "trap"] {
            let outcome = unchanged(&program, engine, &["relocated:*"]);
            assert!(outcome.stderr.contains("a text relocation"), "{outcome:#?}");
            assert!(outcome.stats.hits(1) >= 30, "{outcome:#?}");
        }
    }
    // Without any, all of it is probed.
    if let Some(program) = not_position_independent {
        let outcome = unchanged(&program, "auto", &["relocated:*"]);
        assert!(!outcome.stderr.contains("relocation"), "{outcome:#?}");
    }
}
