//! Scripts with events and probes of the kernel, on a command: the kernel runs them, for the command
//! and its children only.

use super::kernel::{can_run, script, with_tracefs};
use super::support::{Scratch, dprobes, run, target};
use std::path::{Path, PathBuf};
use std::process::Command;
use testing::Trials;

/// A shell that calculates for a while, and starts nothing.
const BUSY: &str = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; exit 0";

/// Adds the tests.
pub(crate) fn add(trials: &mut Trials) {
    let mut one = |name: &'static str, test: fn()| {
        trials.add(format!("events: {name}"), move || match can_run() {
            true => test(),
            false => testing::skipped(
                &format!("bpf: scripts: {name}"),
                "root, and a kernel with uprobes that runs eBPF programs",
            ),
        });
    };
    one("samples are those of the command", samples);
    one("a sample says where it was", modes);
    one("stacks of samples are lines for flame graphs", folded);
    one("stacks of the kernel have names", kernel_stacks);
    one("each process that the command starts is followed", children);
    one("a script with probes of the kernel and of a program", mixed);
    one("tracepoints fire for the command only", tracepoints);
    one("symbols of the kernel, by name and by address", symbols);
    one("what is refused is told with its place", refused);
    one("a command that cannot be executed", no_command);
}

/// Runs a script on a command, which succeeds; returns what was printed.
fn trace(options: &[&str], text: &str, command: &[&str]) -> String {
    let mut dprobes = dprobes();
    let (status, stdout, stderr) = run(dprobes.arg("trace").args(options).arg(text).arg("--").args(command));
    assert_eq!(status.code(), Some(0), "{stderr}");
    stdout
}

/// The entries of a map: keys and numbers.
pub(super) fn entries(stdout: &str, map: &str) -> Vec<(String, u64)> {
    let entry = |line: &str| {
        let (key, value) = line.strip_prefix(map)?.strip_prefix('[')?.split_once("]: ")?;
        Some((key.to_owned(), value.parse().ok()?))
    };
    stdout.lines().filter_map(entry).collect()
}

fn samples() {
    let text = "profile:hz:999 { @by[comm] = count(); @in[pid, tid] = count(); } profile:ms:1 { @ms[comm] = count(); }";
    let stdout = trace(&[], text, &["sh", "-c", BUSY]);
    for map in ["@by", "@ms"] {
        let found = entries(&stdout, map);
        assert!(found.iter().any(|(comm, count)| comm == "sh" && *count > 0), "{stdout}");
        // Before it executes its program, it is a copy of dprobes.
        assert!(found.iter().all(|(comm, _)| comm == "sh" || comm == "dprobes"), "{stdout}");
    }
    assert_eq!(entries(&stdout, "@in").len(), 1, "{stdout}");
}

fn modes() {
    let text = "profile:hz:999 /comm == \"sh\"/ { @[usermode] = count(); }";
    let stdout = trace(&[], text, &["sh", "-c", BUSY]);
    let modes = entries(&stdout, "@");
    // The shell calculates in user mode, and enters the kernel seldom.
    assert!(modes.iter().any(|(mode, count)| mode == "1" && *count > 10), "{stdout}");
    assert!(modes.iter().all(|(mode, _)| mode == "0" || mode == "1"), "{stdout}");
}

fn folded() {
    let text = "profile:hz:999 { @[comm, ustack] = count(); @k[kstack] = count(); }";
    let stdout = trace(&["-f", "folded"], text, &["sh", "-c", BUSY]);
    assert!(stdout.lines().any(|line| line.starts_with("sh;")), "{stdout}");
    for line in stdout.lines() {
        let count = line.rsplit_once(' ').and_then(|(_, count)| count.parse::<u64>().ok());
        assert!(count.is_some_and(|count| count > 0) && !line.contains("@"), "{line}");
    }
}

/// What reads /dev/zero is in the kernel nearly always.
fn kernel_stacks() {
    let words = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1M", "count=4000", "status=none"];
    let stdout = trace(&[], "profile:hz:999 { @[kstack] = count(); @top[kstack(1)] = count(); }", &words);
    assert!(stdout.contains("        do_syscall_64+"), "{stdout}");
    assert!(stdout.contains("        vfs_read+"), "{stdout}");
    // Stacks of one frame have one line.
    let top = stdout.split("@top[").skip(1);
    assert!(
        top.clone().count() > 0
            && top
                .clone()
                .all(|stack| stack.find(']').is_some_and(|end| { stack[..end].trim().lines().count() <= 1 })),
        "{stdout}"
    );
}

fn children() {
    let text = "software:page-faults:1 { @[pid] = count(); } software:faults { @hundred = count(); }";
    let stdout = trace(&[], text, &["sh", "-c", "(exit 0); (sh -c '(exit 0); exit 0'); exit 0"]);
    assert_eq!(entries(&stdout, "@").len(), 4 + usize::from(!execs_last()), "{stdout}");
}

/// Whether a shell executes the last command of a subshell in the subshell's own process.
fn execs_last() -> bool {
    let output = Command::new("sh").args(["-c", "(sh -c 'echo $PPID'); echo $$"]).output().expect("sh");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = text.lines();
    lines.next() == lines.next()
}

/// A copy of the program under test, so that no other process is hit.
fn copied(scratch: &Scratch) -> Option<PathBuf> {
    let copy = scratch.path().join("scripted");
    std::fs::copy(target("scripted")?, &copy).expect("there is room");
    Some(copy)
}

