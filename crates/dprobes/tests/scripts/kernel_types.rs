//! Probes of the kernel with arguments by name, and what `-l` lists of the kernel.

use std::collections::BTreeSet;
use std::process::Command;

use super::kernel::{can_run, with_tracefs};
use super::support::{dprobes, run};
use testing::Trials;

/// Adds the tests.
pub(crate) fn add(trials: &mut Trials) {
    let mut one = |name: &'static str, test: fn()| {
        trials.add(format!("kernel types: {name}"), move || match can_run() {
            true => test(),
            false => testing::skipped(
                &format!("bpf: scripts: {name}"),
                "root, and a kernel with uprobes that runs eBPF programs",
            ),
        });
    };
    one("raw tracepoints have their arguments, by number and by name", raw);
    one("patterns of raw tracepoints", patterns);
    one("fields of tracepoints have their types", fields);
    one("structs and constants of the kernel are known", structs);
    one("functions by type, or the reason why not", functions);
    one("what is listed of the kernel", listed);
    one("tracepoints are listed as bpftrace does", listed_tracepoints);
}

/// Runs a script on a command, which succeeds; returns what was printed.
fn trace(text: &str, command: &[&str]) -> String {
    let (status, stdout, stderr) = run(dprobes().arg("trace").arg(text).arg("--").args(command));
    assert_eq!(status.code(), Some(0), "{stderr}");
    stdout
}

/// Whether the kernel tells the names of this tracepoint's arguments.
fn has_names() -> bool {
    let (_, stdout, _) = run(dprobes().args(["trace", "-lv", "rawtracepoint:sched_process_fork"]));
    stdout.contains("struct task_struct * child")
}

fn raw() {
    // A shell that forks twice, and waits for both.
    let shell = ["/bin/sh", "-c", "(exit 0); (exit 0); exit 0"];
    let stdout = trace(
        "rawtracepoint:sched_process_fork { @[comm, probetype] = count(); @same = sum(arg0 == arg1); }
        rt:sys_enter /arg1 == 39/ { @getpid = count(); }",
        &shell,
    );
    assert!(stdout.contains("@[sh, rawtracepoint]: 2\n") && stdout.contains("@same: 0\n"), "{stdout}");
    if !has_names() {
        return testing::skipped("optional: names of arguments of tracepoints", "a kernel that tells them");
    }
    let stdout = trace(
        "rawtracepoint:sched_process_fork
            { @[args.parent->comm, args.parent->tgid == pid] = count(); @is[args.parent == arg0, args.child->real_parent == args.parent] = count(); }",
        &shell,
    );
    assert!(stdout.contains("@[sh, true]: 2\n") || stdout.contains("@[sh, 1]: 2\n"), "{stdout}");
    assert!(stdout.contains("@is[true, true]: 2\n") || stdout.contains("@is[1, 1]: 2\n"), "{stdout}");
}

fn patterns() {
    let shell = ["/bin/sh", "-c", "(exit 0); (exit 0); exit 0"];
    let stdout = trace("rawtracepoint:sched_process_fo* { @ = count(); }", &shell);
    assert_eq!(stdout.trim(), "@: 2");
    let (status, _, stderr) = run(dprobes().args(["trace", "rawtracepoint:no_such_* { @ = count(); }"]));
    assert!(status.code() == Some(1) && stderr.contains("nothing of the kernel matches"), "{stderr}");
    let (status, _, stderr) = run(dprobes().args(["trace", "rawtracepoint:no_such { @ = count(); }"]));
    assert!(status.code() == Some(1) && stderr.contains("has no tracepoint `no_such`"), "{stderr}");
    // It has two arguments, and the data of who listens.
    let (status, _, stderr) =
        run(dprobes().args(["trace", "rawtracepoint:sched_process_fork { print(arg9); }"]));
    assert!(status.code() == Some(1) && stderr.contains("does not have"), "{stderr}");
}

/// Whether tracefs can be read in a mount namespace.
fn has_tracefs(name: &str) -> bool {
    let there = with_tracefs(&["test", "-d", "/sys/kernel/tracing/events/sched"]).status();
    let is = there.is_ok_and(|status| status.success());
    if !is {
        testing::skipped(&format!("bpf: scripts: {name}"), "tracefs, mounted or to be mounted");
    }
    is
}

