//! Every process has its own contexts and rings: none can write into another's.

use std::path::{Path, PathBuf};

use crate::support::{Outcome, Run, Scratch, Server, attach, dprobes, need, run, start_server, target};

fn program() -> Option<PathBuf> {
    target("intruder")
}

/// Logs the argument.
fn logging(program: &Path) -> String {
    format!(
        "name = \"{}\"\nmodtype = user\nmajor = 4\nmaxhits = 0xffffffffffffffff\n\
         offset = intruder_work\nminor = 1\npush r, rdi\nlog 1\nexit\n",
        program.display()
    )
}

/// Large rings, by which the program under test recognises them.
const BUFFER: &str = "--buffer=64M";

/// Checks that each of `hits` hits has its record, and none is dropped or missed.
#[track_caller]
fn exact(outcome: &Outcome, hits: u64) {
    let probe = &outcome.stats.probes[0];
    let counts = (probe.hits, probe.runs, probe.logged, probe.dropped, probe.missed);
    assert_eq!(counts, (hits, hits, hits, 0, 0), "{}", outcome.stderr);
    let records = outcome.records.lines().filter(|line| line.starts_with("DProbes(4,1)  0x")).count();
    assert_eq!(records as u64, hits);
}

/// The first words of the records' data, with their numbers.
fn arguments(outcome: &Outcome) -> Vec<(String, usize)> {
    let rows = outcome.records.lines().filter_map(|line| line.split(" : ").nth(1));
    let mut rows: Vec<String> = rows.map(|row| row.trim().to_owned()).collect();
    rows.sort_unstable();
    rows.chunk_by(|one, other| one == other).map(|same| (same[0].clone(), same.len())).collect()
}

#[test]
fn a_child_of_another_user_writes_into_nothing_of_its_parents() {
    let program = need!("own-rings", program(), "gcc");
    if !testing::is_root() {
        return testing::skipped("own-rings", "root");
    }
    const CALLS: u64 = 5000;
    for lossless in [&[][..], &["--lossless"]] {
        let run = Run::new(&logging(&program)).option("--engine=jump").option(BUFFER);
        let run = lossless.iter().fold(run, |run, option| run.option(option));
        let outcome =
            run.on([program.as_os_str(), "child".as_ref(), CALLS.to_string().as_ref()]).ended_with(0);
        assert_eq!(outcome.stdout, format!("ready\ncalls {CALLS} untouched\n"));
        exact(&outcome, CALLS + 1);
        let each = arguments(&outcome);
        assert_eq!(each.len() as u64, CALLS, "each argument has a record of its own");
        assert!(
            each.iter().all(|(row, count)| *count == 1 + usize::from(row.starts_with("00000000 00000000")))
        );

        let mut server = Server::start(&program, ["child", &CALLS.to_string()]);
        assert_eq!(server.line(), "ready");
        let options = [&["--engine=jump", BUFFER][..], lossless].concat();
        let mut attached = attach(server.pid(), &logging(&program), &options);
        attached.wait_for(server.pid(), &program, "intruder_work");
        assert_eq!(server.ask("go"), format!("calls {CALLS} untouched"));
        exact(&attached.end(), CALLS + 1);
        assert_eq!(server.end().0.code(), Some(0));
    }
}

/// The mappings in `smaps`: name, KiB, and whether they are left out of core dumps.
fn smaps(pid: u32) -> Vec<(String, u64, bool)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps")).expect("it lives");
    let mut mappings: Vec<(String, u64, bool)> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (words[0], mappings.last_mut()) {
            ("Size:", Some(last)) => last.1 = words[1].parse().expect("a number"),
            ("VmFlags:", Some(last)) => last.2 = words.contains(&"dd"),
            (first, _) if !first.ends_with(':') => {
                mappings.push((format!("{} {}", words[1], words.get(5).unwrap_or(&"")), 0, false));
            }
            _ => {}
        }
    }
    mappings
}

