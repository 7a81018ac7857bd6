//! Counts of the kernel itself, with nothing of dprobes, for the programs that make probes fire.

use crate::trial::Trial;

/// How often a probe fires in the process that is run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Times {
    Exactly(u64),
    AtLeast(u64),
}

impl Times {
    /// Checks a count of what `what` names.
    #[track_caller]
    pub(crate) fn check(self, what: &str, count: u64) {
        let right = match self {
            Times::Exactly(times) => count == times,
            Times::AtLeast(times) => count >= times,
        };
        assert!(right, "{what}: {self:?} expected, {count} seen");
    }
}

/// Counts calls of functions, with kprobe events, in the process of a program that prints `pid P`
/// first. Shell lines: what is done before, the program, what is done afterwards. An event is `p` or
/// `r` (entry or return) and a function, as in the kernel's `kprobe_events`.
pub(crate) fn calls(
    name: &'static str,
    [before, run, after]: [&str; 3],
    expected: &'static [(&'static str, Times)],
) -> Trial {
    let mut lines = format!("{before}\nevents=/sys/kernel/tracing\n");
    for (number, (event, _)) in expected.iter().enumerate() {
        let (kind, function) = event.split_once(' ').expect("kind, function");
        lines += &format!("echo {kind}:event{number} {function} >> $events/kprobe_events\n");
    }
    lines += &format!(
        "echo > $events/trace
        echo 1 > $events/events/kprobes/enable
        {run} > said
        echo 0 > $events/events/kprobes/enable
        pid=$(sed -n 's/^pid \\([0-9]*\\) .*/\\1/p' said)\n"
    );
    for number in 0..expected.len() {
        lines += &format!("grep -c -- \"-$pid .* event{number}: \" $events/trace || true\n");
    }
    // The kernel forgets what it has seen of events that are removed.
    lines += &format!("echo > $events/kprobe_events\n{after}");
    Trial::shell(name, &lines, move |text| {
        let counts: Vec<u64> = text.lines().map(|line| line.parse().expect("a count")).collect();
        assert_eq!(counts.len(), expected.len(), "{text}");
        for (count, (event, times)) in counts.iter().zip(expected) {
            times.check(event, *count);
        }
    })
}
