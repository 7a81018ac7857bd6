//! `--log-target`: several targets of one run get the same records, and a failure of one does not
//! affect the others.

use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{
    Scratch, Session, Stats, becomes_traced, dprobes, find_program, make_pipe, need, run, start_server,
    target,
};

/// Calls of the probed function.
const CALLS: usize = 300;

fn program(module: &Path) -> String {
    let name = module.to_str().expect("text");
    format!(
        "name = \"{name}\"\nmodtype = user\nmajor = 3\n\
         offset = server_work\nminor = 1\npush r, rdi\nlog 1\nexit\n\
         offset = \"server_work\":return\nminor = 2\npush r, rax\npush r, rdi\nlog 2\nexit\n"
    )
}

/// Runs the program under test with its probes and these options: what standard error has.
fn traced(module: &Path, scratch: &Scratch, options: &[&str]) -> String {
    traced_for(CALLS, module, scratch, options)
}

/// The same, with so many calls.
fn traced_for(calls: usize, module: &Path, scratch: &Scratch, options: &[&str]) -> String {
    let program = scratch.file("program.rpn", &program(module));
    let mut command = dprobes();
    command.arg("run").args(options).arg(program).arg("--").arg(module).args(["leaf", &calls.to_string()]);
    let (status, _, stderr) = run(command.current_dir(scratch.path()));
    assert_eq!(status.code(), Some(5), "{stderr}");
    stderr
}

/// The reader's end of a pseudo-terminal, and the path of the line.
fn terminal() -> (File, PathBuf) {
    // SAFETY: plain system calls; the file is ours alone, and the name is copied before another
    // call.
    unsafe {
        let master = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
        assert!(master >= 0 && libc::grantpt(master) == 0 && libc::unlockpt(master) == 0);
        let mut name = [0; 64];
        assert_eq!(libc::ptsname_r(master, name.as_mut_ptr(), name.len()), 0);
        let name = std::ffi::CStr::from_ptr(name.as_ptr()).to_str().expect("text").to_owned();
        (File::from_raw_fd(master), PathBuf::from(name))
    }
}

/// Collects messages until none comes for a while.
fn gather(path: &Path) -> std::thread::JoinHandle<Vec<Vec<u8>>> {
    let socket = UnixDatagram::bind(path).expect("a socket");
    std::thread::spawn(move || {
        let mut all: Vec<Vec<u8>> = Vec::new();
        let mut bytes = vec![0; 1 << 16];
        loop {
            let patience = Duration::from_secs(if all.is_empty() { 60 } else { 3 });
            socket.set_read_timeout(Some(patience)).expect("it has one");
            match socket.recv(&mut bytes) {
                Ok(length) => all.push(bytes[..length].to_vec()),
                Err(_) => return all,
            }
        }
    })
}

/// The output of babeltrace2 for a trace; `None` if it is not installed.
fn babeltrace(trace: &Path) -> Option<(String, String)> {
    find_program("babeltrace2")?;
    let (_, stdout, stderr) = run(Command::new("babeltrace2").arg("--clock-seconds").arg(trace));
    Some((stdout, stderr))
}

