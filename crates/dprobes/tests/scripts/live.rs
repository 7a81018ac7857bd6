//! Scripts on processes that run already, and how tracing ends.

use super::support::{Scratch, Server, dprobes, run, target, text_differences};
use super::tracing::{Tracing, becomes_free, send};
use std::path::Path;
use std::process::Command;
use testing::Trials;

/// Adds the tests.
pub(crate) fn add(trials: &mut Trials) {
    let mut both = |name: &str, test: fn(&Path, &str)| {
        for engine in ["jump", "trap"] {
            trials.add(format!("live: {name} ({engine})"), move || match target("scripted") {
                Some(program) => test(&program, engine),
                None => testing::skipped("trace: live", "gcc"),
            });
        }
    };
    both("ctrl-c prints maps, and the program goes on", ctrl_c);
    both("the program's end is the end", end_of_the_program);
    both("a killed tracer leaves a program that goes on", killed);
    both("who reads no more ends tracing", closed);
    both("after its time, tracing ends", after_a_time);
    both("a command is ended with the script", command_is_ended);
    both("ctrl-c ends the command too", ctrl_c_with_a_command);
    both("head ends tracing, and the command", head);
    both("two processes share maps", two_processes);
    both("what is printed is there, or counted as lost", lost);
    both("with --lossless, all that is printed is there", lossless);
    both("an address is that of the file", address);
    both("a signal to dprobes runs an action", own_signal);
    trials.add("live: a probe whose traps cost too much is taken out", || match target("scripted") {
        Some(program) => too_much(&program),
        None => testing::skipped("trace: live", "gcc"),
    });
    trials.add("live: a full disk is told, and the program is as without probes", || {
        match target("scripted") {
            Some(program) => full_disk(&program),
            None => testing::skipped("trace: live", "gcc"),
        }
    });
    trials.add("live: a signal runs an action where nothing is probed", own_signal_alone);
    trials.add("live: other signals run no action", no_own_signal);
    trials.add("live: a file takes what the script prints", file);
    trials.add("live: a script in a file has parameters", script_file);
    trials.add("live: nothing runs if -p is nobody", nobody);
    trials.add("live: a command that ignores SIGINT is ended all the same", stubborn);
}

const ASKED: &str =
    "self:signal:SIGUSR1 { printf(\"%s %d\\n\", probetype, ++@asked); } self:signal:USR2 { exit(3); }";

fn own_signal(program: &Path, engine: &str) {
    let server = serve(program);
    let tracing = trace(&server, engine, &format!("{ASKED} {COUNTS}"));
    send(tracing.pid(), libc::SIGUSR1);
    send(tracing.pid(), libc::SIGUSR2);
    let (status, printed) = tracing.end();
    assert_eq!(status.code(), Some(3));
    assert!(printed.starts_with("special 1\n") && printed.contains("@asked: 1"), "{printed}");
}

fn own_signal_alone() {
    let tracing = Tracing::start(&["-e", &format!("{ASKED} interval:ms:10 {{ warnf(\"ready\"); }}")]);
    tracing.says("ready");
    send(tracing.pid(), libc::SIGUSR2);
    let (status, _) = tracing.end();
    assert_eq!(status.code(), Some(3));
}

fn no_own_signal() {
    let (status, _, said) = run(dprobes().args(["trace", "-e", "self:signal:SIGTERM { exit(); }"]));
    assert!(status.code() == Some(1) && said.contains("SIGUSR1 and SIGUSR2"), "{said}");
}

fn stubborn() {
    let command = "trap '' INT; while :; do sleep 0.1; done";
    let mut words = dprobes();
    words.args(["trace", "-q", "-e", "interval:ms:100 { exit(); }", "--", "sh", "-c", command]);
    let (status, _, said) = run(&mut words);
    assert!(status.success(), "{said}");
}

const COUNTS: &str = "uprobe:a.out:scripted_size { @ = count(); }";

