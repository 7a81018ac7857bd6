//! A program that is executed again is armed by copying the first arming instead of planning anew;
//! the copied probes work alike.

use crate::support::{
    Outcome, Place, Run, Scratch, Server, Session, attach, changed_text, counting, dprobes, is_traced, need,
    target, text_differences,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// All entries of the libc and of the program, and all instructions of two of its functions.
const POINTS: [&str; 4] =
    ["libc.so.6:*:entry", "a.out:*:entry", "a.out:again_step:*", "libc.so.6:strlen:return"];

/// Runs the program by an engine.
fn run(program: &Path, engine: &str, rounds: &str, way: &str, handler: Option<&str>) -> Outcome {
    let mut run = Run::at(POINTS).option("--engine").option(engine);
    if let Some(handler) = handler {
        run = run.option("--do").option(handler);
    }
    run.option("--log").option("CSEIP").on([program.as_os_str(), rounds.as_ref(), way.as_ref()]).ended_with(0)
}

/// The hits of each function, by probe.
fn hits(outcome: &Outcome) -> Vec<BTreeMap<(String, String), u64>> {
    let of = |places: &Option<Vec<Place>>| {
        let places = places.iter().flatten().filter(|place| place.hits > 0);
        places.map(|place| ((place.module.clone(), place.function.clone()), place.hits)).collect()
    };
    outcome.stats.probes.iter().map(|probe| of(&probe.places)).collect()
}

#[test]
fn what_is_copied_counts_as_traps_do() {
    let program = need!("copies", target("again"), "gcc");
    for way in ["end", "fork"] {
        let jumps = run(&program, "auto", "4", way, None);
        let traps = run(&program, "trap", "4", way, None);
        assert_eq!(jumps.stdout, traps.stdout);
        assert_eq!(hits(&jumps), hits(&traps), "{way}");
        // The program's own heap may be where its landing pads were.
        assert!(jumps.stats.copied >= 4, "libc, four times: {}", jumps.stats.copied);
        assert_eq!(traps.stats.copied, 0);
        // Each process has as many sites as the first.
        let executed = if way == "end" { 5 } else { 9 };
        for probe in &jumps.stats.probes {
            let sites: usize = probe.sites.jump.values().chain(probe.sites.trap.values()).sum();
            let places: usize = probe.places.iter().flatten().map(|place| place.sites).sum();
            assert_eq!(sites, executed * places, "{probe:?}");
        }
    }
}

#[test]
fn records_of_what_is_copied_are_of_its_own_addresses() {
    let program = need!("copies", target("again"), "gcc");
    // The address that the handler logs is that of the record's header, and differs in each
    // process.
    let outcome = run(&program, "auto", "3", "fork", Some("push r, rip; push r, rdi; log 2"));
    assert!(outcome.stats.copied >= 3, "{}", outcome.stats.copied);
    let mut pages = BTreeMap::new();
    let lines: Vec<&str> = outcome.records.lines().collect();
    for pair in lines.chunks(2) {
        let [first, second] = pair else { panic!("a record has two lines: {pair:?}") };
        let eip = first.split("eip=").nth(1).and_then(|eip| eip.split_whitespace().next());
        let eip = u64::from_str_radix(eip.expect("it was asked for"), 16).expect("an address");
        let words: Vec<u8> = second
            .split(" : ")
            .nth(1)
            .expect("the logged bytes")
            .split_whitespace()
            .flat_map(|word| (0..word.len()).step_by(2).map(move |at| &word[at..at + 2]))
            .map(|byte| u8::from_str_radix(byte, 16).expect("a byte"))
            .collect();
        let rip = u64::from_le_bytes(words[8..16].try_into().expect("two words"));
        assert_eq!(rip, eip, "{first} {second}");
        *pages.entry(eip >> 12).or_insert(0) += 1;
    }
    let logged: u64 = outcome.stats.probes.iter().map(|probe| probe.logged).sum();
    assert_eq!(lines.len() as u64, 2 * logged);
    assert!(pages.len() > 20, "processes have their modules elsewhere: {pages:x?}");
}

#[test]
fn handlers_that_read_memory_and_leave_to_the_interpreter_are_copied() {
    let program = need!("copies", target("again"), "gcc");
    for handler in [
        // The original bytes of the probed instruction, which the jump has overwritten.
        "push r, rip; push mem, u64; log 1",
        // The interpreter.
        "push 64; malloc; free; push r, rdi; log 1",
    ] {
        let seen = |engine: &str| {
            let outcome = run(&program, engine, "2", "end", Some(handler));
            let bytes = outcome.records.lines().skip(1).step_by(2);
            let mut bytes: Vec<String> = bytes.map(|line| line.split(" : ").skip(1).collect()).collect();
            // Near the program's start, a trap reports a hit before the buffers are read.
            bytes.sort_unstable();
            (bytes, outcome.stats.copied)
        };
        let ((jumps, copied), (traps, _)) = (seen("auto"), seen("trap"));
        assert!(copied >= 2, "{handler}: {copied}");
        assert_eq!(jumps.len(), traps.len(), "{handler}");
        if handler.contains("rip") {
            assert!(jumps == traps, "{handler}: not the program's own bytes");
        }
    }
}

#[test]
fn probes_end_in_copies_too() {
    let program = need!("copies", target("again"), "gcc");
    let text = "name = \"libc.so.6\"\nmodtype = user\nmajor = 1\nvars = 1\n\
                offset = malloc\nminor = 1\nmaxhits = 70\n        inc lv, 0\n        abort\n\
                offset = strlen\nminor = 2\n        inc lv, 0\n        abort\n\
                offset = strtol\nminor = 3\n        remove\n        abort\n";
    let outcome = Run::new(text).on([program.as_os_str(), "6".as_ref(), "fork".as_ref()]).ended_with(0);
    assert!(outcome.stats.copied > 0, "{outcome:#?}");
    assert_eq!(outcome.stats.hits(1), 70);
    assert_eq!(outcome.stats.hits(3), 1);
    let state =
        |minor: u32| &outcome.stats.probes.iter().find(|probe| probe.minor == minor).expect("it").state;
    assert_eq!([state(1), state(2), state(3)], ["disabled", "armed", "removed"]);
}

/// Starts the program under dprobes, in server mode after some rounds; returns dprobes and the
/// program's process id.
fn serving(program: &Path, scratch: &Scratch) -> (Server, u32) {
    let mut words: Vec<String> = ["run", "-o", "/dev/null"].iter().map(|word| (*word).to_owned()).collect();
    words.extend(["--stats".to_owned(), scratch.path().join("stats").display().to_string()]);
    words.extend(POINTS.iter().flat_map(|point| ["--at".to_owned(), (*point).to_owned()]));
    words.extend(["--", &program.display().to_string(), "3", "serve"].map(str::to_owned));
    let server = Server::start(Path::new(dprobes().get_program()), words);
    loop {
        let line = server.line();
        if let Some(pid) = line.strip_prefix("serve ") {
            return (server, pid.parse().expect("a process"));
        }
        assert!(line.starts_with("round "), "{line}");
    }
}

/// The code for probes that a process has mapped from a file, as address ranges.
fn code_from_file(pid: u32) -> Vec<String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it lives");
    let is_code = |line: &&str| line.contains(" r-xp ") && line.contains("/memfd:dprobes");
    maps.lines().filter(is_code).filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect()
}

