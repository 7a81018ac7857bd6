//! Tests of template directories: which files they name, which problems they report, and how
//! changes are detected.

use std::path::Path;

use dprobes_trace::template::Templates;
use dprobes_trace::{Items, Record};
use tempfile::TempDir;

fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().expect("room");
    for (name, text) in files {
        write(directory.path(), name, text);
    }
    directory
}

fn write(directory: &Path, name: &str, text: &str) {
    let path = directory.join(name);
    std::fs::create_dir_all(path.parent().expect("a directory")).expect("room");
    std::fs::write(path, text).expect("room");
}

/// The codes of the templates, and the problems without the directory's path.
fn seen(directory: &Path, templates: &Templates) -> (Vec<(u32, u32)>, Vec<String>) {
    let codes = templates.templates().map(|(_, template)| (template.major, template.minor)).collect();
    let own = format!("{}/", directory.display());
    let told = templates.problems().map(|problem| problem.to_string().replace(&own, "")).collect();
    (codes, told)
}

#[test]
fn files_by_their_ending_or_by_their_names_in_the_directory() {
    let files = [
        ("b.fmt", "major=2 minor=1 desc=\"\""),
        ("a.fmt", "major=1 minor=7 desc=\"\""),
        ("c.txt", "nonsense"),
    ];
    let plain = directory(&files);
    let read = Templates::open(plain.path()).expect("templates");
    assert_eq!(seen(plain.path(), &read), (vec![(1, 7), (2, 1)], vec![]));

    let named = directory(&files);
    write(named.path(), "sub/d.text", "major=0x20 minor=1 desc=\"d\"");
    write(
        named.path(),
        "directory",
        "/* two of them */ major=0x20, file=\"sub/d.text\"\nmajor=2 file=\"b.fmt\"",
    );
    for path in [named.path(), &named.path().join("directory")] {
        let read = Templates::open(path).expect("templates");
        assert_eq!(seen(named.path(), &read), (vec![(32, 1), (2, 1)], vec![]));
        assert_eq!(read.files(), 2);
        assert!(read.get(32, 1).is_some_and(|template| template.description == "d"));
        assert!(read.get(1, 7).is_none());
    }
}

#[test]
fn what_is_wrong_with_a_directory_is_told_and_the_rest_is_used() {
    let one = "major=1 minor=1 desc=\"one\"";
    let wrong = directory(&[
        ("one.fmt", one),
        ("other.fmt", "major=3 minor=1 desc=\"\""),
        ("binary.fmt", "major=5 minor=1 desc=\"\""),
        (
            "directory",
            "major=1 file=\"one.fmt\"\nmajor=2 file=\"other.fmt\" file=\"x\"\nmajor=1 file=\"one.fmt\"\nmajor=4 file=\"none\"\nmajor=5 file=\"binary.fmt\" major=6",
        ),
    ]);
    std::fs::write(wrong.path().join("binary.fmt"), b"major=5 minor=1 desc=\"ok\"\nminor=2 desc=\"\xff\"")
        .expect("room");
    let read = Templates::open(wrong.path()).expect("templates");
    let (codes, told) = seen(wrong.path(), &read);
    assert_eq!(codes, [(1, 1), (5, 1)]);
    let first_lines: Vec<&str> = told.iter().flat_map(|text| text.lines().next()).collect();
    assert_eq!(
        first_lines,
        [
            "error: this file has no major code",
            "error: major code 1 has a file already",
            "error: this major code has no file",
            "error: other.fmt: its major code is 3, but directory lists it for 2",
            "error: one.fmt: its major code, 1, is also that of one.fmt, which is used; each file needs its own major code",
            "error: none: No such file or directory (os error 2)",
            "error: the file is not in UTF-8",
        ]
    );
    assert!(told[1].contains(" --> directory:3:7"), "{}", told[1]);

    let same = directory(&[("one.fmt", one), ("two.fmt", "major=1 minor=2 desc=\"two\"")]);
    let read = Templates::open(same.path()).expect("templates");
    assert_eq!(
        seen(same.path(), &read),
        (
            vec![(1, 1)],
            vec![
"error: two.fmt: its major code, 1, is also that of one.fmt, which is used; each file needs its own major code".to_owned()]
        )
    );
}

#[test]
fn what_is_no_directory_of_templates_is_refused() {
    let empty = directory(&[("a.txt", "major=1")]);
    let refused = |path: &Path| Templates::open(path).expect_err("no templates").to_string();
    assert!(refused(empty.path()).contains("neither the index `directory` nor a template file `*.fmt`"));
    assert!(refused(&empty.path().join("nowhere")).contains("No such file"));
    assert!(refused(Path::new("/dev/zero")).contains("is not a regular file"));
    write(empty.path(), "large.fmt", &" ".repeat((1 << 20) + 1));
    let read = Templates::open(empty.path()).expect("a file");
    assert!(seen(empty.path(), &read).1[0].contains("is larger than 1048576 bytes"));
}

#[test]
fn what_has_been_changed_is_read_again() {
    let home = directory(&[("one.fmt", "major=1 minor=1 desc=\"\" fmt=\"%u\"")]);
    let mut templates = Templates::open(home.path()).expect("templates");
    let shown = |templates: &Templates| {
        let mut out = Vec::new();
        let record = Record { major: 1, minor: 1, data: vec![65], word: 8, ..Record::default() };
        templates.format(Items::DEFAULT, &record, &mut out);
        String::from_utf8(out).expect("text").lines().nth(1).map(str::to_owned)
    };
    assert_eq!(shown(&templates).as_deref(), Some("65"));
    assert!(!templates.refresh().expect("it is there"), "nothing was changed");
    write(home.path(), "one.fmt", "major=1 minor=1 desc=\"\" fmt=\"changed %c\"");
    assert!(templates.refresh().expect("it is there"));
    assert_eq!(shown(&templates).as_deref(), Some("changed A"));
    assert!(!templates.refresh().expect("it is there"));

    // A mistake, and its correction.
    write(home.path(), "one.fmt", "major=1 minor=1 desc=\"\" fmt=\"%q\"");
    assert!(templates.refresh().expect("it is there"));
    assert_eq!(templates.problems().count(), 1);
    assert!(shown(&templates).is_some_and(|line| line.starts_with("+00000000 41 ")));
    // A file that replaces another, as editors do.
    write(home.path(), "new", "major=1 minor=1 desc=\"\" fmt=\"%x\"");
    std::fs::rename(home.path().join("new"), home.path().join("one.fmt")).expect("one directory");
    assert!(templates.refresh().expect("it is there"));
    assert_eq!((templates.problems().count(), shown(&templates).as_deref()), (0, Some("41")));

    // One file more, and one less.
    write(home.path(), "two.fmt", "major=2 minor=1 desc=\"\"");
    assert!(templates.refresh().expect("it is there") && templates.get(2, 1).is_some());
    std::fs::remove_file(home.path().join("two.fmt")).expect("it is there");
    assert!(templates.refresh().expect("it is there") && templates.get(2, 1).is_none());
    // The directory is gone: the templates stay.
    std::fs::remove_dir_all(home.path()).expect("ours");
    assert!(templates.refresh().is_err());
    assert_eq!(shown(&templates).as_deref(), Some("41"));
}
