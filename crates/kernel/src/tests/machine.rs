//! Some of these tests on Linux 6.1, in the virtual machine of the tests: its verifier is older
//! than that of most machines, it has kprobes, and it lets programs write memory.

use testing::machine::{Command, Kernel, Machine};

/// The tests that run there: those that need no files, and end soon on an emulated processor.
const CHOSEN: &str = "limits::hits limits::records limits::other limits::a_hit places::";

#[test]
fn linux_6_1_verifies_and_runs_programs() {
    let kernel = match Kernel::available() {
        Ok(kernel) => kernel,
        Err(missing) => return testing::skipped("machine: kernel", &missing.to_string()),
    };
    let program = std::env::current_exe().expect("the own path");
    let name = program.file_name().and_then(|name| name.to_str()).expect("cargo names it in ASCII");
    let mut machine = Machine::new(&kernel);
    machine.program(&program);
    let command = format!("DPROBES_SKIP='optional: kernel: breakpoints' {name} --test-threads 1 {CHOSEN}");
    let outputs = machine.run(&[Command::shell(&command)]);
    let output = &outputs[0];
    let passed = output.stdout.contains("test result: ok. 8 passed");
    assert!(passed, "{}\n{}", output.stdout, output.stderr);
}
