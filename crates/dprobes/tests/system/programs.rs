//! Real programs with probes on malloc and free: their output does not change, and the hits equal
//! the calls counted by a preloaded library in the same run (tests/targets/malloccount.c says why
//! the two are the same number).

use crate::support::{Run, Scratch, counting, find_program, need, run, target};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The C library of this machine's programs.
pub(crate) fn c_library() -> Option<PathBuf> {
    let list = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = list
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .find(|path| path.contains("/libc.so"))?;
    Some(PathBuf::from(path))
}

/// The two counters of malloccount.c.
fn counters(file: &Path) -> [u64; 2] {
    let bytes = std::fs::read(file).expect("the counters can be read");
    [0, 8].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("two numbers of eight bytes")))
}

/// Runs a command three times: unchanged, with only the counting library, and with probes too.
fn malloc_and_free(words: &[&str], at_least: u64) {
    let library = need!("programs", crate::support::variant("malloccount", "malloccount.so", &[]), "gcc");
    let launcher = need!("programs", target("preload"), "gcc and a static C library");
    let libc = need!("programs", c_library(), "a shared C library");
    let scratch = Scratch::new();
    let file = scratch.path().join("counters");
    let count_file = || std::fs::write(&file, [0; 16]).expect("the counters can be made");

    let (status, stdout, stderr) = run(Command::new(words[0]).args(&words[1..]));
    count_file();
    let mut preloaded = Command::new(&launcher);
    preloaded.arg(&library).arg(&file).args(words);
    let (again, counted_stdout, _) = run(&mut preloaded);
    assert_eq!((again, &counted_stdout), (status, &stdout), "the counting library changes nothing: {stderr}");
    assert!(counters(&file)[0] >= at_least, "{:?}: too few calls to prove anything", counters(&file));

    count_file();
    let head = [launcher.as_os_str(), library.as_os_str(), file.as_os_str()];
    let outcome = Run::new(&counting(&libc, ["malloc", "free"]))
        .on(head.into_iter().chain(words.iter().map(|word| word.as_ref())));
    assert_eq!((outcome.status, &outcome.stdout), (status, &stdout), "{outcome:#?}");
    let hits = [outcome.stats.hits(1), outcome.stats.hits(2)];
    assert_eq!(hits, counters(&file), "malloc and free: hits, and calls counted: {outcome:#?}");
    assert_eq!(outcome.stats.locals, hits);
}

#[test]
fn python() {
    let python = need!("programs", find_program("python3"), "python3");
    let script = "import json, re\n\
                  table = {str(i): [i ** 2, 'x' * (i % 700)] for i in range(400)}\n\
                  text = json.dumps(table, sort_keys=True)\n\
                  print(len(text), sum(map(int, re.findall(r'\\d+', text))), sorted(table)[:5])\n";
    malloc_and_free(&[&python.to_string_lossy(), "-I", "-S", "-c", script], 500);
}

#[test]
fn sqlite() {
    let sqlite = need!("programs", find_program("sqlite3"), "sqlite3");
    let script = "create table t(a integer primary key, b text); \
                  with recursive n(i) as (select 1 union all select i + 1 from n where i < 300) \
                  insert into t select i, hex(i * 7919) from n; \
                  select count(*), sum(a), max(b) from t; \
                  select b, count(*) from t group by substr(b, 1, 2) order by 2 desc, 1 limit 5;";
    malloc_and_free(&[&sqlite.to_string_lossy(), ":memory:", script], 500);
}

#[test]
fn gcc_with_the_compiler_assembler_and_linker_it_starts() {
    let gcc = need!("programs", find_program("gcc"), "gcc");
    let scratch = Scratch::new();
    let source =
        scratch.file("hello.c", "int puts(const char *);\nint main(void) { return puts(\"hello\") < 0; }\n");
    let program = scratch.path().join("hello");
    let words = [&*gcc, "-O1".as_ref(), "-o".as_ref(), &program, &source].map(|word| word.to_string_lossy());
    malloc_and_free(&words.each_ref().map(|word| &**word), 2000);
    let (status, stdout, _) = run(&mut Command::new(&program));
    assert!(status.success() && stdout == "hello\n", "the compiled program runs");
}
