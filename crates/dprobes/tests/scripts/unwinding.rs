//! Stacks of programs without frame pointers are those that gdb shows.
//!
//! A program that does the same each time runs under gdb, which says the stack at each hit of an
//! instruction, and then under dprobes: both must have seen the same stacks, one after the other.
//! Addresses differ from run to run, so each is compared as a file and an offset in it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use testing::{Trials, find_program, go_target, have, need, output, repository, rounds, target};

use super::support::{Scratch, run};
use super::tracing::Tracing;
use gdb::{Plan, agree, by_gdb, compare, mappings, script, stacks, variables};
use shown::{named, trace};

mod gdb;
mod libraries;
mod shown;

/// Adds the tests.
pub(crate) fn add(trials: &mut Trials) {
    trials.add("unwinding: malloc in python3", python);
    trials.add("unwinding: malloc in redis", redis);
    trials.add("unwinding: recursion, and calls by the C library", recursion);
    trials.add("unwinding: a static program", static_program);
    trials.add("unwinding: musl", musl);
    trials.add("unwinding: symbols in a separate file", separate_symbols);
    trials.add("unwinding: maps by stacks are folded", folded);
    trials.add("unwinding: exceptions of C++", exceptions);
    trials.add("unwinding: handlers of signals", signals);
    for engine in ["jump", "trap"] {
        trials.add(format!("unwinding: a library that comes and goes ({engine})"), move || {
            libraries::plugin(engine)
        });
        trials.add(format!("unwinding: a child has its parent's tables ({engine})"), move || child(engine));
    }
    trials.add("unwinding: full blocks are replaced", libraries::full_blocks);
    trials.add("unwinding: a killed tracer leaves no tables", libraries::killed);
    trials.add("unwinding: few addresses", libraries::few_addresses);
    for engine in ["auto", "trap"] {
        trials.add(format!("unwinding: Go ({engine})"), move || go(engine));
    }
}

/// How long a program may take to be ready.
const LIMIT: Duration = Duration::from_secs(60);

/// The file that a program loads for a library, by the beginning of its name.
fn library(program: &Path, name: &str) -> Option<PathBuf> {
    let listed = output(Command::new("ldd").arg(program));
    let path = listed.lines().find(|line| line.trim().starts_with(name))?.split_whitespace().nth(2)?;
    std::fs::canonicalize(path).ok()
}

/// How many stacks of large programs are compared.
fn many() -> usize {
    rounds(300, 1000)
}

/// Debian's python3, which has no frame pointers.
fn python() {
    let test = "unwinding: python3";
    if !have(test, &["gdb", "python3", "ldd"]) {
        return;
    }
    let python = std::fs::canonicalize("/usr/bin/python3").expect("it is there");
    let program = "import json, os
def f(n):
    return json.dumps({'a': [n] * 10, 'b': str(n)}) if n < 1 else f(n - 1)
for i in range(300):
    f(5)
    'x'.join(sorted({str(k) for k in range(i % 20)}))
open(os.environ['MAPS'], 'w').write(open('/proc/self/maps').read())";
    let scratch = Scratch::new();
    let file = scratch.path().join("program.py");
    std::fs::write(&file, program).expect("the scratch directory");
    let libc = need!(test, library(&python, "libc.so"), "a python3 with a shared C library");
    compare(&Plan {
        test,
        program: &python,
        arguments: ["-I", "-S", &*file.display().to_string()].map(str::to_owned).to_vec(),
        module: (&libc, "libc"),
        function: "malloc",
        hits: many(),
    });
}