#[test]
fn all_at_once_have_every_record() {
    let module = need!("targets", target("server"), "gcc");
    let scratch = Scratch::new();
    let (mut line, device) = terminal();
    // Kept open: what was written stays until it is read.
    let kept = File::options().read(true).write(true).open(&device).expect("a line");
    let log = gather(&scratch.path().join("log"));
    let journal = gather(&scratch.path().join("journal"));
    let targets = format!("klog:log,evl:journal,serial:{},LTT", device.display());
    let reader = std::thread::spawn(move || {
        let mut bytes = vec![0; 2 * CALLS * (4 + 4 * 4 + 8 + 2) + CALLS * 8];
        line.read_exact(&mut bytes).expect("all of it comes");
        (bytes, line)
    });
    let stderr = traced(
        &module,
        &scratch,
        &["--log-target", &targets, "--log-target", "ctf:trace,store:a.dpt", "-o", "records"],
    );
    assert!(!stderr.contains("warning") && !stderr.contains("DProbes"), "{stderr}");

    let records = std::fs::read_to_string(scratch.path().join("records")).expect("it was written");
    let headers = |text: &str| text.lines().filter(|line| line.contains(" cpu=")).count();
    assert_eq!(headers(&records), 2 * CALLS);
    // The same text in the log, a message for each line.
    let messages = log.join().expect("it gathers");
    let lines: Vec<&str> = messages
        .iter()
        .map(|message| std::str::from_utf8(message).expect("text").split_once(": ").expect("a head").1)
        .collect();
    assert_eq!(lines, records.lines().collect::<Vec<_>>());
    assert_eq!(journal.join().expect("it gathers").len(), 2 * CALLS);
    drop(kept);
    let stream = std::fs::read(scratch.path().join("dprobes.ltt")).expect("it was written");
    let events: Vec<_> = trace::sink::ltt::Events::of(&stream).collect::<Result<_, _>>().expect("a stream");
    let of_records = events.iter().filter(|event| matches!(event, trace::sink::ltt::Event::Record(1, ..)));
    assert_eq!((of_records.count(), events.len()), (2 * CALLS, 2 * CALLS + 2));
    // The serial line has the same records, as bytes.
    let mut expected = Vec::new();
    for event in &events {
        if let trace::sink::ltt::Event::Record(_, record, items) = event {
            trace::raw::write(record, *items, &mut expected);
            expected.extend_from_slice(b"\r\n");
        }
    }
    let (bytes, _line) = reader.join().expect("it reads");
    assert!(bytes == expected);
    let (status, shown, _) = run(dprobes().arg("show").arg(scratch.path().join("a.dpt")));
    assert!(status.success());
    assert_eq!(headers(&shown), 2 * CALLS);

    let (shown, complaints) = need!("targets", babeltrace(&scratch.path().join("trace")), "babeltrace2");
    assert_eq!(complaints, "");
    assert_eq!(shown.lines().count(), 2 * CALLS);
    let point = format!("{}:server_work", module.display());
    assert!(
        shown.lines().all(|line| line.contains(&point) && line.contains("procname = \"server\"")),
        "{shown}"
    );
}

#[test]
fn typed_fields_come_from_templates() {
    let module = need!("targets", target("server"), "gcc");
    need!("targets", find_program("babeltrace2"), "babeltrace2");
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path().join("templates")).expect("room");
    let templates = "major=3\nminor=1 desc=\"call\" fmt=\"argument=%wu\"\nminor=2 desc=\"return\" fmt=\"argument=%wu result=%wx\"\n";
    scratch.file("templates/server.fmt", templates);
    let stderr = traced(&module, &scratch, &["--log-target=ctf:trace", "--templates", "templates"]);
    assert!(!stderr.contains("warning") && !stderr.contains("DProbes"), "{stderr}");
    let (shown, complaints) = babeltrace(&scratch.path().join("trace")).expect("it is installed");
    assert_eq!((shown.lines().count(), complaints.as_str()), (2 * CALLS, ""));
    let with = |text: &str| shown.lines().filter(|line| line.contains(text)).count();
    assert_eq!((with("{ argument = "), with(", result = 0x")), (2 * CALLS, CALLS), "{shown}");
}

