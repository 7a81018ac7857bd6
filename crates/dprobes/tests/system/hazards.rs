//! Unusual processes: killed, without their first thread, sandboxed, created while the tracer comes
//! and goes.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{
    Run, Scratch, Server, attach, counting, dprobes, is_traced, need, target, text_differences, variant,
};

fn program() -> Option<PathBuf> {
    target("hazards")
}

/// The number of executable anonymous mappings of a process, read through one of its living
/// threads.
fn slots(pid: u32) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process is there");
    let maps = tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("maps")).ok())
        .find(|maps| !maps.is_empty())
        .expect("a thread lives");
    maps.lines().filter(|line| line.contains(" r-xp ") && line.split_whitespace().count() == 5).count()
}

#[test]
fn the_heap_has_its_room_beside_the_slots() {
    let program = need!("hazards", program(), "gcc");
    for (output, flags) in [("hazards", &[][..]), ("hazards-static-pie", &["-static-pie"][..])] {
        let program = variant("hazards", output, flags).unwrap_or_else(|| program.clone());
        let outcome = Run::new(&counting(&program, ["hazards_work"]))
            .on([program.as_os_str(), "brk".as_ref()])
            .ended_with(0);
        assert_eq!(outcome.stdout, "room\n", "{outcome:#?}");
        assert_eq!(outcome.stats.hits(1), 1, "{outcome:#?}");
    }
}

#[test]
fn the_signal_of_a_sandbox_shows_the_programs_own_address() {
    let program = need!("hazards", program(), "gcc");
    let outcome = Run::new(&counting(&program, ["hazards_site"]))
        .on([program.as_os_str(), "sigsys".as_ref()])
        .ended_with(0);
    assert_eq!(outcome.stdout, "result 42\n", "{outcome:#?}");
    assert_eq!(outcome.stats.hits(1), 1, "{outcome:#?}");
}

#[test]
fn more_children_than_the_soft_limit_of_open_files_are_followed() {
    let program = need!("hazards", program(), "gcc");
    let scratch = Scratch::new();
    let file = scratch.file("program.rpn", &counting(&program, ["hazards_work"]));
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "ulimit -Sn 64; exec \"$@\"", "sh"]).arg(dprobes().get_program());
    command.args(["run", "-o", "/dev/null"]).arg(file);
    command.args(["--", "/bin/sh", "-c", "ulimit -Sn; exec \"$0\" children 150"]).arg(&program);
    let (status, stdout, stderr) = crate::support::run(&mut command);
    assert_eq!(stdout, "64\nwell 150\n", "{status}: {stderr}");
}

/// Attaches and detaches repeatedly; nothing must be left behind, and nothing waited for.
fn come_and_go(mode: &str, rounds: usize) -> (std::process::ExitStatus, Vec<String>) {
    let program = program().expect("it was built before");
    let mut server = Server::start(&program, [mode]);
    assert_eq!(server.line(), "ready");
    let pid = server.pid();
    let before = slots(pid);
    let (mut hits, mut slow) = (0, Vec::new());
    for round in 0..rounds {
        let mut attached = attach(pid, &counting(&program, ["hazards_work"]), &[]);
        attached.wait_for(pid, &program, "hazards_work");
        std::thread::sleep(Duration::from_millis(10));
        let start = Instant::now();
        let outcome = attached.stop(libc::SIGINT).ended_with(0);
        slow.extend((start.elapsed() >= Duration::from_secs(2)).then_some(round));
        hits += outcome.stats.hits(1);
        assert!(server.lives() && !is_traced(pid), "round {round}");
        assert_eq!(slots(pid), before, "round {round}: slots are left behind");
    }
    // Detaching waits three seconds for a thread that does not stop. A busy machine may take as
    // long, but not every time.
    assert!(slow.len() <= rounds / 2, "it waited in rounds {slow:?}");
    assert!(hits > 0 || mode == "pending");
    assert_eq!(text_differences(pid), [""; 0]);
    server.send("end");
    server.end()
}

#[test]
fn a_process_that_forks_while_the_tracer_comes_and_goes() {
    need!("hazards", program(), "gcc");
    let (status, lines) = come_and_go("forks", 30);
    assert_eq!((status.code(), lines), (Some(0), vec!["bad 0".to_string()]));
}