#[test]
fn rings_and_contexts_are_left_out_of_core_dumps() {
    let program = need!("own-rings", target("server"), "gcc");
    let mut server = start_server(&program);
    let text = logging(&program).replace("intruder_work", "server_work");
    let mut attached = attach(server.pid(), &text, &["--engine=jump"]);
    attached.wait_for(server.pid(), &program, "server_work");
    let after = smaps(server.pid());
    // Large writable mappings: the rings, which are shared, and the contexts.
    let large = |name: &str| {
        let found = after.iter().filter(|(own, size, _)| own.starts_with(name) && *size > 4 << 10);
        found.map(|(_, size, left_out)| (*size, *left_out)).collect::<Vec<_>>()
    };
    let rings = large("rw-s /memfd:dprobes");
    assert!(rings.len() == 1 && rings[0].0 >= 256 << 10 && rings[0].1, "{after:?}");
    assert!(large("rw-p").iter().any(|(_, left_out)| *left_out), "{after:?}");
    // Code, through which debuggers unwind, is dumped.
    let is_code = |name: &str| name.starts_with("r-xp");
    assert!(after.iter().all(|(name, _, left_out)| !is_code(name) || !left_out), "{after:?}");
    assert_eq!(server.ask("call 10"), "done 10");
    assert_eq!(server.end().0.code(), Some(0));
    exact(&attached.end(), 10);
}

#[test]
fn children_that_log_as_soon_as_they_are_born_have_all_their_records() {
    let program = need!("own-rings", program(), "gcc");
    const CHILDREN: u64 = 300;
    for lossless in [false, true] {
        let run = Run::new(&logging(&program)).option("--engine=jump");
        let run = if lossless { run.option("--lossless") } else { run };
        let outcome =
            run.on([program.as_os_str(), "logs".as_ref(), CHILDREN.to_string().as_ref()]).ended_with(0);
        assert_eq!(outcome.stdout, format!("ready\ncalls {} failed 0\n", 5 * CHILDREN));
        exact(&outcome, 5 * CHILDREN + 1);
        assert!(arguments(&outcome).iter().skip(1).all(|(_, count)| *count as u64 == CHILDREN));
    }
}

/// The shared mappings of a process for probes, as lines of its list of mappings.
fn shared_mappings(pid: u32) -> Vec<String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it lives");
    maps.lines().filter(|line| line.contains("memfd:dprobes")).map(str::to_owned).collect()
}

#[test]
fn a_program_that_only_counts_has_no_rings_until_something_is_logged() {
    let program = need!("own-rings", program(), "gcc");
    let counts = logging(&program).replace("push r, rdi\nlog 1\nexit", "inc lv, 0\nabort");
    let counts = counts.replace("major = 4\n", "major = 4\nvars = 1\n");
    let mut server = Server::start(&program, ["logs", "20"]);
    assert_eq!(server.line(), "ready");
    let mut attached = attach(server.pid(), &counts, &["--engine=jump"]);
    attached.wait_for(server.pid(), &program, "intruder_work");
    assert_eq!(shared_mappings(server.pid()).len(), 1, "{:?}", shared_mappings(server.pid()));
    assert_eq!(server.ask("go"), "calls 100 failed 0");
    let outcome = attached.end();
    assert_eq!(outcome.stats.probes[0].hits, 101, "{}", outcome.stderr);

    // In a session, with a counting program before a logging one.
    let session = crate::support::Session::new();
    let (count, log) =
        (session.program("count.rpn", &counts), session.program("log.rpn", &logging(&program)));
    let written = session.path().join("records");
    let mut server = Server::start(&program, ["logs", "20"]);
    assert_eq!(server.line(), "ready");
    let pid = server.pid().to_string();
    let insert = |file: &str| {
        let words =
            ["insert", "--merge", "--engine=jump", "-p", &pid, "-o", written.to_str().expect("text"), file];
        session.done(&words);
    };
    insert(&count);
    assert_eq!(shared_mappings(server.pid()).len(), 1, "{:?}", shared_mappings(server.pid()));
    insert(&log);
    assert_eq!(shared_mappings(server.pid()).len(), 2, "{:?}", shared_mappings(server.pid()));
    assert_eq!(server.ask("go"), "calls 100 failed 0");
    session.done(&["remove", "--all"]);
    let text = std::fs::read_to_string(&written).expect("records");
    assert_eq!(text.lines().filter(|line| line.starts_with("DProbes(4,1)  0x")).count(), 101);
}

