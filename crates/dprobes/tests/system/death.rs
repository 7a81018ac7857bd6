//! dprobes is killed with SIGKILL: the probed program lives on, with every byte restored.

use crate::support::{
    Attached, Server, attach, changed_text, counting, is_traced, need, target, text_differences,
};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::Duration;

/// Attaches, kills the process that `victim` names, and checks that the program works on, unprobed.
fn killed(victim: impl Fn(&Attached) -> i32) {
    let program = need!("death", target("server"), "gcc");
    for _ in 0..5 {
        let mut server = Server::start(&program, [] as [&str; 0]);
        server.line();
        let pid = server.pid();
        let mut attached = attach(pid, &counting(&program, ["server_work"]), &[]);
        attached.wait_for(pid, &program, "server_work");
        assert_eq!(server.ask("call 50"), "done 50");
        // SAFETY: kill takes no pointers; the front is our child and was not reaped, and it has not
        // reaped its own.
        assert_eq!(unsafe { libc::kill(victim(&attached), libc::SIGKILL) }, 0);
        attached.death();
        let mut patience = 500;
        while is_traced(pid) || !changed_text(pid).is_empty() {
            patience -= 1;
            assert!(patience > 0, "the probes are still in: {:?}", text_differences(pid));
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(server.ask("call 20"), "done 20");
        assert!(server.end().0.success());
    }
}

#[test]
fn the_process_that_the_user_started() {
    killed(Attached::pid);
}

#[test]
fn the_tracer_behind_it() {
    killed(Attached::tracer);
}

/// Sends a signal to a process that this test has started.
fn signal(pid: i32, signal: i32) {
    // SAFETY: kill takes no pointers; the process is a child, or a child's, and was not reaped.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

/// A set of signals in a process's status.
fn mask(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("every process has one");
    u64::from_str_radix(line.trim(), 16).expect("a set")
}

/// The signals that the first thread of a process blocks.
fn blocked(pid: u32) -> u64 {
    mask(pid, "SigBlk:")
}

/// All breakpoints stay, and the program goes on: it answers them itself.
#[test]
fn both_processes_and_the_breakpoints_are_answered_all_the_same() {
    let program = need!("death", target("server"), "gcc");
    let mut server = Server::start(&program, [] as [&str; 0]);
    server.line();
    let pid = server.pid();
    let mut attached = attach(pid, &counting(&program, ["server_work"]), &["--engine", "trap"]);
    attached.wait_for(pid, &program, "server_work");
    assert_eq!(server.ask("call 50"), "done 50");
    let tracer = attached.tracer();
    // The front first, so that it restores nothing.
    signal(attached.pid(), libc::SIGSTOP);
    signal(tracer, libc::SIGKILL);
    signal(attached.pid(), libc::SIGKILL);
    attached.death();
    while is_traced(pid) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!changed_text(pid).is_empty(), "nobody has taken it out");
    assert_eq!(server.ask("call 1000"), "done 1000");
    assert_eq!(server.ask("exec 30"), "done 30");
    assert_eq!(server.end().0.code(), Some(5));
}

#[test]
fn a_signal_that_kills_does_so_under_probes_and_afterwards() {
    let program = need!("death", target("server"), "gcc");
    for killed in [false, true] {
        let mut server = Server::start(&program, [] as [&str; 0]);
        server.line();
        let pid = server.pid();
        let mut attached = attach(pid, &counting(&program, ["server_work"]), &[]);
        attached.wait_for(pid, &program, "server_work");
        assert_eq!(server.ask("call 5"), "done 5");
        if killed {
            attached.kill_tracer();
            signal(pid as i32, libc::SIGTRAP);
        } else {
            signal(pid as i32, libc::SIGTRAP);
            attached.end();
        }
        assert_eq!(server.end().0.signal(), Some(libc::SIGTRAP), "killed: {killed}");
    }
}

/// The guard left behind by one tracer, which knows only that tracer's traps, does not stop the
/// program from surviving the next.
#[test]
fn one_tracer_after_another() {
    let program = need!("death", target("mortal"), "gcc");
    let server = Server::start(&program, ["loop"]);
    server.line();
    let pid = server.pid();
    for function in ["mix", "walk", "weigh"] {
        let mut attached = attach(pid, &counting(&program, [function]), &["--engine", "trap"]);
        attached.wait_for(pid, &program, function);
        // The front cannot restore anything until the program has met its traps.
        let (front, tracer) = (attached.pid(), attached.tracer());
        signal(front, libc::SIGSTOP);
        signal(tracer, libc::SIGKILL);
        while is_traced(pid) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(50));
        signal(front, libc::SIGCONT);
        attached.gone();
        assert_eq!(changed_text(pid), [""; 0], "{function}");
    }
    signal(pid as i32, libc::SIGTERM);
    let (status, lines) = server.end();
    assert!(status.success() && lines == ["right"], "{status}, {lines:?}");
}

