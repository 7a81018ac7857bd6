//! The formatting library, as a program in C uses it: linked to the shared and to the static one.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Scratch, Session, dprobes, find_program, need, repository, run};

/// The directory in which cargo puts the libraries: that of the tests.
fn libraries() -> PathBuf {
    let own = std::env::current_exe().expect("the test has a path");
    own.parent().expect("it is in a directory").to_owned()
}

/// Compiles the program in C against a library; `None` without a compiler.
fn program(directory: &Path, name: &str, library: &[&OsStr]) -> Option<PathBuf> {
    find_program("gcc")?;
    let output = directory.join(name);
    let mut command = Command::new("gcc");
    command.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-I"]);
    command.arg(repository().join("crates/format-c/include")).arg("-o").arg(&output);
    command.arg(repository().join("crates/dprobes/tests/readers/format.c")).args(library);
    let (status, _, stderr) = run(&mut command);
    assert!(status.success(), "{stderr}");
    Some(output)
}

/// The program with the shared library.
fn shared(directory: &Path) -> Option<PathBuf> {
    let libraries = libraries();
    let path = format!("-Wl,-rpath,{}", libraries.display());
    let file = libraries.join("libdprobes_format.so");
    program(directory, "shared", &[file.as_os_str(), path.as_ref()])
}

/// Runs the program with some standard input.
fn given(program: &Path, words: &[&str], input: &[u8]) -> (Option<i32>, String, String) {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it was compiled");
    child.stdin.take().expect("it is a pipe").write_all(input).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_store_is_shown_as_by_dprobes() {
    let session = Session::new();
    let shared = need!("format library", shared(session.path()), "gcc");
    let static_one = libraries().join("libdprobes_format.a");
    let others = ["-lpthread", "-ldl", "-lm"].map(OsStr::new);
    let linked = [&[static_one.as_os_str()], &others[..]].concat();
    let whole = program(session.path(), "static", &linked).expect("there was a compiler");
    let templates = repository().join("examples/templates");
    let templates = templates.to_str().expect("text");
    for (name, options) in [("bare.dpt", &[][..]), ("with.dpt", &["--templates", templates])] {
        let trace = session.path().join(name);
        let trace = trace.to_str().expect("text");
        let mut command = dprobes();
        command.arg("run").args(crate::support::engine()).args(options).args(["-o", trace]);
        command.arg(repository().join("examples/open.rpn"));
        let (status, _, stderr) =
            run(command.args(["--", "sh", "-c", "read a </etc/passwd; read b </etc/group; echo >/dev/null"]));
        assert!(status.success(), "{stderr}");
        for program in [&shared, &whole] {
            for given_templates in [&[][..], &[templates]] {
                let words = [&["store", trace], given_templates].concat();
                let (status, shown, told) = given(program, &words, b"");
                assert_eq!((status, told.as_str()), (Some(0), ""));
                let mut words = vec!["show", trace];
                given_templates.iter().for_each(|directory| words.extend(["--templates", directory]));
                assert_eq!(shown, session.done(&words));
                assert!(shown.lines().count() > 2, "{shown}");
            }
        }
        // A store that was cut short: what is there is shown, and the rest is told.
        let bytes = std::fs::read(trace).expect("it was written");
        let cut = session.path().join("cut.dpt");
        std::fs::write(&cut, &bytes[..bytes.len() - 100]).expect("room");
        let (status, shown, told) = given(&shared, &["store", cut.to_str().expect("text")], b"");
        assert_eq!(status, Some(0), "{told}");
        assert!(!shown.is_empty() && told.contains("8 a part of the store cannot be read"), "{told}");
        assert!(told.contains("the trace has no end"), "{told}");
    }
}

#[test]
fn a_record_and_its_data_are_formatted() {
    let scratch = Scratch::new();
    let shared = need!("format library", shared(scratch.path()), "gcc");
    scratch.file("nine.fmt", "major=9 minor=1 desc=\"work\" fmt=\"count=%4u word=%wx\"");
    let directory = scratch.path().to_str().expect("text");
    // Flags for the codes and the processor, these, and what was logged.
    let record: Vec<u8> = [7u32, 9, 1, 3, 42, 0x10].iter().flat_map(|number| number.to_le_bytes()).collect();
    assert_eq!(
        given(&shared, &["record", directory, "4"], &record),
        (Some(0), "DProbes(9,1) cpu=3: work\ncount=42 word=00000010\n".to_owned(), String::new())
    );
    let (status, _, told) = given(&shared, &["record", directory, "8"], &record[..9]);
    assert_eq!(status, Some(6), "{told}");
    assert!(told.starts_with("6 these bytes are no record: these bytes are no record: "), "{told}");

    let (status, shown, told) = given(&shared, &["data", "7", "1"], &[0, 16, 0, 0, 2]);
    assert_eq!((status, shown.as_str()), (Some(0), "size=4096 flags=WRITE\n"), "{told}");
    assert!(told.contains("this is not a control") && told.contains("templates:1:"), "{told}");
    let (status, _, told) = given(&shared, &["data", "7", "2"], &[]);
    assert_eq!(status, Some(5), "a template with a mistake is not used: {told}");
}

#[test]
fn calls_that_must_not_be_made_have_a_status_and_a_message() {
    let scratch = Scratch::new();
    let shared = need!("format library", shared(scratch.path()), "gcc");
    let (status, shown, told) = given(&shared, &["misuse"], b"");
    assert_eq!((status, shown.as_str()), (Some(0), "no status of this library\n"), "{told}");
    let statuses: Vec<&str> = told.lines().filter_map(|line| line.split(' ').next()).collect();
    let wanted = ["3", "3", "4", "4", "7", "7", "3", "3", "6", "3", "3", "5", "3", "2"];
    assert_eq!(statuses, wanted, "{told}");
    for message in [
        "`directory` is NULL",
        "the templates of `/nowhere` cannot be read",
        "no UTF-8 at byte 0",
        "a word of 5 bytes; 4 or 8 expected",
        "no template has the codes 1,9",
        "the text needs 10 bytes; the buffer has 4",
    ] {
        assert!(told.contains(message), "{message}: {told}");
    }
}