#[test]
fn a_process_whose_threads_come_and_go_as_the_tracer_does() {
    need!("hazards", program(), "gcc");
    let (status, lines) = come_and_go("threads", 30);
    assert_eq!((status.code(), lines), (Some(0), vec!["bad 0".to_string()]));
}

#[test]
fn a_trap_of_its_own_that_waits_does_not_keep_a_process_from_being_let_go() {
    need!("hazards", program(), "gcc");
    let (status, lines) = come_and_go("pending", 2);
    assert_eq!((status.code(), lines), (Some(0), vec!["got 1".to_string()]));
}

#[test]
fn a_child_whose_parent_was_killed_ends_as_it_would() {
    let program = need!("hazards", program(), "gcc");
    let scratch = Scratch::new();
    let file = scratch.file("program.rpn", &counting(&program, ["hazards_work"]));
    for round in 0..testing::rounds(6, 15u32) {
        let marks = scratch.path().join(format!("marks{round}"));
        let mut command = dprobes();
        command.args(["run", "-o", "/dev/null"]).arg(&file).arg("--").arg(&program).arg("storm").arg(&marks);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut tracer = command.spawn().expect("dprobes starts");
        let mut line = String::new();
        let stdout = tracer.stdout.take().expect("standard output is a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("it says its process");
        let storm: i32 = line.trim().parse().expect("a number");
        let count =
            |mark| std::fs::read(&marks).map_or(0, |all| all.iter().filter(|&&each| each == mark).count());
        let start = Instant::now();
        while count(b'b') < 60 + 7 * round as usize {
            assert!(start.elapsed() < Duration::from_secs(60), "it does not begin");
            std::thread::sleep(Duration::from_millis(1));
        }
        // SAFETY: kill takes no pointers; nothing but this, or its alarm, ends the process.
        unsafe { libc::kill(storm, libc::SIGKILL) };
        tracer.wait().expect("a child can be waited for");
        assert_eq!(count(b'b'), count(b'e'), "round {round}: a child did not come to its end");
    }
}

#[test]
fn a_thread_that_is_not_the_first_executes_another_program() {
    let program = need!("hazards", program(), "gcc");
    let outcome = Run::new(&counting(&program, ["hazards_work"]));
    let outcome = outcome.on([program.as_os_str(), "executed".as_ref(), "100".as_ref()]).ended_with(4);
    assert!(outcome.stats.hits(1) > 0, "{outcome:#?}");
}

#[test]
fn a_process_without_its_first_thread() {
    need!("hazards", program(), "gcc");
    let mut server = Server::start(&program().expect("it was built"), ["leaderless"]);
    assert_eq!(server.line(), "ready");
    let pid = server.pid();
    let before = slots(pid);
    let program = program().expect("it was built");
    for _ in 0..3 {
        let attached = attach(pid, &counting(&program, ["hazards_work"]), &["--for", "300ms"]);
        let outcome = attached.end().ended_with(0);
        assert!(outcome.stats.hits(1) > 0, "{outcome:#?}");
        assert_eq!(slots(pid), before);
    }
    server.send("end");
    let (status, lines) = server.end();
    assert_eq!((status.code(), lines), (Some(7), vec!["done".to_string()]));
}

/// Runs `reuse` with a probe in its first module.
fn reused(with: &Path) -> crate::support::Outcome {
    let program = target("reuse").expect("it was built before");
    let module = target("twin").expect("it was built before");
    Run::new(&counting(&module, ["twin_work"]))
        .on([program.as_os_str(), module.as_os_str(), with.as_os_str()])
        .ended_with(0)
}

#[test]
fn a_module_in_the_place_of_another_is_not_taken_for_it() {
    need!("hazards", target("reuse"), "gcc");
    let other = need!("hazards", variant("twin", "twin-other", &["-DOTHER"]), "gcc");
    let outcome = reused(&other);
    assert_eq!(outcome.stdout, "sum 135\nsum 210\nsame place 1\n", "{outcome:#?}");
    assert_eq!(outcome.stats.hits(1), 10, "{outcome:#?}");
}

#[test]
fn data_in_the_place_of_a_module_is_the_same_in_a_child() {
    need!("hazards", target("reuse"), "gcc");
    let outcome = reused(Path::new("data"));
    assert_eq!(outcome.stdout, "sum 135\nchanged 0 0\n", "{outcome:#?}");
    assert_eq!(outcome.stats.hits(1), 10, "{outcome:#?}");
}
