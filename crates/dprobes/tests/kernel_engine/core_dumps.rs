//! `exit 3` by the kernel engine: the thread waits in the kernel until its process is asked to stop,
//! and the dump shows it at the probed instruction.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::{Scratch, Server, Session, build, is_traced, need, needs_kernel, run};
use crate::support::{copy, start, start_file, target};

/// Calls the function that a line names, and prints the number.
const STEPS: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
long number = 1;
char filled[16];
__asm__(
    ".text\n"
    ".globl bump\n.type bump, @function\nbump: incl number(%rip)\n ret\n.size bump, .-bump\n"
    ".globl pushes\n.type pushes, @function\npushes: push %rbx\n incl number(%rip)\n pop %rbx\n ret\n.size pushes, .-pushes\n"
    ".globl nop5\n.type nop5, @function\nnop5: .byte 0x0f, 0x1f, 0x44, 0, 0\n incl number(%rip)\n ret\n.size nop5, .-nop5\n"
    ".globl fills\n.type fills, @function\nfills: rep stosb\n incl number(%rip)\n ret\n.size fills, .-fills\n"
    ".globl vector\n.type vector, @function\nvector: pxor %xmm0, %xmm0\n incl number(%rip)\n ret\n.size vector, .-vector\n");
void bump(void), pushes(void), nop5(void), vector(void);
static void *idle(void *nothing) { for (;;) pause(); return nothing; }
int main(void) {
    char line[16];
    pthread_t thread;
    for (int i = 0; i < 2; i++) pthread_create(&thread, 0, idle, 0);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (!strncmp(line, "bump", 4)) bump();
        if (!strncmp(line, "pushes", 6)) pushes();
        if (!strncmp(line, "nop5", 4)) nop5();
        if (!strncmp(line, "vector", 6)) vector();
        if (!strncmp(line, "fills", 5)) {
            long to = (long)filled, count = 8;
            __asm__ volatile("call fills" : "+D"(to), "+c"(count) : "a"('x') : "memory");
        }
        printf("%ld\n", number);
        fflush(stdout);
    }
}
"#;

/// The program, in a directory of its own.
fn steps(scratch: &Scratch) -> Option<PathBuf> {
    build(scratch, STEPS, "steps", &["-O1", "-g", "-no-pie", "-pthread"])
}

/// A handler that logs, and asks for a dump.
fn asking(program: &Path, function: &str) -> String {
    format!(
        "name = \"{}\"\nmodtype = user\nmajor = 7\noffset = {function}\nminor = 9\npush r, rip\nlog 1\nexit 3\n",
        program.display()
    )
}

/// What gdb says of a core file.
#[track_caller]
fn gdb(program: &Path, core: &Path, commands: &[&str]) -> Option<String> {
    let mut command = Command::new(testing::find_program("gdb")?);
    command.args(["-nx", "-batch", "-iex", "set auto-load no", "-iex", "set debuginfod enabled off"]);
    commands.iter().for_each(|each| _ = command.args(["-ex", each]));
    let (status, stdout, stderr) = run(command.arg(program).arg(core));
    assert!(status.success(), "{stdout}\n{stderr}");
    Some(stdout)
}

/// The server of a session's program, and its core file number `number`, once it is written.
#[track_caller]
fn core(session: &mut Session, pid: u32, number: u32) -> PathBuf {
    let name = if number == 0 { format!("core.{pid}") } else { format!("core.{pid}.{number}") };
    session.until(&format!("core dump of process {pid} written to {name} (paused for "));
    session.directory().join(name)
}

fn ready(program: &Path) -> Server {
    let server = Server::start(program, [] as [&str; 0]);
    assert_eq!(server.line(), "ready");
    server
}

#[test]
fn a_process_is_dumped_as_it_was_before_the_probed_instruction() {
    needs_kernel!("core dumps");
    let scratch = Scratch::new();
    let program = need!("bpf: core dumps", steps(&scratch), "gcc");
    for (function, instruction) in [("bump", "incl"), ("pushes", "push"), ("nop5", "nop")] {
        let mut server = ready(&program);
        let mut session = start(&asking(&program, function), &[]);
        session.armed();
        assert_eq!(server.ask(function), "2");
        let core = core(&mut session, server.pid(), 0);
        let asked = ["p number", "x/i $pc", "info threads", "bt 2", "p/x $rsp", "info registers rip"];
        let said = need!("bpf: core dumps", gdb(&program, &core, &asked), "gdb");
        assert!(said.contains("$1 = 1\n"), "{function}: {said}");
        let line = said.lines().find(|line| line.starts_with("=> ")).unwrap_or_default();
        assert!(line.contains(&format!("<{function}>:")) && line.contains(instruction), "{said}");
        assert_eq!(said.matches("(LWP ").count(), 3 + 1, "{said}");
        assert!(said.contains(" in main ()") || said.contains("main () at"), "{said}");
        assert!(!session.said().contains("its children do not inherit"), "{}", session.said());
        // The process goes on, and nothing is left in it.
        assert_eq!(server.ask(function), "3");
        assert!(!is_traced(server.pid()));
        let outcome = session.stop().ended_with(0);
        assert_eq!((outcome.stats.hits(9), outcome.stats.probes[0].logged), (2, 2), "{outcome:#?}");
        let limit = "DProbes(7,9) exit 3: no more core dumps: this probe has written its 1 dump";
        assert_eq!(outcome.stderr.matches(limit).count(), 1, "{outcome:#?}");
        assert_eq!(server.ask("bump"), "4");
        server.end();
    }
}

