//! `--lossless`: every record is written, however slowly; and no process waits for ever.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::{
    Outcome, Run, Session, attach, attach_to_pipe, ends_well, is_right, need, start_jumps, target,
    text_differences,
};

/// The options of all of this: a small buffer is full at once.
const OPTIONS: [&str; 3] = ["--engine=jump", "--lossless", "--buffer=256K"];

/// The functions that log.
const POINTS: u64 = 20;

fn program() -> Option<PathBuf> {
    target("jumps")
}

/// Logs the argument in some of the functions of the program under test.
fn logging(program: &Path) -> String {
    let head = format!(
        "name = \"{}\"\nmodtype = user\nmajor = 3\nmaxhits = 0xffffffffffffffff\n",
        program.display()
    );
    let probe =
        |number: u64| format!("offset = jumps_{number}\nminor = {number}\npush r, rdi\nlog 1\nexit\n");
    head + &(0..POINTS).map(probe).collect::<String>()
}

fn lossless(run: Run) -> Run {
    OPTIONS.iter().fold(run, |run, option| run.option(option))
}

/// Checks that every hit has its record, `each` for each probe.
#[track_caller]
fn exact(outcome: &Outcome, each: u64) {
    for probe in &outcome.stats.probes {
        assert_eq!(probe.engine, "jump", "{probe:?}");
        let counts = (probe.hits, probe.runs, probe.logged, probe.dropped, probe.missed);
        assert_eq!(counts, (each, each, each, 0, 0), "{probe:?}");
    }
}

/// How many records a text has.
fn records(text: &str) -> u64 {
    text.lines().filter(|line| line.starts_with("DProbes(3,") && line.contains(" cpu=")).count() as u64
}

#[test]
fn every_hit_of_eight_threads_has_its_record() {
    let program = need!("lossless", program(), "gcc");
    let outcome = lossless(Run::new(&logging(&program)))
        .on([program.as_os_str(), "8".as_ref(), "2000".as_ref()])
        .ended_with(0);
    assert!(!outcome.stdout.contains("wrong"), "{}", outcome.stdout);
    exact(&outcome, 16_000);
    assert_eq!(records(&outcome.records), POINTS * 16_000);
    // The records hold the arguments, each as often.
    let mut rows: Vec<&str> = outcome.records.lines().filter(|line| line.contains(" : ")).collect();
    rows.sort_unstable();
    let same: Vec<usize> = rows.chunk_by(|one, other| one == other).map(<[&str]>::len).collect();
    assert!(same.len() as u64 == POINTS * 2000 && same.iter().all(|&count| count == 8), "{}", same.len());
}

#[test]
fn more_threads_than_there_are_contexts_wait_in_turn() {
    let program = need!("lossless", program(), "gcc");
    let outcome = lossless(Run::new(&logging(&program)))
        .on([program.as_os_str(), "60".as_ref(), "150".as_ref()])
        .ended_with(0);
    assert!(!outcome.stdout.contains("wrong"), "{}", outcome.stdout);
    exact(&outcome, 9000);
    assert_eq!(records(&outcome.records), POINTS * 9000);
}

#[test]
fn children_with_buffers_of_their_own_lose_nothing() {
    let program = need!("lossless", program(), "gcc");
    let outcome = lossless(Run::new(&logging(&program)))
        .on([program.as_os_str(), "fork".as_ref(), "200".as_ref()])
        .ended_with(0);
    assert_eq!(outcome.stdout, "calls 200000 wrong 0\n");
    exact(&outcome, 200);
    assert_eq!(records(&outcome.records), POINTS * 200);
}

#[test]
fn an_inserted_program_loses_nothing() {
    let program = need!("lossless", program(), "gcc");
    let session = Session::new();
    let file = session.program("log.rpn", &logging(&program));
    let written = session.path().join("records");
    let mut server = start_jumps(&program, "8");
    let pid = server.pid().to_string();
    let words = ["insert", "-p", &pid, "-o", written.to_str().expect("text"), &file];
    session.done(&[&words[..], &OPTIONS].concat());
    assert!(is_right(&server.ask("500")));
    // All earlier records are written when the removal is done.
    session.done(&["remove", "--all"]);
    let text = std::fs::read_to_string(&written).expect("records");
    assert_eq!(records(&text), POINTS * 4000);
    assert!(is_right(&server.ask("10")));
}

