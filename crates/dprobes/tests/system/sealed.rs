//! Programs that forbid themselves nearly all system calls once they are probed: handlers make
//! none, and their records have the right ids.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::{
    Outcome, Scratch, Server, attach, attach_to_pipe, dprobes, is_right, need, run, start_jumps, target,
};

/// Threads that call the probed function, and how often each does.
const THREADS: u64 = 4;
const CALLS: u64 = 3000;

fn program() -> Option<PathBuf> {
    target("sealed")
}

/// Logs, at each call of `sealed_work`, the ids of the calling thread and of the process as a
/// handler sees them, after `what`.
fn logging(program: &Path, what: &str) -> String {
    format!(
        "name = \"{}\"\nmodtype = user\nmajor = 3\nmaxhits = 0xffffffffffffffff\n\
         offset = sealed_work\nminor = 1\n{what}push pid\npush r, rdi\nlog 2\nexit\n",
        program.display()
    )
}

/// Probes the program, tells it to begin, and compares its end with that of an unprobed run.
#[track_caller]
fn same_as_unprobed(program: &Path, mode: &str, calls: u64, text: &str, options: &[&str]) -> (Outcome, u32) {
    let words = [mode.to_owned(), THREADS.to_string(), calls.to_string()];
    let mut ends = Vec::new();
    let mut probed = None;
    for is_probed in [false, true] {
        let mut server = Server::start(program, &words);
        let pid = server.pid();
        assert_eq!(server.line(), format!("pid {pid}"));
        let attached = is_probed.then(|| {
            let mut attached = attach(pid, text, options);
            attached.wait_for(pid, program, "sealed_work");
            attached
        });
        server.send("go");
        let (status, lines) = server.end();
        ends.push((status, lines));
        probed = attached.map(|attached| (attached.end(), pid));
    }
    assert_eq!(ends[0], ends[1], "{mode}: {probed:#?}");
    assert!(ends[0].0.success(), "{mode}: {ends:?}");
    probed.expect("it was probed")
}

/// The two words that each record has.
fn logged(records: &str) -> Vec<(u64, u64)> {
    let rows = records.lines().filter_map(|line| line.split(" : ").nth(1));
    let words = |row: &str| {
        let halves: Vec<u64> =
            row.split_whitespace().map(|half| u64::from_str_radix(half, 16).expect("hexadecimal")).collect();
        let swapped = |half: u64| u64::from((half as u32).swap_bytes());
        (swapped(halves[0]) | swapped(halves[1]) << 32, swapped(halves[2]) | swapped(halves[3]) << 32)
    };
    rows.map(words).collect()
}

/// Checks that every call has its record, with the right thread and process.
#[track_caller]
fn all_is_there(outcome: &Outcome, pid: u32, calls: u64, of: &str) {
    let probe = &outcome.stats.probes[0];
    // The vfork child's, the first thread's, and the others'.
    let all = THREADS * calls + 2;
    assert_eq!(probe.engine, "jump", "{of}: {outcome:#?}");
    assert_eq!(
        (probe.hits, probe.runs, probe.logged, probe.dropped, probe.missed),
        (all, all, all, 0, 0),
        "{of}: {:?}",
        outcome.stderr
    );
    let words = logged(&outcome.records);
    assert_eq!(words.len() as u64, all, "{of}");
    // The child logs its own process id, all others theirs.
    let strangers: Vec<_> = words.iter().filter(|(_, process)| *process != u64::from(pid)).collect();
    assert!(matches!(strangers[..], [(thread, process)] if thread == process), "{of}: {strangers:?}");
    let mut threads: BTreeMap<u64, u64> = BTreeMap::new();
    words.iter().for_each(|(thread, _)| *threads.entry(*thread).or_default() += 1);
    let mut counts: Vec<u64> = threads.values().copied().collect();
    counts.sort_unstable();
    let wanted: Vec<u64> = [1, 1].into_iter().chain(std::iter::repeat_n(calls, THREADS as usize)).collect();
    assert_eq!(counts, wanted, "{of}");
}