/// One target is stuck, one is gone, one is full: the program ends in time, and the other targets
/// have all records.
#[test]
fn a_target_that_fails_is_told_of_and_stops_no_other() {
    let module = need!("targets", target("server"), "gcc");
    let scratch = Scratch::new();
    let (stuck, device) = terminal();
    let gone = scratch.path().join("socket");
    // It takes the connection, and is never read.
    let socket = UnixDatagram::bind(&gone).expect("a socket");
    let begin = Instant::now();
    let targets = format!("serial:{},evl:{},file:/dev/full", device.display(), gone.display());
    // More than a terminal keeps.
    let calls = 5000;
    let stderr = traced_for(
        calls,
        &module,
        &scratch,
        &["--log-target", &targets, "-o", "records", "--stats", "stats"],
    );
    assert!(begin.elapsed() < Duration::from_secs(20));
    let records = std::fs::read_to_string(scratch.path().join("records")).expect("it was written");
    assert_eq!(records.lines().filter(|line| line.contains(" cpu=")).count(), 2 * calls);
    let told = |what: &str| stderr.lines().filter(|line| line.contains(what)).count();
    assert_eq!(
        told("warning: file:/dev/full: No space left on device (os error 28); records are lost"),
        1,
        "{stderr}"
    );
    // Exactly what was put in.
    assert_eq!(
        told(&format!("warning: file:/dev/full: {} records could not be written", 2 * calls)),
        1,
        "{stderr}"
    );
    for name in [format!("serial:{}", device.display()), format!("evl:{}", gone.display())] {
        assert_eq!(
            told(&format!("warning: {name}: it accepts no more data; records are lost")),
            1,
            "{stderr}"
        );
        let lost = stderr.lines().find(|line| line.contains(&name) && line.ends_with("could not be written"));
        assert!(lost.is_some(), "{stderr}");
    }
    // None was dropped: one target has them all.
    let stats = Stats::read(&scratch.path().join("stats")).expect("they were written");
    assert_eq!((stats.logged(1), stats.logged(2)), (calls as u64, calls as u64));
    drop((stuck, socket));
}

#[test]
fn what_cannot_be_opened_is_refused_before_anything_begins() {
    let module = need!("targets", target("server"), "gcc");
    let scratch = Scratch::new();
    let file = scratch.file("program.rpn", &program(&module));
    scratch.file("full/another", "file");
    for (target, reason) in [
        ("serial:/dev/null", "serial:/dev/null: it is not a terminal"),
        ("evl:nowhere", "journald's socket nowhere: No such file"),
        ("klog:nowhere", "klog:nowhere: No such file"),
        ("ctf:full", "ctf:full: the directory is not empty"),
        ("ltt:nowhere/a", "ltt:nowhere/a: No such file"),
    ] {
        let mut command = dprobes();
        command.args(["run", "--log-target", target]).arg(&file).args(["--", "touch", "begun"]);
        let (status, _, stderr) = run(command.current_dir(scratch.path()));
        assert!(status.code() == Some(125) && stderr.contains(reason), "{target}: {stderr}");
        assert!(!scratch.path().join("begun").exists());
    }
}

/// Bytes of a trace on the disk: its files end with reserved space that does not count.
fn written(trace: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = std::fs::read_dir(trace).expect("it was begun").flatten();
    files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.blocks() * 512).sum()
}

#[test]
fn a_trace_of_a_tracer_that_was_killed_is_read() {
    let module = need!("targets", target("server"), "gcc");
    need!("targets", find_program("babeltrace2"), "babeltrace2");
    let scratch = Scratch::new();
    let file = scratch.file("program.rpn", &program(&module));
    for round in 0..3 {
        let trace = scratch.path().join(format!("trace{round}"));
        let mut server = start_server(&module);
        let pid = server.pid();
        let mut command = dprobes();
        command
            .args(["attach", "-p", &pid.to_string(), "--log-target"])
            .arg(format!("ctf:{}", trace.display()));
        let mut child = command.arg(&file).stderr(std::process::Stdio::null()).spawn().expect("it starts");
        becomes_traced(pid, true);
        std::thread::sleep(Duration::from_millis(300));
        let begin = Instant::now();
        while written(&trace) < 1 << 19 {
            assert_eq!(server.ask("call 5000"), "done 5000");
            assert!(begin.elapsed() < Duration::from_secs(60), "nothing is written");
        }
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let tracer: i32 =
            std::fs::read_to_string(children).expect("it lives").trim().parse().expect("one child");
        // SAFETY: kill takes no pointers; the front is our child and has not reaped its own.
        assert_eq!(unsafe { libc::kill(tracer, libc::SIGKILL) }, 0);
        child.wait().expect("our child");
        let (shown, complaints) = babeltrace(&trace).expect("it is installed");
        assert_eq!(complaints, "");
        assert!(shown.lines().count() > 1000, "{}", shown.lines().count());
    }
}