/// The tracer of a front, once it has begun: the front's only child.
fn tracer_behind(front: u32) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{front}/task/{front}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// The tracer is killed at any time: while memory is mapped, descriptors are opened and closed, and
/// probes are copied.
#[test]
fn a_program_that_executes_itself_outlives_its_tracer() {
    let program = need!("copies", target("again"), "gcc");
    let rounds = testing::rounds(6, 60);
    let expected = Server::start(&program, ["30", "end"]).end().1;
    assert_eq!(expected.len(), 31);
    let mut killed = 0;
    for round in 0..rounds {
        let mut words: Vec<String> = ["run", "-o", "/dev/null", "--at", POINTS[0], "--"]
            .iter()
            .map(|word| (*word).to_owned())
            .collect();
        words.extend([&*program.display().to_string(), "30", "end"].map(str::to_owned));
        let server = Server::start(Path::new(dprobes().get_program()), words);
        let first = server.line();
        assert_eq!(first, expected[0]);
        // At a different moment each time, mostly while the program is armed again.
        std::thread::sleep(Duration::from_micros(1 + 7919 * round as u64 % 200_000));
        if let Some(tracer) = tracer_behind(server.pid()) {
            // SAFETY: kill takes no pointers; the process is one that our child has started and
            // waits for.
            killed += u64::from(unsafe { libc::kill(tracer, libc::SIGKILL) } == 0);
        }
        let (_, rest) = server.end();
        assert_eq!(rest, expected[1..], "round {round}");
    }
    assert!(killed > 0, "none was killed before its program had ended");
}

