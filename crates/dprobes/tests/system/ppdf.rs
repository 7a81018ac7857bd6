//! PPDFs: built once, applied where the module is the same, refused where it is not.

use crate::i386::target_32;
use crate::support::{
    Outcome, Run, Scratch, Server, attach_file, counting, dprobes, need, repository, run, target,
    text_differences, variant,
};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The machines that a PPDF may be for: each promise is tested with the programs of both.
pub(super) const KINDS: [Kind; 2] = [Kind { narrow: false }, Kind { narrow: true }];

/// The programs of one machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    /// Whether it is i386.
    pub(super) narrow: bool,
}

impl Kind {
    /// A program under test, built for the machine.
    pub(super) fn target(self, name: &str, flags: &[&str]) -> Option<PathBuf> {
        match self.narrow {
            true => target_32(name, flags),
            false => variant(name, &format!("{name}{}", flags.concat()), flags),
        }
    }
}

/// Calls of each function of the target `store` in 20 rounds, in the order of the points below.
pub(super) const CALLS: [u64; 4] = [1, 20, 40, 1];

/// Counts in the four functions of the target `store`, which are of two groups and two types.
pub(super) fn store(name: &str) -> String {
    let points = [
        ("store_open", "life", "in"),
        ("store_read", "data", "in"),
        ("store_write", "data", "out"),
        ("store_close", "life", "out"),
    ];
    let mut text = format!(
        "name = \"{name}\"\nmodtype = user\nvars = 4\ngroupdef = life data other\ntypedef = in out\n"
    );
    for (number, (point, group, kind)) in points.into_iter().enumerate() {
        let minor = number + 1;
        text += &format!(
            "offset = {point}\nminor = {minor}\ngroup = {group}\ntype = {kind}\ninc lv, {number}\nexit\n"
        );
    }
    text
}

/// Builds a PPDF; returns its path and the messages.
#[track_caller]
pub(super) fn build(scratch: &Scratch, program: &str, options: &[&OsStr]) -> (PathBuf, String) {
    let rpn = scratch.file("program.rpn", program);
    let ppdf = scratch.path().join("program.ppdf");
    let mut command = dprobes();
    command.arg("build-ppdf").arg(&rpn).arg("-o").arg(&ppdf).args(options);
    let (status, stdout, stderr) = run(&mut command);
    assert!(status.success() && stdout.is_empty() && stderr.lines().count() == 1, "{status}: {stderr}");
    // Neither the program's text nor anything else may be needed from here on.
    std::fs::remove_file(rpn).expect("it was written");
    (ppdf, stderr)
}

/// Runs dprobes, which refuses; returns its only line, but for notes on the program.
#[track_caller]
pub(super) fn refusal<W: AsRef<OsStr>>(status: i32, words: impl IntoIterator<Item = W>) -> String {
    let mut command = dprobes();
    command.args(words);
    let (ended, stdout, stderr) = run(&mut command);
    assert_eq!((ended.code(), stdout.as_str()), (Some(status), ""), "{stderr}");
    let is_note = |line: &&str| line.starts_with("dprobes: note: ");
    let lines: Vec<&str> = stderr.lines().filter(|line| !is_note(line)).collect();
    assert!(lines.len() == 1 && lines[0].starts_with("dprobes: error: "), "{stderr}");
    lines[0].to_owned()
}

pub(super) fn hits(outcome: &Outcome) -> Vec<(u32, u64)> {
    outcome.stats.probes.iter().map(|probe| (probe.minor, probe.hits)).collect()
}