/// A process's mappings: their number, their bytes, and the bytes below 2 GiB.
fn mapped(pid: u32) -> [u64; 3] {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it lives");
    let ranges = maps.lines().filter_map(|line| line.split_once(' ')?.0.split_once('-'));
    let hex = |text: &str| u64::from_str_radix(text, 16).expect("an address");
    ranges.fold([0; 3], |[count, all, low], (start, end)| {
        let size = hex(end) - hex(start);
        [count + 1, all + size, low + if hex(end) <= 1 << 31 { size } else { 0 }]
    })
}

/// What a killed tracer has mapped is unmapped once the bytes are restored: a process that outlives
/// many tracers keeps no memory of theirs.
#[test]
fn many_tracers_one_after_another_leave_no_memory() {
    let program = need!("death", target("server"), "gcc");
    // One that needs everything that a handler can, and one that needs many landing pads, or slots.
    let logs = format!(
        "name = \"{}\"\nmodtype = user\nmajor = 1\noffset = server_work\npush 8\npush r, rsp\nlog mrf\nexit\n",
        program.display()
    );
    let counts =
        "name = \"libc.so.6\"\nmodtype = user\nvars = 1\noffset = \"str*\":entry\ninc lv, 0\nabort\n";
    let env = need!("death", testing::find_program("env"), "env");
    // A thread that blocks SIGURG makes its calls one by one.
    for (options, blocked) in [
        (&["--engine=auto"][..], "PIPE"),
        (&["--engine=auto", "--lossless"], "URG"),
        (&["--engine=trap"], "PIPE"),
        (&["--engine=trap"], "URG"),
    ] {
        let words = [format!("--block-signal={blocked}"), program.display().to_string()];
        let mut server = Server::start(&env, words);
        server.line();
        let pid = server.pid();
        let libc = libc_of(pid);
        assert_eq!(server.ask("call 20"), "done 20");
        let before = mapped(pid);
        for round in 0..testing::rounds(6, 50) {
            let (text, module, symbol) = match round % 2 {
                0 => (&logs[..], &program, "server_work"),
                _ => (counts, &libc, "strdup"),
            };
            let mut attached = attach(pid, text, options);
            attached.wait_for(pid, module, symbol);
            assert_eq!(server.ask("call 50"), "done 50");
            attached.kill_tracer();
            assert_eq!(changed_text(pid), [""; 0], "round {round}");
            assert_eq!(server.ask("call 20"), "done 20");
            assert_eq!(
                mapped(pid),
                before,
                "{options:?}, round {round}: mappings, bytes, and those below 2 GiB"
            );
        }
        assert!(server.end().0.success());
    }
}

/// The libc that a process has mapped.
fn libc_of(pid: u32) -> PathBuf {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it lives");
    let mut paths = maps.lines().filter_map(|line| line.split(' ').next_back());
    paths.find(|path| path.ends_with("/libc.so.6")).expect("a libc").into()
}

/// Functions of libc that threads execute while they block all signals, each with a counting probe.
const IN_MOMENTS: &str = "name = \"libc.so.6\"\nmodtype = user\nvars = 1\noffset = \"_setjmp\":entry\ninc lv, 0\nabort\noffset = \"*madvise\":entry\ninc lv, 0\nabort\noffset = \"*getpagesize\":entry\ninc lv, 0\nabort\n";

/// Whether a process has a guard for its traps.
fn answers(pid: u32) -> bool {
    mask(pid, "SigCgt:") & 1 << (libc::SIGTRAP - 1) != 0
}

/// Waits until a process has a guard, and some more time for its threads to run.
fn comes_to_answer(pid: u32) {
    while !is_traced(pid) || !answers(pid) {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(700));
}

/// Threads that start others, begin or end are in libc with all signals blocked: a trap there would
/// reset the guard's SIGTRAP handler, which answers traps if the tracer dies.
#[test]
fn traps_stay_answered_in_a_process_whose_threads_block_all_signals() {
    let program = need!("death", target("mortal"), "gcc");
    let server = Server::start(&program, ["threads"]);
    server.line();
    let pid = server.pid();
    let attached = attach(pid, IN_MOMENTS, &["--engine", "trap"]);
    comes_to_answer(pid);
    let samples = (0..500).map(|_| {
        std::thread::sleep(Duration::from_millis(1));
        answers(pid)
    });
    let answered = samples.filter(|&answered| answered).count();
    assert_eq!(answered, 500);
    let outcome = attached.stop(libc::SIGTERM);
    assert!(outcome.stats.probes.iter().all(|probe| probe.hits > 0), "{:?}", outcome.stats);
    assert_eq!(changed_text(pid), [""; 0]);
    signal(pid as i32, libc::SIGTERM);
    let (status, lines) = server.end();
    assert!(status.success() && lines == ["right"], "{status}, {lines:?}");
}