#[test]
fn what_is_copied_is_mapped_from_a_file_that_nobody_can_change() {
    let program = need!("copies", target("again"), "gcc");
    let scratch = Scratch::new();
    let (mut server, pid) = serving(&program, &scratch);
    let code = code_from_file(pid);
    assert!(!code.is_empty());
    // The process cannot write to the code it was given, and has no descriptor of it left.
    if !testing::is_root() {
        return testing::skipped("copies: the file of code", "root");
    }
    for range in code {
        let opened = std::fs::OpenOptions::new().write(true).open(format!("/proc/{pid}/map_files/{range}"));
        let mut file = opened.expect("root may open it");
        std::io::Write::write(&mut file, &[0xcc]).expect_err("it is sealed");
    }
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives");
    let open: Vec<_> =
        descriptors.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect();
    assert!(open.iter().all(|path| !path.to_string_lossy().contains("dprobes (deleted)")), "{open:?}");
    assert_eq!(server.ask("work 5"), "done 5");
    server.end();
}

#[test]
fn the_front_takes_out_what_was_copied_when_the_tracer_is_killed() {
    let program = need!("copies", target("again"), "gcc");
    for _ in 0..3 {
        let scratch = Scratch::new();
        let (mut server, pid) = serving(&program, &scratch);
        assert_eq!(server.ask("work 5"), "done 5");
        assert!(!changed_text(pid).is_empty());
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
        let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
        let tracer: i32 = tracer.and_then(|tracer| tracer.trim().parse().ok()).expect("it is traced");
        // SAFETY: kill takes no pointers; the process is a child of our child, which waits for it.
        assert_eq!(unsafe { libc::kill(tracer, libc::SIGKILL) }, 0);
        let mut patience = 1000;
        while is_traced(pid) || !changed_text(pid).is_empty() {
            patience -= 1;
            assert!(patience > 0, "the probes are still in: {:?}", text_differences(pid));
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(server.ask("work 20"), "done 20");
        server.end();
    }
}

#[test]
fn what_was_copied_is_taken_out_at_the_end() {
    let program = need!("copies", target("again"), "gcc");
    let mut server = Server::start(&program, ["0", "serve"]);
    assert!(server.line().starts_with("round 0 "));
    let said = server.line();
    let pid = server.pid();
    let text = counting(Path::new("libc.so.6"), ["malloc", "free", "strlen", "qsort", "strtol", "write"]);
    let attached = attach(pid, &text, &[]);
    while changed_text(pid).is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(server.ask("work 5"), "done 5");
    for round in (0..=3).rev() {
        let first = if round == 3 { server.ask("exec 3") } else { server.line() };
        assert!(first.starts_with(&format!("round {round} ")), "{first}");
    }
    assert_eq!(server.line(), said);
    assert_eq!(server.ask("work 5"), "done 5");
    let outcome = attached.stop(libc::SIGINT);
    assert!(outcome.stats.copied >= 3, "{}", outcome.stats.copied);
    assert_eq!(text_differences(pid), [""; 0]);
    assert_eq!(server.ask("work 5"), "done 5");
    assert!(server.end().0.success());
}

#[test]
fn processes_of_a_session_are_armed_as_the_first() {
    let program = need!("copies", target("again"), "gcc");
    armed_in_a_session(&program, false);
    // Another thread might use a descriptor given to its process: with threads, copies are written
    // instead of mapped.
    armed_in_a_session(&program, true);
}

/// A process may share its descriptors with another one, which puts its own files in the place of
/// those that the tracer has given it. No code is mapped from them. (Its counts may be lost, since
/// the memory of counters is not checked.)
#[test]
fn who_shares_descriptors_gets_no_foreign_code() {
    let program = need!("copies", target("again"), "gcc");
    let session = Session::new();
    let own = session.path().join("again");
    std::fs::copy(program, &own).expect("room for a copy");
    let start = || {
        let server = Server::start(&own, ["0", "serve"]);
        assert!(server.line().starts_with("round 0 ") && server.line().starts_with("serve "));
        server
    };
    let mut first = start();
    let file = session.program("steps.rpn", &counting(&own, ["again_step", "compare", "work", "execute"]));
    let records = session.path().join("records");
    let probed = |server: &Server| {
        let end = Instant::now() + Duration::from_secs(20);
        while changed_text(server.pid()).is_empty() {
            assert!(Instant::now() < end, "not probed");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    session.done(&["insert", &*file, "-o", records.to_str().expect("text")]);
    probed(&first);
    for _ in 0..testing::rounds(10, 50) {
        session.done(&["remove", "--all"]);
        let mut other = start();
        assert_eq!(other.ask("files"), "done 0");
        session.done(&["insert", &*file, "-o", records.to_str().expect("text")]);
        for server in [&mut first, &mut other] {
            probed(server);
            assert_eq!(server.ask("work 3"), "done 3");
        }
        assert!(other.end().0.success());
    }
    session.done(&["remove", "--all"]);
    assert!(first.end().0.success());
}

fn armed_in_a_session(program: &Path, threads: bool) {
    let session = Session::new();
    // A copy of its own: the session probes every process that maps the module.
    let own = session.path().join("again");
    std::fs::copy(program, &own).expect("room for a copy");
    let start = || {
        let mut server = Server::start(&own, ["0", "serve"]);
        assert!(server.line().starts_with("round 0 ") && server.line().starts_with("serve "));
        if threads {
            assert_eq!(server.ask("thread"), "done 0");
        }
        server
    };
    // Where the kernel has placed the heap of a process just where the code would be, its code is
    // its own: not of all of so many.
    let mut servers: Vec<Server> = (0..8).map(|_| start()).collect();
    let text = counting(&own, ["again_step", "compare", "work", "execute"]);
    let file = session.program("steps.rpn", &text);
    let records = session.path().join("records");
    let words = ["insert", &*file, "-o", records.to_str().expect("text")];
    let waits = Duration::from_millis(10);
    for round in 0..3 {
        session.done(&words);
        let is_probed = |server: &Server| !changed_text(server.pid()).is_empty();
        let mut patience = 1000;
        while !servers.iter().all(is_probed) {
            patience -= 1;
            assert!(patience > 0, "not all are probed");
            std::thread::sleep(waits);
        }
        for (number, server) in servers.iter_mut().enumerate() {
            let times = number + 1;
            assert_eq!(server.ask(&format!("work {times}")), format!("done {times}"));
        }
        // 64 steps each time, in all processes together.
        let query = session.done(&["query", "--all"]);
        assert!(query.contains("hits 2304 runs 2304"), "{query}");
        assert!(copied(&session) > round, "{}", copied(&session));
        let any_from_file = servers.iter().any(|server| !code_from_file(server.pid()).is_empty());
        assert_eq!(any_from_file, !threads, "round {round}");
        session.done(&["remove", "--all"]);
        assert_eq!(servers[0].ask("work 1"), "done 1");
        let mut patience = 1000;
        while servers.iter().any(is_probed) {
            patience -= 1;
            assert!(patience > 0, "{:?}", text_differences(servers[0].pid()));
            std::thread::sleep(waits);
        }
    }
    for server in servers {
        assert!(server.end().0.success());
    }
}

/// How many modules a session has armed as before.
fn copied(session: &Session) -> u64 {
    let status = session.done(&["session", "status"]);
    status.split("; ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok()).unwrap_or(0)
}

/// What is planned in one user's process is not used in another's: its memory might have differed
/// from the file.
#[test]
fn a_process_of_another_user_is_planned_anew() {
    let program = need!("copies", target("again"), "gcc");
    let setpriv = need!("copies", testing::find_program("setpriv"), "setpriv");
    if !testing::is_root() {
        return testing::skipped("copies: another user", "root");
    }
    // Others may not enter the directory of the tests.
    let copy = std::env::temp_dir().join(format!("dprobes-copies-{}", std::process::id()));
    std::fs::copy(&program, &copy).expect("room for a copy");
    let name = copy.to_str().expect("text");
    let session = Session::new();
    let file = session.program("steps.rpn", &counting(&copy, ["again_step", "work"]));
    let other =
        || Server::start(&setpriv, ["--reuid=65534", "--regid=65534", "--clear-groups", name, "0", "serve"]);
    let own = || Server::start(&copy, ["0", "serve"]);
    let mut before = 0;
    // Whether a process can have the armings of one before depends on where its heap is, so each
    // round is of other processes.
    for round in 0..16 {
        let mut servers = [other(), own(), own(), other()];
        for server in &servers {
            assert!(server.line().starts_with("round 0 ") && server.line().starts_with("serve "));
        }
        let pids: Vec<String> = servers.iter().map(|server| server.pid().to_string()).collect();
        let mut words = vec!["insert", &*file];
        pids.iter().for_each(|pid| words.extend(["-p", pid]));
        session.done(&words);
        for server in &mut servers {
            assert_eq!(server.ask("work 2"), "done 2");
        }
        let query = session.done(&["query", "--all"]);
        assert!(query.contains("hits 512 runs 512"), "{query}");
        // The second of each user, unless its heap is in the way.
        let now = copied(&session);
        assert!(now - before <= 2, "one user's is another's: {before}, {now}");
        before = now;
        session.done(&["remove", "--all"]);
        for server in servers {
            assert!(server.end().0.success());
        }
        if round >= 4 && before > 0 {
            break;
        }
    }
    assert!(before > 0, "none was ever armed as before");
    drop(session);
    std::fs::remove_file(copy).expect("it is ours");
}
