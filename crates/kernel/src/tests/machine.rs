//! These tests on Linux 6.1, in the virtual machine of the tests: its verifier is older than that
//! of most machines, it has kprobes, and it lets programs write memory.
//!
//! A few run there by default. To load every program of the cases, and to run them, takes from half
//! an hour to hours, since the processor is emulated:
//!
//!     cargo test -p dprobes-kernel --lib -- --ignored --nocapture linux_6_1_runs
//!
//! `DPROBES_CASES='register stack'` chooses files.

use std::time::Duration;

use testing::machine::{Command, Kernel, Machine, Output};

use super::cases;

/// The tests that run there by default: those that need no files, and end soon on an emulated
/// processor.
const CHOSEN: &str = "limits::hits limits::records limits::other limits::a_hit places::";

/// How long the cases of a file may take, by the machine's clock.
const LIMIT: Duration = Duration::from_secs(3600);

/// A machine with this program and the files of the cases, and the program's name there.
fn machine() -> Option<(Machine, String)> {
    let kernel = match Kernel::available() {
        Ok(kernel) => kernel,
        Err(missing) => {
            testing::skipped("machine: kernel", &missing.to_string());
            return None;
        }
    };
    let program = std::env::current_exe().expect("the own path");
    let name = program.file_name().and_then(|name| name.to_str()).expect("cargo names it in ASCII");
    let mut machine = Machine::new(&kernel);
    machine.program(&program);
    let folder = testing::conformance::folder();
    // This program's path of the files goes through the directory of the crate `testing`.
    let repository = testing::repository().canonicalize().expect("it is there");
    machine.file(&format!("{}/crates/testing/here", repository.display()), "");
    for name in cases::FILES {
        let path = folder.join(format!("{name}.case")).canonicalize().expect("a file of cases");
        let text = std::fs::read(&path).expect("it can be read");
        machine.file(&path.to_string_lossy(), text);
    }
    Some((machine, name.to_string()))
}

/// A run of tests of this program, by parts of their names.
fn run(name: &str, variables: &str, chosen: &str) -> Command {
    let skips = "DPROBES_SKIP='optional: kernel: breakpoints'";
    Command::shell(&format!("{skips} {variables} {name} --test-threads 1 --nocapture {chosen}")).limit(LIMIT)
}

#[track_caller]
fn passed(output: &Output, count: usize) {
    let passed = output.stdout.contains(&format!("test result: ok. {count} passed"));
    assert!(passed, "{}\n{}", output.stdout, output.stderr);
}

#[test]
fn linux_6_1_verifies_and_runs_programs() {
    let Some((machine, name)) = machine() else { return };
    let outputs = machine.run(&[run(&name, "", CHOSEN)]);
    passed(&outputs[0], 8);
}

#[test]
#[ignore = "an emulated processor takes minutes"]
fn linux_6_1_loads_every_case() {
    each_file(&format!("{}=1", cases::ONLY_LOADED));
}

#[test]
#[ignore = "an emulated processor takes more than half an hour"]
fn linux_6_1_runs_every_case() {
    each_file("");
}

/// Runs the cases of all files, in two machines.
fn each_file(variables: &str) {
    let Some((machine, name)) = machine() else { return };
    let chosen = std::env::var("DPROBES_CASES").ok();
    let is_chosen =
        |file: &&str| chosen.as_ref().is_none_or(|chosen| chosen.split(' ').any(|it| it == *file));
    let all: Vec<&str> = cases::FILES.iter().copied().filter(is_chosen).collect();
    assert!(!all.is_empty(), "{chosen:?}: none of {:?}", cases::FILES);
    let half = |first: usize| {
        let files: Vec<&str> = all.iter().skip(first).step_by(2).copied().collect();
        let test = |file: &&str| run(&name, variables, &format!("--exact tests::cases::{file}"));
        let commands: Vec<Command> = files.iter().map(test).collect();
        let outputs = if commands.is_empty() { Vec::new() } else { machine.run(&commands) };
        for (file, output) in files.iter().zip(outputs) {
            println!("{file}: {}\n{}", output.stdout, output.stderr);
            passed(&output, 1);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| half(0));
        half(1);
    });
}