/// Checks in a trace store that each record has the header of the thread that it logs.
#[track_caller]
fn threads_are_told_apart(store: &str, records: &str, of: &str) {
    let mut threads: BTreeMap<u64, usize> = BTreeMap::new();
    logged(records).iter().for_each(|(thread, _)| *threads.entry(*thread).or_default() += 1);
    for (thread, count) in threads {
        let (status, stdout, stderr) =
            run(dprobes().args(["show", "--log-format=klog", "--tid", &thread.to_string(), store]));
        assert!(status.success(), "{of}: {stderr}");
        let own = logged(&stdout);
        assert!(
            own.len() == count && own.iter().all(|(it, _)| *it == thread),
            "{of}: thread {thread}: {own:?}"
        );
    }
}

#[test]
fn a_filter_that_is_set_while_probed_kills_nobody() {
    let program = need!("sealed", program(), "gcc");
    let scratch = Scratch::new();
    for mode in ["strict", "filter", "late"] {
        for (number, what) in [
            "",
            // Statements that are not compiled.
            "push 64\nmalloc\nfree\n",
            // Memory into which a stack may grow.
            "push r, rsp\npush 0xffffffffffff0000\nadd\nvfyr\nros 1\n",
        ]
        .into_iter()
        .enumerate()
        {
            let of = format!("{mode}, {what:?}");
            let store = scratch.path().join(format!("{mode}-{number}.dpt"));
            let target = format!("store:{}", store.display());
            let options = ["--engine=jump", "--log-target", &target];
            let (outcome, pid) = same_as_unprobed(&program, mode, CALLS, &logging(&program, what), &options);
            all_is_there(&outcome, pid, CALLS, &of);
            threads_are_told_apart(store.to_str().expect("text"), &outcome.records, &of);
        }
    }
}

#[test]
fn a_full_buffer_is_waited_for_without_a_system_call() {
    let program = need!("sealed", program(), "gcc");
    let calls = 10 * CALLS;
    for mode in ["strict", "filter", "late"] {
        let options = ["--engine=jump", "--lossless", "--buffer=256K"];
        let text = logging(&program, "");
        let (outcome, pid) = same_as_unprobed(&program, mode, calls, &text, &options);
        all_is_there(&outcome, pid, calls, mode);
    }
}

/// The processor time that a process has taken, in clock ticks.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("a name").split_whitespace().collect();
    // utime and stime, the 14th and 15th field of the line.
    fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum()
}

#[test]
fn threads_that_wait_for_a_reader_that_does_not_come_take_no_processor() {
    let program = need!("sealed", target("jumps"), "gcc");
    // As many threads as there are buffers; and more, some of which find none.
    for threads in [2, 60] {
        take_no_processor_while_they_wait(&program, threads);
    }
}

fn take_no_processor_while_they_wait(program: &Path, threads: u64) {
    let points: String = (0..20)
        .map(|number| format!("offset = jumps_{number}\nminor = {number}\npush r, rdi\nlog 1\nexit\n"))
        .collect();
    let text = format!(
        "name = \"{}\"\nmodtype = user\nmajor = 3\nmaxhits = 0xffffffffffffffff\n{points}",
        program.display()
    );
    let mut server = start_jumps(program, &threads.to_string());
    let pid = server.pid();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let reader = move |mut pipe: std::fs::File| {
        let _ = wait.recv();
        std::io::copy(&mut pipe, &mut std::io::sink()).expect("it can be read")
    };
    let options = ["--engine=jump", "--lossless", "--buffer=256K"];
    let (mut attached, reader) = attach_to_pipe(pid, &text, &options, reader);
    attached.wait_for(pid, program, "jumps_19");
    // More than the tracer's output buffers and the rings hold.
    let rounds = 30_000 / threads;
    server.send(&rounds.to_string());
    // Until the tracer takes no more.
    let begin = Instant::now();
    let mut before = ticks(pid);
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let now = ticks(pid);
        let more = now - before;
        // A hundred ticks are a second of one processor.
        if more <= 20 {
            break;
        }
        before = now;
        assert!(begin.elapsed() < Duration::from_secs(40), "{more} ticks in a second");
    }
    go.send(()).expect("the reader waits");
    assert!(is_right(&server.line()));
    assert!(server.end().0.success());
    let outcome = attached.end();
    for probe in &outcome.stats.probes {
        assert_eq!(
            (probe.hits, probe.logged, probe.dropped, probe.missed),
            (30_000, 30_000, 0, 0),
            "{probe:?}"
        );
    }
    assert!(reader.join().expect("it reads") > 0);
}
