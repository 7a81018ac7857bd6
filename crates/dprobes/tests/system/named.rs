//! Processes and files by name.

use std::process::{Child, Command, Stdio};

use crate::support::{Scratch, dprobes, need, target};

/// Processes that end with the test.
struct Sleepers(Vec<Child>);

impl Drop for Sleepers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn all_processes_of_a_name_are_probed_and_no_other() {
    let scratch = Scratch::new();
    let program = scratch.path().join("a-sleeper-of-this-test");
    std::fs::copy("/bin/sleep", &program).expect("it can be copied");
    let start = |program: &str| {
        let mut command = Command::new(program);
        command.arg("600").stdin(Stdio::null()).spawn().expect("it starts")
    };
    let path = program.to_str().expect("text");
    let sleepers = Sleepers(vec![start(path), start(path), start("/bin/sleep")]);
    let [first, second, other] = [0, 1, 2].map(|place: usize| sleepers.0[place].id());
    for named in ["a-sleeper-of-this-test".to_owned(), format!("{first},{second}")] {
        let mut command = dprobes();
        command.args(["attach", "-p", &named, "--at", "libc:clock_nanosleep", "--for", "100ms"]);
        let output = command.output().expect("dprobes starts");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
        for (pid, times) in [(first, 1), (second, 1), (other, 0)] {
            let armed = format!("of process {pid}\n");
            assert_eq!(told.matches(&armed).count(), times, "{named}: {told}");
        }
    }
    // A command for one process refuses a name that two have, and says which they are.
    let output = dprobes().args(["list", "-p", "a-sleeper-of-this-test"]).output().expect("it starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains(&format!("{}, {}", first.min(second), first.max(second))), "{told}");
}

#[test]
fn libraries_and_programs_are_listed_by_name() {
    let listed = |words: &[&str]| {
        let output = dprobes().arg("list").args(words).output().expect("dprobes starts");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    assert!(listed(&["libc", "malloc"]).contains(":malloc"));
    assert!(listed(&["--points", "entry", "libc", "malloc"]).contains(":malloc"));
    let sleepers = Sleepers(vec![Command::new("/bin/sleep").arg("600").spawn().expect("it starts")]);
    let pid = sleepers.0[0].id().to_string();
    // It has executed the program as soon as its libc is mapped.
    while !std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it lives").contains("libc") {
        std::thread::yield_now();
    }
    let whole = listed(&["-p", &pid, "libc"]);
    assert!(whole.lines().count() > 1000 && whole.contains(":malloc\n"));
    assert_eq!(
        listed(&["-p", &pid, "libc:malloc"]),
        listed(&["-p", &pid, "malloc"])
            .lines()
            .filter(|line| line.contains("libc"))
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    );
}

#[test]
fn a_probe_without_a_hit_says_where_else_its_function_is() {
    // Both have a function of this name, and only that of libc is called.
    let program = need!("named", target("silent"), "gcc");
    let program = Command::new(program).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let sleepers = Sleepers(vec![program.expect("it starts")]);
    let pid = sleepers.0[0].id().to_string();
    let attach = |point: &str| {
        let mut command = dprobes();
        command.args(["attach", "-p", &pid, "--at", point, "--for", "300ms"]);
        String::from_utf8(command.output().expect("dprobes starts").stderr).expect("text")
    };
    let told = attach("a.out:usleep");
    assert!(told.contains("`usleep` was not hit in a.out"), "{told}");
    assert!(told.contains("--at libc.so.6:usleep"), "{told}");
    let told = attach("libc:usleep");
    assert!(!told.contains("not hit"), "{told}");
}
