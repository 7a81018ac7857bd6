//! Trace stores: `-o FILE.dpt` keeps what text output would have, however the writer ends.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use trace::store::{Item, Reader};

use crate::support::{Scratch, Session, dprobes, find_program, need, run, start_server, variant};

/// Calls of the probed function.
const CALLS: usize = 500;

/// The program under test, with line information.
fn server() -> Option<PathBuf> {
    variant("server", "server-lines", &["-g"])
}

/// Logs the argument at the entry, and more data at the returns.
fn program(module: &Path) -> String {
    let name = module.to_str().expect("text");
    format!(
        "name = \"{name}\"\nmodtype = user\nmajor = 3\nvars = 1\ngvars = 1\n\
         offset = server_work\nminor = 1\ninc lv, 0\npush r, rdi\nlog 1\nexit\n\
         offset = \"server_work\":return\nminor = 2\ninc gv, 0\npush r, rax\npush 7\npush r, rdi\nlog 3\nexit\n"
    )
}

/// Runs the program under test with its probes and these options; returns standard error.
fn traced(module: &Path, scratch: &Scratch, options: &[&str]) -> String {
    let program = scratch.file("program.rpn", &program(module));
    let mut command = dprobes();
    command.args(["run", "--log-format=klog"]).args(options).arg(program);
    command.arg("--").arg(module).args(["leaf", &CALLS.to_string()]);
    let (status, _, stderr) = run(command.current_dir(scratch.path()));
    assert_eq!(status.code(), Some(5), "{stderr}");
    stderr
}

/// The status, standard output and standard error of `dprobes show`.
fn show(scratch: &Scratch, words: &[&str]) -> (Option<i32>, String, String) {
    let (status, stdout, stderr) =
        run(dprobes().args(["show", "--log-format=klog"]).args(words).current_dir(scratch.path()));
    (status.code(), stdout, stderr)
}

/// Its standard output, if it succeeds.
#[track_caller]
fn shown(scratch: &Scratch, words: &[&str]) -> String {
    let (status, stdout, stderr) = show(scratch, words);
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{words:?}");
    stdout
}

/// Records without what differs from one run to the next.
fn normal(records: &str) -> String {
    let value = |word: &str| match word.split_once('=') {
        Some((name @ ("cpu" | "pid" | "eip" | "esp" | "tsc"), value)) => {
            format!(
                "{name}={}",
                value.replace(|digit: char| digit.is_ascii_hexdigit(), "?").replace("??", "?")
            )
        }
        _ => word.to_owned(),
    };
    records.lines().map(|line| line.split(' ').map(value).collect::<Vec<_>>().join(" ") + "\n").collect()
}

#[test]
fn a_store_says_what_text_would_have_said() {
    let module = need!("stores", server(), "gcc");
    let scratch = Scratch::new();
    for options in [&[][..], &["--log", "ALL"], &["-f", "--log", "UID"]] {
        // All records of one engine stand in the order of the program.
        traced(&module, &scratch, &[options, &["--engine", "trap", "-o", "text"]].concat());
        let text = std::fs::read_to_string(scratch.path().join("text")).expect("records");
        assert_eq!(text.lines().filter(|line| line.contains(" cpu=")).count(), 2 * CALLS);
        // The items to show are chosen when the store is read.
        traced(&module, &scratch, &["--engine", "trap", "-o", "trace.dpt"]);
        let read = shown(&scratch, &[options, &["trace.dpt"]].concat());
        assert!(normal(&read) == normal(&text), "{options:?}");
    }
    // A store need not be called .dpt, and may be made with fewer items; missing items are not
    // shown.
    traced(&module, &scratch, &["-o", "trace", "--format", "dpt", "--log", "UID"]);
    let read = shown(&scratch, &["--log", "ALL", "trace"]);
    let first = read.lines().next().expect("a record");
    assert!(first.contains(" uid=") && first.contains(" tsc="), "{first}");
    assert!(!first.contains("pid=") && !first.contains("name=") && !first.contains("esp="), "{first}");
}

