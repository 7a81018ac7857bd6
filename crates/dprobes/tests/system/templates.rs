//! Records shown by templates while they are made.

use crate::support::{Run, Session, dprobes, find_program, need, repository, run, start_server, target};
use std::path::PathBuf;
use std::time::Duration;

fn templates() -> PathBuf {
    repository().join("examples/templates").canonicalize().expect("the examples have templates")
}

fn example(name: &str) -> Run {
    let program = repository().join("examples").join(name).canonicalize().expect("it is there");
    Run::file(&program).option("--templates").option(templates())
}

/// The text after each header line with these codes.
fn bodies<'a>(records: &'a str, start: &str) -> Vec<&'a str> {
    let lines: Vec<&str> = records.lines().collect();
    let pairs = lines.windows(2).filter(|pair| pair[0].starts_with(start));
    pairs.map(|pair| pair[1]).collect()
}

#[test]
fn the_examples_are_shown_by_theirs() {
    let outcome = example("string.rpn").on(["ls", "/"]).ended_with(0);
    assert_eq!(bodies(&outcome.records, "DProbes(3,1) "), ["'/'"], "{outcome:#?}");
    assert!(outcome.records.contains(": environment variable asked for\n"), "{outcome:#?}");
    assert_eq!(
        outcome.headers().len() as u64,
        outcome.stats.logged(1) + outcome.stats.logged(2),
        "{outcome:#?}"
    );

    let outcome = example("malloc.rpn").on(["ls", "-l", "/"]).ended_with(0);
    let sizes = bodies(&outcome.records, "DProbes(1,1) ");
    assert_eq!(sizes.len() as u64, outcome.stats.logged(1), "{outcome:#?}");
    for size in sizes {
        let size: u64 = size.strip_prefix("size=").and_then(|size| size.parse().ok()).expect("a size");
        assert!((4096..1 << 32).contains(&size), "{outcome:#?}");
    }

    let outcome = example("register.rpn").on(["false"]).ended_with(0);
    assert_eq!(bodies(&outcome.records, "DProbes(4,1) "), ["status=1"], "{outcome:#?}");

    let outcome = example("ignore.rpn").on(["ls", "-l", "/"]).ended_with(0);
    let bodies = bodies(&outcome.records, "DProbes(5,1) ");
    assert_eq!(bodies.len(), 5, "{outcome:#?}");
    for body in bodies {
        let (size, caller) =
            body.strip_prefix("size=").and_then(|body| body.split_once(" from 0x")).expect("two fields");
        assert!(size.parse::<u64>().is_ok_and(|size| size < 1 << 32), "{body}");
        // The caller is in a library; libraries are mapped at most 1 TiB and a stack below 2^47.
        let caller = u64::from_str_radix(caller, 16).expect("an address");
        assert!((0x7e << 40..1 << 47).contains(&caller), "{body}");
    }
}

