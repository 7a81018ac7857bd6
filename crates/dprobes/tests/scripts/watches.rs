//! Watchpoints in scripts: of processes, of a command, and of the kernel.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::kernel::{can_run, script};
use super::support::{Server, dprobes, finish, run, target};
use super::tracing::Tracing;
use testing::Trials;

/// All registers of a thread, for those who need the fourth, or one on all processors.
static REGISTERS: Mutex<()> = Mutex::new(());

/// Lets one test at a time take them.
fn alone() -> MutexGuard<'static, ()> {
    REGISTERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds the tests.
pub(crate) fn add(trials: &mut Trials) {
    let mut one = |name: &'static str, test: fn(&Path)| {
        trials.add(format!("watches: {name}"), move || {
            let skipped = format!("bpf: scripts: {name}");
            let Some(program) = target("writers") else { return testing::skipped(&skipped, "gcc") };
            if !can_run() {
                testing::skipped(&skipped, "root, and a kernel with uprobes that runs eBPF programs");
            } else if !has_registers(&program) {
                let name = format!("optional: debug registers: {name}");
                testing::skipped(&name, "a processor that gives its debug registers");
            } else {
                test(&program);
            }
        });
    };
    one("every write of every thread, also of later ones", threads);
    one("by address, as bpftrace counts", by_address);
    one("a command, from its first instruction on", command);
    one("children are watched until they execute something", children);
    one("addresses of the kernel", in_kernel);
    one("a script takes a watchpoint out", taken_out);
    one("a watchpoint is taken out in all processes", taken_out_of_all);
    one("what else only the kernel runs is named", beside);
    one("execution, and a part of a variable", parts);
    one("what cannot be watched is refused before anything runs", refused);
}

/// Whether this machine gives debug registers to programs.
fn has_registers(program: &Path) -> bool {
    let mut command = dprobes();
    command.args(["trace", "--for", "10ms", "watchpoint:counter:8:w { }", "--"]).arg(program);
    let (_, _, stderr) = run(&mut command);
    !stderr.contains("debug registers")
}

/// The program that writes, as a process that is ready.
fn writers(program: &Path) -> Server {
    let server = Server::start(program, [] as [&str; 0]);
    assert!(server.line().starts_with("ready"));
    server
}

/// The entries of a map: keys and numbers.
fn entries(stdout: &str, map: &str) -> BTreeMap<String, u64> {
    let entry = |line: &str| {
        let (key, value) = line.strip_prefix(map)?.strip_prefix('[')?.split_once("]: ")?;
        Some((key.to_owned(), value.parse().ok()?))
    };
    stdout.lines().filter_map(entry).collect()
}

fn threads(program: &Path) {
    let mut server = writers(program);
    let pid = server.pid().to_string();
    let text = "watchpoint:counter:8:w { @[tid] = count(); @by[pid, comm, probe] = count(); }
        uprobe:{program}:writes { @threads = count(); }";
    let tracing = Tracing::start(&["-p", &pid, &script(text, program)]);
    tracing.says("2 probes armed");
    let mut expected = BTreeMap::new();
    for (command, writes) in [("threads 8 500", 500), ("threads 3 7", 7)] {
        for thread in server.ask(command).split(' ').skip(2) {
            *expected.entry(thread.to_owned()).or_default() += writes;
        }
    }
    let (status, stdout) = tracing.stop(libc::SIGINT);
    assert_eq!((status.code(), entries(&stdout, "@")), (Some(0), expected), "{stdout}");
    let all = 8 * 500 + 3 * 7;
    assert!(stdout.contains(&format!("@by[{pid}, writers, watchpoint:counter:8:w]: {all}")), "{stdout}");
    assert!(stdout.contains("@threads: 11\n"), "{stdout}");
    assert!(server.end().0.success());
}

/// The address of a variable, as nm and the kernel tell.
fn address(program: &Path, pid: u32, variable: &str) -> u64 {
    let output = Command::new("nm").arg(program).output().expect("binutils are there");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.ends_with(&format!(" {variable}"))).expect("it is there");
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).expect("a number");
    let own = hexadecimal(line.split(' ').next().expect("an address"));
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    let first = maps.lines().find(|line| line.ends_with(&*program.to_string_lossy())).expect("it is mapped");
    let header = std::fs::read(program).expect("it can be read");
    // A program at fixed addresses has no load address to add.
    let is_fixed = u16::from_le_bytes([header[16], header[17]]) == 2;
    own + if is_fixed { 0 } else { hexadecimal(first.split('-').next().expect("a range")) }
}

fn by_address(program: &Path) {
    let mut server = writers(program);
    let (pid, place) = (server.pid(), address(program, server.pid(), "counter"));
    let text = format!("watchpoint:{place:#x}:8:w {{ @ = count(); @last = *(int64 *){place:#x}; }}");
    let tracing = Tracing::start(&["-p", &pid.to_string(), &text]);
    tracing.says("armed");
    server.ask("threads 2 30");
    let (status, stdout) = tracing.stop(libc::SIGINT);
    assert_eq!(status.code(), Some(0));
    assert!(stdout.contains("@: 60\n") && stdout.contains("@last: 60\n"), "{stdout}");
    assert!(server.end().0.success());
}