#[test]
fn a_store_says_where_its_probes_were_and_what_was_counted() {
    let module = need!("stores", server(), "gcc");
    let scratch = Scratch::new();
    traced(&module, &scratch, &["-o", "trace.dpt"]);
    let info = shown(&scratch, &["--info", "trace.dpt"]);
    let source_path = crate::support::repository().join("tests/targets/server.c");
    let source = std::fs::read_to_string(&source_path).expect("the target's source");
    let line =
        source.lines().position(|line| line.contains("long server_work(long a) {")).expect("it is there") + 1;
    let path = module.to_str().expect("text");
    for wanted in [
        format!("{} records", 2 * CALLS),
        format!("made by     dprobes {}", env!("CARGO_PKG_VERSION")),
        "server-lines+0x".to_owned(),
        " server_work ".to_owned(),
        "end         clean".to_owned(),
        format!("{path}:server_work "),
        format!("{CALLS}        0  armed"),
        format!("lv[0] = {CALLS} "),
        format!("gv[0] = {CALLS} "),
        "0 records dropped".to_owned(),
        "1 thread:".to_owned(),
        "  server-lines\n".to_owned(),
    ] {
        assert!(info.contains(&wanted), "{wanted}:\n{info}");
    }
    // Debug information may assign the first instruction to the function's own line or to its first
    // statement.
    let of_line = |line: usize| info.contains(&format!(" server_work ({}:{line})", source_path.display()));
    assert!(of_line(line) || of_line(line + 1), "line {line}:\n{info}");
}

#[test]
fn only_what_is_asked_for_is_shown() {
    let module = need!("stores", server(), "gcc");
    let scratch = Scratch::new();
    traced(&module, &scratch, &["--engine", "trap", "-o", "trace.dpt"]);
    let all = shown(&scratch, &["trace.dpt"]);
    let entries: String =
        all.lines().filter(|line| line.contains("(3,1)")).map(|line| format!("{line}\n")).collect();
    let named = format!("{}:server_work", module.display());
    for probe in ["3,1", "server_work", &named, "*server-lines:server_wor[k]"] {
        assert_eq!(shown(&scratch, &["--probe", probe, "trace.dpt"]), entries, "{probe}");
    }
    assert_eq!(shown(&scratch, &["--probe", "3,1", "--probe", "3,2", "trace.dpt"]), all);
    let pid = all.split("pid=").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a pid");
    assert_eq!(shown(&scratch, &["--pid", pid, "--tid", pid, "trace.dpt"]), all);
    assert_eq!(shown(&scratch, &["--pid", "1", "trace.dpt"]), "");
    // A time splits the records in two.
    let times = shown(&scratch, &["--log", "TSC", "trace.dpt"]);
    let middle = times.lines().filter(|line| line.contains("tsc=")).nth(CALLS).expect("as many records");
    let tsc = middle.split("tsc=").nth(1).expect("a time");
    let (seconds, micro) = tsc.split_once(':').expect("seconds and microseconds");
    let number = |digits| u64::from_str_radix(digits, 16).expect("hexadecimal");
    let (before, from) = (number(micro), number(micro) + 1);
    let until = shown(&scratch, &["--until", &format!("@{}.{before:06}999", number(seconds)), "trace.dpt"]);
    let after = shown(&scratch, &["--from", &format!("@{}.{from:06}", number(seconds)), "trace.dpt"]);
    assert!(!until.is_empty() && !after.is_empty());
    assert!(until + &after == all);
    assert_eq!(shown(&scratch, &["--from", "1h", "trace.dpt"]), "");
    let (status, _, stderr) = show(&scratch, &["--probe", "nothing", "trace.dpt"]);
    assert_eq!(status, Some(1));
    assert!(stderr.contains("no probe `nothing` is in it"), "{stderr}");
}