#[test]
fn what_a_child_logs_that_has_its_parents_memory_is_the_childs() {
    let program = need!("own-rings", target("borrower"), "gcc");
    const CHILDREN: u64 = 20;
    let log = logging(&program).replace("intruder_work", "borrower_work");
    let outcome = Run::new(&log)
        .option("--engine=jump")
        .option("--log=PID")
        .on([program.as_os_str(), CHILDREN.to_string().as_ref()])
        .ended_with(0);
    exact(&outcome, 2 * CHILDREN);
    let lines: Vec<&str> = outcome.records.lines().collect();
    let pids = lines.chunks_exact(2).map(|record| {
        let pid = record[0].split("pid=").nth(1).and_then(|pid| pid.trim().parse::<u32>().ok());
        let hex: String = record[1].split(" : ").nth(1).expect("in rows").split_whitespace().collect();
        let logged = u32::from_str_radix(&hex[..8], 16).expect("a number").swap_bytes();
        assert_eq!(pid, Some(logged), "{record:?}");
        logged
    });
    let mut pids: Vec<u32> = pids.collect();
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len() as u64, CHILDREN + 1);
}

/// A process that unmaps or replaces memory of its probes' handlers, which it has not mapped, harms
/// at most itself: it gets its own SIGSEGV. Its parent is counted and logged exactly.
#[test]
fn what_a_process_takes_away_harms_no_other() {
    let program = need!("own-rings", target("discards"), "gcc");
    let text = format!(
        "name = \"{}\"\nmodtype = user\nmajor = 4\nvars = 1\nmaxhits = 0xffffffffffffffff\n\
         offset = discards_work\nminor = 1\ninc lv, 0\npush r, rdi\nlog 1\nexit\n",
        program.display()
    );
    let scratch = Scratch::new();
    let (file, records) = (scratch.file("program.rpn", &text), scratch.path().join("records"));
    for options in [&["--engine=jump"][..], &["--engine=jump", "--lossless"]] {
        for kind in ["gone", "zeros"] {
            let mut harmed = 0;
            let mut number = 0;
            loop {
                // Not with counts: the child has changed them, which are those of its user.
                let mut command = dprobes();
                command.arg("run").args(options).arg("--log-format=klog").arg("-o").args([&records, &file]);
                command.arg("--").arg(&program).args([kind, &number.to_string()]);
                let (status, stdout, stderr) = run(&mut command);
                if status.code() == Some(3) {
                    break;
                }
                let what = format!("{options:?} {kind} {number}: {status} {stdout} {stderr}");
                assert!(status.success(), "{what}");
                // What is replaced by zeros is there, so nothing faults.
                let may_fault = if kind == "gone" { libc::SIGSEGV } else { 0 };
                let statuses = [0, may_fault, may_fault | 0x80];
                let (parent, says) = stdout.split_once(' ').expect("the parent says its id");
                let says = |status| says == format!("child {status} wrong 0\n");
                assert!(statuses.into_iter().any(says), "{what}");
                harmed += u64::from(!says(0));
                let (text, of_parent) = (std::fs::read_to_string(&records), format!(" pid={parent}"));
                let text = text.expect("the records");
                assert_eq!(text.lines().filter(|line| line.ends_with(&of_parent)).count(), 200, "{what}");
                number += 1;
            }
            assert!(number >= 2, "{options:?}: there were only {number} mappings");
            assert_eq!(harmed > 0, kind == "gone", "{options:?} {kind}");
        }
    }
}