#[test]
fn what_an_instruction_changes_is_known_or_there_is_no_dump() {
    needs_kernel!("core dumps");
    let scratch = Scratch::new();
    let program = need!("bpf: core dumps", steps(&scratch), "gcc");
    for (function, why) in [
        ("fills", "changes memory at addresses that are not known before"),
        ("vector", "changes registers that the kernel does not save at a hit"),
    ] {
        let mut server = ready(&program);
        let mut session = start(&asking(&program, function), &[]);
        session.armed();
        assert_eq!(server.ask(function), "2");
        let pid = server.pid();
        session.until(&format!("core dump of process {pid} failed: its probed instruction {why}"));
        assert!(!session.directory().join(format!("core.{pid}")).exists());
        assert_eq!((server.ask(function), server.ask("bump")), ("3".into(), "4".into()));
        session.stop().ended_with(0);
        server.end();
    }
}

#[test]
fn a_probe_writes_as_many_as_it_may() {
    needs_kernel!("core dumps");
    let scratch = Scratch::new();
    let program = need!("bpf: core dumps", steps(&scratch), "gcc");
    let mut server = ready(&program);
    let mut session = start(&asking(&program, "bump"), &["--max-dumps", "3"]);
    session.armed();
    for number in 0..3 {
        assert_eq!(server.ask("bump"), (number + 2).to_string());
        let core = core(&mut session, server.pid(), number);
        let said = need!("bpf: core dumps", gdb(&program, &core, &["p number"]), "gdb");
        assert!(said.contains(&format!("$1 = {}\n", number + 1)), "{said}");
    }
    assert!(!session.said().contains("no more core dumps"));
    (5..25).for_each(|number: u32| assert_eq!(server.ask("bump"), number.to_string()));
    session.until("this probe has written its 3 dumps; --max-dumps N raises");
    let outcome = session.stop().ended_with(0);
    assert_eq!((outcome.stats.hits(9), outcome.stats.probes[0].logged), (23, 23), "{outcome:#?}");
    server.end();
}

#[test]
fn a_thread_waits_in_vain_for_a_moment_only() {
    needs_kernel!("core dumps");
    let scratch = Scratch::new();
    let program = need!("bpf: core dumps", steps(&scratch), "gcc");
    let mut server = ready(&program);
    let mut session = start(&asking(&program, "bump"), &[]);
    session.armed();
    let signal = |signal| {
        // SAFETY: kill takes no pointers; the child was not reaped, so the number is still its.
        unsafe { libc::kill(session.pid(), signal) }
    };
    assert_eq!(signal(libc::SIGSTOP), 0);
    // Nobody answers.
    assert_eq!((server.ask("bump"), server.ask("bump")), ("2".into(), "3".into()));
    assert_eq!(signal(libc::SIGCONT), 0);
    session.until("failed: its thread has gone on: the tracer came ");
    assert!(!session.directory().join(format!("core.{}", server.pid())).exists());
    assert_eq!(server.ask("bump"), "4");
    let outcome = session.stop().ended_with(0);
    assert_eq!(outcome.stats.hits(9), 3, "{outcome:#?}");
    server.end();
}

#[test]
fn a_process_that_another_tracer_has_is_left_alone() {
    needs_kernel!("core dumps");
    let scratch = Scratch::new();
    let program = need!("bpf: core dumps", steps(&scratch), "gcc");
    let mut server = ready(&program);
    let pid = server.pid().to_string();
    let mut other =
        start("name = \"a.out\"\noffset = main\nminor = 1\nexit\n", &["--engine=trap", "-p", &pid]);
    other.armed();
    let mut session = start(&asking(&program, "bump"), &[]);
    session.armed();
    assert_eq!(server.ask("bump"), "2");
    session.until(&format!("core dump of process {pid} failed: "));
    assert!(session.said().contains("traced"), "{}", session.said());
    assert_eq!(server.ask("bump"), "3");
    session.stop().ended_with(0);
    other.stop().ended_with(0);
    server.end();
}