#[test]
fn a_store_whose_writer_was_killed_is_read() {
    let module = need!("stores", server(), "gcc");
    let scratch = Scratch::new();
    let program = scratch.file("program.rpn", &program(&module));
    let mut server = start_server(&module);
    let mut command = dprobes();
    command.args(["attach", "-p", &server.pid().to_string(), "-o", "trace.dpt"]).arg(program);
    command.current_dir(scratch.path()).stderr(Stdio::null());
    let mut child = command.spawn().expect("dprobes starts");
    let store = scratch.path().join("trace.dpt");
    let start = Instant::now();
    let waited = |what: &str| assert!(start.elapsed() < Duration::from_secs(60), "{what}");
    // Records are in the file about a second after they were made, although no block is full and
    // the writer was not asked to write.
    loop {
        assert_eq!(server.ask("call 10"), "done 10");
        let size = std::fs::metadata(&store).map_or(0, |metadata| metadata.len());
        if size > 0 && show(&scratch, &["trace.dpt"]).1.contains("DProbes(3,2)") {
            break;
        }
        waited("no record is written");
        std::thread::sleep(Duration::from_millis(100));
    }
    // The tracer is the child of the command.
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let children = std::fs::read_to_string(children).expect("the command has a child");
    let tracer: i32 = children.trim().parse().expect("one child");
    // SAFETY: kill takes no pointers; the front has not waited for its child yet.
    unsafe { libc::kill(tracer, libc::SIGKILL) };
    child.wait().expect("a child can be waited for");
    // Every command reports that it has no end.
    let (status, records, stderr) = show(&scratch, &["trace.dpt"]);
    assert!(status == Some(1) && stderr.contains("trace.dpt: the trace was cut short"), "{stderr}");
    assert!(records.contains("DProbes(3,1)"));
    let mut command = dprobes();
    let (status, _, stderr) =
        run(command.args(["convert", "trace.dpt", "--to", "json"]).current_dir(scratch.path()));
    assert!(status.code() == Some(1) && stderr.contains("trace.dpt: the trace was cut short"), "{stderr}");
    let info = shown(&scratch, &["--info", "trace.dpt"]);
    assert!(info.contains("end         cut short") && info.contains("server_work"), "{info}");
    // An incomplete block is reported.
    let bytes = std::fs::read(&store).expect("it is there");
    std::fs::write(&store, &bytes[..bytes.len() - 5]).expect("it can be written");
    let (status, rest, stderr) = show(&scratch, &["trace.dpt"]);
    assert_eq!(status, Some(1));
    assert!(stderr.contains("the file ends inside a block"), "{stderr}");
    assert!(records.starts_with(&rest));
}

#[test]
fn a_damaged_store_is_read_around_the_damage() {
    let module = need!("stores", server(), "gcc");
    let scratch = Scratch::new();
    traced(&module, &scratch, &["-o", "trace.dpt"]);
    let store = scratch.path().join("trace.dpt");
    let whole = shown(&scratch, &["trace.dpt"]);
    let bytes = std::fs::read(&store).expect("it is there");
    let middle = bytes.len() / 2;
    let mut damaged = bytes.clone();
    damaged[middle] ^= 1;
    std::fs::write(&store, &damaged).expect("it can be written");
    let (status, read, stderr) = show(&scratch, &["trace.dpt"]);
    assert_eq!(status, Some(1));
    assert!(stderr.contains("dprobes: warning: trace.dpt: offset 0x"), "{stderr}");
    assert!(stderr.contains(" records\n") && read.len() < whole.len(), "{stderr}");
    std::fs::write(&store, "no store").expect("it can be written");
    let (status, _, stderr) = show(&scratch, &["trace.dpt"]);
    assert_eq!(status, Some(1));
    assert!(stderr.contains("trace.dpt: it is not a trace store"), "{stderr}");
}

#[test]
fn programs_of_a_session_share_a_store() {
    let module = need!("stores", server(), "gcc");
    let session = Session::new();
    let copy = session.path().join("server");
    std::fs::copy(&module, &copy).expect("room for a copy");
    let name = copy.to_str().expect("text");
    let text = |minor: u32| {
        format!(
            "name = \"{name}\"\nmodtype = user\nvars = 1\noffset = server_work + {:#x}\nminor = {minor}\ninc lv, 0\npush r, rdi\nlog 1\nexit\n",
            if minor == 1 { 0 } else { 7 }
        )
    };
    let mut server = start_server(&copy);
    let store = session.path().join("trace.dpt");
    let path = store.to_str().expect("text");
    let first = session.program("first.rpn", &text(1));
    session.done(&["insert", &first, "-o", path]);
    assert_eq!(server.ask("call 20"), "done 20");
    // The same again, in its place: the store goes on.
    session.done(&["insert", "--replace", &first, "-o", path]);
    assert_eq!(server.ask("call 30"), "done 30");
    session.done(&["remove", "--all"]);
    let read = |words: &[&str]| {
        let (status, stdout, stderr) =
            run(dprobes().args(["show", "--log-format=klog"]).args(words).arg(path));
        assert!(status.success(), "{stderr}");
        stdout
    };
    let records = read(&[]);
    assert_eq!(records.lines().filter(|line| line.contains(" cpu=")).count(), 50);
    let info = read(&["--info"]);
    assert!(info.contains("50 records") && info.contains("end         clean"), "{info}");
    assert!(info.contains("lv[0] = 20 ") && info.contains("lv[0] = 30 "), "{info}");
    let refused = session.fails(&["insert", &first, "-o", path]);
    assert!(refused.contains("a trace store is begun in a new file"), "{refused}");
    assert!(
        session.fails(&["insert", "-f", &first, "-o", path]).contains("--unformatted-output is for text")
    );
    session.done(&["session", "stop"]);
}

