//! Scripts in all processes, by the kernel. Each test probes a copy of the program under test, so
//! that no other process is hit.

use super::support::{Scratch, Server, dprobes, run, target};
use super::tracing::Tracing;
use std::path::{Path, PathBuf};
use std::process::Command;
use testing::Trials;

/// Adds the tests.
pub(crate) fn add(trials: &mut Trials) {
    let mut one = |name: &'static str, test: fn(&Path)| {
        trials.add(format!("kernel: {name}"), move || {
            let skipped = format!("bpf: scripts: {name}");
            match (can_run(), target("scripted")) {
                (false, _) => {
                    testing::skipped(&skipped, "root, and a kernel with uprobes that runs eBPF programs")
                }
                (_, None) => testing::skipped(&skipped, "gcc"),
                (true, Some(program)) => {
                    let scratch = Scratch::new();
                    let copy = scratch.path().join("scripted");
                    std::fs::copy(program, &copy).expect("there is room");
                    test(&copy);
                }
            }
        });
    };
    one("counts are those of the calls, of many threads and processes", counts);
    one("a script prints what it prints in a process", as_in_a_process);
    one("a script that ends itself", ends_itself);
    one("regular actions work on the same maps", regular);
    one("a full map loses what is new, and says so", full);
    one("strings, stacks and names in keys", long_keys);
    one("entries are removed, and read", entries);
    one("stacks are those of the other engines", stacks);
    one("fields of tracepoints", tracepoints);
    one("what cannot be done in the kernel is refused", refused);
}

pub(super) fn can_run() -> bool {
    testing::is_root()
        && bpf::Feature::RingBuffer.is_available()
        && bpf::Feature::Loop.is_available()
        && Path::new("/sys/bus/event_source/devices/uprobe/type").exists()
}

/// A script in which `{program}` is the path of the program.
pub(super) fn script(text: &str, program: &Path) -> String {
    text.replace("{program}", &program.to_string_lossy())
}

/// Runs a script in the kernel while the program runs; returns what it printed, and the lines that
/// are no empty ones sorted.
fn trace(text: &str, program: &Path, runs: &[&[&str]]) -> String {
    let tracing = Tracing::start(&[&script(text, program)]);
    tracing.says("armed");
    let runs: Vec<_> = runs.iter().map(|words| Command::new(program).args(*words).spawn()).collect();
    for run in runs {
        assert_eq!(run.expect("it starts").wait().expect("it ends").code(), Some(3));
    }
    let (status, stdout) = tracing.stop(libc::SIGTERM);
    assert_eq!(status.code(), Some(0));
    sorted(&stdout)
}

fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    lines.join("\n")
}

fn counts(program: &Path) {
    let text = "uprobe:{program}:scripted_size {
            @ = count(); @n++; @by[comm] = count(); @odd[arg0 % 2] = count(); @sum = sum(arg0);
            @most = max(arg0); @least = min(arg0 + 5); @seen[arg0] = 1;
        }
        uretprobe:{program}:scripted_size { @back = count(); }";
    let runs: [&[&str]; 4] =
        [&["threads", "1000"], &["threads", "1000"], &["calls", "500"], &["forks", "100"]];
    // Two of eight threads with 1000 calls each, one with 500, four with 100.
    let calls = 16_000 + 500 + 400;
    let sum = 16 * (999 * 1000 / 2) + 499 * 500 / 2 + 4 * (99 * 100 / 2);
    let seen = trace(text, program, &runs);
    for line in [
        format!("@: {calls}"),
        format!("@n: {calls}"),
        format!("@back: {calls}"),
        format!("@by[scripted]: {}", calls - 100),
        // What a child has executed anew.
        "@by[exe]: 100".to_owned(),
        format!("@odd[0]: {}", calls / 2),
        format!("@odd[1]: {}", calls / 2),
        format!("@sum: {sum}"),
        "@most: 999".to_owned(),
        "@least: 5".to_owned(),
    ] {
        assert!(seen.lines().any(|it| it == line), "{line} in\n{seen}");
    }
    assert_eq!(seen.lines().filter(|line| line.starts_with("@seen[")).count(), 1000, "{seen}");
}