fn kill(pid: i32, signal: i32) {
    // SAFETY: kill takes no pointers; the process is a child of the test, or a child of that, and
    // not yet reaped.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

#[test]
fn a_tracer_that_is_killed_lets_those_go_on_who_wait() {
    let program = need!("lossless", program(), "gcc");
    for round in 0..testing::rounds(4, 10) {
        let mut server = start_jumps(&program, "8");
        let pid = server.pid();
        let mut attached = attach(pid, &logging(&program), &OPTIONS);
        attached.wait_for(pid, &program, "jumps_19");
        server.send("5000");
        std::thread::sleep(Duration::from_millis(30 + 10 * round));
        attached.kill_tracer();
        ends_well(server, round);
    }
}

#[test]
fn nobody_waits_for_ever_when_both_processes_are_killed() {
    let program = need!("lossless", program(), "gcc");
    let mut server = start_jumps(&program, "8");
    let pid = server.pid();
    let mut attached = attach(pid, &logging(&program), &OPTIONS);
    attached.wait_for(pid, &program, "jumps_19");
    server.send("5000");
    std::thread::sleep(Duration::from_millis(50));
    // Neither has time to react to the other's end.
    let tracer = attached.tracer();
    kill(tracer, libc::SIGSTOP);
    kill(attached.pid(), libc::SIGKILL);
    kill(tracer, libc::SIGKILL);
    attached.death();
    let line = server.line();
    assert!(is_right(&line), "{line}");
    assert!(is_right(&server.ask("100")), "the jumps are still there, and do no harm");
    assert!(server.end().0.success());
}

/// A program that unmaps or replaces the page that shows whether its records are read does not wait
/// for room, since it could not be told of it; it neither ends nor hangs.
#[test]
fn a_program_without_the_readers_sign_of_life_goes_on() {
    const THREADS: u64 = 60;
    const CALLS: u64 = 5000;
    let program = need!("lossless", target("unmaps"), "gcc");
    let module = program.display();
    for kind in ["gone", "zeros"] {
        for handler in ["push r, rdi\nlog 1", "push 64\nmalloc\nfree\npush r, rdi\nlog 1"] {
            let text = format!(
                "name = \"{module}\"\nmodtype = user\nmajor = 3\nmaxhits = 0xffffffffffffffff\n\
                 offset = unmaps_work\nminor = 1\n{handler}\nexit\n"
            );
            // Whether a thread waits depends on how fast the records are read: repeated until one
            // has waited.
            let mut waited = false;
            for _ in 0..20 {
                let (threads, calls) = (THREADS.to_string(), CALLS.to_string());
                let words = [program.as_os_str(), kind.as_ref(), threads.as_ref(), calls.as_ref()];
                let outcome = lossless(Run::new(&text)).on(words).ended_with(0);
                let all = THREADS * CALLS;
                assert_eq!(outcome.stdout, format!("calls {all} wrong 0\n"));
                assert!(outcome.stderr.contains("unmapped 1"), "{}", outcome.stderr);
                let probe = &outcome.stats.probes[0];
                assert_eq!(probe.hits, all, "{outcome:#?}");
                assert_eq!(probe.logged + probe.dropped, probe.runs, "{kind}: {outcome:#?}");
                waited |= kind == "zeros" || probe.logged < all;
                if waited {
                    break;
                }
            }
            assert!(waited, "nothing was ever lost, so nobody had to wait: {kind}, {handler}");
        }
    }
}

/// Reads a pipe to its end, a little at a time.
fn slowly(mut pipe: impl Read, bytes: usize, pause: Duration) -> String {
    let (mut all, mut piece) = (Vec::new(), vec![0; bytes]);
    while let Ok(count @ 1..) = pipe.read(&mut piece) {
        all.extend_from_slice(&piece[..count]);
        std::thread::sleep(pause);
    }
    String::from_utf8(all).expect("text")
}

#[test]
fn threads_that_wait_for_a_slow_reader_are_let_go_with_all_their_records() {
    let program = need!("lossless", program(), "gcc");
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let mut server = start_jumps(&program, "8");
        let pid = server.pid();
        // 60 MB a second at most.
        let reader = |pipe| slowly(pipe, 1 << 16, Duration::from_millis(1));
        let (mut attached, reader) = attach_to_pipe(pid, &logging(&program), &OPTIONS, reader);
        attached.wait_for(pid, &program, "jumps_19");
        server.send("200000");
        std::thread::sleep(Duration::from_millis(1500));
        let outcome = attached.stop(signal);
        assert_eq!(text_differences(pid), [""; 0]);
        let text = reader.join().expect("it reads");
        let mut logged = 0;
        for probe in &outcome.stats.probes {
            assert_eq!((probe.dropped, probe.missed, probe.logged), (0, 0, probe.hits), "{probe:?}");
            logged += probe.logged;
        }
        assert!(logged > 10_000, "{logged}");
        assert_eq!(records(&text), logged);
        assert!(is_right(&server.line()));
        assert!(server.end().0.success());
    }
}