/// A processor that this process may use.
pub(crate) fn first_processor() -> String {
    let status = std::fs::read_to_string("/proc/self/status").expect("it is there");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let list = list.expect("Linux tells the processors").trim();
    list.split([',', '-']).next().expect("there is one").to_owned()
}

#[test]
fn what_was_lost_is_told_where_it_was_lost() {
    let module = need!("stores", server(), "gcc");
    need!("stores", find_program("taskset"), "taskset");
    let scratch = Scratch::new();
    // It stays on one processor: losses of several are told apart, each for its own time. It calls
    // with numbers that count down; no reader keeps up with it through the smallest
    // buffer.
    let calls = 400_000_u64;
    let text = format!(
        "name = \"{}\"\nmodtype = user\nmajor = 3\noffset = server_work\nminor = 1\npush r, rdi\nlog 1\nexit\n",
        module.display()
    );
    let program = scratch.file("program.rpn", &text);
    let mut command = dprobes();
    command.args(["run", "--engine=jump", "--buffer=256K", "-o", "trace.dpt"]).arg(program).arg("--");
    command.args(["taskset", "-c", &first_processor()]).arg(&module);
    command.args(["leaf", &calls.to_string()]).current_dir(scratch.path());
    let (status, _, stderr) = run(&mut command);
    assert_eq!(status.code(), Some(5), "{stderr}");

    let mut reader = Reader::open(&scratch.path().join("trace.dpt")).expect("it is a store");
    let info = reader.info().clone();
    let mut records = vec![(0, calls)];
    while let Some(item) = reader.next().expect("it can be read") {
        if let Item::Record(entry) = item {
            let data = entry.record.data.as_slice().try_into().expect("a word");
            records.push((entry.record.time, u64::from_le_bytes(data)));
        }
    }
    let lost = calls + 1 - records.len() as u64;
    assert!(lost > 0 && records.len() > 1000, "{lost}");
    let told: u64 = info.gaps_told.iter().map(|gap| gap.dropped).sum();
    assert_eq!((told, info.dropped()), (lost, lost), "{:?}", info.gaps_told);
    // If numbers are missing, the one before them has its time in a reported loss, and so many are
    // reported up to the next. (That may come later: a thread that does not run loses nothing.) Two
    // records may have the same time.
    records.sort_unstable_by_key(|&(time, number)| (time, std::cmp::Reverse(number)));
    records.push((records.last().expect("there are some").0, u64::MAX));
    let mut places = 0;
    for pair in records.windows(2) {
        let [(before, number), (after, next)] = pair else { continue };
        if next.wrapping_add(1) == *number {
            continue;
        }
        places += 1;
        let is_begun = info.gaps_told.iter().any(|gap| gap.from <= *before && gap.to >= *before);
        let near = info.gaps_told.iter().filter(|gap| gap.from <= *after && gap.to >= *before);
        let missing = number.wrapping_sub(*next).wrapping_sub(1);
        let is_told = is_begun && near.map(|gap| gap.dropped).sum::<u64>() >= missing;
        assert!(is_told, "{number} at {before} to {next} at {after}: {:?}", info.gaps_told);
    }
    assert!(places > 0);
    let (status, _, stderr) = show(&scratch, &["trace.dpt"]);
    assert!(status == Some(0) && stderr.contains(" lost, between +"), "{stderr}");
    let process = format!("of process {} lost, ", info.gaps_told[0].pid);
    assert!(stderr.contains(&process), "{stderr}");
    assert!(shown(&scratch, &["--info", "trace.dpt"]).contains(&process.replace(" lost, ", "")));
}

