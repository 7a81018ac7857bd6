//! Stacks of programs without frame pointers are those that gdb shows.
//!
//! A program that does the same each time runs under gdb, which says the stack at each hit of an
//! instruction, and then under dprobes: both must have seen the same stacks, one after the other.
//! Addresses differ from run to run, so each is compared as a file and an offset in it.

use super::support::{Scratch, Server, dprobes, file_offset, run};
use super::tracing::Tracing;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use testing::{Trials, find_program, go_target, have, need, output, repository, rounds, target, variant};

/// Adds the tests.
pub(crate) fn add(trials: &mut Trials) {
    trials.add("unwinding: malloc in python3", python);
    trials.add("unwinding: malloc in redis", redis);
    trials.add("unwinding: recursion, and calls by the C library", recursion);
    trials.add("unwinding: a static program", static_program);
    trials.add("unwinding: musl", musl);
    trials.add("unwinding: exceptions of C++", exceptions);
    trials.add("unwinding: handlers of signals", signals);
    for engine in ["jump", "trap"] {
        trials.add(format!("unwinding: a library that comes and goes ({engine})"), move || plugin(engine));
        trials.add(format!("unwinding: a child has its parent's tables ({engine})"), move || child(engine));
    }
    for engine in ["auto", "trap"] {
        trials.add(format!("unwinding: Go ({engine})"), move || go(engine));
    }
}

/// How long a program may take to be ready.
const LIMIT: Duration = Duration::from_secs(60);

/// What is compared.
struct Plan<'a> {
    test: &'a str,
    program: &'a Path,
    arguments: Vec<String>,
    /// The file with the function, and its name in attach points.
    module: (&'a Path, &'a str),
    function: &'a str,
    /// How many hits.
    hits: usize,
}

/// The variables of a program, which differ in nothing between two runs.
fn variables(maps: &Path) -> Vec<(&'static str, String)> {
    let maps = maps.display().to_string();
    vec![("PYTHONHASHSEED", "0".to_owned()), ("PYTHONMALLOC", "malloc".to_owned()), ("MAPS", maps)]
}

/// The stacks that gdb shows.
fn by_gdb(plan: &Plan<'_>, scratch: &Scratch) -> Vec<Vec<String>> {
    let out = scratch.path().join("sequence");
    let offset = file_offset(plan.module.0, plan.function).expect("the function");
    let script = repository().join("crates/dprobes/tests/scripts/unwinding/sequence.py");
    let set = variables(&scratch.path().join("maps"));
    let set: Vec<String> = set.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-nx", "-batch", "-x"]).arg(script).arg("--args").arg(plan.program).args(&plan.arguments);
    gdb.env("SEQUENCE_OUT", &out).env("SEQUENCE_MODULE", plan.module.0);
    gdb.env("SEQUENCE_OFFSET", offset.to_string()).env("SEQUENCE_HITS", plan.hits.to_string());
    gdb.env("SEQUENCE_SET", set.join(" ")).env_remove("LD_BIND_NOW");
    gdb.stdin(std::process::Stdio::null()).current_dir(scratch.path());
    let said = output(&mut gdb);
    let text = std::fs::read_to_string(&out).unwrap_or_else(|error| panic!("{gdb:?}: {error}\n{said}"));
    text.lines().map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

/// A mapping of a file: its addresses, its offset, and the file's name.
type Mapping = (u64, u64, u64, String);

fn mappings(text: &str) -> Vec<Mapping> {
    let hex = |text: &str| u64::from_str_radix(text, 16).expect("a number");
    let mapping = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let path = Path::new(*fields.get(5).filter(|path| path.starts_with('/'))?);
        let (start, end) = fields[0].split_once('-')?;
        Some((hex(start), hex(end), hex(fields[2]), path.file_name()?.to_string_lossy().into_owned()))
    };
    text.lines().filter_map(mapping).collect()
}

/// The stacks in what a script has printed, as gdb shows them.
fn stacks(printed: &str, mappings: &[Mapping]) -> Vec<Vec<String>> {
    let shown = |line: &str| {
        let address = u64::from_str_radix(line, 16).unwrap_or_else(|_| panic!("{line} is no address"));
        let found = mappings.iter().find(|(start, end, ..)| (*start..*end).contains(&address));
        match found {
            Some((start, _, offset, name)) => format!("{name}+{:x}", address - start + offset),
            None => format!("?+{address:x}"),
        }
    };
    let blocks = printed.split("\n\n").map(str::trim).filter(|block| !block.is_empty());
    blocks.map(|block| block.lines().map(str::trim).map(shown).collect()).collect()
}

fn script(plan: &Plan<'_>) -> String {
    format!("uprobe:{}:{} {{ printf(\"%s\\n\", ustack(raw)); }}", plan.module.1, plan.function)
}

/// Compares what gdb shows with what both engines find.
fn compare(plan: &Plan<'_>) {
    let scratch = Scratch::new();
    let expected = by_gdb(plan, &scratch);
    assert!(!expected.is_empty(), "{}: gdb has seen no hit", plan.test);
    for engine in ["jump", "trap"] {
        let maps = scratch.path().join("maps");
        let _ = std::fs::remove_file(&maps);
        let printed = scratch.path().join("printed");
        let mut command = trace(&scratch, engine, &script(plan));
        command.arg(plan.program).args(&plan.arguments).current_dir(scratch.path());
        command.env_clear().envs(variables(&maps));
        let (status, _, stderr) = run(&mut command);
        assert!(status.success(), "{}: {status}\n{stderr}", plan.test);
        let printed = std::fs::read_to_string(&printed).expect("what it has printed");
        let maps = mappings(&std::fs::read_to_string(&maps).expect("its mappings"));
        agree(plan, engine, &expected, stacks(&printed, &maps));
    }
}