fn fields() {
    if !has_tracefs("types of tracepoints") {
        return;
    }
    let itself = dprobes();
    let itself = itself.get_program().to_string_lossy();
    let text = "tracepoint:sched:sched_process_fork { @size = sizeof(args.child_pid); @child = args.child_pid > 1; }
        tracepoint:sched:sched_switch /args.prev_comm == \"sh\"/ { @off[args.prev_comm, str(args.prev_comm)] = count(); @is = args.prev_pid == tid; }
        tracepoint:sched:sched_process_exec { @exec[str(args.filename)] = count(); }
        tracepoint:syscalls:sys_enter_openat /comm == \"sh\"/ { @dfd[args.dfd & 0xffffffff] = count(); @name = str(args.filename); }
        tracepoint:syscalls:sys_exit_kill { @ret[args.ret] = count(); }";
    let command = [
        &*itself,
        "trace",
        text,
        "--",
        "/bin/sh",
        "-c",
        "(exit 0); kill -0 999999999; cat < /etc/hostname > /dev/null; exit 0",
    ];
    let (status, stdout, stderr) = run(&mut with_tracefs(&command));
    assert_eq!(status.code(), Some(0), "{stderr}");
    for line in ["@exec[/bin/sh]: 1", "@size: 4", "@child: true", "@ret[-3]: 1", "@name: /dev/null"] {
        assert!(stdout.lines().any(|it| it == line), "{line} in\n{stdout}\n{stderr}");
    }
    assert!(stdout.contains("@dfd[4294967196]: "), "{stdout}");
    assert!(stdout.contains("@off[sh, sh]: ") && stdout.contains("@is: true\n"), "{stdout}\n{stderr}");
}

fn structs() {
    // Enums, structs and names of types from the kernel; its task by a raw tracepoint's argument.
    let text = "rawtracepoint:sched_process_fork {
            $task = (struct task_struct *)arg0;
            @[$task->comm, $task->tgid == pid, $task->pid == tid] = count();
            @kind = PIDTYPE_TGID; @size[sizeof(struct list_head), sizeof(pid_t)] = 1;
            @up = $task->real_parent->tgid;
        }";
    let stdout = trace(text, &["/bin/sh", "-c", "(exit 0); exit 0"]);
    assert!(stdout.contains("@[sh, true, true]: 1\n") || stdout.contains("@[sh, 1, 1]: 1\n"), "{stdout}");
    assert!(stdout.contains("@size[16, 4]: 1\n"), "{stdout}");
    assert!(stdout.contains("@kind: PIDTYPE_TGID\n") || stdout.contains("@kind: 1\n"), "{stdout}");
    let up = stdout.lines().find_map(|line| line.strip_prefix("@up: ")?.parse::<u32>().ok());
    assert!(up.is_some_and(|up| up > 1), "{stdout}");
    let (status, _, stderr) = run(dprobes().args([
        "trace",
        "rawtracepoint:sched_process_fork { print(((struct task_struct *)arg0)->no_such); }",
    ]));
    assert!(status.code() == Some(1) && stderr.contains("no_such"), "{stderr}");
}

fn functions() {
    let text = "fentry:vfs_read /comm == \"dd\" && args.count == 4096/ { @[args.count] = count(); }
        kretfunc:vfs_read /comm == \"dd\" && retval == 4096/ { @back[retval, args.count] = count(); }";
    let mut command = dprobes();
    command.args([
        "trace",
        text,
        "--",
        "dd",
        "if=/dev/zero",
        "of=/dev/null",
        "bs=4096",
        "count=3",
        "status=none",
    ]);
    let (status, stdout, stderr) = run(&mut command);
    if bpf::Feature::Fentry.is_available() {
        assert_eq!(status.code(), Some(0), "{stderr}");
        assert!(stdout.contains("@[4096]: 3\n") && stdout.contains("@back[4096, 4096]: 3\n"), "{stdout}");
    } else {
        assert_eq!((status.code(), &*stdout), (Some(125), ""), "{stderr}");
        for said in [
            "runs no programs at functions by their types (`fentry`)",
            "use `kprobe:vfs_read`",
            "script:1:1",
            "`kretprobe:vfs_read`",
        ] {
            assert!(stderr.contains(said), "{said} in\n{stderr}");
        }
    }
    let (status, _, stderr) = run(dprobes().args(["trace", "fentry:vfs_read { print(args.nothing); }"]));
    assert!(status.code() == Some(1) && stderr.contains("nothing"), "{stderr}");
    let (status, _, stderr) = run(dprobes().args(["trace", "fentry:no_such_function { print(1); }"]));
    assert!(status.code() == Some(1) && stderr.contains("no function `no_such_function`"), "{stderr}");
}

