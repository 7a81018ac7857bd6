//! A probed instruction that faults: the program sees the fault at the original address, and a
//! record counts only if the instruction completes.

use crate::support::{Outcome, Run, need, target};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

/// Runs `fault MODE` unprobed and probed, compares the output, and returns the probed run.
fn fault(mode: &str, header: &str, point: &str) -> Option<Outcome> {
    fault_by(&[], mode, header, point)
}

/// The same with options.
fn fault_by(options: &[&str], mode: &str, header: &str, point: &str) -> Option<Outcome> {
    let program = target("fault")?;
    let text = format!(
        "name = \"{}\"\nmodtype = user\nmajor = 3\n{header}\noffset = fault_load\nminor = 1\n{point}\n\
         push 0x4c4f4144\nlog 1\nexit\n",
        program.display()
    );
    let (status, stdout, _) = crate::support::run(Command::new(&program).arg(mode));
    let run = options.iter().fold(Run::new(&text), Run::option);
    let outcome = run.on([program.as_os_str(), mode.as_ref()]);
    assert_eq!(outcome.stdout, stdout, "{outcome:#?}");
    if mode == "kill" {
        let seen = outcome.status.signal().or(outcome.status.code().map(|code| code - 128));
        assert_eq!(seen, status.signal(), "death by a signal is passed on: {outcome:#?}");
    } else {
        assert_eq!(outcome.status.code(), status.code(), "{outcome:#?}");
    }
    assert_eq!(outcome.headers().len() as u64, outcome.stats.logged(1), "{outcome:#?}");
    Some(outcome)
}

#[test]
fn without_a_fault_the_record_is_kept() {
    let outcome = need!("faults", fault("none", "", ""), "gcc");
    assert_eq!((outcome.stats.hits(1), outcome.stats.logged(1)), (1, 1), "{outcome:#?}");
}

#[test]
fn a_load_that_never_completes_leaves_no_record() {
    let outcome = need!("faults", fault("longjmp", "", ""), "gcc");
    assert_eq!((outcome.stats.hits(1), outcome.stats.logged(1)), (1, 0), "{outcome:#?}");
}

#[test]
fn logonfault_keeps_the_record_of_a_load_that_never_completes() {
    let outcome = need!("faults", fault("longjmp", "logonfault = yes", ""), "gcc");
    assert_eq!((outcome.stats.hits(1), outcome.stats.logged(1)), (1, 1), "{outcome:#?}");
}

#[test]
fn the_points_own_logonfault_overrides_the_files() {
    let outcome = need!("faults", fault("longjmp", "logonfault = yes", "logonfault = no"), "gcc");
    assert_eq!(outcome.stats.logged(1), 0, "{outcome:#?}");
    let outcome = need!("faults", fault("longjmp", "logonfault = no", "logonfault = yes"), "gcc");
    assert_eq!(outcome.stats.logged(1), 1, "{outcome:#?}");
}

#[test]
fn a_retried_load_leaves_exactly_one_record_and_runs_the_handler_twice() {
    let outcome = need!("faults", fault("retry", "", ""), "gcc");
    assert!(outcome.stdout.starts_with("value 42 faults 1 rip 1 address 1 stack 1"), "{outcome:#?}");
    assert_eq!((outcome.stats.runs(1), outcome.stats.logged(1)), (2, 1), "{outcome:#?}");
}

#[test]
fn a_hit_whose_instruction_faults_counts_towards_maxhits() {
    for engine in ["--engine=jump", "--engine=trap"] {
        for (maxhits, runs, logged) in [(1, 1, 0), (2, 2, 1), (3, 2, 1)] {
            let point = format!("maxhits = {maxhits}");
            let outcome = need!("faults", fault_by(&[engine], "retry", "", &point), "gcc");
            let counts = (outcome.stats.runs(1), outcome.stats.logged(1));
            assert_eq!(counts, (runs, logged), "{engine} {point}: {outcome:#?}");
        }
    }
}

#[test]
fn with_logonfault_a_retried_load_leaves_both_records() {
    let outcome = need!("faults", fault("retry", "logonfault = yes", ""), "gcc");
    assert_eq!((outcome.stats.runs(1), outcome.stats.logged(1)), (2, 2), "{outcome:#?}");
}

#[test]
fn a_fault_that_nobody_handles_kills_the_program_as_before() {
    let outcome = need!("faults", fault("kill", "", ""), "gcc");
    assert_eq!(outcome.stats.logged(1), 0, "{outcome:#?}");
    let outcome = need!("faults", fault("kill", "logonfault = yes", ""), "gcc");
    assert_eq!(outcome.stats.logged(1), 1, "{outcome:#?}");
}