pub(crate) fn serve(program: &Path) -> Server {
    let server = Server::start(program, ["serve"]);
    assert_eq!(server.line(), "ready");
    server
}

/// Traces a process; returns when its probes are in.
fn trace(server: &Server, engine: &str, script: &str) -> Tracing {
    let pid = server.pid().to_string();
    let tracing = Tracing::start(&["--engine", engine, "-p", &pid, script]);
    tracing.says("armed");
    tracing
}

/// The program works, and its code is as it was.
pub(crate) fn is_whole(mut server: Server) {
    becomes_free(server.pid());
    assert_eq!(server.ask("still there"), "still there");
    assert_eq!(text_differences(server.pid()), [] as [String; 0]);
    assert_eq!(server.end().0.code(), Some(3));
}

fn ctrl_c(program: &Path, engine: &str) {
    let mut server = serve(program);
    let tracing = trace(&server, engine, COUNTS);
    for _ in 0..5 {
        server.ask("x");
    }
    let (status, stdout) = tracing.stop(libc::SIGINT);
    assert_eq!((status.code(), stdout.trim()), (Some(0), "@: 5"));
    is_whole(server);
}

fn too_much(program: &Path) {
    const ASKED: u64 = 2000;
    let mut server = serve(program);
    let pid = server.pid().to_string();
    let words = ["--engine", "trap", "--max-overhead", "0.01%", "-p", &pid, COUNTS];
    let tracing = Tracing::start(&words);
    tracing.says("armed");
    (0..ASKED).for_each(|_| drop(server.ask("x")));
    let told = tracing.says("is taken out");
    assert!(told.contains("uprobe:a.out:scripted_size is taken out: "), "{told}");
    (0..ASKED).for_each(|_| drop(server.ask("x")));
    let (status, stdout) = tracing.stop(libc::SIGINT);
    let counted: u64 = stdout.trim().trim_start_matches("@: ").parse().expect("a count");
    assert!(status.success() && (1..2 * ASKED).contains(&counted), "{stdout}");
    is_whole(server);
}

fn full_disk(program: &Path) {
    const FULL: &str = "/dev/full";
    let traced = |options: &[&str], script: &str| {
        let mut command = dprobes();
        command.arg("trace").args(options).args(["-e", script, "--"]).arg(program).args(["calls", "3"]);
        let (status, _, said) = run(&mut command);
        (status.code(), said)
    };
    let prints = "uprobe:a.out:scripted_size { printf(\"a line\\n\"); @ = count(); }";
    let stacks = "uprobe:a.out:scripted_size { @[ustack] = count(); }";
    for (options, script) in [(["-o", FULL], prints), (["--flame", FULL], stacks)] {
        let (status, said) = traced(&options, script);
        assert_eq!(status, Some(125), "{options:?}: {said}");
        assert!(said.contains("error: ") && said.contains("No space left on device"), "{options:?}: {said}");
    }
    // A target that loses records ends nothing: the status is the program's.
    let (status, said) = traced(&["--log-target", "file:/dev/full"], prints);
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains("file:/dev/full: 3 records could not be written"), "{said}");
    assert!(said.contains("Lost 3 events"), "{said}");
}

/// An address means what `nm` shows, wherever the program is loaded.
fn address(program: &Path, engine: &str) {
    if testing::find_program("nm").is_none() {
        return testing::skipped("trace: address", "nm");
    }
    let symbols = Command::new("nm").arg(program).output().expect("it runs");
    let symbols = String::from_utf8_lossy(&symbols.stdout).into_owned();
    let line = symbols.lines().find(|line| line.ends_with(" scripted_size")).expect("the function");
    let address = line.split(' ').next().expect("its address");
    let script = format!("uprobe:{}:0x{address} {{ @ = count(); }}", program.display());
    let mut server = serve(program);
    let tracing = trace(&server, engine, &script);
    for _ in 0..5 {
        server.ask("x");
    }
    let (status, stdout) = tracing.stop(libc::SIGINT);
    assert_eq!((status.code(), stdout.trim()), (Some(0), "@: 5"));
    is_whole(server);
}