#[test]
fn a_program_ends_as_it_would_though_nobody_reads_for_a_while() {
    let program = need!("lossless", program(), "gcc");
    let mut server = start_jumps(&program, "8");
    let pid = server.pid();
    let reader = |pipe| {
        std::thread::sleep(Duration::from_secs(4));
        slowly(pipe, 1 << 20, Duration::ZERO)
    };
    let (mut attached, reader) = attach_to_pipe(pid, &logging(&program), &OPTIONS, reader);
    attached.wait_for(pid, &program, "jumps_19");
    // More than all buffers together hold.
    assert!(is_right(&server.ask("3000")));
    assert!(server.end().0.success());
    let outcome = attached.end();
    exact(&outcome, 24_000);
    assert_eq!(records(&reader.join().expect("it reads")), POINTS * 24_000);
}

#[test]
fn who_is_impatient_interrupts_twice() {
    let program = need!("lossless", program(), "gcc");
    let mut server = start_jumps(&program, "8");
    let pid = server.pid();
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let reader = move |pipe: std::fs::File| {
        // It has the pipe, and never reads.
        let _ = wait.recv();
        drop(pipe);
    };
    let (mut attached, reader) = attach_to_pipe(pid, &logging(&program), &OPTIONS, reader);
    attached.wait_for(pid, &program, "jumps_19");
    server.send("20000");
    std::thread::sleep(Duration::from_secs(2));
    kill(attached.pid(), libc::SIGINT);
    // The program goes on once nothing was read for some time, and is then detached.
    assert!(is_right(&server.line()));
    let outcome = attached.stop(libc::SIGINT);
    assert_eq!(text_differences(pid), [""; 0]);
    for probe in &outcome.stats.probes {
        assert_eq!(probe.logged + probe.dropped + probe.missed, probe.hits, "{probe:?}");
    }
    assert!(outcome.stderr.contains("it took no more records"), "{}", outcome.stderr);
    done.send(()).expect("the reader waits");
    reader.join().expect("it ends");
    assert!(server.end().0.success());
}

#[test]
fn signals_reach_threads_that_wait_and_nothing_is_lost() {
    let program = need!("lossless", target("signals"), "gcc");
    let text = format!(
        "name = \"{}\"\nmodtype = user\nmajor = 3\noffset = signals_rip\nminor = 1\n{}log 100\nexit\n",
        program.display(),
        "push r, rbx\n".repeat(100)
    );
    let calls = testing::rounds("20000", "60000");
    for words in [&[calls][..], &[calls, "alt"]] {
        let words = std::iter::once(program.as_os_str()).chain(words.iter().map(|word| word.as_ref()));
        let outcome = lossless(Run::new(&text)).on(words).ended_with(0);
        let number = |name: &str| -> u64 {
            let rest = outcome.stdout.split(&format!("{name} ")).nth(1).expect("it is printed");
            rest.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
        };
        assert_eq!(number("outside"), 0, "{}", outcome.stdout);
        assert!(number("signals") > 100, "{}", outcome.stdout);
        exact(&outcome, number("calls"));
        assert_eq!(records(&outcome.records), number("calls"));
    }
}