/// The process answers its traps itself for half a second, while threads begin and end all the
/// time.
#[test]
fn threads_begin_and_end_while_nobody_answers() {
    let program = need!("death", target("mortal"), "gcc");
    for way in ["threads", "forks"] {
        let server = Server::start(&program, [way]);
        server.line();
        let pid = server.pid();
        let attached = attach(pid, IN_MOMENTS, &["--engine", "trap"]);
        comes_to_answer(pid);
        let (front, tracer) = (attached.pid(), attached.tracer());
        signal(front, libc::SIGSTOP);
        signal(tracer, libc::SIGKILL);
        std::thread::sleep(Duration::from_millis(500));
        signal(front, libc::SIGCONT);
        attached.gone();
        assert_eq!(changed_text(pid), [""; 0], "{way}");
        signal(pid as i32, libc::SIGTERM);
        let (status, lines) = server.end();
        assert!(status.success() && lines == ["right"], "{way}: {status}, {lines:?}");
    }
}

/// Places in a libc's file that block all signals with a constant: `mov eax,14`,
/// `lea rsi,[rip+...]`, `syscall`.
fn blocks_in(libc: &[u8]) -> Vec<usize> {
    let is_one =
        |code: &[u8]| code[..8] == [0xb8, 14, 0, 0, 0, 0x48, 0x8d, 0x35] && code[12..] == [0x0f, 0x05];
    libc.windows(14).enumerate().filter(|(_, code)| is_one(code)).map(|(at, _)| at + 12).collect()
}

/// A probe at such a call works like any other, beside the tracer's own trap there.
#[test]
fn a_probe_where_all_signals_are_blocked_counts_each_hit() {
    let program = need!("death", target("mortal"), "gcc");
    let server = Server::start(&program, ["threads"]);
    server.line();
    let pid = server.pid();
    let places = blocks_in(&std::fs::read(libc_of(pid)).expect("it can be read"));
    if places.is_empty() {
        // Another libc, or another compiler.
        return;
    }
    let probe =
        |(minor, at): (usize, &usize)| format!("offset = {at:#x}\nminor = {minor}\ninc lv, 0\nabort\n");
    let probes: String = places.iter().enumerate().map(probe).collect();
    for engine in ["trap", "auto"] {
        let text = format!("name = \"libc.so.6\"\nmodtype = user\nvars = 1\n{probes}");
        let mut hits = 0;
        // On a busy machine the program may not come to one of them while it is probed.
        for _ in 0..20 {
            let attached = attach(pid, &text, &["--engine", engine]);
            comes_to_answer(pid);
            let outcome = attached.stop(libc::SIGTERM);
            hits += outcome.stats.probes.iter().map(|probe| probe.hits).sum::<u64>();
            assert_eq!(outcome.stats.probes.len(), places.len());
            assert_eq!(changed_text(pid), [""; 0], "{engine}");
            if hits > 10 {
                break;
            }
        }
        assert!(hits > 10, "{engine}: {hits}");
    }
    signal(pid as i32, libc::SIGTERM);
    let (status, lines) = server.end();
    assert!(status.success() && lines == ["right"], "{status}, {lines:?}");
}

#[test]
fn what_a_program_blocks_by_itself_stays_blocked_in_its_threads_and_children() {
    let program = need!("death", target("blocker"), "gcc");
    for engine in ["trap", "auto"] {
        let mut server = Server::start(&program, [] as [&str; 0]);
        server.line();
        let pid = server.pid();
        let mut attached = attach(pid, &counting(&program, ["mark"]), &["--engine", engine]);
        attached.wait_for(pid, &program, "mark");
        server.send("go");
        let (status, lines) = server.end();
        assert!(status.success() && lines == ["right"], "{engine}: {status}, {lines:?}");
        attached.end();
    }
}

#[test]
fn the_tracer_at_any_moment() {
    let program = need!("death", target("mortal"), "gcc");
    let points = ["mix", "weigh", "walk", "work", "check", "thread", "alarmed"];
    // Spread over the time that arming, running and disarming take, in an order that is always the
    // same.
    for (number, way) in
        ["loop", "threads", "forks", "modules", "signals", "storm"].into_iter().cycle().take(18).enumerate()
    {
        let server = Server::start(&program, [way]);
        server.line();
        let pid = server.pid();
        let before = blocked(pid);
        let attached = attach(pid, &counting(&program, points), &[]);
        while !is_traced(pid) {
            std::thread::sleep(Duration::from_micros(100));
        }
        std::thread::sleep(Duration::from_millis(number as u64 * 37 % 160));
        if number % 3 == 0 {
            signal(attached.pid(), libc::SIGTERM);
            std::thread::sleep(Duration::from_micros(number as u64 * 1300 % 9000));
        }
        let front = attached.pid();
        let children = std::fs::read_to_string(format!("/proc/{front}/task/{front}/children"));
        if let Some(tracer) = children.ok().and_then(|text| text.trim().parse().ok()) {
            signal(tracer, libc::SIGKILL);
        }
        attached.gone();
        let mut patience = 1000;
        // A thread that starts or ends another blocks all signals for a moment.
        while is_traced(pid) || blocked(pid) != before {
            patience -= 1;
            assert!(patience > 0, "{way}, {number}: blocked: {:x}", blocked(pid));
            std::thread::sleep(Duration::from_millis(10));
        }
        signal(pid as i32, libc::SIGTERM);
        let (status, lines) = server.end();
        assert!(status.success() && lines == ["right"], "{way}, {number}: {status}, {lines:?}");
    }
}
