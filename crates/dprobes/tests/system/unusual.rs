//! Programs that do what hardly any program does, and behave the same probed and unprobed: their
//! thread pointer is not the libc's, they forbid themselves common system calls, they read flags
//! that no other program reads.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::signals::number;
use crate::stacks::{COUNT, LEAVE, LOG, probes, same_as_unprobed};
use crate::support::{Server, attach, changed_text, is_traced, need, target, variant};

#[test]
fn the_thread_pointer_and_what_is_found_through_it_are_the_programs() {
    let program = need!("pointer", target("pointer"), "gcc");
    for mode in ["elsewhere", "nowhere", "taken"] {
        for handler in [COUNT, LOG] {
            let text = probes(&program, &[("pointer_leaf", handler)]);
            let mut hits = None;
            for outcome in same_as_unprobed(&program, &[mode], &text) {
                let probe = &outcome.stats.probes[0];
                assert_eq!(probe.missed, 0, "{mode}: {outcome:#?}");
                assert!(
                    handler == COUNT || probe.logged + probe.dropped == probe.hits,
                    "{mode}: {outcome:#?}"
                );
                assert_eq!(*hits.get_or_insert(probe.hits), probe.hits, "{mode}: {outcome:#?}");
            }
        }
    }
}

/// Logs under a condition that always holds: the hit is counted first, and a context claimed after
/// that.
const LOG_IF: &str = "push r, rip\njnz holds\nabort\nholds:\npush r, rip\nlog 1";

/// A signal may come between any two instructions of a hit; its handler hits a probe too, while fs
/// points to memory that is not the libc's.
#[test]
fn handlers_of_signals_that_change_the_thread_pointer_hit_as_any_code() {
    let program = need!("pointer", target("pointer"), "gcc");
    let interruptions = testing::rounds("300", "3000");
    for handler in [COUNT, LOG, LOG_IF, LEAVE] {
        let text = probes(&program, &[("pointer_leaf", handler)]);
        for outcome in same_as_unprobed(&program, &["storm", interruptions], &text) {
            let probe = &outcome.stats.probes[0];
            let calls = number(&outcome.stderr, "calls");
            assert_eq!((probe.hits, probe.missed), (calls, 0), "{handler}: {outcome:#?}");
            assert!(handler == COUNT || probe.logged + probe.dropped == calls, "{handler}: {outcome:#?}");
        }
    }
}

