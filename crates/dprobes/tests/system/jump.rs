//! Probes by jump: exact on many threads, inserted and removed while they run, and safe when the
//! tracer dies.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::{
    Attached, Outcome, Run, Server, attach, counting, ends_well, is_right, is_traced, need, start_jumps,
    target, text_differences,
};

/// The functions of the program under test.
const FUNCTIONS: usize = 1000;

fn program() -> Option<PathBuf> {
    target("jumps")
}

/// Counts, without records, at every function.
fn everywhere(program: &Path) -> String {
    let points = (0..FUNCTIONS).map(|number| format!("jumps_{number}"));
    counting(program, points).replace("modtype = user\n", "modtype = user\nlogmax = 0\n")
}

fn all_jump(outcome: &Outcome) {
    let others: Vec<_> = outcome.stats.probes.iter().filter(|probe| probe.engine != "jump").collect();
    assert!(others.is_empty(), "{others:#?}");
}

#[test]
fn every_hit_of_eight_threads_is_counted_once() {
    let program = need!("jump", program(), "gcc");
    let outcome = Run::new(&everywhere(&program))
        .option("--engine=jump")
        .on([program.as_os_str(), "8".as_ref(), "300".as_ref()])
        .ended_with(0);
    assert!(
        outcome.stdout.starts_with("calls 2400000 sum ") && !outcome.stdout.contains("wrong"),
        "{outcome:#?}"
    );
    all_jump(&outcome);
    for probe in &outcome.stats.probes {
        assert_eq!((probe.hits, probe.runs, probe.missed), (2400, 2400, 0), "{probe:?}");
    }
    assert!(outcome.stats.locals.iter().all(|&count| count == 2400), "{:?}", outcome.stats.locals);
}

#[test]
fn every_record_of_eight_threads_is_written_or_counted_as_dropped() {
    let program = need!("jump", program(), "gcc");
    let text = format!(
        "name = \"{}\"\nmodtype = user\nmajor = 3\noffset = jumps_7\nminor = 1\npush r, rdi\nlog 1\nexit\n",
        program.display()
    );
    let outcome = Run::new(&text)
        .option("--engine=jump")
        .on([program.as_os_str(), "8".as_ref(), "2000".as_ref()])
        .ended_with(0);
    let probe = &outcome.stats.probes[0];
    assert_eq!((probe.hits, probe.runs + probe.missed), (16_000, 16_000), "{probe:?}");
    assert_eq!(probe.logged + probe.dropped, probe.runs, "{probe:?}");
    assert_eq!(outcome.headers().len() as u64, probe.logged);
    // The records hold the arguments, each as often.
    let mut rows: Vec<&str> = outcome.records.lines().filter(|line| line.contains(" : ")).collect();
    rows.sort_unstable();
    let same: Vec<usize> = rows.chunk_by(|one, other| one == other).map(<[&str]>::len).collect();
    assert_eq!(
        probe.dropped == 0 && probe.missed == 0,
        same.len() == 2000 && same.iter().all(|&count| count == 8)
    );
}

#[test]
fn children_that_are_forked_all_the_time_keep_their_jumps() {
    let program = need!("jump", program(), "gcc");
    let outcome = Run::new(&everywhere(&program))
        .option("--engine=jump")
        .on([program.as_os_str(), "fork".as_ref(), "100".as_ref()])
        .ended_with(0);
    assert_eq!(outcome.stdout, "calls 100000 wrong 0\n");
    all_jump(&outcome);
    assert!(outcome.stats.probes.iter().all(|probe| probe.hits == 100), "{outcome:#?}");
}

/// Starts a server of so many threads, and attaches to it.
fn attached(program: &Path, threads: &str, probes: &str) -> (Server, Attached) {
    let server = start_jumps(program, threads);
    let mut attached = attach(server.pid(), probes, &["--engine=jump"]);
    attached.wait_for(server.pid(), program, "jumps_999");
    (server, attached)
}