#[test]
fn programs_that_share_a_store_keep_their_templates() {
    let module = need!("stores", server(), "gcc");
    let session = Session::new();
    let copy = session.path().join("server");
    std::fs::copy(&module, &copy).expect("room for a copy");
    let name = copy.to_str().expect("text");
    let path = session.path().join("trace.dpt").to_str().expect("text").to_owned();
    let mut server = start_server(&copy);
    // The same codes with another description; and a program without templates.
    for (number, place, format) in [
        (1, "server_work", Some("first %wu")),
        (2, "server_work + 7", Some("second %wx")),
        (3, "\"server_work\":return", None),
    ] {
        let program = session.program(
            &format!("{number}.rpn"),
            &format!(
                "name = \"{name}\"\nmodtype = user\nmajor = 3\noffset = {place}\nminor = 1\npush {number}\nlog 1\nexit\n"
            ),
        );
        let home = session.path().join(format!("templates-{number}"));
        let mut words = vec!["insert", "--merge", &program, "-o", &path];
        if let Some(format) = format {
            std::fs::create_dir(&home).expect("room");
            let text = format!("major=3 minor=1 desc=\"of {number}\" fmt=\"{format}\"");
            std::fs::write(home.join("three.fmt"), text).expect("room");
            words.extend(["--templates", home.to_str().expect("text")]);
        }
        session.done(&words);
    }
    assert_eq!(server.ask("call 20"), "done 20");
    session.done(&["remove", "--all"]);
    session.done(&["session", "stop"]);
    let shown = session.done(&["show", &path]);
    let count = |text: &str| shown.matches(text).count();
    assert_eq!(count(": of 1\nfirst 1\n"), 20, "{shown}");
    assert_eq!(count(": of 2\nsecond 0000000000000002\n"), 20, "{shown}");
    assert_eq!(count("\n+00000000 03 00 00 00 "), 20, "{shown}");
    // The templates of a directory take precedence over all.
    let home = session.path().join("templates-1").to_str().expect("text").to_owned();
    let shown = session.done(&["show", &path, "--templates", &home]);
    assert_eq!(shown.matches(": of 1\nfirst ").count(), 60, "{shown}");
    // Other forms also decode each program's values by its own template.
    let rows = session.done(&["convert", &path, "--to", "csv"]);
    assert!(rows.lines().next().is_some_and(|names| names.ends_with(",event,first,second,fields")), "{rows}");
    let row = |end: &str| rows.lines().filter(|row| row.ends_with(end)).count();
    assert_eq!((row(",of 1,1,,"), row(",of 2,,0x2,"), row(",,,,")), (20, 20, 20), "{rows}");
    let python = need!("stores: a reader of its own", find_program("python3"), "python3");
    assert_eq!(
        read_by_the_page(&python, &session.done(&["convert", &path, "--to", "json"]), Path::new(&path)),
        "60 records\n"
    );
}

/// Compares a store as read by the reader written from the documentation with `json`, our own
/// reading.
fn read_by_the_page(python: &Path, json: &str, store: &Path) -> String {
    let scratch = Scratch::new();
    let shown = scratch.file("shown.json", json);
    let reader = crate::support::repository().join("crates/dprobes/tests/readers/store.py");
    let mut command = std::process::Command::new(python);
    command.arg(reader).arg(store).stdin(std::fs::File::open(shown).expect("it is there"));
    let output = command.output().expect("python3 starts");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The documentation of the format is enough to read a store: a reader written from it alone finds
/// the same records.
#[test]
fn a_reader_that_knows_only_the_page_reads_a_store() {
    let module = need!("stores", server(), "gcc");
    let python = need!("stores: a reader of its own", find_program("python3"), "python3");
    let scratch = Scratch::new();
    let json = |store: &Path| {
        let mut convert = dprobes();
        run(convert.arg("convert").arg(store).args(["--to", "json"])).1
    };
    for options in [&["-o", "trace.dpt"][..], &["-o", "trace.dpt", "--log", "UID"]] {
        traced(&module, &scratch, options);
        let store = scratch.path().join("trace.dpt");
        assert_eq!(read_by_the_page(&python, &json(&store), &store), format!("{} records\n", 2 * CALLS));
    }
    let first = crate::support::repository().join("crates/trace/tests/data/version-1.dpt");
    assert_eq!(read_by_the_page(&python, &json(&first), &first), "10 records\n");
}