/// What `-l` prints for an attach point.
fn list(options: &[&str]) -> String {
    let (status, stdout, stderr) = run(dprobes().arg("trace").args(options));
    assert_eq!((status.code(), &*stderr), (Some(0), ""), "{options:?}: {stderr}");
    stdout
}

fn listed() {
    assert_eq!(
        list(&["-lv", "fentry:vfs_read"]),
        "fentry:vfs_read\n    struct file * file\n    char * buf\n    size_t count\n    loff_t * pos\n    returns ssize_t\n"
    );
    let returns = list(&["-lv", "kretfunc:vfs_read"]);
    assert!(
        returns.starts_with("fexit:vfs_read\n    struct file") && returns.ends_with("    ssize_t retval\n"),
        "{returns}"
    );
    let functions = list(&["-l", "fentry:vfs_rea*"]);
    assert!(functions.lines().any(|line| line == "fentry:vmlinux:vfs_read"), "{functions}");
    let raw = list(&["-l", "rawtracepoint:sched_sw*"]);
    assert!(raw.lines().any(|line| line == "rawtracepoint:vmlinux:sched_switch"), "{raw}");
    // By the kernel's own list of its functions.
    let kprobes = list(&["-l", "kprobe:vfs_re*"]);
    let symbols = std::fs::read_to_string("/proc/kallsyms").expect("it can be read");
    let symbols: BTreeSet<String> = symbols
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (kind, name) = (words.nth(1)?, words.next()?);
            (matches!(kind, "t" | "T") && words.next().is_none() && name.starts_with("vfs_re"))
                .then(|| format!("kprobe:{name}"))
        })
        .collect();
    assert_eq!(kprobes.lines().map(String::from).collect::<BTreeSet<_>>(), symbols);
    assert!(list(&["-l", "software:*"]).contains("software:page-faults:\n"));
    assert!(list(&["-l", "h:cache-*"]).contains("hardware:cache-misses:\n"));
    let (status, _, stderr) = run(dprobes().args(["trace", "-l", "kprobe:no_such_*"]));
    assert!(status.code() == Some(1) && stderr.contains("no_such_"), "{stderr}");
}

fn listed_tracepoints() {
    if !std::path::Path::new("/sys/kernel/tracing/events").exists() {
        let (status, _, stderr) = run(dprobes().args(["trace", "-l", "tracepoint:sched:*"]));
        assert_eq!(status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("mount -t tracefs") && stderr.contains("rawtracepoint:*"), "{stderr}");
    }
    if !has_tracefs("tracepoints are listed") {
        return;
    }
    let itself = dprobes();
    let itself = itself.get_program().to_string_lossy();
    let output = |words: &[&str]| {
        let (status, stdout, stderr) = run(&mut with_tracefs(words));
        assert!(status.success(), "{words:?}: {stderr}");
        stdout
    };
    let by_us = |options: &[&str]| output(&[&[&*itself, "trace"], options].concat());
    let all = by_us(&["-l", "tracepoint:sched:sched_wak*"]);
    assert!(all.lines().any(|line| line == "tracepoint:sched:sched_waking"), "{all}");
    assert!(by_us(&["-l", "tracepoint:s*:sched_wakin?"]).contains("tracepoint:sched:sched_waking\n"));
    let fields = by_us(&["-lv", "tracepoint:sched:sched_switch"]);
    assert!(fields.contains("    char prev_comm[16]\n    pid_t prev_pid\n"), "{fields}");
    if !testing::is_root() || Command::new("bpftrace").arg("--version").output().is_err() {
        return testing::skipped("optional: bpftrace lists tracepoints", "bpftrace");
    }
    for point in ["tracepoint:sched:sched_*", "tracepoint:syscalls:sys_enter_open*"] {
        let sorted = |text: String| text.lines().map(String::from).collect::<BTreeSet<_>>();
        assert_eq!(sorted(by_us(&["-l", point])), sorted(output(&["bpftrace", "-l", point])), "{point}");
    }
    for point in [
        "tracepoint:sched:sched_switch",
        "tracepoint:sched:sched_process_exec",
        "tracepoint:syscalls:sys_enter_openat",
    ] {
        assert_eq!(by_us(&["-lv", point]), output(&["bpftrace", "-lv", point]), "{point}");
    }
}