fn taken_out(program: &Path) {
    let mut server = writers(program);
    let (pid, place) = (server.pid(), address(program, server.pid(), "counter"));
    // Tracing ends with the last watchpoint.
    let text = format!("watchpoint:{place:#x}:8:w {{ @ = count(); unwatch({place:#x}); }}");
    let tracing = Tracing::start(&["-p", &pid.to_string(), &text]);
    tracing.says("armed");
    server.ask("threads 1 5");
    let (status, stdout) = tracing.end();
    assert_eq!(status.code(), Some(0));
    let counted = stdout.trim().strip_prefix("@: ").and_then(|count| count.parse::<u64>().ok());
    // It is taken out when the reader gets to it: by then, the thread may have written all.
    assert!(counted.is_some_and(|count| (1..=5).contains(&count)), "{stdout}");
    server.ask("threads 1 5");
    assert!(server.end().0.success());
}

fn taken_out_of_all(program: &Path) {
    let mut servers = [(); 3].map(|()| writers(program));
    let pids = servers.each_ref().map(|server| server.pid().to_string());
    // The third is another session's.
    let place = address(program, servers[0].pid(), "counter");
    let text = format!(
        "watchpoint:counter:8:w {{ @[pid] = count(); if (@[pid] >= 20) {{ unwatch({place:#x}); }} }}"
    );
    let tracing = Tracing::start(&["-p", &pids[0], "-p", &pids[1], &text]);
    tracing.says(" of process ");
    tracing.says(" of process ");
    servers[0].ask("threads 1 5");
    servers[1].ask("threads 1 7");
    servers[2].ask("threads 1 30");
    assert!(!tracing.has_ended());
    // Its address is that in the first process; tracing ends with the last watchpoint.
    servers[1].ask("threads 1 13");
    let (status, stdout) = tracing.end();
    assert_eq!(status.code(), Some(0), "{stdout}");
    let expected: BTreeMap<String, u64> = [(pids[0].clone(), 5), (pids[1].clone(), 20)].into();
    assert_eq!(entries(&stdout, "@"), expected, "{stdout}");
    for server in &mut servers {
        server.ask("threads 1 5");
    }
    assert!(servers.map(|server| server.end().0.success()).iter().all(|good| *good));
}

fn beside(program: &Path) {
    // A uprobe that reads a register which no handler in the kernel can.
    let uprobe = "uprobe:{program}:update { printf(\"%f\", reg(\"xmm0\")); }";
    let server = writers(program);
    let pid = server.pid().to_string();
    for (other, help) in [
        ("watchpoint:counter:8:w { @w = count(); }", "; without watchpoints, the script runs in the process"),
        (
            "watchpoint:counter:8:w { @w = count(); } rawtracepoint:sched_switch { @t = count(); }",
            "; without watchpoints and probes of the kernel, the script runs in the process",
        ),
        (
            "rawtracepoint:sched_switch { @t = count(); }",
            "; without probes of the kernel, the script runs in the process",
        ),
    ] {
        let text = script(&format!("{uprobe} {other}"), program);
        let (status, _, stderr) = run(dprobes().args(["trace", "-p", &pid]).arg(&text));
        assert_eq!(status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("cannot run this handler") && stderr.contains(help), "{help} in\n{stderr}");
    }
    assert!(server.end().0.success());
}

/// Runs a script on the program as a command, which is told this.
fn on_command(text: &str, program: &Path, told: &str) -> (Option<i32>, String, String) {
    let mut command = dprobes();
    command.args(["trace", text, "--"]).arg(program);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("dprobes starts");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    stdin.write_all(told.as_bytes()).expect("it is read");
    drop(stdin);
    let (status, stdout, stderr) = finish(child, "dprobes trace");
    (status.code(), stdout, stderr)
}

fn command(program: &Path) {
    let text = "watchpoint:counter:8:w { @[comm] = count(); }";
    let (status, stdout, stderr) = on_command(text, program, "threads 3 50\n");
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stdout.contains("@[writers]: 150\n"), "{stdout}{stderr}");
    // What is linked before `main`: its stack protector, or the program's first instruction.
    let text = "watchpoint:_start:8:x { @ = count(); } watchpoint:main:8:x { @main = count(); }";
    let (status, stdout, stderr) = on_command(text, program, "");
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stdout.contains("@: 1\n") && stdout.contains("@main: 1\n"), "{stdout}{stderr}");
}

