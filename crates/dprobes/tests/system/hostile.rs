//! Names with terminal control sequences: of functions, sections, files and threads, and in program
//! text. They are given to every command, and no output, on the terminal or in a file, has a
//! character that is not plain.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Scratch, Server, Session, dprobes, engine, need, target};

/// Replaces each run of 24 letters Z: a window title, a line of its own, C1, a mark of direction,
/// invalid UTF-8.
const NAME: &[u8; 24] = b"\x1b]0;t\x07\nFORGED\xc2\x9b1m\xe2\x80\xae\xff...";
/// The program's file. (Line breaks in the names of mapped files are the kernel's to escape.)
const FILE: &[u8] = b"h\x1b[2J\xc2\x9b1m\xe2\x80\xaex";

/// The program under test, with its hostile names; `None` without gcc.
fn hostile(scratch: &Scratch) -> Option<PathBuf> {
    let mut bytes = fs::read(target("hostile")?).expect("it was built");
    let mut found = 0;
    for at in 0..bytes.len() - NAME.len() {
        if bytes[at..].starts_with(&[b'Z'; 24]) {
            bytes[at..at + NAME.len()].copy_from_slice(NAME);
            found += 1;
        }
    }
    assert!(found >= 2, "a function and a section have the letters in their names");
    let path = scratch.path().join(OsStr::from_bytes(FILE));
    fs::write(&path, bytes).expect("room");
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is ours");
    Some(path)
}

/// Panics if there is a character that a terminal would interpret, or that is invisible.
#[track_caller]
fn is_plain(what: &dyn std::fmt::Debug, bytes: &[u8]) {
    // An output file may hold a name as bytes; an output stream must be text.
    let text = std::str::from_utf8(bytes).unwrap_or_else(|error| panic!("{what:?}: {error}"));
    for (number, line) in text.lines().enumerate() {
        let bad = line.chars().find(|&letter| letter != '\t' && !printable::is_plain(letter));
        assert_eq!(bad, None, "{what:?}, line {number}: {line:?}");
        assert!(!line.trim_start().starts_with("FORGED"), "{what:?}, line {number}: {line:?}");
    }
}

/// Runs a command and checks all its output; returns standard output.
#[track_caller]
fn say(scratch: &Scratch, succeeds: bool, words: &[OsString]) -> String {
    let output =
        dprobes().args(words).current_dir(scratch.path()).stdin(std::process::Stdio::null()).output();
    let output = output.expect("dprobes starts");
    is_plain(&words, &output.stdout);
    is_plain(&words, &output.stderr);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.success(), succeeds, "{words:?}: {err}");
    String::from_utf8(output.stdout).expect("it is text")
}

/// Words of a command line: `@` is the program's file.
fn words(module: &Path, words: &[&str]) -> Vec<OsString> {
    let fill = |word: &&str| {
        let mut bytes = Vec::new();
        for (number, part) in word.split('@').enumerate() {
            if number > 0 {
                bytes.extend_from_slice(module.as_os_str().as_bytes());
            }
            bytes.extend_from_slice(part.as_bytes());
        }
        OsString::from_vec(bytes)
    };
    words.iter().map(fill).collect()
}

