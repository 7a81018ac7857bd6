//! Targets of a session: each program has its own, and none holds up another.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{Session, calls_of_work, make_pipe, need, start_server, target};
use crate::targets::{babeltrace, gather};

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
        let file = session.program(&format!("{number}.rpn"), &calls_of_work(&copy));
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
    let file = session.program("program.rpn", &calls_of_work(&module));
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
    let file = session.program("program.rpn", &calls_of_work(&module));
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