#[test]
fn a_session_gives_each_program_its_targets() {
    let module = need!("targets", target("server"), "gcc");
    let session = Session::new();
    let home = session.path().to_owned();
    let at = |name: &str| home.join(name).display().to_string();
    let log = gather(&home.join("log"));
    let mut server = start_server(&module);
    let pid = server.pid().to_string();
    let text = |point: &str, minor: u32| {
        format!(
            "name = \"{}\"\nmodtype = user\nmajor = 3\noffset = {point}\nminor = {minor}\npush r, rdi\nlog 1\nexit\n",
            module.display()
        )
    };
    let (one, two) =
        (session.program("one.rpn", &text("server_work", 1)), session.program("two.rpn", &text("main", 2)));
    let targets = format!("ltt:{},klog:{},ctf:{}", at("stream"), at("log"), at("trace"));
    session.done(&["insert", "-p", &pid, "--log-target", &targets, &one]);
    // Open targets are shared.
    session.done(&[
        "insert",
        "-p",
        &pid,
        "--merge",
        "--log-target",
        &format!("ltt:{},ctf:{}", at("stream"), at("trace")),
        &two,
    ]);
    assert_eq!(server.ask("call 200"), "done 200");
    session.done(&["session", "stop"]);
    let messages = log.join().expect("it gathers");
    assert_eq!(messages.len(), 400, "a header and a row each");
    let stream = std::fs::read(at("stream")).expect("it was written");
    let events: Vec<_> = trace::sink::ltt::Events::of(&stream).collect::<Result<_, _>>().expect("a stream");
    let created =
        events.iter().filter(|event| matches!(event, trace::sink::ltt::Event::Created { .. })).count();
    let destroyed =
        events.iter().filter(|event| matches!(event, trace::sink::ltt::Event::Destroyed(_))).count();
    assert_eq!((created, destroyed, events.len()), (2, 2, 204));
    let (shown, complaints) = need!("targets", babeltrace(Path::new(&at("trace"))), "babeltrace2");
    assert_eq!((shown.lines().count(), complaints.as_str()), (200, ""));
}