/// Checks that stacks are those that gdb shows.
fn agree(plan: &Plan<'_>, engine: &str, expected: &[Vec<String>], mut found: Vec<Vec<String>>) {
    // gdb stops the program when its libraries have begun, which is after their constructors.
    let is_early = |stack: &Vec<String>| stack.last().is_some_and(|frame| frame.starts_with("ld-linux"));
    let early = found.iter().position(|stack| !is_early(stack)).unwrap_or(found.len());
    found.drain(..early);
    let test = plan.test;
    assert!(found.len() >= expected.len(), "{test} ({engine}): {} hits, not {}", found.len(), expected.len());
    for (number, (expected, found)) in expected.iter().zip(&found).enumerate() {
        assert_eq!(found, expected, "{test} ({engine}): hit {number}");
    }
    println!("{test} ({engine}): {} stacks are gdb's", expected.len());
}

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
        let program = deep(&scratch, "musl-gcc", name, flags);
        for engine in ["jump", "trap"] {
            let script = "uprobe:a.out:deep_recurse { printf(\"%s\\n\", ustack()); }";
            let (printed, _) = named(trace(&scratch, engine, script).arg(&program), &scratch);
            // Its rounds recurse up to 29 times.
            let depths: Vec<usize> = (0..40).flat_map(|round| 1..=round % 30 + 1).collect();
            assert_eq!(printed.len(), depths.len(), "{name} ({engine})");
            for (stack, depth) in printed.iter().zip(depths) {
                let (own, main) = stack.split_at(depth);
                assert!(own.iter().all(|name| name == "deep_recurse"), "{name} ({engine}): {stack:?}");
                assert_eq!(main.first().map(String::as_str), Some("main"), "{name} ({engine}): {stack:?}");
            }
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

/// A script that prints stacks with names, on a process.
fn trace_names(server: &Server, engine: &str) -> Tracing {
    let pid = server.pid().to_string();
    let script = "uprobe:a.out:deep_leaf { printf(\"%s\\n\", ustack()); }";
    let tracing = Tracing::start(&["--lossless", "--engine", engine, "-p", &pid, script]);
    tracing.says("armed");
    tracing
}

/// The names of the functions in each stack.
fn names(printed: &str) -> Vec<Vec<String>> {
    let blocks = printed.split("\n\n").map(str::trim).filter(|block| !block.is_empty());
    let name = |line: &str| line.trim().rsplit_once('+').map_or(line.trim(), |(name, _)| name).to_owned();
    blocks.map(|block| block.lines().map(name).collect()).collect()
}

/// The names of the functions in each stack that a script prints, and what is said beside.
fn named(trace: &mut Command, scratch: &Scratch) -> (Vec<Vec<String>>, String) {
    let printed = scratch.path().join("printed");
    let (status, _, stderr) = run(trace);
    assert!(status.success(), "{status}\n{stderr}");
    (names(&std::fs::read_to_string(printed).expect("what it has printed")), stderr)
}

/// `dprobes trace`, whose script prints into the scratch directory.
fn trace(scratch: &Scratch, engine: &str, script: &str) -> Command {
    let mut command = dprobes();
    command.args(["trace", "--lossless", "--engine", engine, "-o"]).arg(scratch.path().join("printed"));
    command.arg(script).arg("--");
    command
}

/// A library that is mapped after the script has begun, again and again.
fn plugin(engine: &str) {
    let test = "unwinding: a library";
    let program = need!(test, target("deep"), "gcc");
    let flags = ["-DLIBRARY", "-shared", "-fPIC"];
    let library = need!(test, variant("deep", "deep.so", &flags), "gcc");
    let mut server = Server::start(&program, [Path::new("open"), &library]);
    assert_eq!(server.line(), "ready");
    let tracing = trace_names(&server, engine);
    const ROUNDS: usize = 12;
    for _ in 0..ROUNDS {
        assert_eq!(server.ask("again"), "done");
    }
    let (status, printed) = tracing.stop(libc::SIGINT);
    assert!(status.success(), "{status}");
    let found = names(&printed);
    assert_eq!(found.len(), ROUNDS, "{printed}");
    let expected = ["deep_leaf", "deep_within"].into_iter().chain(["deep_inside"; 5]).chain(["main"]);
    let expected: Vec<&str> = expected.collect();
    for stack in found {
        assert_eq!(stack[..expected.len()], expected);
        assert_eq!(stack.last().map(String::as_str), Some("_start"), "{stack:?}");
    }
    assert_eq!(server.end().0.code(), Some(0));
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
    let mut command = dprobes();
    command.args([
        "trace",
        "--lossless",
        "--engine",
        engine,
        script,
        "--",
        "/usr/bin/python3",
        "-c",
        program,
    ]);
    let (status, printed, stderr) = run(&mut command);
    assert!(status.success(), "{status}\n{stderr}");
    let found = names(&printed);
    assert_eq!(found.len(), 20, "{printed}");
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
