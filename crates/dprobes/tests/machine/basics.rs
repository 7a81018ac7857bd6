//! The machine itself: what a command does in it is seen here.

use std::time::Duration;

use crate::trial::Trial;
use testing::machine::{Command, End};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        // First, so that all others show that the machine is booted again. What a command has printed
        // is on its way out for a moment.
        Trial::new(
            "basics: a panic",
            Command::shell("echo before; sleep 1; echo c > /proc/sysrq-trigger"),
            |output| {
                assert_eq!(output.end, End::Panicked("sysrq triggered crash".to_string()), "{output:#?}");
                assert_eq!(output.stdout, "before\n", "{output:#?}");
                assert!(output.console.contains("sysrq: Trigger a crash"), "{output:#?}");
            },
        ),
        Trial::shell("basics: the kernel is Debian's", "uname -r; cat /proc/version", |text| {
            let (release, version) = text.split_once('\n').expect("two lines");
            assert!(release.starts_with("6.1.") && version.contains("Debian"), "{text}");
        }),
        Trial::new(
            "basics: output and status",
            Command::new(["sh", "-c", "echo out; echo error >&2; pwd; exit 7"]),
            |output| {
                assert_eq!(output.end, End::Exited(7), "{output:#?}");
                let texts = (&output.stdout[..], &output.stderr[..]);
                assert_eq!(texts, ("out\n/tmp\n", "error\n"), "{output:#?}");
            },
        ),
        Trial::new("basics: a signal", Command::new(["sh", "-c", "kill -TERM $$"]), |output| {
            assert_eq!(output.end, End::Signalled(15), "{output:#?}");
        }),
        Trial::new(
            "basics: a time limit",
            Command::new(["sh", "-c", "echo begun; sleep 1000"]).limit(Duration::from_secs(1)),
            |output| {
                assert_eq!((&output.end, &output.stdout[..]), (&End::TimedOut, "begun\n"), "{output:#?}");
            },
        ),
        Trial::new("basics: no such program", Command::new(["nothing", "is", "called so"]), |output| {
            assert_eq!(output.end, End::Exited(127), "{output:#?}");
            assert_eq!(output.stderr, "nothing: No such file or directory\n");
        }),
        Trial::shell("basics: much output", "seq 1 20000", |text| {
            assert!(text.lines().map(|line| line.parse()).eq((1..=20_000).map(Ok)), "{text}");
        }),
        Trial::shell(
            "basics: the kernel's messages",
            "echo '<4>a message' > /dev/kmsg; cat /proc/cmdline",
            |text| {
                assert!(text.contains("console=ttyS0"), "{text}");
            },
        ),
    ]
}