fn end_of_the_program(program: &Path, engine: &str) {
    let mut server = serve(program);
    let script = format!("{COUNTS} end {{ printf(\"over\\n\"); }}");
    let tracing = trace(&server, engine, &script);
    server.ask("x");
    assert_eq!(server.end().0.code(), Some(3));
    let (status, stdout) = tracing.end();
    assert_eq!((status.code(), stdout.as_str()), (Some(0), "over\n\n\n@: 1\n"));
}

fn killed(program: &Path, engine: &str) {
    let mut server = serve(program);
    let tracing = trace(&server, engine, COUNTS);
    server.ask("x");
    send(tracing.tracer(), libc::SIGKILL);
    assert!(!tracing.end().0.success());
    is_whole(server);
}

fn closed(program: &Path, engine: &str) {
    let mut server = serve(program);
    let mut tracing = trace(&server, engine, "uprobe:a.out:scripted_size { printf(\"%d\\n\", arg0); }");
    tracing.close_output();
    // The first line finds nobody; the next record, or the end of the program, ends tracing.
    let pid = server.pid();
    for _ in 0..500 {
        server.ask("x");
        if !super::support::is_traced(pid) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    is_whole(server);
    assert!(tracing.end().0.success());
}

fn after_a_time(program: &Path, engine: &str) {
    let server = serve(program);
    let pid = server.pid().to_string();
    let words = ["--engine", engine, "--for", "200ms", "-q", "-p", &pid, COUNTS];
    let (status, stdout) = Tracing::start(&words).end();
    assert_eq!((status.code(), stdout.trim()), (Some(0), "@: 0"));
    is_whole(server);
}

fn command_is_ended(program: &Path, engine: &str) {
    let script = "uprobe:a.out:scripted_size { printf(\"%d\\n\", pid); exit(); }";
    let mut command = dprobes();
    command.args(["trace", "--engine", engine, script, "--"]).arg(program).arg("wait");
    let (status, stdout, _) = run(&mut command);
    assert_eq!(status.code(), Some(0));
    let pid = stdout.trim();
    assert!(pid.parse::<u32>().is_ok(), "{stdout}");
    let name = std::fs::read_link(format!("/proc/{pid}/exe"));
    assert!(name.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound), "it still runs");
}

fn ctrl_c_with_a_command(program: &Path, engine: &str) {
    let script = "uprobe:a.out:scripted_size { @[pid] = count(); }";
    let program = program.to_str().expect("text");
    let tracing = Tracing::start(&["--engine", engine, script, "--", program, "wait"]);
    tracing.says("armed");
    let (status, stdout) = tracing.stop(libc::SIGINT);
    assert_eq!(status.code(), Some(0));
    let pid = stdout.trim().strip_prefix("@[").and_then(|rest| rest.strip_suffix("]: 1")).expect(&stdout);
    assert!(!Path::new(&format!("/proc/{pid}/exe")).exists(), "it still runs");
}

fn head(program: &Path, engine: &str) {
    let script = "uprobe:a.out:scripted_size { printf(\"%d %d\\n\", pid, arg0); }";
    let mut command = Command::new("sh");
    let line = "\"$0\" trace -q --engine \"$1\" \"$2\" -- \"$3\" calls 1000000000 | head -n 2";
    command.args(["-c", line, env!("CARGO_BIN_EXE_dprobes"), engine, script]).arg(program);
    let (status, stdout, stderr) = run(&mut command);
    assert!(status.success(), "{stderr}");
    let (pid, _) = stdout.split_once(' ').expect("two lines");
    assert_eq!(stdout, format!("{pid} 0\n{pid} 1\n"));
    assert!(!Path::new(&format!("/proc/{pid}/exe")).exists(), "it still runs");
}