#[test]
fn names_of_bits_and_values_under_conditions_are_shown_and_converted() {
    let session = Session::new();
    let file = |name: &str| session.path().join(name).to_str().expect("text").to_owned();
    let (made, trace) = (file("made"), file("open.dpt"));
    let mut command = dprobes();
    command.arg("run").args(crate::support::engine()).arg("--templates").arg(templates());
    command.args(["-o", &trace]).arg(repository().join("examples/open.rpn"));
    let (status, _, stderr) = run(command.args(["--", "sh", "-c", "echo >$1; read line <$1", "sh", &made]));
    assert!(status.success(), "{stderr}");
    // The shell opens it twice: to make it, and to read it, which takes no mode.
    let shown = session.done(&["show", &trace]);
    let of_file: Vec<&str> = shown.lines().filter(|line| line.starts_with(&format!("'{made}'"))).collect();
    let wanted =
        [format!("'{made}' flags=O_WRONLY|O_CREAT|O_TRUNC mode=0x01b6"), format!("'{made}' flags=O_RDONLY")];
    assert_eq!(of_file, wanted, "{shown}");
    let json = session.done(&["convert", "--to", "json", &trace, "-o", "-"]);
    for fields in [
        format!(r#""fields":{{"field1":"{made}","flags":"O_WRONLY|O_CREAT|O_TRUNC","mode":"0x1b6"}}"#),
        format!(r#""fields":{{"field1":"{made}","flags":"O_RDONLY","mode":null}}"#),
    ] {
        assert_eq!(json.matches(&fields).count(), 1, "{json}");
    }
    session.done(&["convert", "--to", "ctf", &trace, "-o", &file("ctf")]);
    let reader = need!("templates: CTF", find_program("babeltrace2"), "babeltrace2");
    let (status, told, stderr) = run(std::process::Command::new(reader).arg(file("ctf")));
    assert!(status.success(), "{stderr}");
    let of_file: Vec<&str> = told.lines().filter(|line| line.contains(&made)).collect();
    assert_eq!(of_file.len(), 2, "{told}");
    assert!(
        of_file[0].contains("flags = \"O_WRONLY|O_CREAT|O_TRUNC\", _mode_length = 1, mode = [ [0] = 0x1B6 ]"),
        "{told}"
    );
    assert!(of_file[1].contains("flags = \"O_RDONLY\", _mode_length = 0, mode = [ ]"), "{told}");
}

#[test]
fn every_example_template_is_right() {
    let (status, stdout, stderr) = run(dprobes().args(["templates", "check"]).arg(templates()));
    assert!(status.success() && stderr.is_empty(), "{stderr}");
    assert!(stdout.ends_with(": 6 templates in 5 files\n"), "{stdout}");
}

#[test]
fn a_template_that_is_changed_is_read_again_and_its_mistakes_are_told() {
    let module = need!("templates", target("server"), "gcc");
    let session = Session::new();
    let module_copy = session.path().join("server");
    std::fs::copy(&module, &module_copy).expect("room for a copy");
    let name = module_copy.to_str().expect("text");
    let program = session.program(
        "log.rpn",
        &format!("name = \"{name}\"\nmodtype = user\nmajor = 9\noffset = server_work\nminor = 1\npush 65\nlog 1\nexit\n"),
    );
    let template = |format: &str| {
        session.program("nine.fmt", &format!("major=9 minor=1 desc=\"work\" fmt=\"{format}\""));
    };
    template("number %wu");
    let records = session.path().join("records");
    let home = session.path().to_str().expect("text");
    let mut server = start_server(&module_copy);
    session.done(&["insert", "--templates", home, "-o", records.to_str().expect("text"), &program]);
    let mut calls = 0;
    let mut becomes = |wanted: &str| {
        for _ in 0..100 {
            assert_eq!(server.ask("call 1"), "done 1");
            calls += 1;
            std::thread::sleep(Duration::from_millis(100));
            let text = std::fs::read_to_string(&records).expect("records");
            if text.ends_with(wanted) {
                return assert_eq!(text.matches(": work\n").count(), calls, "{text}");
            }
        }
        panic!("{wanted} was not seen");
    };
    becomes("number 65\n");
    template("letter %c%7i");
    becomes("letter A\n");
    template("letter %k");
    // A template with a mistake is not used: the records lose their description.
    for _ in 0..100 {
        assert_eq!(server.ask("call 1"), "done 1");
        std::thread::sleep(Duration::from_millis(100));
        if std::fs::read_to_string(&records).expect("records").ends_with("*A.......*\n") {
            break;
        }
    }
    assert!(std::fs::read_to_string(&records).expect("records").ends_with("*A.......*\n"));
    let log = std::fs::read_to_string(session.path().join("home/log")).expect("the session's log");
    assert!(log.contains("this is not a control") && log.contains("nine.fmt:1:"), "{log}");
}

#[test]
fn a_trace_store_is_formatted_by_templates_given_and_by_those_it_was_made_with() {
    let session = Session::new();
    let file = |name: &str| session.path().join(name).to_str().expect("text").to_owned();
    let templates = templates().to_str().expect("text").to_owned();
    let program = repository().join("examples/string.rpn");
    let record = |words: &[&str], to: &str| {
        let mut command = dprobes();
        command.arg("run").args(crate::support::engine()).args(words).args(["-o", to]).arg(&program);
        let (status, _, stderr) = run(command.args(["--", "ls", "/"]));
        assert!(status.success(), "{stderr}");
    };
    let (bare, with) = (file("bare.dpt"), file("with.dpt"));
    record(&[], &bare);
    record(&["--templates", &templates], &with);

    let rows = session.done(&["show", "--log-format=klog", &bare]);
    assert!(rows.contains("DProbes(3,1)  0x00000000 : 0101002f "), "{rows}");
    let formatted = session.done(&["format", &bare, "--templates", &templates]);
    assert_eq!(bodies(&formatted, "DProbes(3,1) "), ["'/'"], "{formatted}");
    assert_eq!(formatted.matches("DProbes(").count(), rows.matches(" cpu=").count());
    // The same environment is asked for in both runs.
    let shown = session.done(&["show", &with]);
    assert_eq!(bodies(&shown, "DProbes("), bodies(&formatted, "DProbes("));
    assert!(session.done(&["show", "-f", &with]).contains("DProbes(3,1)  01 01 00 2f\n"));
    // Others than those it was made with; the records that have none among them are dumped.
    let other = session.path().join("other");
    std::fs::create_dir(&other).expect("room");
    std::fs::write(other.join("three.fmt"), "major=3 minor=1 desc=\"\" fmt=\"opened %pz\"").expect("room");
    let dumped = session.done(&["format", &with, "--templates", other.to_str().expect("text")]);
    assert!(
        dumped.contains("\nopened \n+00000000 2f ") && dumped.contains("*...POSIXLY_CORRECT*\n"),
        "{dumped}"
    );
}