fn mixed() {
    let scratch = Scratch::new();
    let Some(program) = copied(&scratch) else { return testing::skipped("bpf: scripts: mixed", "gcc") };
    let path = program.display().to_string();
    for module in ["{program}", "a.out"] {
        let text = format!(
            "software:page-faults:1 {{ @faults = count(); }}
            uprobe:{module}:scripted_size {{ @[comm, arg0 % 2] = count(); }}
            uretprobe:{module}:scripted_size {{ @back = count(); }}"
        );
        let text = script(&text, &program);
        // Without the first probe, no kernel is needed.
        let mut command = dprobes();
        command.args(["trace", &text, "--", &path, "calls", "40"]);
        let other = Command::new(&program).args(["calls", "30"]).status().expect("it starts");
        let (status, stdout, stderr) = run(&mut command);
        assert_eq!((status.code(), other.code()), (Some(3), Some(3)), "{stderr}");
        for line in ["@[scripted, 0]: 20", "@[scripted, 1]: 20", "@back: 40"] {
            assert!(stdout.lines().any(|it| it == line), "{line} in\n{stdout}\n{stderr}");
        }
        assert!(stdout.contains("@faults: "), "{stdout}");
    }
}

fn tracepoints() {
    let there = with_tracefs(&["test", "-d", "/sys/kernel/tracing/events/syscalls"]).status();
    if !there.is_ok_and(|status| status.success()) {
        return testing::skipped(
            "bpf: scripts: tracepoints of a command",
            "tracefs, mounted or to be mounted",
        );
    }
    let itself: PathBuf = dprobes().get_program().into();
    let text = "tracepoint:syscalls:sys_enter_write { @[comm] = count(); @bytes = sum(args.count); }
        tracepoint:syscalls:sys_enter_execve { @exec = count(); }";
    let itself = itself.to_string_lossy();
    let command = [&*itself, "trace", text, "--", "/bin/sh", "-c", "echo one; echo three; exit 0"];
    let (status, stdout, stderr) = run(&mut with_tracefs(&command));
    assert_eq!(status.code(), Some(0), "{stderr}");
    for line in ["@[sh]: 2", "@bytes: 10", "@exec: 1"] {
        assert!(stdout.lines().any(|it| it == line), "{line} in\n{stdout}");
    }
}

fn symbols() {
    let text = "begin { printf(\"%s %lx\\n\", ksym(kaddr(\"vfs_read\")), kaddr(\"vfs_read\")); exit(); }";
    let (status, stdout, stderr) = run(dprobes().args(["trace", text]));
    assert_eq!(status.code(), Some(0), "{stderr}");
    let all = std::fs::read_to_string("/proc/kallsyms").expect("it can be read");
    let line = all.lines().find(|line| line.ends_with(" vfs_read")).expect("the kernel reads");
    let address = line.split(' ').next().expect("an address");
    assert_eq!(stdout.trim(), format!("vfs_read {address}"));
    let (status, _, stderr) = run(dprobes().args(["trace", "begin { print(kaddr(\"no_such_symbol\")); }"]));
    assert!(status.code() == Some(1) && stderr.contains("script:1:15"), "{stderr}");
}

fn refused() {
    let scratch = Scratch::new();
    let Some(program) = copied(&scratch) else { return testing::skipped("bpf: scripts: refusals", "gcc") };
    let path = program.display().to_string();
    // The kernel engine does not have what the other engines have.
    let text = "profile:hz:99 { @ = count(); }\nuprobe:{program}:scripted_size\n{\n    @n++;\n    @s = tseries(arg0, 1s, 5);\n}";
    let (status, _, stderr) =
        run(dprobes().args(["trace", &script(text, &program), "--", &path, "calls", "1"]));
    assert!(status.code() == Some(125) && stderr.contains("script:5:5"), "{stderr}");
    // Too many times in a second.
    let (status, stdout, stderr) =
        run(dprobes().args(["trace", "begin { @ = 1; }\n profile:hz:900000000 { @ = 2; }"]));
    assert!(
        status.code() == Some(1) && stderr.contains("script:2:2") && stdout.is_empty(),
        "{stdout}\n{stderr}"
    );
    // A machine without counters says so.
    let text = "hardware:cpu-cycles:1000000 { @ = count(); }";
    let (status, _, stderr) = run(dprobes().args(["trace", "--for", "100ms", text]));
    let is_told = stderr.contains("script:1:1") && stderr.contains("nothing on this machine counts");
    assert!(status.success() || is_told, "{stderr}");
    let (status, _, stderr) =
        run(dprobes().args(["trace", "--engine", "jump", "profile:hz:9 { @ = count(); }", "--", "true"]));
    assert!(status.code() == Some(125) && stderr.contains("--engine"), "{stderr}");
}

fn no_command() {
    let scratch = Scratch::new();
    let path = scratch.path().join("nothing");
    std::fs::write(&path, "no program").expect("there is room");
    for path in [path.as_path(), Path::new("/no/such/program")] {
        let (status, stdout, stderr) =
            run(dprobes().args(["trace", "profile:hz:99 { @ = count(); }", "--"]).arg(path));
        assert!(matches!(status.code(), Some(126 | 127)) && stdout.is_empty(), "{stdout}\n{stderr}");
        assert!(stderr.contains("cannot"), "{stderr}");
    }
}