#[test]
fn no_name_reaches_a_terminal_as_it_is() {
    let scratch = Scratch::new();
    let module = need!("hostile", hostile(&scratch), "gcc");
    let own = |list: &[&str]| words(&module, list);
    let is_written = |file: &str| {
        let bytes = fs::read(scratch.path().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        is_plain(&file, &bytes);
        String::from_utf8(bytes).expect("it is text")
    };

    // A file, without a process.
    let listed = say(&scratch, true, &own(&["list", "@"]));
    assert!(listed.contains(r"call\x1b]0;t\x07\x0aFORGED\u{9b}1m\u{202e}"), "{listed}");
    for list in [
        &["list", "@", "call*", "--points", "return"][..],
        &["list", "@", "call*", "--points", "*"],
        &["list", "@", "--data"],
        &["list", "@", "--tactics", "--points", "*"],
        &["list", "@", "--tactics", "--points", "*", "--json"],
    ] {
        say(&scratch, true, &own(list));
    }
    say(&scratch, false, &own(&["list", "@", "nothing\x1b[2J*"]));
    say(&scratch, false, &own(&["list", "@.none"]));
    say(&scratch, false, &own(&["run", "--at", "@:f:entry", "--", "@"]));
    say(&scratch, false, &own(&["show", "--@"]));

    // Programs, wrong and right ones.
    let text = |name: &str, text: &str| {
        scratch.file(name, text);
    };
    text(
        "wrong.rpn",
        "name = \"\x1b]0;t\x07\"\nmodtype = \x1b[31m user\noffset = f\n\u{9b}31m \u{202e} nonsense \x1b[0m\n",
    );
    text("near.rpn", "name = \"@\"\nmodtype = user\noffset = cal\nexit\n");
    say(&scratch, false, &own(&["check", "wrong.rpn"]));
    let module_text = module.to_str().expect("it is text");
    let program = format!(
        "name = \"{module_text}\"\nmodtype = user\noffset = \"call*\":entry\npush r, rdi\nlog 1\nexit\n"
    );
    text("right.rpn", &program);
    text("nowhere.rpn", &format!("name = \"{module_text}\"\nmodtype = user\noffset = \"call\"\nexit\n"));
    say(&scratch, true, &own(&["check", "right.rpn"]));
    say(&scratch, true, &own(&["check", "--emit", "asm", "right.rpn"]));
    // A PPDF holds no such names.
    say(&scratch, false, &own(&["build-ppdf", "right.rpn", "-o", "right.ppdf"]));
    say(&scratch, false, &own(&["build-ppdf", "nowhere.rpn", "-o", "nowhere.ppdf"]));

    // A process that is started.
    let engine = engine().unwrap_or("--engine=auto".to_owned());
    let stderr =
        &["run", &engine, "--at", "h*:call*:entry", "--do", "push r, rdi; log 1", "--log", "ALL", "--", "@"];
    say(&scratch, true, &own(stderr));
    for shortcut in ["stacks", "count", "latency"] {
        say(&scratch, true, &own(&[shortcut, &engine, "a.out:call*", "--", "@"]));
    }
    let script =
        "uprobe:a.out:call* { printf(\"%s %s %s %s\\n\", ustack(perf), usym(reg(\"ip\")), func, probe); }";
    say(&scratch, true, &own(&["trace", &engine, "-e", script, "-c", "@"]));
    say(&scratch, false, &own(&["run", "nowhere.rpn", "--", "@"]));
    say(&scratch, false, &own(&["run", "right.rpn", "--", "@.none"]));

    // A process that runs.
    let mut server = Server::start(&module, [] as [&str; 0]);
    server.line();
    let pid = server.pid().to_string();
    say(&scratch, true, &own(&["list", "-p", &pid]));
    say(&scratch, true, &own(&["list", "-p", &pid, "*:call*"]));
    say(&scratch, true, &own(&["list", "-p", &pid, "h*:*", "--tactics"]));
    let outputs = "store:trace.dpt,file:trace.txt,stderr";
    let attach = own(&[
        "attach",
        &engine,
        "-p",
        &pid,
        "right.rpn",
        "--log",
        "ALL",
        "--log-target",
        outputs,
        "--stats",
        "stats.json",
    ]);
    let mut command = dprobes();
    command.args(&attach).current_dir(scratch.path());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let attached = command.spawn().expect("dprobes starts");
    let start = std::time::Instant::now();
    while !fs::read_to_string(scratch.path().join("trace.txt")).is_ok_and(|text| !text.is_empty()) {
        assert!(start.elapsed() < std::time::Duration::from_secs(100), "no record is written");
        assert_eq!(server.ask("call"), "done");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    // SAFETY: kill takes no pointers; the child has not been waited for.
    unsafe { libc::kill(attached.id() as i32, libc::SIGINT) };
    let output = attached.wait_with_output().expect("a child can be waited for");
    is_plain(&attach, &output.stderr);
    assert!(is_written("trace.txt").contains(r" c\x1b]0;t\x07\x0a\u{9b}"));
    is_written("stats.json");

    // The trace's contents, in all forms.
    assert!(say(&scratch, true, &own(&["show", "trace.dpt", "--log", "ALL"])).contains(r" c\x1b"));
    assert!(say(&scratch, true, &own(&["show", "--info", "trace.dpt"])).contains(r"call\x1b"));
    for list in [
        &["convert", "trace.dpt", "--to", "json"][..],
        &["convert", "trace.dpt", "--to", "csv"],
        &["report", "trace.dpt"],
    ] {
        say(&scratch, true, &own(list));
    }
    say(&scratch, true, &own(&["report", "trace.dpt", "--html", "report.html"]));
    is_written("report.html");
    say(&scratch, true, &own(&["convert", "trace.dpt", "--to", "ctf", "-o", "ctf"]));
    is_written("ctf/metadata");
    fs::write(scratch.path().join("damaged.dpt"), b"\x89DPT\x1b[2J").expect("room");
    say(&scratch, false, &own(&["show", "damaged.dpt"]));

    // A session: its answers, and its log.
    let session = Session::new();
    let right = scratch.path().join("right.rpn").to_str().expect("text").to_owned();
    let nowhere = scratch.path().join("nowhere.rpn").to_str().expect("text").to_owned();
    let records = session.path().join("records").to_str().expect("text").to_owned();
    for (list, status) in [
        (&["insert", "-p", &pid, "-o", &records, &nowhere][..], 1),
        (&["insert", "-p", &pid, "-o", &records, "--log", "ALL", &right], 0),
        (&["query", "--all", "-x"], 0),
        (&["getvars", "--all"], 0),
        (&["session", "status"], 0),
    ] {
        let (ended, out, err) = session.say(list);
        is_plain(&list, out.as_bytes());
        is_plain(&list, err.as_bytes());
        assert_eq!(ended, status, "{list:?}: {err}");
    }
    assert_eq!(server.ask("call"), "done");
    session.done(&["remove", "--all"]);
    is_plain(&"records", &fs::read(&records).expect("they are written"));
    let log = session.path().join("home/log");
    is_plain(&"the session's log", &fs::read(&log).expect("there is one"));
}

/// A line break in a library's path does not forge a line: the kernel escapes it in the list of
/// mappings.
#[test]
fn a_file_whose_name_has_a_line_break_forges_no_line() {
    let scratch = Scratch::new();
    let module = need!("hostile", hostile(&scratch), "gcc");
    let path = scratch.path().join("a\nFORGED\x1b[2J");
    fs::rename(&module, &path).expect("room");
    let own = |list: &[&str]| words(&path, list);
    say(&scratch, true, &own(&["list", "@"]));
    say(&scratch, false, &own(&["list", "@.none"]));
    say(&scratch, false, &own(&["run", "--at", "sh:nothing:entry", "--do", "log 0", "--", "@.none"]));
    let mut server = Server::start(&path, [] as [&str; 0]);
    server.line();
    say(&scratch, true, &own(&["list", "-p", &server.pid().to_string()]));
    assert!(server.lives());
}

/// The names of source files, which a line table has.
#[test]
fn names_of_sources_are_printed_plain() {
    let scratch = Scratch::new();
    let gcc = need!("hostile sources", testing::find_program("gcc"), "gcc");
    let source = scratch.path().join(OsStr::from_bytes(b"s\x1b[2J\nFORGED.c"));
    let text =
        "int never(int a) { return a + 1; }\nint main(int c, char **v) { return c > 5 ? never(c) : 0; }\n";
    fs::write(&source, text).expect("room");
    let program = scratch.path().join("sourced");
    let built = Command::new(gcc).args(["-g", "-O0", "-o"]).arg(&program).arg(&source).output();
    let built = built.expect("gcc starts");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let own = |list: &[&str]| words(&program, list);
    let shown = say(&scratch, true, &own(&["coverage", "--missing", "-o", "covered.info", "--", "@"]));
    let written = fs::read(scratch.path().join("covered.info")).expect("it is written");
    is_plain(&"lcov's file", &written);
    let written = String::from_utf8(written).expect("it is text");
    assert!(written.contains(r"s\x1b[2J\x0aFORGED.c"), "{written} {shown}");
    let lines = "uprobe:a.out:main { printf(\"%s\\n\", ustack(2)); }";
    say(&scratch, true, &own(&["trace", "-e", lines, "-c", "@"]));
    say(&scratch, true, &own(&["stacks", "a.out:main", "--", "@"]));
    say(&scratch, false, &own(&["trace", "-e", "uprobe:a.out:nowhere.c:7 { }", "-c", "@"]));
}
