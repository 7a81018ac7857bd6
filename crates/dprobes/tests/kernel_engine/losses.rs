//! What is lost is counted, and never in silence.

use crate::support::{Scratch, copy, need, needs_kernel, start, target};
use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

/// A target that nobody reads until the session is to end: records wait in their rings.
#[test]
fn records_without_room_are_dropped_and_counted() {
    needs_kernel!("losses");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: losses", target("tight"), "gcc"), "tight");
    let pipe = scratch.path().join("pipe");
    let name = CString::new(pipe.as_os_str().as_bytes()).expect("a path");
    // SAFETY: the name ends in NUL.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let text = format!(
        "name = \"{}\"\noffset = work\nminor = 1\nmaxhits = 0xffffffff\npush 1\nlog 1\nexit\n",
        program.display()
    );
    let target = format!("file:{}", pipe.display());
    let mut session = start(&text, &["--log-target", &target, "--buffer", "256K", "--strict"]);
    let mut reading = File::open(&pipe).expect("dprobes opens its end");
    session.armed();
    let calls = 100_000u64;
    let run = Command::new(&program).args([&calls.to_string(), "4"]).stdout(Stdio::null()).status();
    assert!(run.expect("it starts").success());
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        reading.read_to_string(&mut text).expect("it can be read");
        text.lines().filter(|line| line.starts_with("DProbes(")).count() as u64
    });
    let outcome = session.stop();
    assert_eq!(outcome.status.code(), Some(1), "{outcome:#?}");
    let probe = &outcome.stats.probes[0];
    assert_eq!((probe.hits, probe.runs + probe.missed), (4 * calls, 4 * calls), "{outcome:#?}");
    assert_eq!(probe.logged + probe.dropped, probe.runs, "{outcome:#?}");
    assert!(outcome.stderr.contains("(--strict)"), "{outcome:#?}");
    let lost: u64 = outcome.stats.targets.iter().map(|taken| taken.lost).sum();
    assert!(probe.dropped + lost + probe.missed > 0, "{outcome:#?}");
    drop(outcome);
    assert!(reader.join().expect("it does not panic") <= probe_count(calls));
}

fn probe_count(calls: u64) -> u64 {
    4 * calls
}
