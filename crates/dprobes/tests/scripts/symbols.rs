//! `uaddr`: the addresses of a program's symbols, in each of its processes.

use super::kernel::can_run;
use super::support::{Scratch, dprobes, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use testing::Trials;

/// Adds the tests.
pub(crate) fn add(trials: &mut Trials) {
    for engine in ["jump", "trap"] {
        for option in ["-pie", "-no-pie"] {
            trials.add(format!("symbols: of a program and a library, {option} ({engine})"), move || {
                let (status, printed, said) = traced(option, &["--engine", engine]);
                assert_eq!((status, said.as_str()), (Some(0), ""));
                assert_eq!(printed, PRINTED);
            });
        }
    }
    trials.add("symbols: those that are not there are refused", refused);
    for engine in ["jump", "trap"] {
        trials.add(format!("symbols: --sym of a stripped program ({engine})"), move || {
            of_another_file(&["--engine", engine]);
        });
    }
    trials.add("bpf: symbols: --sym by the kernel", || {
        if !can_run() {
            return testing::skipped("bpf: symbols: --sym by the kernel", "root, and a kernel with uprobes");
        }
        // An event that only the kernel counts has it run the script.
        of_another_file(&["--kernel"]);
    });
    trials.add("bpf: symbols: by the kernel", || {
        if !can_run() {
            return testing::skipped("bpf: symbols: by the kernel", "root, and a kernel with uprobes");
        }
        by_the_kernel();
    });
}

const LIBRARY: &str = r#"
short limit = 77;
static volatile long hidden = 5;
__attribute__((noipa)) long weigh(long x) { if (x > 1) return x + hidden; if (x < 0) return limit; return 1; }
"#;

/// Each process has its own values, and the child other places for the library than its parent.
const PROGRAM: &str = r#"
#include <sys/wait.h>
#include <unistd.h>
long weigh(long);
unsigned char level = 3;
int count = 7;
char words[12] = "some words";
const char *name = "first";
__attribute__((noipa)) int enter(int n) { if (n == 1) return 10; count += n; return count; }
int main(void) {
    enter(1);
    enter(2);
    weigh(2); weigh(-1); weigh(0);
    int child = fork();
    if (child == 0) { count = 100; level = 9; name = "second"; enter(3); _exit(0); }
    waitpid(child, 0, 0);
    return 0;
}
"#;

const SCRIPT: &str = r#"
uprobe:PROGRAM:enter { printf("%d %d %s %s\n", *uaddr("count"), *uaddr("level"), str(*uaddr("name")), str(uaddr("words"))); }
uretprobe:PROGRAM:enter { printf("then %d, %d bytes\n", *uaddr("count"), sizeof(*uaddr("count"))); }
uretprobe:LIBRARY:weigh { printf("%d %d %d\n", retval, *uaddr("limit"), *uaddr("hidden")); }
uprobe:LIBRARY:weigh { @own[uaddr("weigh") == reg("ip")] = count(); }
"#;

const PRINTED: &str = "7 3 first some words
then 7, 4 bytes
7 3 first some words
then 9, 4 bytes
7 77 5
77 77 5
1 77 5
100 9 second some words
then 103, 4 bytes


@own[true]: 3";

fn compile(scratch: &Scratch, option: &str) -> Option<PathBuf> {
    testing::find_program("gcc")?;
    let (library, program) = (scratch.path().join("libweigh.so"), scratch.path().join("symbols"));
    let source = scratch.file("weigh.c", LIBRARY);
    testing::output(Command::new("gcc").args(["-O1", "-fPIC", "-shared", "-o"]).arg(&library).arg(source));
    let source = scratch.file("symbols.c", PROGRAM);
    let mut command = Command::new("gcc");
    command.args(["-O1", option, "-o"]).arg(&program).arg(source).arg(&library);
    testing::output(&mut command);
    Some(program)
}

fn script(program: &Path, text: &str) -> String {
    let library = program.with_file_name("libweigh.so");
    text.replace("PROGRAM", &program.to_string_lossy()).replace("LIBRARY", &library.to_string_lossy())
}

fn traced(option: &str, options: &[&str]) -> (Option<i32>, String, String) {
    let scratch = Scratch::new();
    let Some(program) = compile(&scratch, option) else {
        testing::skipped("trace: symbols", "gcc");
        return (Some(0), PRINTED.to_owned(), String::new());
    };
    let mut command = dprobes();
    command.arg("trace").args(options).args(["-q", "-e", &script(&program, SCRIPT), "--"]).arg(&program);
    let (status, printed, said) = run(&mut command);
    (status.code(), printed.trim().to_owned(), said)
}

fn refused() {
    let scratch = Scratch::new();
    let Some(program) = compile(&scratch, "-pie") else {
        return testing::skipped("trace: symbols: refused", "gcc");
    };
    for (text, reason) in [
        ("uprobe:PROGRAM:enter { print(uaddr(\"limits\")); }", "has no such symbol"),
        ("uprobe:PROGRAM:enter, uprobe:LIBRARY:weigh { print(uaddr(\"weigh\")); }", "has no such symbol"),
        ("begin { print(uaddr(\"count\")); }", "has no meaning in `begin` probes"),
    ] {
        let (status, _, said) = run(dprobes().args(["trace", "-d", "-e", &script(&program, text)]));
        assert_eq!(status.code(), Some(1), "{text}: {said}");
        assert!(said.contains(reason), "{text}: {said}");
    }
}

fn by_the_kernel() {
    let scratch = Scratch::new();
    let Some(program) = compile(&scratch, "-pie") else {
        return testing::skipped("bpf: symbols: by the kernel", "gcc");
    };
    let tracing = super::tracing::Tracing::start(&["-e", &script(&program, SCRIPT)]);
    // One for each file.
    tracing.says("armed");
    tracing.says("armed");
    testing::output(&mut Command::new(&program));
    let (_, printed) = tracing.stop(libc::SIGINT);
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    // Processors have buffers of their own.
    assert_eq!(sorted(printed.trim()), sorted(PRINTED));
}

/// The functions and types of a stripped program are those of its debug file.
fn of_another_file(options: &[&str]) {
    let scratch = Scratch::new();
    let source = scratch.file(
        "named.c",
        "__attribute__((noipa)) static int sell(int n, const char *name) { return n + *name; }\n\
         int main(void) { return sell(1, \"pear\") + sell(2, \"fig\") == 0; }\n",
    );
    let at = |name: &str| scratch.path().join(name);
    let (whole, stripped, debug) = (at("whole"), at("stripped"), at("debug"));
    testing::output(Command::new("gcc").args(["-g", "-O1"]).arg(source).arg("-o").arg(&whole));
    testing::output(Command::new("objcopy").arg("--only-keep-debug").arg(&whole).arg(&debug));
    testing::output(Command::new("strip").arg(&whole).arg("-o").arg(&stripped));
    let (by_kernel, options) = match options {
        ["--kernel"] => (true, &[][..]),
        _ => (false, options),
    };
    let mut script = "uprobe:PROGRAM:sell { printf(\"%d %s\\n\", args.n, str(args.name)); }\n\
                      uprobe:PROGRAM:named.c:2 { @lines = count(); }"
        .replace("PROGRAM", &stripped.display().to_string());
    if by_kernel {
        script += " software:page-faults:1 { @faults = count(); }";
    }
    let traced = |sym: Option<&Path>| {
        let mut command = dprobes();
        command.args(["trace", "-q"]).args(options);
        if let Some(sym) = sym {
            command.arg("--sym").arg(sym);
        }
        let (status, printed, said) = run(command.arg(&script).arg("--").arg(&stripped));
        (status.code(), printed, said)
    };
    for sym in [&whole, &debug] {
        let (status, printed, said) = traced(Some(sym));
        assert_eq!(status, Some(0), "{said}");
        assert!(printed.starts_with("1 pear\n2 fig\n") && printed.contains("@lines: "), "{printed}{said}");
    }
    let (status, _, said) = traced(None);
    assert!(status != Some(0) && said.contains("sell"), "{said}");
    // Of another program, and what has none.
    for (sym, why) in
        [(std::env::current_exe().expect("it runs"), "build-id"), (stripped.clone(), "no symbols")]
    {
        let (status, _, said) = traced(Some(&sym));
        assert!(status != Some(0) && said.contains(why), "{said}");
    }
    let list = ["trace", "-lv", "--sym"];
    let point = format!("uprobe:{}:s*l", stripped.display());
    let (_, printed, said) = run(dprobes().args(list).arg(&debug).arg(point));
    assert!(
        printed.ends_with(":sell\n    int n\n    const char* name\n    returns int\n"),
        "{printed}{said}"
    );
}
