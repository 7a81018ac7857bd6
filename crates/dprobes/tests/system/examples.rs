//! The examples run as their first lines say, and show what they promise.

use crate::support::{Outcome, Run, dprobes, find_program, need, repository, run};
use std::path::PathBuf;
use std::process::Command;

fn example(name: &str) -> PathBuf {
    repository().join("examples").join(format!("{name}.rpn")).canonicalize().expect("the example is there")
}

/// Runs an example on a command, and checks that the command's output and status are as without it.
fn unchanged(name: &str, words: &[&str]) -> Outcome {
    let (status, stdout, _) = run(Command::new(words[0]).args(&words[1..]));
    let outcome = Run::file(&example(name)).on(words);
    assert_eq!((outcome.status, steady(&outcome.stdout)), (status, steady(&stdout)), "{outcome:#?}");
    outcome
}

/// The stable words of the output of `ls -l /`: link counts and times of some directories, and so
/// column widths, change.
fn steady(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.filter(|words| !matches!(words.last(), Some(&("proc" | "tmp" | "run")))).collect()
}

#[test]
fn malloc_logs_the_large_requests_of_ls() {
    let outcome = unchanged("malloc", &["ls", "-l", "/"]);
    let [all, large] = outcome.stats.locals[..] else { panic!("two variables: {outcome:#?}") };
    assert_eq!(all, outcome.stats.hits(1), "{outcome:#?}");
    assert!(large >= 1 && large < all, "{outcome:#?}");
    assert_eq!((outcome.stats.logged(1), outcome.headers().len() as u64), (large, large), "{outcome:#?}");
    // Every record's word, little-endian, is at least 4096.
    for row in outcome.records.lines().filter(|line| line.contains(" : ")) {
        let hex: String = row.split(" : ").nth(1).expect("a row has bytes").split_whitespace().collect();
        let size = u64::from_str_radix(&hex, 16).expect("a word").swap_bytes();
        assert!((4096..1 << 32).contains(&size), "{row}");
    }
}

#[test]
fn malloc_takes_another_limit_from_the_command_line() {
    let outcome =
        Run::file(&example("malloc")).option("-D").option("LARGE=100").on(["ls", "-l", "/"]).ended_with(0);
    assert!(outcome.stats.locals[1] > 10, "{outcome:#?}");
}

#[test]
fn count_counts_in_every_process_of_a_build() {
    need!("examples", find_program("gcc"), "gcc");
    let outcome = unchanged("count", &["gcc", "--version"]);
    for (place, count) in outcome.stats.locals.iter().enumerate() {
        assert_eq!(*count, outcome.stats.hits(place as u32 + 1), "{outcome:#?}");
    }
    assert!(outcome.stats.locals[0] > 10 && outcome.stats.locals[3] > 10, "{outcome:#?}");
    assert_eq!(outcome.headers().len(), 0, "{outcome:#?}");
}

#[test]
fn string_logs_the_directory_that_ls_opens() {
    let outcome = unchanged("string", &["ls", "/"]);
    assert_eq!((outcome.stats.hits(1), outcome.stats.logged(1)), (1, 1), "{outcome:#?}");
    assert!(outcome.stats.logged(2) > 0, "{outcome:#?}");
    assert!(outcome.records.contains("DProbes(3,1)  0x00000000 : 0101002f "), "{outcome:#?}");
}

#[test]
fn register_makes_false_true() {
    let outcome = Run::file(&example("register")).on(["false"]).ended_with(0);
    assert!(outcome.records.contains(" : 01000000 00000000 "), "the status it had in mind: {outcome:#?}");
    let seven = Run::file(&example("register")).option("-D").option("STATUS=7").on(["true"]);
    seven.ended_with(7);
}

#[test]
fn ignore_logs_five_hits_after_ten() {
    let outcome = unchanged("ignore", &["ls", "-l", "/"]);
    assert_eq!(
        (outcome.stats.ignored(1), outcome.stats.runs(1), outcome.headers().len()),
        (10, 5, 5),
        "{outcome:#?}"
    );
}

#[test]
fn proc_sorts_every_size_into_one_class() {
    let outcome = unchanged("proc", &["ls", "-l", "/"]);
    let hits = outcome.stats.hits(1) + outcome.stats.hits(2);
    assert_eq!(outcome.stats.locals.iter().sum::<u64>(), hits, "{outcome:#?}");
    assert!(outcome.stats.locals[0] > 0 && outcome.stats.locals[2] > 0, "{outcome:#?}");
}

#[test]
fn malloc_dump_takes_a_core_dump_and_the_program_goes_on() {
    let python = need!("examples", find_program("python3"), "python3");
    let script = "import ctypes; ctypes.CDLL(None).malloc(0x20000000); print('went on')";
    let outcome = unchanged("malloc_dump", &[&python.to_string_lossy(), "-c", script]);
    assert_eq!(outcome.stdout, "went on\n");
    assert!(
        outcome.stderr.contains("core dump of process") && outcome.stderr.contains("written"),
        "{outcome:#?}"
    );
    assert_eq!(outcome.stats.logged(1), 1, "{outcome:#?}");
}

#[test]
fn every_example_passes_check_and_says_how_to_run_it() {
    let mut count = 0;
    for entry in std::fs::read_dir(repository().join("examples")).expect("there are examples") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            continue;
        }
        let (status, stdout, stderr) = run(dprobes().arg("check").arg(&path));
        assert!(status.success(), "{}: {stdout}{stderr}", path.display());
        let text = std::fs::read_to_string(&path).expect("it can be read");
        let command =
            format!("//   dprobes run examples/{} -- ", path.file_name().unwrap_or_default().display());
        assert!(text.contains(&command), "{} does not say {command:?}", path.display());
        count += 1;
    }
    assert!(count >= 7, "{count} examples");
}