/// Debian's redis, which has no frame pointers, as it starts.
fn redis() {
    let test = "unwinding: redis";
    if !have(test, &["gdb", "redis-server", "redis-cli", "ldd"]) {
        return;
    }
    let program = find_program("redis-server").expect("it is there");
    let allocator = need!(test, library(&program, "libjemalloc.so"), "a redis with a shared allocator");
    let scratch = Scratch::new();
    let socket = scratch.path().join("redis");
    let words = ["--port", "0", "--loglevel", "warning", "--unixsocket"].map(str::to_owned);
    let plan = Plan {
        test,
        program: &program,
        arguments: words.into_iter().chain([socket.display().to_string()]).collect(),
        module: (&allocator, "libjemalloc"),
        function: "malloc",
        hits: many(),
    };
    let expected = by_gdb(&plan, &scratch);
    assert_eq!(expected.len(), plan.hits);
    for engine in ["jump", "trap"] {
        let _ = std::fs::remove_file(&socket);
        let printed = scratch.path().join("printed");
        let mut command = trace(&scratch, engine, &script(&plan));
        command.arg(&program).args(&plan.arguments).current_dir(scratch.path());
        command.env_clear().envs(variables(&scratch.path().join("maps")));
        let tracing = Tracing::of(command);
        let ask = |words: &[&str]| Command::new("redis-cli").arg("-s").arg(&socket).args(words).output();
        let begin = Instant::now();
        let pid = loop {
            let said =
                ask(&["info", "server"]).map(|said| String::from_utf8_lossy(&said.stdout).into_owned());
            let said = said.unwrap_or_default();
            match said.lines().find_map(|line| line.strip_prefix("process_id:")) {
                Some(pid) => break pid.trim().to_owned(),
                None => assert!(begin.elapsed() < LIMIT, "redis is not ready"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let maps = mappings(&std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs"));
        ask(&["shutdown", "nosave"]).expect("it runs");
        let (status, _) = tracing.end();
        assert!(status.success(), "{status}");
        let printed = std::fs::read_to_string(&printed).expect("what it has printed");
        agree(&plan, engine, &expected, stacks(&printed, &maps));
    }
}

/// Compares the stacks of a program that was just built.
fn check(test: &str, program: &Path, function: &str) {
    compare(&Plan {
        test,
        program,
        arguments: Vec::new(),
        module: (program, "a.out"),
        function,
        hits: many(),
    });
}

fn recursion() {
    let test = "unwinding: recursion";
    if have(test, &["gdb", "gcc"]) {
        check(test, &target("deep").expect("gcc is there"), "deep_leaf");
    }
}

/// The target `deep`, built with another compiler or more flags.
fn deep(scratch: &Scratch, compiler: &str, name: &str, flags: &[&str]) -> PathBuf {
    let program = scratch.path().join(name);
    let mut command = Command::new(compiler);
    command.arg("-o").arg(&program).arg(repository().join("tests/targets/deep.c"));
    output(command.args(["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"]).args(flags));
    program
}

fn static_program() {
    let test = "unwinding: static";
    if have(test, &["gdb", "gcc"]) {
        let scratch = Scratch::new();
        check(test, &deep(&scratch, "gcc", "static", &["-static"]), "qsort");
    }
}

/// musl has no unwinding information: stacks are known up to its functions.
fn musl() {
    if !have("unwinding: musl", &["musl-gcc"]) {
        return;
    }
    let scratch = Scratch::new();
    for (name, flags) in [("shared", &[][..]), ("static", &["-static"])] {
        recurses(&scratch, &deep(&scratch, "musl-gcc", name, flags));
    }
}

/// Debian's way: symbols are in a file of their own, which the program names.
fn separate_symbols() {
    if !have("unwinding: separate symbols", &["gcc", "objcopy"]) {
        return;
    }
    let scratch = Scratch::new();
    let program = deep(&scratch, "gcc", "separate", &["-g"]);
    for words in [
        &["--only-keep-debug", "separate", "separate.debug"][..],
        &["--strip-all", "--add-gnu-debuglink=separate.debug", "separate"],
    ] {
        output(Command::new("objcopy").args(words).current_dir(scratch.path()));
    }
    let symbols = output(Command::new("nm").arg("-D").arg(&program));
    assert!(!symbols.contains("deep_"), "{symbols}");
    recurses(&scratch, &program);
}

/// What programs for flame graphs read.
fn folded() {
    let program = need!("unwinding: folded", target("deep"), "gcc");
    let scratch = Scratch::new();
    let script = "uprobe:a.out:deep_recurse { @[comm, ustack()] = count(); @all = count(); }";
    let mut command = trace(&scratch, "auto", script);
    command.arg(&program);
    let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let mut command = Command::new(command.get_program());
    command.args(&arguments[..1]).args(["-f", "folded"]).args(&arguments[1..]);
    let (status, _, stderr) = run(&mut command);
    assert!(status.success(), "{status}\n{stderr}");
    let printed = std::fs::read_to_string(scratch.path().join("printed")).expect("what it has printed");
    let (mut sum, mut all) = (0, 0);
    for line in printed.lines().filter(|line| !line.is_empty()) {
        if let Some(count) = line.strip_prefix("@all: ") {
            all = count.parse().expect("a count");
            continue;
        }
        let (frames, count) = line.rsplit_once(' ').expect("a count");
        let frames: Vec<&str> = frames.split(';').collect();
        assert_eq!(frames[..2], ["deep", "_start"], "{line}");
        let main = frames.iter().position(|frame| *frame == "main").expect("it is called by main");
        assert!(frames.len() > main + 1, "{line}");
        assert!(frames[main + 1..].iter().all(|frame| *frame == "deep_recurse"), "{line}");
        sum += count.parse::<u64>().expect("a count");
    }
    assert!(sum > 300 && sum == all, "{printed}");
}

/// Checks the stacks of `deep`, by the names of its functions.
fn recurses(scratch: &Scratch, program: &Path) {
    for engine in ["jump", "trap"] {
        let script = format!("uprobe:{}:deep_recurse {{ printf(\"%s\\n\", ustack()); }}", program.display());
        let (printed, said) = named(trace(scratch, engine, &script).arg(program), scratch);
        let name = program.display();
        // Its rounds recurse up to 29 times.
        let depths: Vec<usize> = (0..40).flat_map(|round| 1..=round % 30 + 1).collect();
        assert_eq!(printed.len(), depths.len(), "{name} ({engine}): {said}");
        for (stack, depth) in printed.iter().zip(depths) {
            let (own, main) = stack.split_at(depth);
            assert!(own.iter().all(|name| name == "deep_recurse"), "{name} ({engine}): {stack:?}");
            assert_eq!(main.first().map(String::as_str), Some("main"), "{name} ({engine}): {stack:?}");
        }
    }
}

/// A source of the crate `unwind`'s tests, with a destructor that writes its mappings.
fn with_maps(scratch: &Scratch, compiler: &str, source: &str) -> PathBuf {
    let maps = scratch.path().join("maps.c");
    let text = "#include <stdio.h>
#include <stdlib.h>
__attribute__((destructor)) static void write_maps(void) {
    FILE *from = fopen(\"/proc/self/maps\", \"r\"), *to = fopen(getenv(\"MAPS\"), \"w\");
    for (int c; (c = getc(from)) != EOF;) putc(c, to);
    fclose(to);
}
";
    std::fs::write(&maps, text).expect("the scratch directory");
    let program = scratch.path().join("program");
    let source = repository().join("crates/unwind/tests/programs").join(source);
    output(
        Command::new(compiler).args(["-O2", "-fomit-frame-pointer", "-o"]).args([&program, &source, &maps]),
    );
    program
}

fn exceptions() {
    let test = "unwinding: exceptions";
    if !have(test, &["gdb", "g++", "ldd"]) {
        return;
    }
    let scratch = Scratch::new();
    let program = with_maps(&scratch, "g++", "throws.cc");
    let libc = need!(test, library(&program, "libc.so"), "a shared C library");
    let (arguments, hits) = (Vec::new(), many());
    let module = (&*libc, "libc");
    // The unwinder asks for the size of each frame, amid functions of libgcc and libstdc++.
    compare(&Plan { test, program: &program, arguments, module, function: "malloc", hits });
    let unwinder = need!(test, library(&program, "libgcc_s.so"), "a shared libgcc");
    let module = (&*unwinder, "libgcc_s");
    let (arguments, function) = (Vec::new(), "_Unwind_SetIP");
    compare(&Plan { test, program: &program, arguments, module, function, hits });
}

fn signals() {
    let test = "unwinding: signals";
    if have(test, &["gdb", "gcc"]) {
        let scratch = Scratch::new();
        check(test, &with_maps(&scratch, "gcc", "signals.c"), "within");
    }
}

/// A forked child, which executes nothing new.
fn child(engine: &str) {
    let test = "unwinding: a child";
    if !have(test, &["python3", "ldd"]) {
        return;
    }
    let program = "import os
for i in range(20):
    pid = os.fork()
    if pid == 0:
        os.getppid()
        os._exit(0)
    os.waitpid(pid, 0)";
    let script = "uprobe:libc:getppid { printf(\"%s\\n\", ustack()); }";
    let scratch = Scratch::new();
    let mut command = trace(&scratch, engine, script);
    let (found, stderr) = named(command.args(["/usr/bin/python3", "-c", program]), &scratch);
    assert_eq!(found.len(), 20, "{stderr}");
    for stack in &found {
        assert_eq!(stack[0], "getppid", "{stack:?}");
        assert_eq!(stack, &found[0]);
        assert!(stack.len() > 8 && stack.iter().any(|name| name == "Py_BytesMain"), "{stack:?}");
    }
}

/// Go has frame pointers, and tables for debuggers.
fn go(engine: &str) {
    let program = need!("unwinding: go", go_target("goroutines"), "go");
    let script = "uprobe:a.out:\"main.big\" { printf(\"%s\\n\", ustack()); }";
    let scratch = Scratch::new();
    let mut command = trace(&scratch, engine, script);
    let (found, stderr) = named(command.arg(&program).args(["3", "20"]), &scratch);
    assert!(found.len() >= 20, "{} stacks\n{stderr}", found.len());
    for stack in found {
        let [first, middle @ .., caller, last] = &stack[..] else { panic!("{stack:?}") };
        assert_eq!(first, "main.big");
        let is_called = |name: &String| name == "main.deep" || name == "main.main.func1";
        assert!(!middle.is_empty() && middle.iter().all(is_called), "{stack:?}");
        assert!(caller.starts_with("main.main.") && last.starts_with("runtime.goexit"), "{stack:?}");
    }
}
