//! Jumps over several instructions, used where nothing else fits, in a program that has not begun.
//! They count every call, and no thread is seen between the instructions they cover. A session does
//! not use them, since its programs may come at any time.

use std::path::{Path, PathBuf};

use crate::support::{
    Outcome, Run, Server, Session, becomes_traced, counting, dprobes, need, run, target, text_differences,
};

/// The functions of the program under test.
const FUNCTIONS: usize = 16;

fn program() -> Option<PathBuf> {
    target("grouped")
}

fn points(offset: &str) -> Vec<String> {
    (0..FUNCTIONS).map(|number| format!("grouped_{number}{offset}")).collect()
}

/// Counts, without records, at every function.
fn everywhere(program: &Path) -> String {
    counting(program, points("")).replace("modtype = user\n", "modtype = user\nlogmax = 0\n")
}

/// A run with these arguments, in which all probes are grouped and have this many hits each.
#[track_caller]
fn grouped(program: &Path, arguments: &[&str], hits: u64) -> Outcome {
    let words = std::iter::once(program.as_os_str()).chain(arguments.iter().map(|word| word.as_ref()));
    let outcome = Run::new(&everywhere(program)).option("--engine=jump").on(words).ended_with(0);
    assert_eq!(outcome.stats.probes.len(), FUNCTIONS);
    for probe in &outcome.stats.probes {
        assert_eq!((probe.engine.as_str(), probe.tactic.as_deref()), ("jump", Some("grouped")), "{probe:?}");
        assert_eq!((probe.hits, probe.runs, probe.missed), (hits, hits, 0), "{probe:?}");
    }
    assert!(outcome.stats.locals.iter().all(|&count| count == hits), "{:?}", outcome.stats.locals);
    assert!(outcome.stdout.contains(" wrong 0 shown 0 "), "{outcome:#?}");
    outcome
}

#[test]
fn every_hit_of_eight_threads_is_counted_once() {
    let program = need!("jump", program(), "gcc");
    let outcome = grouped(&program, &["8", "20000"], 160_000);
    assert_eq!(outcome.stdout, "calls 2560000 wrong 0 shown 0 signals 0\n");
}

#[test]
fn signals_come_when_what_a_jump_covers_is_done() {
    let program = need!("jump", program(), "gcc");
    let outcome = grouped(&program, &["-s", "2", "300000"], 600_000);
    let signals = outcome.stdout.trim_end().rsplit(' ').next().and_then(|count| count.parse::<u64>().ok());
    assert!(signals > Some(20), "{outcome:#?}");
}

#[test]
fn children_keep_what_their_parents_have() {
    let program = need!("jump", program(), "gcc");
    let outcome = grouped(&program, &["-f", "60"], 60);
    assert_eq!(outcome.stdout, "calls 960 wrong 0 shown 0 signals 0\n");
}

#[test]
fn a_program_that_steps_itself_comes_through() {
    let program = need!("jump", program(), "gcc");
    let outcome = grouped(&program, &["-t", "20"], 20);
    // The covered instructions count as one step, all others as before.
    let alone = std::process::Command::new(&program).args(["-t", "20"]).output().expect("it runs");
    let steps = |text: &str| text.trim_end().rsplit(' ').next().and_then(|count| count.parse::<u64>().ok());
    let (alone, probed) = (steps(&String::from_utf8_lossy(&alone.stdout)), steps(&outcome.stdout));
    assert_eq!(probed.map(|steps| steps + 2 * 20 * FUNCTIONS as u64), alone, "{outcome:#?}");
}

/// A second program probes the following instructions: no jump of a session covers them, and
/// neither program loses a hit.
#[test]
fn a_later_program_has_probes_on_what_follows() {
    let program = need!("jump", program(), "gcc");
    let session = Session::new();
    // The session probes every process that maps the module.
    let module = session.path().join("grouped");
    std::fs::copy(&program, &module).expect("room for a copy");
    let mut server = Server::start(&module, ["-i", "8"]);
    assert_eq!(server.line(), "ready");
    let first = session.program("first.rpn", &everywhere(&module));
    session.done(&["--insert", &first]);
    becomes_traced(server.pid(), true);
    assert_eq!(server.ask("exec"), "ready");
    assert_eq!(server.ask("1000"), "calls 128000 wrong 0 shown 0 signals 0");
    server.send("200000");
    let second = counting(&module, points("+1").into_iter().chain(points("+4")));
    let second =
        session.program("second.rpn", &second.replace("modtype = user\n", "modtype = user\nlogmax = 0\n"));
    session.done(&["--insert", &second, "--merge"]);
    assert_eq!(server.line(), "calls 25600000 wrong 0 shown 0 signals 0");
    let before = hits(&session);
    assert_eq!(server.ask("1000"), "calls 128000 wrong 0 shown 0 signals 0");
    let after = hits(&session);
    assert_eq!((before.len(), after.len()), (3 * FUNCTIONS, 3 * FUNCTIONS));
    // The first program's probes have every hit of the process; in the last round all probes
    // count every call.
    assert_eq!(before.iter().filter(|&&hits| hits == 1_608_000).count(), FUNCTIONS, "{before:?}");
    assert!(before.iter().zip(&after).all(|(before, after)| after - before == 8000), "{before:?} {after:?}");
    session.done(&["remove", "--name", module.to_str().expect("text")]);
    becomes_traced(server.pid(), false);
    assert_eq!(text_differences(server.pid()), [""; 0]);
    assert_eq!(server.ask("1000"), "calls 128000 wrong 0 shown 0 signals 0");
    session.done(&["session", "stop"]);
}

/// The hits of all probes of a session.
fn hits(session: &Session) -> Vec<u64> {
    let all = session.done(&["query", "--all"]);
    let words: Vec<&str> = all.split_whitespace().collect();
    let counts = words.windows(2).filter(|pair| pair[0] == "hits").map(|pair| pair[1].parse());
    counts.collect::<Result<_, _>>().expect("they are numbers")
}

/// Threads inside a removed group execute the program's own code again.
#[test]
fn probes_that_are_over_leave_threads_where_they_are() {
    let program = need!("jump", program(), "gcc");
    let text = everywhere(&program).replace("minor = ", "maxhits = 5000\nminor = ");
    let words = [program.as_os_str(), "8".as_ref(), "20000".as_ref()];
    let outcome = Run::new(&text).option("--engine=jump").on(words).ended_with(0);
    assert!(outcome.stdout.starts_with("calls 2560000 wrong 0 shown 0 "), "{outcome:#?}");
    for probe in &outcome.stats.probes {
        assert_eq!((probe.tactic.as_deref(), probe.runs), (Some("grouped"), 5000), "{probe:?}");
    }
}

#[test]
fn a_list_of_tactics_foresees_them() {
    let program = need!("jump", program(), "gcc");
    let path = program.to_str().expect("it is plain");
    let (status, stdout, stderr) = run(dprobes().args(["list", "--tactics", "--json", path, "grouped_*"]));
    assert!(status.success(), "{stderr}");
    let value: serde_json::Value = serde_json::from_str(&stdout).expect("it is JSON");
    assert_eq!(value["modules"][0]["jump"]["grouped"], FUNCTIONS, "{stdout}");
}