pub(super) fn build_id(module: &Path) -> String {
    use object::Object;
    let bytes = std::fs::read(module).expect("the module can be read");
    let file = object::File::parse(&*bytes).expect("it is an ELF file");
    let id = file.build_id().expect("its notes are sound").expect("it has a build-id");
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn counts_are_those_of_the_program_it_was_built_from() {
    for kind in KINDS {
        counts_are_those_of_the_program_it_was_built_from_of(kind);
    }
}

pub(super) fn counts_are_those_of_the_program_it_was_built_from_of(kind: Kind) {
    let program = need!("ppdf", kind.target("store", &[]), "gcc and gcc -m32");
    let text = store(&program.to_string_lossy());
    let scratch = Scratch::new();
    let (ppdf, said) = build(&scratch, &text, &[]);
    assert!(said.contains("4 probes") && said.contains(&build_id(&program)), "{said}");
    let on = [program.as_os_str(), "20".as_ref()];
    let compiled = Run::new(&text).on(on).ended_with(3);
    let applied = Run::file(&ppdf).on(on).ended_with(3);
    let expected: Vec<(u32, u64)> = (1..).zip(CALLS).collect();
    assert_eq!(hits(&applied), expected, "{applied:#?}");
    assert_eq!(hits(&compiled), expected, "{compiled:#?}");
    assert_eq!((applied.stdout, applied.stats.locals), (compiled.stdout, compiled.stats.locals));
}

#[test]
fn a_library_is_found_by_its_name_and_the_example_counts_the_same() {
    let program = need!("ppdf", target("leaf"), "gcc");
    let example = repository().join("examples/malloc.rpn");
    let text = std::fs::read_to_string(&example).expect("the example is there");
    let scratch = Scratch::new();
    let (ppdf, said) = build(&scratch, &text, &["-D".as_ref(), "LARGE=1000".as_ref()]);
    assert!(said.contains("libc"), "{said}");
    let compiled = Run::file(&example).option("-DLARGE=1000").on([&program]).ended_with(7);
    let applied = Run::file(&ppdf).on([&program]).ended_with(7);
    assert!(compiled.stats.locals[0] > 0 && compiled.stats.locals[1] > 0, "{compiled:#?}");
    assert_eq!(applied.stats.locals, compiled.stats.locals);
    assert_eq!(applied.headers().len(), compiled.headers().len());
}

#[test]
fn it_is_applied_to_a_running_process() {
    for kind in KINDS {
        it_is_applied_to_a_running_process_of(kind);
    }
}

pub(super) fn it_is_applied_to_a_running_process_of(kind: Kind) {
    let program = need!("ppdf", kind.target("server", &[]), "gcc and gcc -m32");
    let scratch = Scratch::new();
    let (ppdf, _) = build(&scratch, &counting(&program, ["server_work"]), &[]);
    let mut server = Server::start(&program, [] as [&str; 0]);
    server.line();
    let mut attached = attach_file(server.pid(), &ppdf, &[]);
    attached.wait_for(server.pid(), &program, "server_work");
    assert_eq!(server.ask("call 50"), "done 50");
    let outcome = attached.stop(libc::SIGINT);
    assert_eq!(outcome.stats.hits(1), 50, "{outcome:#?}");
    assert_eq!(text_differences(server.pid()), [""; 0]);
}

#[test]
fn groups_and_types_select_in_every_spelling_of_the_manual() {
    let program = need!("ppdf", target("store"), "gcc");
    let text = store(&program.to_string_lossy());
    let scratch = Scratch::new();
    let (ppdf, _) = build(&scratch, &text, &[]);
    let rpn = scratch.file("again.rpn", &text);
    let cases: [(&[&str], &[u32]); 9] = [
        (&[], &[1, 2, 3, 4]),
        (&["--group", "data"], &[2, 3]),
        (&["--group", "=", "life"], &[1, 4]),
        (&["--type", "=", "out"], &[3, 4]),
        (&["--type=OUT"], &[3, 4]),
        (&["--group", "life", "data", "--type", "in"], &[1, 2]),
        (&["--group=life,data", "--type=in"], &[1, 2]),
        (&["--group", "life", "--group", "data", "--type", "in", "out"], &[1, 2, 3, 4]),
        (&["--group", "data", "--type", "out"], &[3]),
    ];
    for (options, minors) in cases {
        for file in [&ppdf, &rpn] {
            let mut applied = Run::file(file);
            for option in options {
                applied = applied.option(option);
            }
            let outcome = applied.on([program.as_os_str(), "20".as_ref()]).ended_with(3);
            let expected: Vec<(u32, u64)> =
                minors.iter().map(|minor| (*minor, CALLS[*minor as usize - 1])).collect();
            assert_eq!(hits(&outcome), expected, "{options:?}: {outcome:#?}");
        }
    }
    // The list may stand before the file, too.
    let mut command = dprobes();
    command.args(["run", "--group", "data", "life", "--type", "in"]).arg(&ppdf).arg("--").arg(&program);
    assert_eq!(run(&mut command).0.code(), Some(3));
}

#[test]
fn an_unknown_group_or_type_is_told_with_those_there_are() {
    let program = need!("ppdf", target("store"), "gcc");
    let text = store(&program.to_string_lossy());
    let scratch = Scratch::new();
    let (ppdf, _) = build(&scratch, &text, &[]);
    let rpn = scratch.file("again.rpn", &text);
    for file in [&ppdf, &rpn] {
        let file = file.to_str().expect("a plain path");
        let program = program.to_str().expect("a plain path");
        let said = refusal(125, ["run", file, "--group", "date", "--", program]);
        assert!(said.contains("no group `date`; the program's groups are `life`, `data`, `other`"), "{said}");
        assert!(said.contains("did you mean `data`?"), "{said}");
        let said = refusal(1, ["attach", "-p", "1", file, "--type", "data"]);
        assert!(said.contains("no type `data`; the program's types are `in`, `out`"), "{said}");
        let said = refusal(125, ["run", file, "--group", "other", "--type", "in", "--", program]);
        assert!(
            said.contains("no probe of the program is in the group `other` and of the type `in`"),
            "{said}"
        );
    }
}