fn children(program: &Path) {
    // The parent's writes are counted in any case; a child is seen within a tenth of a second.
    let text = "watchpoint:counter:8:w { @ = count(); }";
    let (status, stdout, stderr) = on_command(text, program, "threads 1 5\nfork 100000\nthreads 1 5\n");
    assert_eq!(status, Some(0), "{stderr}");
    let count = stdout.lines().find_map(|line| line.strip_prefix("@: ")?.parse::<u64>().ok());
    assert!(count.is_some_and(|count| (10..=100_010).contains(&count)), "{stdout}{stderr}");
    // A shell that executes the program: the addresses of the shell mean nothing there.
    let text = "watchpoint:0x400000:8:w { @ = count(); }";
    let mut command = dprobes();
    command.args(["trace", text, "--", "/bin/sh", "-c", "/bin/true; /bin/true; exit 0"]);
    let (status, stdout, stderr) = run(&mut command);
    assert_eq!((status.code(), stdout.trim()), (Some(0), "@: 0"), "{stderr}");
    assert!(!stderr.contains("error") && !stderr.contains("does not map"), "{stderr}");
}

fn in_kernel(program: &Path) {
    let _alone = alone();
    // A counter of the kernel: how often a thread of the process has waited.
    let mut server = writers(program);
    let pid = server.pid().to_string();
    let text = "rawtracepoint:sched_switch /((struct task_struct *)arg1)->tgid == PID/
        { printf(\"%ld\\n\", &((struct task_struct *)arg1)->nvcsw); exit(); }";
    let tracing = Tracing::start(&[&text.replace("PID", &pid)]);
    tracing.says("armed");
    // It waits for each line.
    while !tracing.has_ended() {
        server.ask("read 0");
    }
    let (status, stdout) = tracing.end();
    assert!(status.success(), "{stdout}");
    let place = stdout.trim().parse::<i64>().expect("an address") as u64;
    assert!(place >> 63 == 1, "{place:#x}");
    for options in [&["-p", pid.as_str()][..], &[]] {
        let text = format!("watchpoint:{place:#x}:8:w {{ @[comm] = count(); @stack[kstack(1)] = count(); }}");
        let tracing = Tracing::start(&[options, &[&text]].concat());
        tracing.says("armed");
        for _ in 0..20 {
            server.ask("read 0");
        }
        let (status, stdout) = tracing.stop(libc::SIGTERM);
        assert!(status.success(), "{stdout}");
        assert!(entries(&stdout, "@").get("writers").is_some_and(|count| *count > 0), "{stdout}");
        assert!(stdout.contains("        __schedule+"), "{stdout}");
    }
    assert!(server.end().0.success());
}

fn parts(program: &Path) {
    let _alone = alone();
    let mut server = writers(program);
    let pid = server.pid().to_string();
    let text = "watchpoint:config.limits[1].soft:4:w { @soft = count(); @[ustack(1)] = count(); }
        watchpoint:update:8:x { @executed = count(); }
        watchpoint:counter:8:rw /@on/ { @both = count(); }
        watchpoint:config.limits[2].hard:4:w { @hard = count(); @on = 1; }";
    let tracing = Tracing::start(&["-p", &pid, text]);
    tracing.says("armed");
    for value in [5, 5, -7] {
        assert_eq!(server.ask(&format!("set {value}")), "done");
    }
    server.ask("threads 1 9");
    let (status, stdout) = tracing.stop(libc::SIGINT);
    assert_eq!(status.code(), Some(0));
    for line in ["@soft: 3", "@executed: 9", "@hard: 0", "@both: 0"] {
        assert!(stdout.lines().any(|it| it == line), "{line} in\n{stdout}");
    }
    assert!(stdout.contains("        set+"), "{stdout}");
    // A thread has four registers.
    let fifth = format!("{text} watchpoint:large:8:w {{ @fifth = count(); }}");
    let (status, stdout, stderr) = run(dprobes().args(["trace", "-p", &pid, &fifth]));
    assert_eq!((status.code(), stdout.trim()), (Some(1), ""), "{stderr}");
    assert!(stderr.contains("no debug register is free") && stderr.contains("script:4:"), "{stderr}");
    assert!(server.end().0.success());
}

fn refused(program: &Path) {
    for (text, said) in [
        ("watchpoint:no_such:8:w { }", "no_such"),
        ("watchpoint:0x1001:8:w { }", "0x1001 is no multiple of 8"),
        ("watchpoint:update+arg0:8:w { }", "the address is known only when the function is called"),
        ("asyncwatchpoint:0x1000:8:w { }", "while the process runs on"),
    ] {
        let (status, stdout, stderr) = on_command(text, program, "threads 1 1\n");
        assert_eq!((status, &*stdout), (Some(125), ""), "{text}: {stderr}");
        assert!(stderr.contains(said) && stderr.contains("script:1:"), "{text}: {stderr}");
    }
    let (status, _, stderr) = run(dprobes().args(["trace", "watchpoint:no_such_symbol:8:w { }"]));
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("no_such_symbol") && stderr.contains("script:1:1"), "{stderr}");
}
