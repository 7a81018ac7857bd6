//! Compares the stacks that a script prints with those that gdb shows.

use std::path::Path;
use std::process::Command;

use testing::{output, repository};

use super::super::support::{Scratch, file_offset, run};
use super::shown::trace;

/// What is compared.
pub(super) struct Plan<'a> {
    pub(super) test: &'a str,
    pub(super) program: &'a Path,
    pub(super) arguments: Vec<String>,
    /// The file with the function, and its name in attach points.
    pub(super) module: (&'a Path, &'a str),
    pub(super) function: &'a str,
    /// How many hits.
    pub(super) hits: usize,
}

/// The variables of a program, which differ in nothing between two runs.
pub(super) fn variables(maps: &Path) -> Vec<(&'static str, String)> {
    let maps = maps.display().to_string();
    vec![("PYTHONHASHSEED", "0".to_owned()), ("PYTHONMALLOC", "malloc".to_owned()), ("MAPS", maps)]
}

/// The stacks that gdb shows.
pub(super) fn by_gdb(plan: &Plan<'_>, scratch: &Scratch) -> Vec<Vec<String>> {
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
pub(super) type Mapping = (u64, u64, u64, String);

pub(super) fn mappings(text: &str) -> Vec<Mapping> {
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
pub(super) fn stacks(printed: &str, mappings: &[Mapping]) -> Vec<Vec<String>> {
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

pub(super) fn script(plan: &Plan<'_>) -> String {
    format!("uprobe:{}:{} {{ printf(\"%s\\n\", ustack(raw)); }}", plan.module.1, plan.function)
}

/// Compares what gdb shows with what both engines find.
pub(super) fn compare(plan: &Plan<'_>) {
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
pub(super) fn agree(plan: &Plan<'_>, engine: &str, expected: &[Vec<String>], mut found: Vec<Vec<String>>) {
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
