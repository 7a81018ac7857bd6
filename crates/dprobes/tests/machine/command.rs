//! What dprobes does elsewhere, it does on Linux 6.1.

use crate::trial::Trial;
use testing::machine::{Command, End, Output};

/// Counts the calls of a function, with more options, and prints the counts. `leaf` ends with 7.
fn count(options: &str) -> String {
    format!(
        "status=0
        dprobes run {options} --at a.out:leaf_work:entry --stats stats -- leaf 500 || status=$?
        [ $status = 7 ]
        cat stats"
    )
}

/// Checks what `leaf 500` and the counts say.
#[track_caller]
fn counted(text: &str) {
    assert!(text.starts_with("calls 500 sum 376750\n"), "{text}");
    let spaceless: String = text.split_whitespace().collect();
    assert!(spaceless.contains("\"hits\":500"), "{text}");
}

/// An emulated processor may lack `rdpid`, without which there are no jumps: then that is said.
fn counted_by_jumps(output: &Output) {
    if output.stdout.starts_with("no rdpid\n") {
        assert_eq!(output.end, End::Exited(1), "{output:#?}");
        assert!(output.stderr.contains("the processor has no `rdpid`"), "{output:#?}");
    } else {
        counted(output.success());
    }
}

pub(crate) fn trials() -> Vec<Trial> {
    let jumps = format!("grep -qw rdpid /proc/cpuinfo || echo no rdpid\n{}", count("--engine jump"));
    vec![
        Trial::shell("command: it starts", "dprobes --version", |text| {
            assert_eq!(text, format!("dprobes {}\n", env!("CARGO_PKG_VERSION")));
        }),
        Trial::shell("command: probes count", &count(""), counted),
        Trial::new("command: jumps count", Command::shell(&jumps), counted_by_jumps),
        Trial::shell("command: traps count", &count("--engine trap"), counted),
    ]
}
