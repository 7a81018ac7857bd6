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
    Scratch, Stats, becomes_traced, calls_of_work, dprobes, find_program, need, run, start_server, target,
};

/// Calls of the probed function.
pub(super) const CALLS: usize = 300;

/// Runs the program under test with its probes and these options: what standard error has.
pub(super) fn traced(module: &Path, scratch: &Scratch, options: &[&str]) -> String {
    traced_for(CALLS, module, scratch, options)
}

/// The same, with so many calls.
pub(super) fn traced_for(calls: usize, module: &Path, scratch: &Scratch, options: &[&str]) -> String {
    let program = scratch.file("program.rpn", &calls_of_work(module));
    let mut command = dprobes();
    command.args(["run", "--log-format=klog"]).args(options).arg(program);
    command.arg("--").arg(module).args(["leaf", &calls.to_string()]);
    let (status, _, stderr) = run(command.current_dir(scratch.path()));
    assert_eq!(status.code(), Some(5), "{stderr}");
    stderr
}

/// The reader's end of a pseudo-terminal, and the path of the line.
pub(super) fn terminal() -> (File, PathBuf) {
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
pub(super) fn gather(path: &Path) -> std::thread::JoinHandle<Vec<Vec<u8>>> {
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
pub(super) fn babeltrace(trace: &Path) -> Option<(String, String)> {
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
    let (status, shown, _) =
        run(dprobes().args(["show", "--log-format=klog"]).arg(scratch.path().join("a.dpt")));
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
    let file = scratch.file("program.rpn", &calls_of_work(&module));
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
pub(super) fn written(trace: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = std::fs::read_dir(trace).expect("it was begun").flatten();
    files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.blocks() * 512).sum()
}

#[test]
fn a_trace_of_a_tracer_that_was_killed_is_read() {
    let module = need!("targets", target("server"), "gcc");
    need!("targets", find_program("babeltrace2"), "babeltrace2");
    let scratch = Scratch::new();
    let file = scratch.file("program.rpn", &calls_of_work(&module));
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