#[test]
fn jumps_come_and_go_while_eight_threads_run_through_them() {
    let program = need!("jump", program(), "gcc");
    let probes = everywhere(&program);
    let mut server = start_jumps(&program, "8");
    let pid = server.pid();
    for round in 0..5 {
        // Until they are taken out again.
        server.send("0");
        let mut attached = attach(pid, &probes, &["--engine=jump"]);
        attached.wait_for(pid, &program, "jumps_999");
        // The threads go on a moment after the last byte is written.
        std::thread::sleep(Duration::from_millis(100));
        let outcome = attached.stop(libc::SIGINT);
        assert!(!is_traced(pid), "round {round}");
        assert_eq!(text_differences(pid), [""; 0], "round {round}");
        let line = server.ask("that is enough");
        assert!(is_right(&line), "round {round}: {line}");
        all_jump(&outcome);
        let calls = line.split_whitespace().nth(1).and_then(|calls| calls.parse::<u64>().ok());
        let hits: u64 = outcome.stats.probes.iter().map(|probe| probe.hits).sum();
        assert!(hits > 0 && calls.is_some_and(|calls| hits <= calls), "round {round}: {hits}, {line}");
    }
}

#[test]
fn the_counts_of_a_process_that_is_attached_to_are_exact() {
    let program = need!("jump", program(), "gcc");
    let (mut server, attached) = attached(&program, "4", &everywhere(&program));
    for _ in 0..3 {
        assert!(is_right(&server.ask("50")));
    }
    let outcome = attached.stop(libc::SIGINT);
    assert!(outcome.stats.probes.iter().all(|probe| probe.hits == 600), "{outcome:#?}");
    assert!(is_right(&server.ask("10")));
}

#[test]
fn a_tracer_that_is_killed_leaves_a_program_that_ends_well() {
    let program = need!("jump", program(), "gcc");
    let probes = everywhere(&program);
    for round in 0..testing::rounds(8, 20) {
        let (mut server, attached) = attached(&program, "8", &probes);
        server.send("2000");
        std::thread::sleep(Duration::from_millis(5 + round));
        attached.kill_tracer();
        ends_well(server, round);
    }
}

#[test]
fn a_timer_sees_only_the_programs_own_addresses_and_every_call_is_counted() {
    let program = need!("jump", target("signals"), "gcc");
    // A long one, for the timer to come in the middle of it.
    let long = "push r, rbx\n".repeat(100) + "log 100\nexit";
    for (words, handler) in [
        (&[testing::rounds("2000000", "6000000")][..], "abort"),
        (&[testing::rounds("10000", "30000"), "alt"], &long),
    ] {
        let text = format!(
            "name = \"{}\"\nmodtype = user\nmajor = 1\nvars = 1\noffset = signals_rip\nminor = 1\ninc lv, 0\n{handler}\n\
             offset = signals_rip+0x7\nminor = 2\n{handler}\noffset = signals_rip+0xe\nminor = 3\n{handler}\n",
            program.display()
        );
        let words = std::iter::once(program.as_os_str()).chain(words.iter().map(|word| word.as_ref()));
        let outcome = Run::new(&text).option("--engine=jump").on(words).ended_with(0);
        let number = |name: &str| -> u64 {
            let rest = outcome.stdout.split(&format!("{name} ")).nth(1).expect("it is printed");
            rest.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
        };
        assert_eq!(number("outside"), 0, "{outcome:#?}");
        assert!(number("signals") > 100, "{outcome:#?}");
        for minor in 1..=3 {
            assert_eq!(outcome.stats.hits(minor), number("calls"), "{outcome:#?}");
            let logs = if handler == long { number("calls") } else { 0 };
            let dropped = outcome.stats.probes[minor as usize - 1].dropped;
            assert_eq!(outcome.stats.logged(minor) + dropped, logs, "{outcome:#?}");
        }
    }
}
