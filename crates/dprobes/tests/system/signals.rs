//! Signals: the program's own never reveal the tracer, and none is lost.

use crate::support::{
    Outcome, Run, Server, attach, counting, is_traced, need, run, target, text_differences,
};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The number after a word in a line of words and numbers.
pub(crate) fn number(line: &str, word: &str) -> u64 {
    let mut words = line.split_whitespace().skip_while(|each| *each != word);
    words.nth(1).and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no {word} in {line:?}"))
}

/// Runs the program `signals` with probes: its handler sees only addresses of its own, and no hit
/// and no signal is lost.
pub(crate) fn under_a_timer(program: &Path, words: &[&str]) {
    let points = [
        "signals_push",
        "signals_rip",
        "signals_string",
        "signals_syscall",
        "signals_ret",
        "signals_handler",
    ];
    let command = std::iter::once(program.as_os_str()).chain(words.iter().map(|word| word.as_ref()));
    let outcome = Run::new(&counting(program, points)).on(command).ended_with(0);
    let calls = number(&outcome.stdout, "calls");
    let signals = number(&outcome.stdout, "signals");
    assert_eq!(
        number(&outcome.stdout, "outside"),
        0,
        "a handler saw an address that is not its program's: {outcome:#?}"
    );
    assert!(signals > 100, "the timer did not get through: {outcome:#?}");
    for minor in 1..=5 {
        assert_eq!(outcome.stats.hits(minor), calls, "point {minor}: {outcome:#?}");
    }
    assert_eq!(outcome.stats.hits(6), signals, "{outcome:#?}");
}

#[test]
fn a_timer_at_5000_a_second_sees_only_the_programs_own_addresses() {
    under_a_timer(&need!("signals", target("signals"), "gcc"), &["8000"]);
}

#[test]
fn the_same_on_an_alternate_signal_stack() {
    under_a_timer(&need!("signals", target("signals"), "gcc"), &["8000", "alt"]);
}

fn own_traps(mode: &str) {
    let program = need!("signals", target("selfstep"), "gcc");
    let (status, stdout, _) = run(Command::new(&program).arg(mode));
    assert!(status.success(), "unprobed: {stdout}");
    let points = counting(&program, ["selfstep_work"]);
    let outcome = Run::new(&points).on([program.as_os_str(), mode.as_ref()]).ended_with(0);
    assert_eq!(outcome.stdout, stdout, "{outcome:#?}");
    assert_eq!(outcome.stats.hits(1), number(&stdout, "calls"), "{outcome:#?}");
}

#[test]
fn a_program_keeps_the_traps_of_its_own_breakpoints() {
    own_traps("int3");
}

#[test]
fn a_program_keeps_a_sigtrap_that_was_sent() {
    own_traps("raise");
}

#[test]
fn a_program_that_steps_itself_sees_the_same_steps() {
    own_traps("step");
}

/// The letter of a process' state.
fn state(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process is there");
    stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).expect("stat has a state")
}

#[test]
fn a_stop_and_a_continue_work_while_attached_and_a_stop_outlives_the_tracer() {
    let program = need!("signals", target("server"), "gcc");
    let mut server = Server::start(&program, [] as [&str; 0]);
    server.line();
    let pid = server.pid();
    let mut attached = attach(pid, &counting(&program, ["server_work"]), &[]);
    attached.wait_for(pid, &program, "server_work");
    // SAFETY: kill takes no pointers; the server is our child and was not reaped.
    let kill = |signal| assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
    let becomes = |wanted: &[char]| {
        for _ in 0..500 {
            if wanted.contains(&state(pid)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the process is {}, not one of {wanted:?}", state(pid));
    };
    for _ in 0..3 {
        assert_eq!(server.ask("call 20"), "done 20");
        kill(libc::SIGSTOP);
        becomes(&['T', 't']);
        server.send("call 5");
        std::thread::sleep(Duration::from_millis(50));
        assert!(['T', 't'].contains(&state(pid)), "a stopped process ran on");
        kill(libc::SIGCONT);
        assert_eq!(server.line(), "done 5");
    }
    kill(libc::SIGSTOP);
    becomes(&['T', 't']);
    let outcome = attached.stop(libc::SIGINT);
    assert_eq!(outcome.stats.hits(1), 75, "{outcome:#?}");
    becomes(&['T']);
    assert!(!is_traced(pid));
    assert_eq!(text_differences(pid), [""; 0]);
    kill(libc::SIGCONT);
    assert_eq!(server.ask("call 3"), "done 3");
}

#[test]
fn a_signal_before_the_instruction_of_a_removed_probe_does_not_lose_its_record() {
    let program = need!("signals", target("signals"), "gcc");
    for (header, last) in [("", "remove"), ("maxhits = 1", "exit")] {
        let text = format!(
            "name = \"{}\"\nmodtype = user\noffset = signals_string\nminor = 1\n{header}\npush 1\nlog 1\n{last}\n",
            program.display()
        );
        for _ in 0..10 {
            let outcome = Run::new(&text).on([program.as_os_str(), "3000".as_ref()]).ended_with(0);
            assert_eq!((outcome.stats.runs(1), outcome.stats.logged(1)), (1, 1), "{last}: {outcome:#?}");
        }
    }
}

#[test]
fn a_signal_that_ends_dprobes_run_takes_the_probes_out_first() {
    let program = need!("signals", target("tight"), "gcc");
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // On a busy machine the program may take a while to reach its probe.
        let outcome = [500, 4000, 20_000].into_iter().map(|wait| ended_by(signal, &program, wait));
        let outcome = outcome.inspect(ended_early).find(|outcome| outcome.stats.hits(1) > 0);
        assert!(outcome.is_some(), "the program never came to its probe");
    }
}

/// Runs a program under dprobes, and sends dprobes a signal after so many milliseconds.
fn ended_by(signal: i32, program: &Path, wait: u64) -> Outcome {
    let text = counting(program, ["work"]);
    let running = Run::new(&text).start([program.as_os_str(), "40000000000".as_ref()]);
    std::thread::sleep(Duration::from_millis(wait));
    // SAFETY: kill takes no pointers; dprobes is our child and was not reaped.
    assert_eq!(unsafe { libc::kill(running.pid() as i32, signal) }, 0);
    running.end()
}

fn ended_early(outcome: &Outcome) {
    assert!(outcome.stderr.contains("summary"), "{outcome:#?}");
    assert_ne!(outcome.status.code(), Some(0), "{outcome:#?}");
}