#[test]
fn a_killed_session_leaves_the_process_running() {
    needs_kernel!("core dumps");
    let scratch = Scratch::new();
    let program = need!("bpf: core dumps", steps(&scratch), "gcc");
    let mut server = ready(&program);
    let before = "2".to_owned();
    assert_eq!(server.ask("bump"), before);
    let mut number = 2;
    for round in 0..12 {
        let mut session = start(&asking(&program, "bump"), &["--max-dumps", "1000"]);
        session.armed();
        let killer = session.pid();
        // While it is attaching, copying, writing or detaching.
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(700 * round));
            // SAFETY: kill takes no pointers; the child is reaped only after this has ended.
            unsafe { libc::kill(killer, libc::SIGKILL) };
        });
        for _ in 0..6 {
            number += 1;
            assert_eq!(server.ask("bump"), number.to_string());
        }
        thread.join().expect("it does not panic");
        drop(session);
        number += 1;
        assert_eq!(server.ask("bump"), number.to_string());
        assert!(!is_traced(server.pid()));
    }
    assert!(server.end().0.success());
}

#[test]
fn a_watchpoint_does_not_hold_its_thread() {
    needs_kernel!("core dumps");
    let scratch = Scratch::new();
    let program = need!("bpf: core dumps", steps(&scratch), "gcc");
    let mut server = ready(&program);
    let text = format!(
        "name = \"{}\"\nmodtype = user\nmajor = 7\naddress = number:number+7\nwatchpoint = w\nminor = 9\nexit 3\n",
        program.display()
    );
    let mut session = start(&text, &["--engine=kernel", "-p", &server.pid().to_string()]);
    session.armed();
    assert_eq!(server.ask("bump"), "2");
    let core = core(&mut session, server.pid(), 0);
    assert!(session.said().contains("exit 3: a thread does not wait at a watchpoint"), "{}", session.said());
    let said = need!("bpf: core dumps", gdb(&program, &core, &["p number", "info threads"]), "gdb");
    assert!(said.contains("$1 = 2\n") && said.matches("(LWP ").count() == 3 + 1, "{said}");
    assert_eq!(server.ask("bump"), "3");
    session.stop().ended_with(0);
    server.end();
}

#[test]
fn a_busy_process_and_its_threads_notice_nothing() {
    needs_kernel!("core dumps");
    let scratch = Scratch::new();
    let program = copy(&scratch, &need!("bpf: core dumps", target("core"), "gcc"), "core");
    let text = format!(
        "name = \"{}\"\nmodtype = user\nmajor = 7\nvars = 2\noffset = core_work\nminor = 1\ninc lv, 0\nexit\n\
         offset = core_asks\nminor = 9\ninc lv, 1\nexit 3\n",
        program.display()
    );
    let file = scratch.file("busy.rpn", &text);
    let mut session = start_file(&file, &["--max-dumps", "3"]);
    session.armed();
    let (status, stdout, stderr) = run(Command::new(&program).args(["6", "busy"]));
    assert_eq!(status.code(), Some(7), "{stdout}\n{stderr}");
    let numbers: BTreeMap<&str, u64> = stdout
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(what, n)| (what, n.parse().unwrap_or(0)))
        .collect();
    assert_eq!((numbers["asked"], numbers["surprises"]), (21, 0), "{stdout}");
    let outcome = session.stop().ended_with(0);
    assert_eq!((outcome.stats.hits(1), outcome.stats.hits(9)), (numbers["work"], 6), "{outcome:#?}");
    assert!(outcome.stderr.contains("written to core."), "{outcome:#?}");
}

#[test]
fn a_process_of_32_bits_is_held_until_its_dump_is_written() {
    needs_kernel!("core dumps");
    let scratch = Scratch::new();
    let source = STEPS.replace("(%rip)", "").replace("%rbx", "%ebx");
    let flags = ["-m32", "-O1", "-g", "-no-pie", "-pthread"];
    let program = build(&scratch, &source, "narrow", &flags);
    let program = need!("bpf: core dumps: 32 bits", program, "gcc -m32");
    let mut server = ready(&program);
    let mut session = start(&asking(&program, "bump").replace("rip", "eip"), &[]);
    session.armed();
    assert_eq!(server.ask("bump"), "2");
    let core = core(&mut session, server.pid(), 0);
    assert!(session.said().contains("it runs 32-bit code"), "{}", session.said());
    let said = need!("bpf: core dumps", gdb(&program, &core, &["p number", "x/i $pc"]), "gdb");
    assert!(said.contains("$1 = 1\n") && said.contains("<bump>:"), "{said}");
    assert_eq!(server.ask("bump"), "3");
    session.stop().ended_with(0);
    server.end();
}