/// Kills the tracer of a storm so many milliseconds after the probe is in. Its front waits until the
/// program has gone on alone for a while; then the program must be as it was, and end well.
#[track_caller]
fn storm_without_a_tracer(program: &Path, handler: &str, before: u64, alone: u64) {
    let server = Server::start(program, ["storm"]);
    assert_eq!(server.line(), "begins");
    let pid = server.pid();
    let mut attached = attach(pid, &probes(program, &[("pointer_leaf", handler)]), &["--engine=jump"]);
    attached.wait_for(pid, program, "pointer_leaf");
    std::thread::sleep(Duration::from_millis(before));
    let (front, tracer) = (attached.pid(), attached.tracer());
    let signal = |pid: i32, signal| {
        // SAFETY: kill takes no pointers; the process is a child, or a child's, and was not reaped.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    };
    signal(front, libc::SIGSTOP);
    signal(tracer, libc::SIGKILL);
    while is_traced(pid) {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(alone));
    signal(front, libc::SIGCONT);
    attached.gone();
    // If it has died, its status says more.
    if std::fs::metadata(format!("/proc/{pid}/exe")).is_ok() {
        assert_eq!(changed_text(pid), [""; 0], "{handler}");
    }
    signal(pid as i32, libc::SIGTERM);
    let (status, lines) = server.end();
    assert!(status.success() && lines == ["sum 0 changed 0"], "{handler}, {before}: {status}, {lines:?}");
}

/// The same after the tracer was killed, so that no signal is deferred until the hit is over.
#[test]
fn they_do_where_the_tracer_was_killed() {
    let program = need!("pointer", target("pointer"), "gcc");
    for handler in [COUNT, LOG, LOG_IF] {
        storm_without_a_tracer(&program, handler, 0, testing::rounds(500, 2000));
    }
}

/// A thread whose signal has come amid a hit is led out of it, by a debug register if that takes
/// long. The register stays when the tracer dies.
#[test]
fn they_do_where_the_tracer_was_killed_while_it_answered_a_signal() {
    let program = need!("pointer", target("pointer"), "gcc");
    for round in 0..testing::rounds(10, 100) {
        storm_without_a_tracer(&program, [LOG_IF, LOG][round as usize % 2], round * 7 % 50, 20);
    }
}

#[test]
fn a_registration_of_the_programs_own_is_not_relied_on() {
    let program = need!("pointer", target("pointer"), "gcc");
    let words = ["GLIBC_TUNABLES=glibc.pthread.rseq=0", program.to_str().expect("a plain path"), "own"];
    let text = probes(&program, &[("pointer_leaf", COUNT)]);
    same_as_unprobed(Path::new("/usr/bin/env"), &words, &text);
}

fn forbidden() -> Option<PathBuf> {
    target("forbidden")
}

#[test]
fn what_a_process_forbids_itself_handlers_do_without() {
    let program = need!("forbidden", forbidden(), "gcc");
    for mode in ["tsc", "strict", "filter", "cpuid"] {
        for handler in [COUNT, LOG, LEAVE] {
            let text = probes(&program, &[("forbidden_work", handler)]);
            for outcome in same_as_unprobed(&program, &[mode], &text) {
                let probe = &outcome.stats.probes[0];
                assert_eq!((probe.hits, probe.missed), (300, 0), "{mode}: {outcome:#?}");
                assert!(handler == COUNT || probe.logged == 300, "{mode}: {outcome:#?}");
                assert_eq!(outcome.headers().len() as u64, probe.logged, "{mode}: {outcome:#?}");
            }
        }
    }
}

#[test]
fn flags_that_only_a_signal_handler_sees_are_the_programs() {
    let program = need!("flags", target("flags"), "gcc");
    for (mode, points) in [
        ("fault", &["flags_fault", "flags_compare", "flags_first", "flags_after_first", "flags_second"][..]),
        ("step", &["flags_stepped", "flags_stepped + 1", "flags_stepped + 6", "flags_stepped + 12"]),
        ("step", &["flags_stepped + 15", "flags_stepped + 17", "flags_stepped + 39", "flags_stepped + 42"]),
        ("align", &["flags_align + 10", "flags_align + 14", "flags_align + 17", "flags_align + 21"]),
    ] {
        for handler in [COUNT, LOG, LEAVE] {
            let points: Vec<(&str, &str)> = points.iter().map(|point| (*point, handler)).collect();
            for outcome in same_as_unprobed(&program, &[mode], &probes(&program, &points)) {
                for probe in &outcome.stats.probes {
                    assert!(probe.hits > 0 && probe.missed == 0, "{mode}, {handler}: {outcome:#?}");
                }
            }
        }
    }
}

#[test]
fn a_program_of_which_hits_are_counted_hardly_notices_what_is_mapped() {
    let program = need!("narrow", target("narrow"), "gcc");
    let text = probes(&program, &[("narrow_work", COUNT)]);
    for mode in ["locks", "addresses", "fixed", "weighs"] {
        for outcome in same_as_unprobed(&program, &[mode], &text) {
            let probe = &outcome.stats.probes[0];
            assert_eq!((probe.hits, probe.missed), (200, 0), "{mode}: {outcome:#?}");
        }
    }
}

#[test]
fn where_sanitizers_have_their_shadow_nothing_is_mapped() {
    let built = variant("narrow", "narrow-low", &["-fno-pie", "-no-pie"]);
    let program = need!("narrow-low", built, "gcc");
    for handler in [COUNT, LOG, LEAVE] {
        let text = probes(&program, &[("narrow_work", handler)]);
        for outcome in same_as_unprobed(&program, &["shadow"], &text) {
            assert_eq!(outcome.stats.probes[0].hits, 200, "{outcome:#?}");
        }
    }
}