fn two_processes(program: &Path, engine: &str) {
    let (mut one, mut two) = (serve(program), serve(program));
    let both = format!("{},{}", one.pid(), two.pid());
    let script = "uprobe:a.out:scripted_size { @ = count(); @each[pid] = count(); } end { print(len(@each)); clear(@each); }";
    let tracing = Tracing::start(&["--engine", engine, "-p", &both, script]);
    tracing.says("armed");
    tracing.says("armed");
    for _ in 0..4 {
        one.ask("x");
        two.ask("x");
    }
    let (status, stdout) = tracing.stop(libc::SIGINT);
    assert_eq!((status.code(), stdout.as_str()), (Some(0), "2\n\n\n@: 8\n"));
    is_whole(one);
    is_whole(two);
}

/// How often eight threads call, together.
const CALLS: usize = 8 * 3000;

/// Runs a script that prints a line for each of `CALLS` calls, through a small buffer; returns how
/// many lines came, and standard error.
fn lines(program: &Path, words: &[&str]) -> (usize, String) {
    let mut command = dprobes();
    command.args(["trace", "-q", "--buffer", "256K"]).args(words);
    command.arg("uprobe:a.out:scripted_size { printf(\"a line of %d, and something behind it\\n\", arg0); @ = count(); }");
    command.arg("--").arg(program).args(["threads", "3000"]);
    let (status, stdout, stderr) = run(&mut command);
    assert_eq!(status.code(), Some(3), "{stderr}");
    assert!(stdout.ends_with(&format!("\n\n\n@: {CALLS}\n")), "{stderr}");
    (stdout.lines().filter(|line| line.ends_with("something behind it")).count(), stderr)
}

fn lost(program: &Path, engine: &str) {
    let (lines, stderr) = lines(program, &["--engine", engine]);
    let said = stderr.lines().find_map(|line| line.split_once("Lost ")?.1.strip_suffix(" events"));
    let lost: usize = said.map_or(0, |number| number.parse().expect("a number"));
    assert_eq!(lines + lost, CALLS, "{stderr}");
}

fn lossless(program: &Path, engine: &str) {
    assert_eq!(lines(program, &["--lossless", "--engine", engine]), (CALLS, String::new()));
}

fn file() {
    let Some(program) = target("scripted") else { return testing::skipped("trace: live", "gcc") };
    let scratch = Scratch::new();
    let out = scratch.path().join("out");
    let mut command = dprobes();
    command.args(["trace", "-q", "-o"]).arg(&out).arg(COUNTS).arg("--").arg(program).args(["calls", "4"]);
    let (status, stdout, stderr) = run(&mut command);
    assert_eq!((status.code(), stdout.as_str(), stderr.as_str()), (Some(3), "", ""));
    assert_eq!(std::fs::read_to_string(out).expect("it was written"), "\n\n@: 4\n");
}

fn script_file() {
    let Some(program) = target("scripted") else { return testing::skipped("trace: live", "gcc") };
    let scratch = Scratch::new();
    let text = "uprobe:a.out:scripted_size /arg0 < $1/ { @[str($2)] = count(); }";
    let script = scratch.file("few.bt", text);
    let line = format!("'{}' calls 9", program.display());
    let mut command = dprobes();
    command.args(["trace", "-q", "-c", &line]).arg(script).args(["4", "few"]);
    let (status, stdout, stderr) = run(&mut command);
    assert_eq!((status.code(), stdout.trim(), stderr.as_str()), (Some(3), "@[few]: 4", ""));
}

/// The process has ended, but nobody has taken its status: its number is not given anew.
fn nobody() {
    let mut child = Command::new("true").spawn().expect("it starts");
    let pid = child.id().to_string();
    child.wait().expect("it ends");
    let mut command = dprobes();
    command.args(["trace", "-p", &pid, "begin { printf(\"begun\"); } uprobe:libc:malloc { }"]);
    let (status, stdout, stderr) = run(&mut command);
    assert_eq!((status.code(), stdout.as_str()), (Some(1), ""), "{stderr}");
    assert_eq!(stderr, format!("dprobes: error: no process {pid}\n"));
}
