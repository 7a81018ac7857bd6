//! Helpers for tests of CTF traces.

use std::path::Path;
use std::process::Command;

use dprobes_trace::Record;
use dprobes_trace::store::About;

/// The time of the first record, in nanoseconds since 1970, and CLOCK_MONOTONIC's zero.
pub(crate) const START: u64 = 1_700_000_000_000_000_000;
const BOOT: i64 = 1_600_000_000_123_456_789;

/// The description of the traces.
pub(crate) fn about() -> About {
    About {
        version: "1.2.3".to_owned(),
        host: "a \"host\" \\ 01\u{1}2 é".to_owned(),
        kernel: "Linux 6.12".to_owned(),
        machine: "x86_64".to_owned(),
        processors: 2,
        start: START,
        monotonic: BOOT,
        pid: 7,
        command: vec!["dprobes".to_owned(), "run".to_owned()],
    }
}

/// A record of the first or the second processor.
pub(crate) fn record(number: u64) -> Record {
    Record {
        major: 1,
        minor: 2,
        cpu: (number % 2) as u32,
        pid: 4711,
        tid: 4712,
        probe: 3,
        uid: 1000,
        cs: 0x33,
        eip: 0x7f00_1234_5678,
        ss: 0x2b,
        esp: 0x7ffc_0000_1000,
        time: START + number,
        name: "worker".to_owned(),
        word: 8,
        data: number.to_le_bytes().to_vec(),
    }
}

/// Runs babeltrace2 on a trace. Returns standard output and standard error; none if it is not
/// installed, and the test is skipped.
#[track_caller]
pub(crate) fn babeltrace(directory: &Path, options: &[&str]) -> Option<(String, String)> {
    if !testing::have("ctf", &["babeltrace2"]) {
        return None;
    }
    let output = Command::new("babeltrace2").args(options).arg(directory).output().expect("it is executed");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Some((text(output.stdout), text(output.stderr)))
}
