//! Programs are inserted and removed again and again while another one stays: none leaves anything
//! behind.

use crate::support::{Session, changed_text, counting, need, start_server, target, text_differences};

/// The number of cycles after which resources are first measured.
const WARM: usize = 10;

/// The total number of cycles.
fn cycles_in_all() -> usize {
    testing::rounds(WARM + 10, WARM + 30)
}

/// The resources of a session and of a process that it probes.
#[derive(Debug)]
struct Taken {
    /// The session's own memory, in KiB.
    tracer: u64,
    /// The process's mappings, and bytes in them.
    mappings: (usize, u64),
}

fn taken(tracer: &str, target: u32) -> Taken {
    let status = std::fs::read_to_string(format!("/proc/{tracer}/status")).expect("the session lives");
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).expect("a number")
    };
    let maps = std::fs::read_to_string(format!("/proc/{target}/maps")).expect("the process lives");
    let sizes = maps.lines().filter_map(|line| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        Some(u64::from_str_radix(end, 16).ok()? - u64::from_str_radix(start, 16).ok()?)
    });
    let sizes: Vec<u64> = sizes.collect();
    Taken { tracer: kib("RssAnon") + kib("RssShmem"), mappings: (sizes.len(), sizes.iter().sum()) }
}

fn cycles(engine: &str) {
    let module = need!("cycles", target("server"), "gcc");
    let session = Session::new();
    let mut server = start_server(&module);
    let pid = server.pid().to_string();
    let stays = session.program("stays.rpn", &counting(&module, ["server_work"]));
    session.done(&["insert", "-p", &pid, "--engine", engine, &stays]);
    let comes = "name = \"libc.so.6\"\nmodtype = user\nvars = 1\noffset = \"str*\":entry\ninc lv, 0\nabort\noffset = \"mem*\":entry\ninc lv, 0\nabort\n";
    let comes = session.program("comes.rpn", comes);
    let status = session.done(&["session", "status"]);
    let tracer = status.split([':', ' ']).find(|word| word.parse::<u32>().is_ok()).expect("its number");
    let mut before = None;
    let mut ways = Vec::new();
    for cycle in 1..=cycles_in_all() {
        session.done(&["insert", "-p", &pid, "--engine", engine, &comes]);
        assert_eq!(server.ask("call 2"), "done 2");
        let all = session.done(&["query", "--name", "libc.so.6"]);
        assert!(!all.contains("waiting"), "cycle {cycle}: {all}");
        let changed = changed_text(server.pid());
        let changed = || changed.iter().filter(|byte| byte.contains("libc.so.6 + "));
        if engine == "trap" {
            assert!(changed().all(|byte| byte.contains(": cc, ")), "cycle {cycle}");
        }
        ways.push((changed().count(), changed().filter(|byte| byte.contains(": e9, ")).count()));
        session.done(&["remove", "--name", "libc.so.6"]);
        if cycle == WARM {
            before = Some(taken(tracer, server.pid()));
        }
    }
    // The numbers of bytes and jumps. A jump target may by chance contain the byte of a jump, or
    // the original byte.
    let as_ever = |now: usize, first: usize| first > 20 && now.abs_diff(first) <= first / 10;
    let as_first = |&(bytes, jumps): &(usize, usize)| {
        as_ever(bytes, ways[0].0) && (engine == "trap" || as_ever(jumps, ways[0].1))
    };
    assert!(ways.iter().all(as_first), "what it is probed by changes: {ways:?}");
    let (before, after) = (before.expect("there are as many"), taken(tracer, server.pid()));
    assert_eq!(before.mappings, after.mappings, "the process has been given more and more");
    let more = after.tracer.saturating_sub(before.tracer);
    // Threads that take requests have heaps of their own, a few more where the machine is busy.
    assert!(more < 1200, "{more} KiB more than {} cycles before", cycles_in_all() - WARM);
    session.done(&["session", "stop"]);
    assert_eq!(text_differences(server.pid()), [""; 0]);
    assert_eq!(server.ask("call 1"), "done 1");
}

#[test]
fn jumps_that_come_and_go_leave_nothing() {
    cycles("auto");
}

#[test]
fn traps_that_come_and_go_leave_nothing() {
    cycles("trap");
}