/// The same script by the kernel and by jumps in the process.
fn as_in_a_process(program: &Path) {
    const TEXT: &str = "struct point { short x; unsigned char tag[4]; }
        struct node { int value; char name[16]; struct node *next; struct point at; }
        uprobe:{program}:scripted_size { @size[arg0 / 3] = avg(arg0); @h = hist(arg0); @l = lhist(arg0, 0, 8, 2); }
        uprobe:{program}:scripted_name {
            printf(\"%s %d %s\\n\", str(arg0), strlen(str(arg0)), comm); @name[str(arg0)] = count();
            if (str(arg0) == \"green\") { @green++; }
            if (strcontains(str(arg0), \"ed\")) { @red++; }
            @last = str(arg0); @parts[str(arg0), strncmp(str(arg0), \"grey\", 3)] = stats(1);
        }
        uprobe:{program}:scripted_many { printf(\"%d %d %d\\n\", arg5, arg6, arg7); @pair = (arg0, arg7); }
        uprobe:{program}:scripted_node {
            $node = (struct node *)arg0;
            printf(\"%d %s %d %d %s\\n\", $node->value, $node->name, $node->next->value, $node->at.x, func);
            @shift[-$node->next->value % 4, $node->value >> 1] = sum($node->value / -2);
        }
        uretprobe:{program}:scripted_outer { @r = max(retval); @signed = min((int64)retval - 100); }";
    let by_kernel = trace(TEXT, program, &[&["calls", "7"]]);
    let mut command = dprobes();
    command.args(["trace", "--engine", "jump"]).arg(script(TEXT, program)).arg("--").arg(program);
    let (status, stdout, stderr) = run(command.args(["calls", "7"]));
    assert_eq!(status.code(), Some(3), "{stderr}");
    assert_eq!(by_kernel, sorted(&stdout));
    assert!(by_kernel.contains("41 first -7 5 scripted_node"), "{by_kernel}");
}

/// A program with frame pointers, which lives until what it has done is printed.
const FRAMES: &str = "#include <unistd.h>
    __attribute__((noinline)) int leaf(int n) { volatile int x = n * 3; return x + 1; }
    __attribute__((noinline)) int middle(int n) { return leaf(n) + 1; }
    __attribute__((noinline)) int outer(int n) { return middle(n) * 2; }
    int main(void) { int sum = outer(5); sleep(2); return sum == 34 ? 3 : 4; }";

/// The kernel walks by frame pointers, which the entry of a function has not set up yet. Where its
/// end has restored the caller's, the return address is on the stack.
fn stacks(program: &Path) {
    let directory = program.parent().expect("it is in a directory");
    let (source, built) = (directory.join("frames.c"), directory.join("frames"));
    std::fs::write(&source, FRAMES).expect("there is room");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-fcf-protection=none"]);
    let status = gcc.arg("-o").arg(&built).arg(&source).status();
    assert!(status.is_ok_and(|status| status.success()));
    // Behind `push %rbp` and `mov %rsp, %rbp`, which have four bytes.
    let text = "uprobe:{program}:leaf { printf(\"entry %s\\n\", ustack(8)); }
        uprobe:{program}:leaf+4 { printf(\"inside %s\\n\", ustack(8)); }
        uretprobe:{program}:leaf { printf(\"return %s\\n\", ustack(8)); }";
    let text = script(text, &built);
    let functions = ["leaf", "middle", "outer", "main"];
    // Of each place, the frames of the program's own functions.
    let walked = |options: &[&str], more: &str| {
        let mut command = dprobes();
        command.args(["trace", "-q"]).args(options).arg(format!("{text} {more}")).arg("--").arg(&built);
        let (status, stdout, stderr) = run(&mut command);
        assert_eq!(status.code(), Some(3), "{stderr}");
        ["entry", "inside", "return"].map(|place| {
            let stack = stdout.split_once(place).expect(&stdout).1.lines().skip(1);
            let frames = stack.map(|line| line.trim().to_owned());
            let is_own = |frame: &String| {
                frame.split_once('+').is_some_and(|(function, _)| functions.contains(&function))
            };
            frames.take_while(is_own).collect::<Vec<String>>()
        })
    };
    let jump = walked(&["--engine", "jump"], "");
    assert_eq!(jump, walked(&["--engine", "trap"], ""));
    for (stack, at) in jump.iter().zip(["leaf+0", "leaf+4", "leaf+"]) {
        let names: Vec<&str> = stack.iter().filter_map(|frame| Some(frame.split_once('+')?.0)).collect();
        assert!(names == functions && stack[0].starts_with(at), "{jump:?}");
    }
    let without_caller = |stack: &[String]| [&stack[..1], &stack[2..]].concat();
    let [entry, inside, back] = walked(&[], "profile:hz:1 { @n = count(); }");
    assert_eq!(inside, jump[1]);
    // Linux 6.12 and later see where functions begin with `push %rbp`.
    assert!(entry == jump[0] || entry == without_caller(&jump[0]), "{entry:?}");
    assert_eq!(back, jump[2]);
}

fn ends_itself(program: &Path) {
    let text = "begin { printf(\"begin\\n\"); @ = 3; }
        uprobe:{program}:scripted_size / arg0 == 2 / { printf(\"size %d\\n\", arg0); exit(4); }
        end { printf(\"end %d\\n\", @); clear(@); }";
    let tracing = Tracing::start(&[&script(text, program)]);
    tracing.says("armed");
    assert_eq!(Command::new(program).args(["calls", "5"]).status().expect("it starts").code(), Some(3));
    let (status, stdout) = tracing.end();
    assert_eq!((status.code(), stdout.trim_end()), (Some(4), "begin\nsize 2\nend 3"));
}

/// An action in dprobes itself reads, prints, clears and counts what handlers in the kernel count.
fn regular(program: &Path) {
    let text = "uprobe:{program}:scripted_size { @[comm] = count(); @all = count(); }
        interval:ms:50 { if (@all > 0) { print(@); clear(@); print(@all); zero(@all); @ticks = count(); exit(); } }";
    let tracing = Tracing::start(&[&script(text, program)]);
    tracing.says("armed");
    let mut server = Server::start(program, ["serve"]);
    assert_eq!(server.line(), "ready");
    server.ask("x");
    let (status, stdout) = tracing.end();
    assert_eq!(status.code(), Some(0));
    let seen = sorted(&stdout);
    for line in ["@[scripted]: 1", "@all: 1", "@all: 0", "@ticks: 1"] {
        assert!(seen.contains(line), "{line} in\n{seen}");
    }
    assert_eq!(server.end().0.code(), Some(3));
}

fn full(program: &Path) {
    let text =
        "config = { max_map_keys = 4 } uprobe:{program}:scripted_size { @[arg0] = count(); @x[arg0] = 1; }";
    let tracing = Tracing::start(&[&script(text, program)]);
    tracing.says("armed");
    assert_eq!(Command::new(program).args(["calls", "100"]).status().expect("it starts").code(), Some(3));
    super::tracing::send(tracing.pid(), libc::SIGTERM);
    let counted = tracing.says("warning: @ was full");
    let put = tracing.says("warning: @x was full");
    let (_, stdout) = tracing.end();
    for (line, name) in [(counted, "@["), (put, "@x[")] {
        let there = stdout.lines().filter(|line| line.starts_with(name)).count();
        let lost = line.split("full ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<usize>().ok());
        assert_eq!(there + lost.expect("a number"), 100, "{line}\n{stdout}");
    }
}

fn long_keys(program: &Path) {
    let text = "uprobe:{program}:scripted_name {
            @[str(arg0), comm, func] = count(); @stack[ustack(1)] = count(); @where[probe] = count();
        }";
    let seen = trace(text, program, &[&["calls", "30"], &["calls", "30"]]);
    for name in ["red", "green", "blue"] {
        assert!(seen.contains(&format!("@[{name}, scripted, scripted_name]: 20")), "{seen}");
    }
    assert!(seen.contains(&format!("@where[uprobe:{}:scripted_name]: 60", program.display())), "{seen}");
    // Two processes, each with one stack.
    assert_eq!(seen.lines().filter(|line| *line == "]: 30").count(), 2, "{seen}");
}

fn entries(program: &Path) {
    let text = "uprobe:{program}:scripted_size {
            @start[tid] = nsecs; @sum[comm] = sum(2); @n[arg0] = arg0 * 10;
            if (arg0 == 5) { delete(@n[4]); delete(@sum[comm]); }
            if (has_key(@n, 3) && !has_key(@n, 4)) { @gone = count(); }
        }
        uretprobe:{program}:scripted_size / @start[tid] / {
            $took = nsecs - @start[tid]; delete(@start[tid]);
            if ($took > 0 && $took < 10000000000) { @good = count(); }
            @tens = @n[9]; @copy[1] = (@n[3], comm);
        }";
    let seen = trace(text, program, &[&["calls", "10"]]);
    // The sum begins anew in the sixth call; the key 4 is missing in each but the fifth.
    for line in ["@good: 10", "@sum[scripted]: 8", "@tens: 90", "@copy[1]: (30, scripted)", "@gone: 6"] {
        assert!(seen.lines().any(|it| it == line), "{line} in\n{seen}");
    }
    assert!(!seen.contains("@start[") && !seen.contains("@n[4]"), "{seen}");
}

/// A command with tracefs mounted for it alone, if it is not there.
pub(super) fn with_tracefs(words: &[&str]) -> Command {
    const MOUNT: &str =
        "test -d /sys/kernel/tracing/events || mount -t tracefs tracefs /sys/kernel/tracing; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", MOUNT, "sh"]).args(words);
    command
}

fn tracepoints(program: &Path) {
    let there = with_tracefs(&["test", "-d", "/sys/kernel/tracing/events/syscalls"]).status();
    if !there.is_ok_and(|status| status.success()) {
        return testing::skipped("bpf: scripts: tracepoints", "tracefs, mounted or to be mounted");
    }
    let mut server = Server::start(program, ["serve"]);
    assert_eq!(server.line(), "ready");
    let text = format!(
        "tracepoint:syscalls:sys_enter_write / pid == {} / {{
            @[args.fd, comm] = count(); @bytes = sum(args.count); printf(\"%s\\n\", str(args->buf, args.count));
        }}
        tracepoint:syscalls:sys_exit_write / pid == {} / {{ @r = sum(args.ret); @s[ustack(1)] = count(); }}",
        server.pid(),
        server.pid()
    );
    let itself: PathBuf = dprobes().get_program().into();
    let tracing = Tracing::of(with_tracefs(&[&itself.to_string_lossy(), "trace", &text]));
    tracing.says("armed");
    for _ in 0..5 {
        assert_eq!(server.ask("hello"), "hello");
    }
    let (status, stdout) = tracing.stop(libc::SIGTERM);
    assert_eq!(status.code(), Some(0));
    for text in ["@[1, scripted]: 5", "@bytes: 30", "@r: 30", "hello"] {
        assert!(stdout.contains(text), "{text} in\n{stdout}");
    }
    assert_eq!(server.end().0.code(), Some(3));
}

fn refused(program: &Path) {
    for (action, reason) in [
        ("for ($entry : @) { @other = $entry.1; } @[1] = 2;", "cannot go through the entries of a map"),
        ("@ = tseries(arg0, 1s, 5);", "a series of intervals"),
    ] {
        let text = script(&format!("uprobe:{{program}}:scripted_size {{ {action} }}"), program);
        let (status, _, stderr) = run(dprobes().arg("trace").arg(&text));
        assert_eq!(status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(reason) && stderr.contains("-p PID"), "{stderr}");
    }
    let text = script("let @x = lruhash(5); uprobe:{program}:scripted_size { @x[arg0] = 1; }", program);
    let (status, _, stderr) = run(dprobes().arg("trace").arg(&text));
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("@x is declared to drop") && stderr.contains("hash(5)"), "{stderr}");
    // Nothing else can be meant than the kernel.
    let (status, _, stderr) = run(dprobes()
        .args(["trace", "--engine", "jump"])
        .arg(script("uprobe:{program}:scripted_size { @ = count(); }", program)));
    assert!(status.code() == Some(1) && stderr.contains("--engine"), "{stderr}");
}