/// A session whose records go to a pipe that is open but never read, with a program in each of two
/// modules. Returns the session, the pipe, the number of records, and the log after the session was
/// stopped.
fn session_before_a_stuck_reader(modules: [&Path; 2], format: &str) -> (Session, File, usize, String) {
    let session = Session::new();
    let pipe = session.path().join("pipe");
    make_pipe(&pipe);
    // Opened for reading and writing, so that opening does not wait.
    let reader = File::options().read(true).write(true).open(&pipe).expect("it is there");
    let log = || std::fs::read_to_string(session.path().join("home/log")).expect("it is kept");
    let calls = 5000;
    let mut names = Vec::new();
    for (number, module) in modules.into_iter().enumerate() {
        let copy = session.path().join(format!("server{number}"));
        std::fs::copy(module, &copy).expect("room for a copy");
        let file = session.program(&format!("{number}.rpn"), &program(&copy));
        let to = format!("{format}{}", pipe.display());
        session.done(&["insert", "--lossless", "--log-target", &to, &file]);
        let mut server = start_server(&copy);
        let armed = format!("armed in {}", copy.display());
        let begin = Instant::now();
        while !log().contains(&armed) {
            assert!(begin.elapsed() < Duration::from_secs(60), "{}", log());
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(server.ask(&format!("call {calls}")), format!("done {calls}"));
        names.push(copy.display().to_string());
        assert!(server.end().0.success());
    }
    // A stream is given up after some seconds without a reader.
    let begin = Instant::now();
    while format == "ltt:" && !log().contains("it accepts no more data") {
        assert!(begin.elapsed() < Duration::from_secs(60), "{}", log());
        std::thread::sleep(Duration::from_millis(10));
    }
    // The other program still uses the pipe: nothing waits.
    let begin = Instant::now();
    session.done(&["remove", "--name", &names[0]]);
    assert!(!log().contains("it took no more records"), "{}", log());
    session.done(&["remove", "--name", &names[1]]);
    session.done(&["session", "stop"]);
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    let log = log();
    (session, reader, 2 * 2 * calls, log)
}

/// The lost records that a log tells of.
fn told_lost(log: &str) -> usize {
    let line = log.lines().find(|line| line.contains("could not be written")).expect("it is told");
    let words = line.split_whitespace().collect::<Vec<_>>();
    let number = words.windows(2).find(|words| words[1].starts_with("record")).expect("a number of records");
    number[0].parse().expect("a number")
}

#[test]
fn a_session_does_not_wait_for_ever_for_a_reader_that_has_stopped() {
    let module = need!("targets", target("server"), "gcc");
    let (session, mut reader, all, log) = session_before_a_stuck_reader([&module, &module], "file:");
    assert!(log.contains("it took no more records"), "{log}");
    // The records in the pipe and the lost ones are all there were.
    let writer = File::options().write(true).open(session.path().join("pipe")).expect("it is there");
    let read = std::thread::spawn(move || {
        let mut text = Vec::new();
        while !text.ends_with(b"the end") {
            let mut piece = [0; 4096];
            let count = reader.read(&mut piece).expect("it is a pipe");
            text.extend_from_slice(&piece[..count]);
        }
        String::from_utf8_lossy(&text).into_owned()
    });
    std::io::Write::write_all(&mut { writer }, b"the end").expect("it is read");
    let text = read.join().expect("it reads");
    // The last one may be incomplete; it does not count as written.
    let whole = text.lines().filter(|line| line.contains(" : ")).count();
    let written = all - told_lost(&log);
    assert!(written > 0 && written < all && (written..=written + 1).contains(&whole), "{written} {whole}");
}

/// A program whose records must not be lost waits for a reader that has stopped; but not for ever.
#[test]
fn a_lossless_program_of_a_session_goes_on_when_the_reader_of_its_file_has_stopped() {
    let program_under_test = need!("targets", target("server"), "gcc");
    let session = Session::new();
    let module = session.path().join("server");
    std::fs::copy(program_under_test, &module).expect("room for a copy");
    let pipe = session.path().join("pipe");
    make_pipe(&pipe);
    let _reader = File::options().read(true).write(true).open(&pipe).expect("it is there");
    let log = || std::fs::read_to_string(session.path().join("home/log")).expect("it is kept");
    let file = session.program("program.rpn", &program(&module));
    let to = format!("file:{}", pipe.display());
    session.done(&["insert", "--lossless", "--buffer=256K", "--log-target", &to, &file]);
    let mut server = start_server(&module);
    let begin = Instant::now();
    while !log().contains("armed in ") {
        assert!(begin.elapsed() < Duration::from_secs(60), "{}", log());
        std::thread::sleep(Duration::from_millis(10));
    }
    // More text than waits for the file: 32 MiB.
    assert_eq!(server.ask("call 400000"), "done 400000");
    assert!(log().contains("it took no more records"), "{}", log());
    // The session goes on, with other targets, too.
    session.done(&["remove", "--all"]);
    session.done(&["session", "stop"]);
    assert!(server.end().0.success());
}

#[test]
fn a_session_writes_on_when_the_reader_of_its_stream_has_stopped() {
    let module = need!("targets", target("server"), "gcc");
    let (_session, mut reader, all, log) = session_before_a_stuck_reader([&module, &module], "ltt:");
    assert!(log.contains("it accepts no more data; records are lost"), "{log}");
    let mut stream = vec![0; 1 << 20];
    // It is there: what was written waits in the pipe.
    let count = reader.read(&mut stream).expect("it is a pipe");
    let events = trace::sink::ltt::Events::of(&stream[..count]).map_while(Result::ok);
    let written = events.filter(|event| matches!(event, trace::sink::ltt::Event::Record(..))).count();
    assert!(written > 0 && written + told_lost(&log) == all, "{written} of {all}: {log}");
}

#[test]
fn a_pipe_that_nobody_reads_is_refused_by_a_session() {
    let program_under_test = need!("targets", target("server"), "gcc");
    let session = Session::new();
    let module = session.path().join("server");
    std::fs::copy(program_under_test, &module).expect("room for a copy");
    let file = session.program("program.rpn", &program(&module));
    let pipe = session.path().join("pipe");
    make_pipe(&pipe);
    let name = pipe.display().to_string();
    let reason = "nobody reads this pipe; start its reader first";
    for (target, told) in [(format!("file:{name}"), &name), (format!("ltt:{name}"), &format!("ltt:{name}"))] {
        let begin = Instant::now();
        let refused = session.fails(&["insert", "--log-target", &target, &file]);
        assert_eq!(refused, format!("dprobes: error: {told}: {reason}\n"));
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        assert_eq!(session.done(&["query", "--all"]), "", "the session goes on");
    }
    let _reader = File::options().read(true).write(true).open(&pipe).expect("it is there");
    session.done(&["insert", "-o", &name, &file]);
    session.done(&["session", "stop"]);
}

/// The summary and the statistics show what each target has written and lost; a loss is a warning,
/// and an error with `--strict`.
#[test]
fn the_losses_of_each_target_are_told() {
    let module = need!("targets", target("server"), "gcc");
    let scratch = Scratch::new();
    let at = format!("{}:server_work:entry", module.display());
    let traced = |calls: u64, targets: &str, strict: &[&str]| {
        let mut command = dprobes();
        command.args(["run", "--at", &at, "--do", "push r, rdi; log 1", "--log-target", targets]);
        command
            .args(["--stats", "stats"])
            .args(strict)
            .arg("--")
            .arg(&module)
            .args(["leaf", &calls.to_string()]);
        let (status, _, stderr) = run(command.current_dir(scratch.path()));
        let stats = std::fs::read_to_string(scratch.path().join("stats")).expect("they are written");
        let stats: serde_json::Value = serde_json::from_str(&stats).expect("it is JSON");
        (status.code(), stderr, stats)
    };
    let (status, stderr, stats) = traced(3000, "file:all,ltt:/dev/full", &[]);
    assert_eq!(status, Some(5), "{stderr}");
    for line in [
        "file:all: 3000 records written, 0 lost\n",
        "ltt:/dev/full: 0 records written, 3000 lost\n",
        "dprobes: warning: 3000 records lost by ltt:/dev/full\n",
    ] {
        assert!(stderr.contains(line), "{line}: {stderr}");
    }
    let targets = serde_json::json!([
        { "target": "file:all", "written": 3000, "lost": 0 },
        { "target": "ltt:/dev/full", "written": 0, "lost": 3000 },
    ]);
    assert_eq!(stats["targets"], targets);
    assert_eq!((&stats["probes"][0]["logged"], &stats["probes"][0]["dropped"]), (&3000.into(), &0.into()));
    let (status, stderr, _) = traced(3000, "file:all,ltt:/dev/full", &["--strict"]);
    assert_eq!(status, Some(125), "{stderr}");
    let (status, stderr, _) = traced(3000, "file:all", &["--strict"]);
    assert_eq!(status, Some(5), "{stderr}");
    // Its losses include what its queue had taken when the first write failed, and what was dropped
    // afterwards.
    let calls = 200_000;
    let (_, stderr, stats) = traced(calls, "ltt:/dev/full", &[]);
    assert_eq!(
        stats["targets"][0],
        serde_json::json!({ "target": "ltt:/dev/full", "written": 0, "lost": calls })
    );
    let count = |name: &str| stats["probes"][0][name].as_u64().expect("a count");
    assert!(count("dropped") > 0 && count("dropped") + count("logged") == calls, "{stderr}");
    let told = format!(" records dropped, {calls} records lost by ltt:/dev/full\n");
    assert!(stderr.contains(&told), "{stderr}");
}
