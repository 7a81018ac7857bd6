//! Watchpoints of processes: `dprobes watch`, and `watchpoint =` in programs for user modules.

use std::collections::HashMap;

use crate::support::{
    Background, Outcome, Server, Session, dprobes, need, needs_kernel, run, start, target, watch,
};

/// The program that writes, as a process that is ready; `None` if it cannot be built, or the machine
/// has no debug registers.
fn writers() -> Option<Server> {
    let program = target("writers")?;
    let server = Server::start(&program, [] as [&str; 0]);
    server.line();
    Some(server)
}

/// Starts to watch a variable of a process.
fn watched(server: &Server, options: &[&str]) -> Session {
    let pid = server.pid().to_string();
    let mut session = watch(&[&["-p", pid.as_str()][..], options].concat());
    session.until("watching ");
    session
}

/// Whether this machine gives debug registers to programs.
fn has_registers() -> Option<()> {
    let Some(server) = writers() else { return Some(()) };
    let session = watch(&["-p", &server.pid().to_string(), "counter"]);
    while !session.said().contains("watching ") && !session.said().contains("debug registers") {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let has = session.said().contains("watching ");
    drop(session);
    server.end();
    has.then_some(())
}

macro_rules! needs_registers {
    () => {
        needs_kernel!("watch");
        need!("optional: debug registers", has_registers(), "a processor that gives its debug registers")
    };
}

/// The lines, without the time of day and the thread's number.
fn shown(outcome: &Outcome) -> Vec<String> {
    let line = |line: &str| {
        let (time, rest) = line.split_once(' ').expect("it begins with the time");
        assert_eq!((time.len(), &time[2..3], &time[8..9]), (15, ":", "."), "{line}");
        let (name, rest) = rest.split_once('[').expect("a thread's name");
        let (thread, rest) = rest.split_once("] ").expect("a thread's number");
        assert!(thread.parse::<u32>().is_ok(), "{line}");
        format!("{name} {rest}")
    };
    outcome.records.lines().map(line).collect()
}

#[test]
fn every_write_of_every_thread_is_seen_also_of_later_threads() {
    needs_registers!();
    let mut server = need!("bpf: watch", writers(), "gcc");
    let session = watched(&server, &["counter"]);
    let answers = [server.ask("threads 8 500"), server.ask("threads 3 7")];
    let outcome = session.stop().ended_with(0);
    assert_eq!(outcome.stats.hits(0), 8 * 500 + 3 * 7, "{outcome:#?}");
    let mut expected: HashMap<String, usize> = HashMap::new();
    for (answer, times) in answers.iter().zip([500, 7]) {
        answer.split(' ').skip(2).for_each(|thread| *expected.entry(thread.to_owned()).or_default() += times);
    }
    let mut seen: HashMap<String, usize> = HashMap::new();
    for line in outcome.records.lines() {
        let thread = line.split(['[', ']']).nth(1).expect("a thread's number");
        *seen.entry(thread.to_owned()).or_default() += 1;
        assert!(line.contains("] update+0x"), "{line}");
    }
    assert_eq!(seen, expected);
    assert!(server.end().0.success());
}

#[test]
fn a_member_is_watched_and_shown_as_what_it_is() {
    needs_registers!();
    let mut server = need!("bpf: watch", writers(), "gcc");
    let session = watched(&server, &["config.limits[1].soft"]);
    for value in [5, 5, -7] {
        assert_eq!(server.ask(&format!("set {value}")), "done");
    }
    // Its neighbours are not watched.
    server.ask("threads 1 10");
    let outcome = session.stop().ended_with(0);
    let lines = shown(&outcome);
    let values: Vec<&str> = lines.iter().map(|line| line.split(": ").nth(1).expect("values")).collect();
    assert_eq!(values, ["0 -> 5", "5 -> 5", "5 -> -7"], "{outcome:#?}");
    assert!(lines.iter().all(|line| line.starts_with("writers set+0x")), "{outcome:#?}");
    assert!(outcome.stderr.contains("config.limits[1].soft of process "), "{outcome:#?}");
    assert!(outcome.stderr.contains(": 4 bytes, at 0x"), "{outcome:#?}");
    assert!(server.end().0.success());
}

#[test]
fn reads_are_seen_if_asked_for_and_writes_by_the_kernel_always() {
    needs_registers!();
    let mut server = need!("bpf: watch", writers(), "gcc");
    let session = watched(&server, &["counter", "--access", "rw"]);
    assert_eq!(server.ask("read 6"), "done 0");
    assert_eq!(session.stop().ended_with(0).stats.hits(0), 6);
    let session = watched(&server, &["counter"]);
    assert_eq!(server.ask("read 6"), "done 0");
    assert_eq!(server.ask("system"), "done");
    let outcome = session.stop().ended_with(0);
    // The kernel may copy eight bytes one by one.
    let lines = shown(&outcome);
    assert!(matches!(lines.len(), 1..=8) && lines[0] == "writers the kernel: 0 -> 77", "{outcome:#?}");
    assert!(lines[1..].iter().all(|line| line == "writers the kernel: 77 -> 77"), "{outcome:#?}");
    assert!(server.end().0.success());
}

#[test]
fn a_part_of_a_large_variable_is_watched_by_its_address_or_a_length() {
    needs_registers!();
    let mut server = need!("bpf: watch", writers(), "gcc");
    let session = watched(&server, &["large[5]"]);
    let said = session.said();
    let address = said.split(", at ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let address = address.expect("it tells the address").to_owned();
    server.ask("large 3");
    let outcome = session.stop().ended_with(0);
    assert_eq!(outcome.records.lines().count(), 3, "{outcome:#?}");
    let session = watched(&server, &[&address, "--length", "4"]);
    server.ask("large 2");
    let outcome = session.stop().ended_with(0);
    assert_eq!(outcome.records.lines().count(), 2, "{outcome:#?}");
    assert!(outcome.records.contains(": 0x2 -> 0x0"), "{outcome:#?}");
    assert!(server.end().0.success());
}

#[test]
fn children_do_not_count_and_another_program_ends_it() {
    needs_registers!();
    let mut server = need!("bpf: watch", writers(), "gcc");
    let session = watched(&server, &["counter"]);
    server.ask("threads 1 2");
    server.ask("fork 100");
    server.ask("threads 1 3");
    server.send("exec");
    server.line();
    server.ask("threads 2 100");
    let outcome = session.stop().ended_with(0);
    assert_eq!(outcome.stats.hits(0), 5, "{outcome:#?}");
    assert!(server.end().0.success());
}

#[test]
fn the_session_ends_with_the_process() {
    needs_registers!();
    let mut server = need!("bpf: watch", writers(), "gcc");
    let session = watched(&server, &["counter"]);
    server.ask("threads 1 2");
    assert!(server.end().0.success());
    let outcome = session.end().ended_with(0);
    assert_eq!(outcome.records.lines().count(), 2, "{outcome:#?}");
}

#[test]
fn what_cannot_be_watched_is_refused_with_the_reason() {
    needs_registers!();
    let server = need!("bpf: watch", writers(), "gcc");
    let pid = server.pid().to_string();
    for (options, reason) in [
        (&["conter"][..], "no variable is called `conter`; did you mean `counter`?"),
        (&["large"], "`large` has 96 bytes, and the processor watches 1, 2, 4 or 8: name a part of it"),
        (
            &["config.limits[1].soft", "--length", "8"],
            "`config.limits[1].soft` has 4 bytes: --length 8 is longer",
        ),
        (&["0x10"], "0x10 is no memory of process"),
        (&["counter", "--module", "libnothing.so"], "the process maps no module `libnothing.so`"),
        (&["counter", "--lossless"], "--lossless: "),
    ] {
        let mut command = dprobes();
        command.args(["watch", "-p", &pid]).args(options);
        let (status, _, said) = run(&mut command);
        assert!(status.code() == Some(1) && said.contains(reason), "{options:?}: {status} {said}");
    }
    let (status, _, said) = run(dprobes().args(["watch", "-p", "4194304", "counter"]));
    assert!(status.code() == Some(1) && said.contains("no process 4194304"), "{status} {said}");
    assert!(server.end().0.success());
}

#[test]
fn a_program_has_watchpoints_and_a_processor_four() {
    needs_registers!();
    let mut server = need!("bpf: watch", writers(), "gcc");
    let pid = server.pid().to_string();
    let module = target("writers").expect("it was built").display().to_string();
    let watchpoint = |address: &str, access: &str, minor: u32| {
        format!("address = {address}\nwatchpoint = {access}\nminor = {minor}\npush {minor}\nlog 1\nexit\n")
    };
    let mut four = format!("name = \"{module}\"\nmajor = 1\n");
    four += &watchpoint("counter:counter+7", "w", 1);
    four += &watchpoint("\"config.limits[1].soft\":\"config.limits[1].soft\"+3", "w", 2);
    four += &watchpoint("set", "x", 3);
    four += &watchpoint("large+40:large+47", "rw", 4);
    let mut session = start(&four, &["--engine", "kernel", "-p", &pid]);
    session.armed();
    server.ask("threads 1 4");
    server.ask("set 9");
    server.ask("large 3");
    let outcome = session.stop().ended_with(0);
    let hits: Vec<u64> = (1..=4).map(|minor| outcome.stats.hits(minor)).collect();
    assert_eq!(hits, [4, 1, 1, 3], "{outcome:#?}");

    // In the background session, likewise.
    let background = Background::new();
    background.insert(&four, &["-p", &pid]);
    server.ask("threads 1 4");
    let shown = background.done(&["query", "--all"]);
    assert!(shown.contains("  run by the kernel: watchpoint 4\n") && shown.contains(" hits 4 "), "{shown}");
    let file = background.program("none.rpn", &four);
    background.done(&["remove", "--all"]);
    let said = background.fails(&["insert", &file]);
    assert!(said.contains("is an address of one process: name the process with -p"), "{said}");
    drop(background);

    let five = four.clone() + &watchpoint("large+48:large+55", "w", 5);
    let (status, said) = start(&five, &["--engine", "kernel", "-p", &pid]).refused();
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("no debug register is free"), "{said}");
    for (options, reason) in [
        (&[][..], "is an address of one process: name the process with -p"),
        (&["-p", pid.as_str()], "only the kernel engine watches memory"),
    ] {
        let (status, said) = start(&four, options).refused();
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains(reason), "{said}");
    }
    assert!(server.end().0.success());
}

#[test]
fn records_of_a_watchpoint_go_to_the_targets_that_are_named() {
    needs_registers!();
    let mut server = need!("bpf: watch", writers(), "gcc");
    let scratch = crate::support::Scratch::new();
    let store = scratch.path().join("writes.dpt").display().to_string();
    let session = watched(&server, &["counter", "-o", &store]);
    server.ask("threads 2 20");
    let outcome = session.stop().ended_with(0);
    assert_eq!(outcome.records, "", "nothing is shown twice");
    let mut command = dprobes();
    command.args(["show", "--log-format=klog", &store]);
    let (status, shown, said) = run(&mut command);
    assert!(status.success(), "{said}");
    assert_eq!(
        shown.lines().filter(|line| line.starts_with("DProbes(") && !line.contains(" : ")).count(),
        40,
        "{shown}"
    );
    assert!(server.end().0.success());
}
